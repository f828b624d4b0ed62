"""``mechint train`` and ``mechint demo``: a run directory, a resumed run, and the tour from nothing
to a report.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from mechint import demo
from mechint.account import Account
from mechint.account.account import analyze
from mechint.checkpoints.content import read_plain
from mechint.training.trainer import Ensemble
from tests.cli.conftest import Command

SMALL = [
    part
    for text in ("p=7", "d_model=16", "n_heads=2", "steps=6", "evaluate_every=3")
    for part in ("--set", text)
]


def test_a_run_and_its_words(
    mechint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.system.progress.EVERY", 0)
    out = tmp_path / "run"
    result = mechint("train", "modular-arithmetic", *SMALL, "--out", out)
    assert result.exit_code == 0
    assert result.stdout.startswith(f"{out}  finished  train ")
    assert "training modular-arithmetic: 6 of 6 (train " in result.stderr
    assert (out / "ckpt.pt").exists()
    info = json.loads(mechint("checkpoint", "info", out, "--json").stdout)
    assert (info["step"], info["task"]["parameters"]["p"], info["model"]["d_model"]) == (6, 7, 16)


def test_a_run_holds_what_training_wrote(mechint: Command, tmp_path: Path) -> None:
    out = tmp_path / "run"
    mechint("train", "modular-arithmetic", *SMALL, "--out", out)
    before = {file: file.read_bytes() for file in out.rglob("*") if file.is_file()}
    assert mechint("analyze", out, "--probe", "lens").exit_code == 0
    assert mechint("explain", out).exit_code == 0
    assert {file: file.read_bytes() for file in out.rglob("*") if file.is_file()} == before
    assert mechint("train", "modular-arithmetic", *SMALL, "--out", out, "--resume").exit_code == 0


def test_seeds_train_together(mechint: Command, tmp_path: Path) -> None:
    train = ("train", "modular-arithmetic", *SMALL, "--json", "--out")
    rows = json.loads(mechint(*train, tmp_path / "many", "--seeds", "1:3").stdout)
    assert [Path(row["path"]).name for row in rows] == ["seed-0001", "seed-0002"]
    assert rows[0]["metrics"] != rows[1]["metrics"]
    (alone,) = json.loads(mechint(*train, tmp_path / "alone", "--set", "train.seed=2").stdout)
    expected = rows[1]["metrics"]["test.loss"]
    assert alone["metrics"]["test.loss"] == pytest.approx(expected, rel=1e-4)


def test_the_default_place_depends_on_the_settings(
    mechint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for settings in ([], ["--set", "d_mlp=8"]):
        assert mechint("train", "modular-arithmetic", *SMALL, *settings).exit_code == 0
    assert len(list((tmp_path / "runs").glob("modular-arithmetic-*/ckpt.pt"))) == 2


@pytest.fixture
def small_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(demo, "PARAMETERS", {"p": 7})
    monkeypatch.setattr(demo, "TRAIN", {**demo.TRAIN, "steps": 20})
    monkeypatch.setattr("mechint.system.progress.EVERY", 0)


@pytest.mark.usefixtures("small_demo")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_in_its_training_says_nothing_of_the_model(
    mechint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(demo, "report_demo", lambda *_, **__: pytest.fail("it was analyzed"))
    evaluate = Ensemble._evaluate_and_retire

    def press(ensemble: Ensemble) -> None:
        evaluate(ensemble)
        signal.raise_signal(number)

    with monkeypatch.context() as patch:
        patch.setattr(Ensemble, "_evaluate_and_retire", press)
        stopped = mechint("demo")
    assert stopped.exit_code == 130 and stopped.stdout == ""
    account = Account("Addition mod 7", "", "It is trained.")
    monkeypatch.setattr(demo, "report_demo", lambda *_, **__: account)
    assert "IT IS TRAINED." in mechint("demo").stdout
    assert read_plain(tmp_path / "runs" / "demo" / "ckpt.pt")["step"] == 20


@pytest.mark.full
@pytest.mark.usefixtures("small_demo")
def test_the_demo_from_nothing_to_a_report(mechint: Command, tmp_path: Path) -> None:
    result = mechint("demo")
    assert result.exit_code == 0, result.output
    assert f"report: {tmp_path / 'report.html'}" in result.stdout
    assert "addition mod 59" in result.stderr
    assert "Plotly" in (tmp_path / "report.html").read_text()
    assert mechint("demo").exit_code == 0, "a finished tour is analyzed again"


@pytest.mark.slow
def test_the_model_of_the_demo_adds_as_a_clock(tmp_path: Path) -> None:
    demo.train_demo(tmp_path / "run")
    found = analyze(tmp_path / "run", "clock-pizza").results["clock-pizza"]
    assert found.metrics["mechanism"] == "clock"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_says_so(
    mechint: Command, planted: Path, monkeypatch: pytest.MonkeyPatch, number: int, status: int
) -> None:
    """Also one that keeps nothing; what handles the signal otherwise does so again afterwards."""

    def press(*_: object, **__: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr("mechint.probes._norms.probe.Norms.measure", press)
    before = signal.getsignal(signal.SIGTERM)
    stopped = mechint("analyze", planted, "--probe", "norms")
    assert (stopped.exit_code, stopped.stdout) == (status, "") and "stopped" in stopped.stderr
    assert signal.getsignal(signal.SIGTERM) is before


def test_another_corpus_under_the_same_name_is_said(mechint: Command, tmp_path: Path) -> None:
    path, run = tmp_path / "good.npy", str(tmp_path / "run")
    np.save(path, np.arange(2000) % 11)
    small = ["task.n_ctx=8", "d_model=8", "n_heads=1", "d_mlp=8", "n_layers=1", "steps=2"]
    settings = [part for one in (f"path={path}", *small) for part in ("--set", one)]
    assert mechint("train", "corpus", *settings, "--out", run).exit_code == 0
    command = ("analyze", run, "--probe", "norms", "--set", "norms.null_models=19")
    assert "another file" not in mechint(*command).output
    np.save(path, np.full(2000, 7))
    changed = mechint(*command)
    assert f"{path}isanotherfilenowthanwhen" in "".join(changed.output.split())
