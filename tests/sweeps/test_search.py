"""Searches: their spaces, their trials, what a kill leaves, and the command."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from click.testing import CliRunner

import mechint
import probes
from mechint.cli import main
from mechint.errors import MechintError, ParameterError, RunError, UnknownNameError
from mechint.run_table import Entry, Measurement
from mechint.sweeps import keep_probes
from mechint.sweeps.search import Space, SweepSearch, keep_search, read_search, run_search, trials
from tests.sweeps.conftest import SMALL, TASK

pytest.importorskip("optuna")
SETTINGS = tuple("checkpoints=last" if text == "checkpoints=none" else text for text in SMALL)
GIVEN = [word for text in SETTINGS for word in ("--set", text)]
SPACES = (Space.parse("lr=1e-3..1e-1:log"), Space.parse("d_mlp=8..9"))


def search_in(out: Path, **more: Any) -> SweepSearch:
    search = SweepSearch(TASK, SETTINGS, SPACES, at_once=2, **more)
    keep_search(search, out)
    return search


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [{name: row[name] for name in ("id", "parameters", "value")} for row in trials(out)]


@pytest.mark.parametrize(
    ("text", "space"),
    [
        ("lr=1e-4..1e-2:log", Space("lr", 1e-4, 1e-2, log=True)),
        ("lr=0.5..1.5", Space("lr", 0.5, 1.5)),
        ("x=-2..3", Space("x", -2, 3, whole=True)),
        ("n=1..64:log", Space("n", 1, 64, log=True, whole=True)),
        ("optimizer=adamw,muon", Space("optimizer", choices=("adamw", "muon"))),
        ("x=none,1", Space("x", choices=(None, 1))),
    ],
)
def test_spaces(text: str, space: Space) -> None:
    assert Space.parse(text) == space


@pytest.mark.parametrize(
    "text",
    ["lr", "=1..2", "lr=", "lr=2..1", "lr=0..1:log", "lr=a..b", "lr=1", "lr=1,1", "lr=1..inf"],
)
def test_what_is_no_space(text: str) -> None:
    with pytest.raises(ParameterError, match="--search"):
        Space.parse(text)


def test_names_and_ends_are_checked_before_anything_trains() -> None:
    with pytest.raises(UnknownNameError, match="unknown parameter 'lrr'"):
        SweepSearch(TASK, SETTINGS, (Space.parse("lrr=1..2"),))
    with pytest.raises(ParameterError, match="n_heads"):
        SweepSearch(TASK, SETTINGS, (Space.parse("n_heads=0..2"),))


@pytest.mark.full
def test_trials_lie_in_their_spaces_and_their_value_is_the_mean_over_the_runs(
    tmp_path: Path,
) -> None:
    out = tmp_path / "s"
    search_in(out, over={"seed": [0, 1]}, objective="test.loss", minimize=True)
    found = [row for rows in run_search(out, 5) for row in rows]
    assert [row["id"] for row in found] == [f"trial={n:04d}" for n in range(5)]
    assert len({row["parameters"]["lr"] for row in found}) == 5
    for row in found:
        assert 1e-3 <= row["parameters"]["lr"] <= 1e-1 and row["parameters"]["d_mlp"] in (8, 9)
        metrics = sorted((out / row["id"]).glob("seed=*/metrics.jsonl"))
        last = [json.loads(file.read_text().splitlines()[-1]) for file in metrics]
        assert len(last) == 2
        assert row["value"] == pytest.approx(fmean(one["test.loss"] for one in last))
        config = json.loads((metrics[0].parent / "config.json").read_text())
        assert config["train"]["lr"] == row["parameters"]["lr"]
    assert list(run_search(out, 5)) == [], "it has as many trials as were asked for"


@pytest.mark.full
def test_a_search_that_is_cut_off_asks_for_the_same_trials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut off after the first batch, in the second's training, and while its values are told."""
    import optuna

    from mechint import training

    search_in(tmp_path / "whole")
    list(run_search(tmp_path / "whole", 6))
    out, train_many = tmp_path / "cut", training.train_many
    search_in(out)
    going = run_search(out, 6)
    next(going)
    going.close()

    def stopped(*args: Any, **kwargs: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "train_many", stopped)
    with pytest.raises(KeyboardInterrupt):
        list(run_search(out, 6))
    assert [row["value"] is None for row in trials(out)] == [False, False, True, True]
    monkeypatch.setattr(training, "train_many", train_many)
    tell, told = optuna.study.Study.tell, []

    def tell_once(study: Any, number: int, *args: Any, **kwargs: Any) -> Any:
        if told:
            raise KeyboardInterrupt
        told.append(number)
        return tell(study, number, *args, **kwargs)

    monkeypatch.setattr(optuna.study.Study, "tell", tell_once)
    with pytest.raises(KeyboardInterrupt):
        list(run_search(out, 6))
    assert told == [2]
    monkeypatch.setattr(optuna.study.Study, "tell", tell)
    list(run_search(out, 6))
    assert rows_of(out) == rows_of(tmp_path / "whole")


@pytest.mark.full
def test_a_failed_trial_has_no_value_and_the_search_goes_on(tmp_path: Path) -> None:
    settings = (*SETTINGS, "optimizer=sgd", "warmup=0")
    search = SweepSearch(
        TASK, settings, (Space.parse("lr=1e-3,1e30"),), sampler="random", at_once=4
    )
    keep_search(search, tmp_path / "s")
    found = [row for rows in run_search(tmp_path / "s", 6) for row in rows]
    values = {row["parameters"]["lr"]: row["value"] for row in found}
    assert values[1e30] is None and math.isfinite(values[1e-3])


@pytest.mark.full
def test_a_probe_s_number_is_sought(tmp_path: Path) -> None:
    search_in(tmp_path / "s", objective="progress.weights.sum_of_squares", sampler="random")
    (rows,) = run_search(tmp_path / "s", 2)
    assert all(row["value"] > 0 for row in rows)
    search_in(tmp_path / "t", objective="test.acuracy")
    with pytest.raises(ParameterError, match=r"--objective test\.acuracy: no run has it; expected"):
        list(run_search(tmp_path / "t", 1))


@pytest.mark.full
def test_a_probe_is_asked_with_the_settings_that_it_was_given(tmp_path: Path) -> None:
    out = tmp_path / "s"
    search_in(out, objective="fourier.embedding.threshold", sampler="random")
    keep_probes(out, {"fourier": {"factor": 3.0}})
    (rows,) = run_search(out, 2)
    for row in rows:
        found = probes.fourier(mechint.load(out / row["id"] / "ckpt.pt"), factor=3.0)
        assert row["value"] == pytest.approx(found.metrics["embedding.threshold"])


@pytest.mark.full
def test_a_trial_without_the_number_fails_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a probe gives a number only for what it finds."""

    def measured(entry: Entry, asked: Measurement) -> tuple[dict[str, Any], dict[str, Any]]:
        found = {"norms.found": 0.0}
        return found if entry.path.name == "trial=0001" else found | {"norms.last": 1.0}, {}

    monkeypatch.setattr("mechint.sweeps.search.measure", measured)
    search_in(tmp_path / "s", objective="norms.last", sampler="random")
    rows = [row for batch in run_search(tmp_path / "s", 4) for row in batch]
    assert [row["value"] for row in rows] == [1.0, None, 1.0, 1.0]
    assert [row["status"] for row in rows] == ["finished", "failed", "finished", "finished"]
    search_in(tmp_path / "t", objective="norms.nope", sampler="random")
    with pytest.raises(ParameterError, match=r"norms\.nope: no run has it; .*norms\.last"):
        list(run_search(tmp_path / "t", 4))
    assert [row["status"] for row in trials(tmp_path / "t")] == ["failed", "failed"]


@pytest.mark.full
@pytest.mark.parametrize(
    ("objective", "options", "minimize"),
    [
        ("test.loss", [], True),
        ("test.loss", ["--maximize"], False),
        ("fourier.embedding.threshold", [], False),
        ("progress.restricted_loss.test", ["--minimize"], True),
        ("progress.restricted_loss.test", [], None),
    ],
)
def test_which_end_of_an_objective_is_the_best(
    objective: str, options: list[str], minimize: bool | None, tmp_path: Path
) -> None:
    asked = ["sweep", TASK, *GIVEN, "--search", "lr=1e-3..1e-1", "--out", str(tmp_path / "s")]
    line = [*asked, "--objective", objective, "--trials", "1", *options]
    result = CliRunner().invoke(main, line)
    if minimize is None:
        assert result.exit_code == 2 and "say --minimize or --maximize" in result.stderr
        return
    assert json.loads((tmp_path / "s" / "search.json").read_text())["minimize"] == minimize
    assert f"best of 1: trial=0000, {'least' if minimize else 'largest'} " in result.stderr


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    search_in(tmp_path / "s")
    with pytest.raises(RunError, match="holds another search"):
        search_in(tmp_path / "s", objective="test.loss")
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "thing").touch()
    with pytest.raises(RunError, match="holds something else"):
        search_in(tmp_path / "x")
    (tmp_path / "s" / "search.json").write_text("{}")
    with pytest.raises(RunError, match="holds no search"):
        trials(tmp_path / "s")


@pytest.mark.full
def test_the_command(tmp_path: Path) -> None:
    out = tmp_path / "s"
    settings = [*GIVEN, "--set", "betas=[0.9, 0.98]"]
    first = ["sweep", TASK, *settings, "--search", "lr=1e-3..1e-1:log", "--trials", "2"]
    run = CliRunner().invoke
    done = run(main, [*first, "--objective", "test.loss", "--out", str(out)])
    assert done.exit_code == 0, done.output
    lines = [line for line in done.stdout.splitlines() if line.startswith("trial=")]
    assert len(lines) == 2 and "test.loss" in lines[0]
    values = {row["id"]: row["value"] for row in trials(out)}
    best = min(values, key=lambda name: values[name])
    assert f"best of 2: {best}" in done.stderr and "--set lr=" in done.stderr
    command = shlex.split(done.stderr.splitlines()[-1].partition("mechint train ")[2])
    assert command[: 1 + len(settings)] == [TASK, *settings]  # as a shell hands it on
    again = run(main, ["sweep", str(out), "--resume"])
    assert again.exit_code == 0 and len(trials(out)) == read_search(out).trials == 2
    more = run(main, ["sweep", str(out), "--trials", "3"])
    assert more.exit_code == 0 and "best of 3" in more.stderr and read_search(out).trials == 3
    shown = run(main, ["sweep", str(out), "--json"])
    assert len(json.loads(shown.stdout)) == 3
    table = run(main, ["table", str(out), "--json"])
    assert len(json.loads(table.stdout)["rows"]) == 3
    for wrong, text in (
        (["--search", "lr=1..2", "--over", "lr=1,2"], "is given twice"),
        (["--search", "lr=1..2", "--executor", "ray"], "--executor: a search trains its trials"),
        (["--search", "lr=1..2", "--dry-run"], "--dry-run: a search trains its trials here"),
    ):
        refused = run(main, ["sweep", TASK, *wrong, "--out", str(tmp_path / "n")])
        assert refused.exit_code == 2 and text in refused.stderr
        assert not (tmp_path / "n").exists()


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + b"\0" * 5000])
def test_a_damaged_study_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    search_in(tmp_path / "s")
    trials(tmp_path / "s")
    (tmp_path / "s" / "search.db").write_bytes(content)
    if content:  # an empty file is a new database
        with pytest.raises(RunError, match=r"search\.db: damaged \(.*; delete it and the search"):
            trials(tmp_path / "s")
    else:
        assert trials(tmp_path / "s") == []


@pytest.mark.parametrize(
    ("field", "value"), [("at_once", 0), ("trials", -1), ("seed", -1), ("seed", "x")]
)
def test_a_damaged_search_is_refused_in_one_line(tmp_path: Path, field: str, value: object) -> None:
    search_in(tmp_path / "s")
    said = json.loads((tmp_path / "s" / "search.json").read_text())
    (tmp_path / "s" / "search.json").write_text(json.dumps({**said, field: value}))
    with pytest.raises(MechintError):
        trials(tmp_path / "s")


def test_without_optuna_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "optuna", None)
    search_in(tmp_path / "s")
    with pytest.raises(RunError, match=r"pip install optuna"):
        list(run_search(tmp_path / "s", 1))


def test_a_wrong_objective_is_refused_before_anything_is_trained_or_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.training.train_many", lambda *_, **__: pytest.fail("trained"))
    asked = ["sweep", TASK, *GIVEN, "--search", "lr=1e-3..1e-1", "--out", str(tmp_path / "s")]
    for name in ("accuracy", "norm.found"):
        refused = CliRunner().invoke(main, [*asked, "--objective", name])
        assert refused.exit_code == 2 and f"--objective {name}: expected PROBE" in refused.stderr
        assert not (tmp_path / "s").exists()


def test_a_search_lies_in_its_own_directory_whatever_its_name_holds(tmp_path: Path) -> None:
    names = ["lr?a", "lr?b", "lr?mode=memory", "lr#1", "50%", "lr%3Fa", "{SCHEMA_VERSION}", "größe"]
    for name in names:
        search_in(tmp_path / name)
        assert trials(tmp_path / name) == []
    ((trial,),) = run_search(tmp_path / "lr?a", 1)
    assert [rows_of(tmp_path / name) for name in names[1:]] == [[]] * (len(names) - 1)
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    (tmp_path / "lr?a").rename(tmp_path / "moved")
    assert trials(tmp_path / "moved") == [trial]
