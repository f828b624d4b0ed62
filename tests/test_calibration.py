"""The calibration table: its arithmetic on a probe whose outcome is known, and what is written."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from mechint.calibration import calibrate, engine, trials
from mechint.calibration.table import markdown, write
from mechint.cli import main
from mechint.decide.evidence import clopper_pearson
from mechint.errors import NotApplicableError, ParameterError, RunError, UnknownNameError
from mechint.planted import Calibration, Trial, library, trained
from mechint.probe.results import Table
from mechint.registry import PROBES
from tests.training.conftest import after_another


def trial(**changes: Any) -> Trial:
    """A trial whose error is written down: the k-th plant is off by k."""
    misses = iter(range(100))
    settings: dict[str, Any] = {
        "mechanism": "bottleneck",
        "plant": library.bottleneck,
        "controls": {"even seeds": lambda seed: library.bottleneck(0.0, seed).subject},
        "error": lambda result, plant: float(next(misses)),
        "estimate": "count",
        "tolerance": 1.0,
        "settings": {"samples": 19},
        "detects": lambda result: result.provenance["probe"]["seed"] % 2 == 0,
    }
    return Trial(**{**settings, **changes})


def rows(chosen: Trial, size: engine.Size) -> list[dict[str, Any]]:
    return list(engine.run_trial("subspace", chosen, size))


def test_shares_and_errors_are_counted() -> None:
    plants, controls = rows(trial(), engine.Size((0.1,), 5, 4))
    assert (plants["runs"], plants["detected"], plants["noise"]) == (5, 3 / 5, 0.1)
    assert (plants["error"], plants["worst_error"], plants["wrong"]) == (2.0, 4.0, 3 / 5)
    assert (controls["runs"], controls["detected"], controls["error"]) == (4, 0.5, None)
    assert controls["low"] < 0.5 < controls["high"]


def test_the_hard_cases_are_what_they_say() -> None:
    """A soft head attends less than half to its key, harmonics are twice a key, and a memorizing
    model has fitted answers that no rule gives.
    """
    soft = library.soft_induction(0.0, 0)
    layer, head = soft.truth["heads"]["induction"]
    pattern = soft.subject.activation(f"blocks.{layer}.attn.hook_pattern")[:, head]
    length = pattern.shape[-1] // 2
    followed = pattern[:, range(length, 2 * length - 1), range(1, length)]
    assert 0.5 < float(followed.mean()) < 0.9 and soft.subject.accuracy()["next"] == 1.0
    k, second = library.harmonics(0.0, 3).truth["frequencies"]
    assert second == 2 * k
    assert trained.memorizing(0).accuracy()["answer"] > 0.99


def test_a_half_trained_model_is_judged_by_what_it_needs() -> None:
    """Half of the answers of addition are right, by a frequency that is there already: to name it
    is not counted, to name one that the model does not need is.
    """
    subject = trained.half_trained(0)
    assert 0.5 <= subject.accuracy()["answer"] < 0.7
    assert trained.half_memorized(0).task.to_dict()["labels"] == "shuffled"  # type: ignore[union-attr]
    rises = [trained.loss_without(subject, k) - trained.loss_without(subject, 0) for k in range(6)]
    needed, useless = int(np.argmax(rises)), 1 + int(np.argmin(rises[1:]))
    assert rises[0] == 0 and rises[needed] > 1
    count = trained.not_needed(lambda result: result)  # type: ignore[arg-type, return-value]
    assert [count([needed], subject), count([needed, useless], subject), count([], subject)] == [
        0,
        1,
        0,
    ]

    claims = iter((0.0, 2.0, 0.0, 0.0))
    chosen = trial(
        controls={},
        half_trained=lambda seed: library.bottleneck(0.0, seed).subject,
        false_claims=lambda result, one: next(claims),
    )
    (row,) = rows(chosen, engine.Size((), 4, 0))
    assert (row["subject"], row["runs"], row["detected"]) == ("half-trained: bottleneck", 4, 0.5)
    assert (row["wrong"], row["noise"], row["estimate"]) == (1 / 4, None, trials.FALSE_CLAIMS)


def refuse(self: Any, subject: Any, *, seed: int = 0) -> Any:
    raise NotApplicableError("no")


def test_a_refusal_is_a_miss_on_a_plant_and_no_evidence_on_a_control(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PROBES["subspace"], "run", refuse)
    plants, controls = rows(trial(), engine.Size((0.0,), 2, 2))
    assert (plants["detected"], plants["refused"], plants["wrong"]) == (0, 2, 1)
    assert plants["error"] == math.inf and plants["high"] < 1
    assert (controls["runs"], controls["refused"]) == (2, 2)
    assert controls["detected"] is controls["low"] is controls["high"] is None
    columns = {name: [plants[name], controls[name]] for name in trials.COLUMNS}
    text = markdown(Table(columns, ""), "command", {})
    assert "| control: even seeds | – | 2 | 2 | 0 | – |" in text
    assert "0 of 1 plants" in text and "0 of 0 controls" in text, "a refused control tests nothing"


def test_refusals_are_left_out_of_the_rate_and_abstentions_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of five controls one is refused, one abstains and one is detected: one of four."""
    run = PROBES["subspace"].run

    def some(self: Any, subject: Any, *, seed: int = 0) -> Any:
        if seed == 0:
            refuse(self, subject)
        result = run(self, subject, seed=seed)
        verdict = "unclear" if seed == 1 else "no"
        findings = [dataclasses.replace(one, verdict=verdict) for one in result.findings]
        return dataclasses.replace(result, findings=findings)

    monkeypatch.setattr(PROBES["subspace"], "run", some)
    detects = lambda result: result.provenance["probe"]["seed"] == 3  # noqa: E731
    (row,) = rows(trial(detects=detects), engine.Size((), 0, 5))
    assert (row["runs"], row["refused"], row["abstained"], row["detected"]) == (5, 1, 1, 1 / 4)
    assert (row["low"], row["high"]) == clopper_pearson(1, 4)


def test_a_trial_that_cannot_be_built_or_judged_is_an_error() -> None:
    """A control that is misspelled was never asked about, and must not count as silent."""
    from mechint.planted.assembly import make_task

    controls: Any = {"bad": lambda seed: make_task("modular-arithmetic", labelz="shuffled")}
    with pytest.raises(UnknownNameError, match="labelz"):
        rows(trial(controls=controls), engine.Size((), 0, 2))
    with pytest.raises(KeyError, match="typo"):
        rows(trial(error=lambda result, plant: result.metrics["typo"]), engine.Size((0.0,), 1, 0))


def test_an_estimate_that_is_no_number_is_wrong() -> None:
    """Whatever the order that the numbers come in."""
    for misses in ([math.nan, 0.0, 0.0], [0.0, math.nan, 0.0], [0.0, 0.0, math.nan]):
        left = iter(misses)
        chosen = trial(error=lambda result, plant, left=left: next(left))
        plants, _ = rows(chosen, engine.Size((0.0,), 3, 1))
        assert (plants["wrong"], plants["error"], plants["worst_error"]) == (1 / 3, 0.0, math.inf)


def test_the_clock_refuses_shuffled_labels_so_that_they_are_no_control_of_it() -> None:
    subject = library.shuffled("modular-arithmetic", p=11)["shuffled labels"](0)
    one = trial(controls={"shuffled labels": lambda seed: subject}, settings={"triples": 64})
    (row,) = engine.run_trial("clock-pizza", one, engine.Size((), 0, 1))
    assert (row["refused"], row["detected"], row["high"]) == (1, None, None)
    for one in PROBES["clock-pizza"].calibration().trials:
        probe = PROBES["clock-pizza"].from_dict(dict(one.settings))
        assert all(probe.applicable(build(0)) is None for build in one.controls.values())


def test_controls_are_dealt_to_all_kinds() -> None:
    plant = library.bottleneck(0.0, 0)
    chosen = trial(controls={name: lambda seed: plant.subject for name in ("a", "b", "c")})
    found = rows(chosen, engine.Size((), 0, 7))
    assert [row["runs"] for row in found] == [3, 3, 3]


def test_the_table_is_written_and_other_probes_stay(tmp_path: Path) -> None:
    table = calibrate(["subspace"], "smoke", tmp_path)
    assert set(table.columns["probe"]) == {"subspace"}
    calibrate(["gradients"], "smoke", tmp_path)
    data = json.loads((tmp_path / "calibration.json").read_text())
    assert data["command"] == f"mechint calibrate --size smoke --out {tmp_path.name}"
    assert list(dict.fromkeys(data["columns"]["probe"])) == ["gradients", "subspace"]
    assert "gradients" in (tmp_path / "calibration.svg").read_text()
    text = (tmp_path / "calibration.md").read_text()
    assert text.count("\n| subspace |") == 3 and "| planted bottleneck |" in text
    (tmp_path / "calibration.json").write_text("{}")
    with pytest.raises(RunError, match="is not a calibration table"):
        calibrate(["subspace"], "smoke", tmp_path)


def test_two_that_write_at_once_keep_the_rows_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = next(engine.run_trial("subspace", trial(), engine.Size((0.1,), 1, 1)))

    def add(probe: str) -> None:
        table = Table({name: [value] for name, value in {**row, "probe": probe}.items()}, "", {})
        write(table, "smoke", {"plants": 1}, tmp_path, {})

    monkeypatch.setattr("mechint.calibration.table.locked", after_another(lambda: add("norms")))
    add("subspace")
    columns = json.loads((tmp_path / "calibration.json").read_text())["columns"]
    assert columns["probe"] == ["norms", "subspace"]


def test_the_command_prints_its_rows_as_json(tmp_path: Path) -> None:
    command = ["calibrate", "subspace", "--out", str(tmp_path / "kept"), "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    columns = json.loads((tmp_path / "kept" / "calibration.json").read_text())["columns"]
    assert {name: [row[name] for row in rows] for name in columns} == columns
    assert [list(row) for row in rows] == [list(trials.COLUMNS)] * len(rows) != []


def test_what_is_measured_stays_where_the_next_probe_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure = engine._of_probe

    def stopped(name: str, *rest: Any) -> Any:
        if name == "norms":
            raise KeyboardInterrupt
        return measure(name, *rest)

    monkeypatch.setattr(engine, "_of_probe", stopped)
    with pytest.raises(KeyboardInterrupt):
        calibrate(["subspace", "norms"], "smoke", tmp_path)
    columns = json.loads((tmp_path / "calibration.json").read_text())["columns"]
    assert set(columns["probe"]) == {"subspace"} and len(columns["runs"]) == 3


def test_another_ones_files_are_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_of_probe", lambda *_: pytest.fail("measured before it looked"))
    for name in ("calibration.md", "calibration.json"):
        (tmp_path / name).write_text('{"a": 1}')
        with pytest.raises(RunError, match=f"{name} is not a calibration table; move it away"):
            calibrate(["subspace"], "smoke", tmp_path)


def test_a_probe_without_trials_is_passed_over_and_said_where_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plug-in may have none, or a plant without controls; neither stops the others."""
    chosen = {name: PROBES[name] for name in ("norms", "subspace")}
    monkeypatch.setattr(engine, "PROBES", chosen)
    monkeypatch.setattr(chosen["norms"], "calibration", Calibration)
    with pytest.raises(ParameterError, match=r"norms has no calibration\(\)"):
        calibrate(["subspace", "norms"], out=tmp_path)
    bare = Calibration((trial(controls={}, error=lambda result, plant: 0.0),))
    monkeypatch.setattr(chosen["subspace"], "calibration", lambda: bare)
    assert engine.n_models(tuple(chosen), "smoke") == 1
    assert calibrate(out=tmp_path).columns["subject"] == ["planted bottleneck"]
    columns = json.loads((tmp_path / "calibration.json").read_text())["columns"]
    assert columns["probe"] == ["subspace"]


def test_bad_requests_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'fourier'"):
        calibrate(["furier"])
    with pytest.raises(ParameterError, match="size='huge'"):
        calibrate(["fourier"], "huge")
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file: it is a file, expected a directory"):
        calibrate(["subspace"], "smoke", tmp_path / "file")


SILENT = {"llc"}
"""Probes whose error is all of the truth where they say nothing: what is missed is wrong, too."""


def hits(row: dict[str, Any]) -> float:
    """The number of controls of a row that are taken for a plant."""
    return row["detected"] * (row["runs"] - (row["refused"] or 0))


def test_the_table_in_the_documentation_meets_the_target() -> None:
    """Power at least 0.99 without noise, at most 0.01 false positives over at least 200 controls,
    planted truth recovered, and on half-trained models hardly a claim that is not so.
    """
    data = json.loads(
        (Path(__file__).parents[1] / "docs" / "generated" / "calibration.json").read_text(
            encoding="utf-8"
        )
    )
    found = [
        dict(zip(data["columns"], row, strict=True))
        for row in zip(*data["columns"].values(), strict=True)
    ]
    names = {row["probe"] for row in found}
    assert names == set(PROBES.names()) == set(data["settings"])
    rows = {(row["probe"], row["subject"]) for row in found}
    for name in names:
        for trial in PROBES[name].calibration().trials:
            assert {(name, f"control: {kind}") for kind in trial.controls} <= rows
    for row in found:
        assert row["detected"] is not None, f"every run is refused: {row}"
        if row["noise"] == 0:
            silent = 1 - row["detected"] if row["probe"] in SILENT else 0
            assert row["wrong"] == pytest.approx(silent), row
            assert row["detected"] >= 0.99, row
        if row["subject"].startswith("half-trained"):
            assert row["runs"] >= 100 and row["wrong"] <= 0.01, row
    for name in names:
        controls = [
            row for row in found if row["probe"] == name and row["subject"].startswith("control")
        ]
        runs = sum(row["runs"] - (row["refused"] or 0) for row in controls)
        assert runs >= 200 and sum(hits(row) for row in controls) / runs <= 0.01, name
    half = {row["probe"] for row in found if row["subject"].startswith("half-trained")}
    trials = {name: PROBES[name].calibration().trials for name in PROBES.names()}
    assert half == {name for name in trials if any(one.half_trained for one in trials[name])}
