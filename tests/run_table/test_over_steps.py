"""Tables over steps: when things emerge, which comes first, transitions, and the page with its axis
of steps and its figures behind a slider.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mechint
import tasks
from mechint.errors import DataError, UnknownNameError
from mechint.report import render
from mechint.run_table.dynamics import emergence_times
from mechint.run_table.page import page_of_table, spaced_logarithmically
from mechint.run_table.table import Entry


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("over") / "run"
    task = tasks.make("modular-arithmetic", p=7)
    model = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
    kept = {"steps": 40, "evaluate_every": 5, "checkpoints": "linear", "n_checkpoints": 4}
    mechint.train(task, model, {**kept, "lr": 1e-2}, seeds=(0,), out=out)
    return out


def test_the_page_of_a_run(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mechint.runs(run).over_steps().probe("embedding", permutations=9).with_figures()
    rows = table.rows()
    shown = table.figures_of("embedding")
    assert len(rows) == len(shown) == 5 and all(shown)
    page = page_of_table(rows, "run", figures={"embedding": shown})
    dynamics = page.figures["dynamics"]
    assert [frame["name"] for frame in dynamics.spec["frames"]] == ["0", "10", "20", "30", "40"]
    curves = [trace for trace in dynamics.spec["data"] if trace["name"] == "train"]
    assert len(curves[0]["x"]) == 9, "every evaluation, between the checkpoints too"
    section = next(section for section in page.sections if section.title == "embedding")
    assert set(section.figures) == set(shown[0])
    assert page.sections[0].tables["models"].columns["step"] == [0, 10, 20, 30, 40]
    assert render(page, light=True).count('"frames":') == 1 + len(section.figures)
    monkeypatch.setattr(Entry, "subject", lambda entry: pytest.fail("opened again"))
    assert table.rows() == rows, "a table is measured once"


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose evaluations are of steps 0, 10, 20 … alone, with checkpoints at other ones."""
    out = tmp_path_factory.mktemp("thin") / "run"
    task = tasks.make("modular-arithmetic", p=7)
    model = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
    mechint.train(task, model, {"steps": 40, "evaluate_every": 10, "lr": 1e-2}, out=out)
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    tens = [line for line in lines if json.loads(line)["step"] % 10 == 0]
    assert len(tens) < len(lines)
    (out / "metrics.jsonl").write_text("".join(tens))
    status = json.loads((out / "status.json").read_text())
    (out / "status.json").write_text(json.dumps(status | {"metrics_bytes": len("".join(tens))}))
    return out


def test_a_run_is_answered_by_the_step_at_which_it_learns(tmp_path: Path) -> None:
    """Between steps 10 and 20 the line through .2 and .7 is at one half at 16."""
    curve = ((0, 0.0), (10, 0.2), (20, 0.7))
    rows = [{"path": str(tmp_path), "step": s, "test.accuracy": value} for s, value in curve]
    answer = "Test accuracy first reaches one half at step 16, and ends at 70%."
    assert page_of_table(rows, "run").verdict == answer
    flat = [{**row, "path": str(tmp_path / "b"), "test.accuracy": 0.1} for row in rows]
    assert "one half in 1 of 2 runs at step 16" in page_of_table([*rows, *flat], "runs").verdict
    assert "does not reach one half" in page_of_table(flat, "run").verdict
    assert not page_of_table([{"path": "a", "step": s} for s in (0, 9)], "run").verdict


def test_a_row_has_the_metrics_of_its_own_step_alone(thin: Path, tmp_path: Path) -> None:
    table = mechint.runs(thin).over_steps()
    rows = table.rows()
    between = [row for row in rows if row["step"] % 10]
    metrics = set(json.loads((thin / "metrics.jsonl").read_text().splitlines()[0])) - {"step"}
    assert len(between) > 5 and not any(metrics & set(row) for row in between)
    for row in rows:
        if row["step"] % 10 == 0:
            file = thin / "checkpoints" / f"step-{row['step']:08d}.pt"
            subject, test = mechint.load(file), tasks.make("modular-arithmetic", p=7).split(0)
            logits, targets = subject.logits()[test["test"]], subject.targets[test["test"]]
            right = subject.accuracy(logits, targets)["answer"]
            assert row["test.accuracy"] == pytest.approx(right)
    cells = table.frame()["test.loss"]
    assert cells.isna().tolist() == [bool(row["step"] % 10) for row in rows]
    assert table.csv(tmp_path / "t.csv").read_text().count("\n") == 1 + len(rows)


def test_the_last_state_of_a_run_that_stopped_early_is_a_row(tmp_path: Path) -> None:
    task, out = tasks.make("modular-arithmetic", p=7), tmp_path / "run"
    train = {"steps": 1000, "evaluate_every": 10, "checkpoints": "linear", "n_checkpoints": 4}
    early = {"stop_patience": 2, "stop_after": 30, "stop_delta": 1e9}
    mechint.train(task, {"d_model": 16, "n_heads": 2}, {**train, **early}, out=out)
    rows = mechint.runs(out).over_steps().rows()
    kept = [int(file.stem.removeprefix("step-")) for file in (out / "checkpoints").iterdir()]
    stopped = json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])
    assert [row["step"] for row in rows] == [*sorted(kept), stopped["step"]] == [0, stopped["step"]]
    assert rows[-1]["train.loss"] == stopped["train.loss"]


def test_training_metrics_are_timed_by_the_evaluations(thin: Path) -> None:
    """The step of a crossing is that of a line through the evaluations, not through the rows."""
    lines = (thin / "metrics.jsonl").read_text().splitlines()
    kept = list(map(json.loads, lines))
    steps, losses = [row["step"] for row in kept], [row["train.loss"] for row in kept]
    level = (losses[1] + losses[2]) / 2
    assert losses[0] > losses[1] > level > losses[2]
    rows = [row | {"probe.x": float(row["step"])} for row in mechint.runs(thin).over_steps().rows()]
    (time,) = emergence_times(rows, "train.loss", level, falling=True)
    assert time.step == pytest.approx(15) and time.last == 40
    (time,) = emergence_times(rows, "probe.x", 7.0)
    assert time.step == pytest.approx(7), "a probe's column is that of the checkpoints"
    early = [row for row in rows if row["step"] < 20]
    (time,) = emergence_times(early, "train.loss", level, falling=True)
    assert math.isinf(time.step) and time.last == 10, "nothing is read beyond its last row"
    shown = mechint.runs(thin).over_steps().figure(x="step", y="train.loss")
    (trace,) = shown.spec["data"]
    assert trace["x"] == steps and np.allclose(trace["y"], losses, rtol=1e-4)
    assert "–" in render(page_of_table(rows, "run"))


def test_steps_that_double_are_drawn_on_a_logarithmic_axis() -> None:
    assert spaced_logarithmically([0, 1, 2, 4, 9, 100]) and not spaced_logarithmically([5])


# --- on rows made by hand -------------------------------------------------------------------------
def curve(path: str, at: float, steps: range = range(0, 101, 10)) -> list[dict]:
    """A logistic curve that passes one half at step `at`."""
    return [
        {"path": path, "step": step, "x": 1 / (1 + math.exp(-(step - at) / 4))} for step in steps
    ]


@given(st.floats(5, 95))
def test_a_logistic_emerges_where_it_was_put(at: float) -> None:
    (time,) = emergence_times(curve("a", at), "x")
    assert abs(time.step - at) <= 5, "half of the distance between two rows"
    (falling,) = emergence_times(
        [{**r, "x": 1 - r["x"]} for r in curve("a", at)], "x", falling=True
    )
    assert falling.step == pytest.approx(time.step)


def test_what_never_passes_is_censored() -> None:
    times = emergence_times([*curve("a", 40), *curve("b", 400)], "x")
    assert [math.isinf(time.step) for time in times] == [False, True]
    assert times[1].last == 100
    assert emergence_times([{"path": "a", "step": 3, "x": 1.0}], "x")[0].step == 3


def test_a_level_that_is_reached_and_kept_is_passed() -> None:
    rows = [{"path": "a", "step": step, "x": min(step, 2) / 4} for step in range(5)]
    assert emergence_times(rows, "x", 0.5)[0].step == 2
    falls = [row | {"x": -row["x"]} for row in rows]
    assert emergence_times(falls, "x", -0.5, falling=True)[0].step == 2


def test_unknown_columns_are_named() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'x'"):
        emergence_times(curve("a", 3), "xx")
    with pytest.raises(DataError, match="no row over steps holds a number"):
        emergence_times([{"path": "a", "x": 1.0}], "x")
