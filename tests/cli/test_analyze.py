"""``mechint analyze`` and ``mechint checkpoint`` on a checkpoint whose mechanism is known."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from click.testing import Result

import probes
from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.cli.analyze import sort_settings
from mechint.planted import composition
from tests.cli.conftest import Command, one_line


def data(result: Result) -> dict:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))


def test_json_holds_what_a_machine_needs_and_nothing_else(mechint: Command, planted: Path) -> None:
    found = data(mechint("analyze", planted, "--probe", "fourier", "--json"))
    assert list(found) == ["checkpoint", "results"]
    checkpoint = found["checkpoint"]
    assert (checkpoint["path"], checkpoint["format"]) == (str(planted), "mechint")
    assert (checkpoint["task"], checkpoint["step"]) == ("modular-arithmetic", 12)
    assert checkpoint["assumed"] == {} and checkpoint["accuracy"] == {"answer": 1.0}
    assert checkpoint["chance"]["answer"]["accuracy"] == pytest.approx(1 / 23)
    assert checkpoint["chance"]["answer"]["loss"] == pytest.approx(math.log(23))
    assert list(found["results"]) == ["fourier"]
    fourier = found["results"]["fourier"]
    assert list(fourier) == ["status", "finding", "findings", "metrics", "null", "tables"]
    assert fourier["status"] == "found" and fourier["findings"]
    assert fourier["finding"] == " ".join(one["sentence"] for one in fourier["findings"])
    assert {one["status"] for one in fourier["findings"]} <= {"found", "not found", "abstains"}
    assert fourier["metrics"]["logits.key_frequencies"] == [3, 7, 10]


def test_the_terminal_shows_finding_numbers_and_null(mechint: Command, planted: Path) -> None:
    result = mechint("analyze", planted, "--probe", "fourier")
    assert result.exit_code == 0
    for wanted in ("fourier", "3, 7 and 10", "logits.key_frequencies", "±"):
        assert wanted in result.stdout, wanted


def test_z_is_that_of_what_stands_in_the_row(mechint: Command, planted: Path) -> None:
    """The rank of an embedding is a whole number, and its null is of one between whole numbers."""
    number = r"(-?[\d.]+(?:e-?\d+)?)"
    pattern = rf"^(\S+) +{number} +{number} ± {number} +{number} "
    shown = mechint("analyze", planted, "--probe", "embedding").stdout
    rows = {name: map(float, row) for name, *row in re.findall(pattern, shown, re.MULTILINE)}
    assert "svd.rank_50" in rows
    for name, (observed, mean, spread, z) in rows.items():
        assert (observed - mean) / spread == pytest.approx(z, rel=0.02, abs=0.02), name


def test_a_report_is_written_and_the_same_again(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "new" / "a.html", tmp_path / "b.html"
    assert (
        f"report written to {first}"
        in mechint("analyze", planted, "--probe", "fourier", "--out", first).stderr
    )
    mechint("analyze", planted, "--probe", "fourier", "--out", second)
    assert first.read_bytes() == second.read_bytes()
    assert "3, 7 and 10" in first.read_text()


def test_quick_probes_run_when_none_is_named(
    mechint: Command, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.progress.EVERY", 1e9)  # progress of a loaded machine
    result = mechint("analyze", planted, "--json")
    assert {"fourier", "lens"} <= set(data(result)["results"])
    assert not result.stderr


def test_settings_reach_the_probe_and_the_task(mechint: Command, planted: Path) -> None:
    few = data(
        mechint("analyze", planted, "--probe", "lens", "--set", "lens.permutations=19", "--json")
    )
    assert few["results"]["lens"]["null"]["attribution.top"]["samples"] == 19
    named = mechint(
        "analyze",
        planted,
        "--task",
        "modular-arithmetic",
        "--set",
        "p=23",
        "--set",
        "operation=subtract",
        "--probe",
        "lens",
        "--json",
    )
    assert data(named)["results"]["lens"]["metrics"]["lens.final_accuracy"] < 0.1


def test_settings_are_sorted_by_their_owner() -> None:
    assert sort_settings(["p=7", "lens.permutations=20", "permutations=30"], None, ["lens"]) == (
        {"p": 7},
        {"lens": {"permutations": 30}, "model": {}},
    )
    assert sort_settings(["task.p=7", "model.act_fn=gelu"], "modular-arithmetic", ["lens"]) == (
        {"p": 7},
        {"lens": {}, "model": {"act_fn": "gelu"}},
    )


def test_a_probe_that_does_not_apply_does_not_lose_the_others(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    result = mechint(
        "analyze",
        planted,
        "--probe",
        "gradients",
        "--probe",
        "subspace",
        "--probe",
        "lens",
        "--json",
        "--out",
        tmp_path / "r.html",
    )
    assert result.exit_code == 2
    assert set(json.loads(result.stdout)["results"]) == {"gradients", "lens"}
    assert "mechint: probe subspace does not apply to" in result.stderr
    assert (tmp_path / "r.html").exists()


def test_info_and_convert(mechint: Command, planted: Path, tmp_path: Path) -> None:
    shown = mechint("checkpoint", "info", planted)
    assert "task.parameters.p" in shown.stdout and "weights" in shown.stdout
    other = tmp_path / "model.safetensors"
    assert mechint("checkpoint", "convert", planted, other).stdout == f"{other} (safetensors)\n"
    known = data(mechint("checkpoint", "info", other, "--json"))
    assert (known["format"], known["step"], known["task"]["parameters"]["p"]) == (
        "safetensors",
        12,
        23,
    )
    before, after = (
        load_checkpoint(planted).model.state_dict(),
        load_checkpoint(other).model.state_dict(),
    )
    assert all((before[name] == after[name]).all() for name in before)


def test_another_answer_is_asked_about(mechint: Command, tmp_path: Path) -> None:
    subject = composition(n=3, k=2, hops=(2,)).subject
    path = tmp_path / "ckpt.pt"
    save_checkpoint(
        path,
        config=subject.model.config,
        weights=subject.model.weights(),
        task=subject.task,
        step=0,
        metrics={},
    )
    asked = ("analyze", path, "--probe", "lens", "--set", "lens.permutations=19")
    page = tmp_path / "report.html"
    found = data(mechint(*asked, "--answer", "0", "--json", "--out", page))
    whole = probes.lens(load_checkpoint(path).subject(), answer=0, permutations=19)
    assert found["results"]["lens"]["metrics"] == whole.to_dict()["metrics"]
    assert "--answer 0 --out report.html" in page.read_text()
    table = mechint(*asked, "--answer", "all", "--csv", tmp_path / "all.csv")
    assert table.exit_code == 0 and "lens.lens.final_accuracy" in (tmp_path / "all.csv").read_text()
    assert "answer=7: " in one_line(mechint(*asked, "--answer", "7"))
    assert "--answer last: expected a number" in one_line(mechint(*asked, "--answer", "last"))
