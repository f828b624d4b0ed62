"""Capacity: encoders with planted features are judged as the theory says; the other measures
against brute force.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint.models.linear_bottleneck import measures
from mechint.probe import run as run_probe
from mechint.run_table.entries import Entry
from mechint.studies import Runs, find_study, plan
from mechint.studies.capacity import claims_loss, language_measures
from mechint.studies.capacity.language_measures import Measures, left_out_r2
from mechint.studies.capacity.measures import kept, share_as_predicted
from mechint.studies.capacity.runs import BUDGETS
from mechint.training import Run, train_many
from tests.studies.planted_outcomes import judge

TASK = {"n": 16, "n_tasks": 4, "rank": 4, "alpha": 1.0, "beta": 0.7}
WIDTHS = (1, 2, 3, 5, 7, 9, 11, 13, 15, 16)


def planted(width: int, order: Callable[[Run], torch.Tensor]) -> Run:
    """A run whose encoder holds the `width` features of largest `order` (task, feature)."""
    run = Run(
        plan(
            "x",
            "regression-mixture",
            TASK,
            {"width": width, "columns": 16},
            {"steps": 1, "batch_size": None},
        ).spec
    )
    chosen = order(run).flatten().argsort(descending=True, stable=True)[:width]
    encoder = torch.zeros(16, 16, dtype=torch.float64)
    encoder[:, :width] = run.spec.task.bases.flatten(0, 1)[chosen].T
    run.weights, run.status = {"W_enc": encoder}, "finished"
    run.metrics = [
        {
            "step": 1,
            **{
                f"test.{name}": float(value)
                for name, value in measures(run.weights, run.spec.task).items()
            },
        }
    ]
    return run


def runs_of(
    order: Callable[[Run], torch.Tensor],
    arms: tuple[str, ...] = ("phase", "staircase", "complexity"),
    seeds: int = 3,
) -> Runs:
    made, labels = {}, {}
    for arm in arms:
        for width in WIDTHS:
            for seed in range(seeds):
                name = f"{arm}-{width}-{seed}"
                made[name] = planted(width, order)
                labels[name] = {"arm": arm, "width": width, "seed": seed}
    return Runs(made, labels)


def verdict(letter: str, runs: Runs) -> str:
    return judge("capacity", letter, Measures(runs)).verdict


def utilities(run: Run) -> torch.Tensor:
    return run.spec.task.utilities


def frequencies(run: Run) -> torch.Tensor:
    return run.spec.task.priors[:, None].expand(-1, run.spec.task.rank)


def rarest_first(run: Run) -> torch.Tensor:
    return -run.spec.task.utilities


@pytest.mark.parametrize("letter", ["a", "b", "c", "f"])
def test_planted_features(letter: str) -> None:
    """Encoders that hold the features of largest utility, those of another order, and too few."""
    wrong = rarest_first if letter == "c" else frequencies
    assert verdict(letter, runs_of(utilities)) == "reproduced"
    assert verdict(letter, runs_of(wrong)) == "not reproduced"
    assert verdict(letter, runs_of(utilities, seeds=2)) == "underpowered"
    unfilled = runs_of(utilities)
    for run in unfilled.values():
        run.metrics[0] |= {f"test.features.{t}": 0.0 for t in range(1, 4)}
    assert verdict(letter, unfilled) == "underpowered"  # the control: width left over


@given(st.integers(0, 32), st.floats(0.1, 2), st.floats(0.1, 2))
def test_kept_is_the_task_s_own_rule(width: int, alpha: float, beta: float) -> None:
    task = plan(
        "x", "regression-mixture", {"n": 32, "n_tasks": 8, "rank": 4, "alpha": alpha, "beta": beta}
    ).spec.task
    assert kept(task, width, task.utilities.numpy()).tolist() == task.retained_features(width)


def test_share_counts_cells_within_half_a_feature() -> None:
    run = planted(5, utilities)
    assert share_as_predicted([run]) == 1.0
    run.metrics[0]["test.features.0"] += 0.6
    assert share_as_predicted([run]) == pytest.approx(0.75)


@given(st.integers(0, 1000))
def test_left_out_r2_is_that_of_fits_without_the_example(seed: int) -> None:
    generator = np.random.default_rng(seed)
    x = np.concatenate([generator.standard_normal((12, 3)), np.ones((12, 1))], 1)
    y = generator.standard_normal(12)
    errors = []
    for i in range(12):
        rest = np.arange(12) != i
        weights, *_ = np.linalg.lstsq(x[rest], y[rest], rcond=None)
        errors.append(y[i] - x[i] @ weights)
    assert left_out_r2(x, y) == pytest.approx(
        1 - np.sum(np.square(errors)) / np.sum((y - y.mean()) ** 2), abs=1e-6
    )


def retention(table: dict[tuple[int, int], float], seeds: int = 3) -> Runs:
    """(gap, width) → features of the rarest task held."""
    made, labels = {}, {}
    for (gap, width), features in table.items():
        for seed in range(seeds):
            run = planted(width, utilities)
            run.metrics[0]["test.features.3"] = features + 0.01 * seed
            name = f"{gap}-{width}-{seed}"
            made[name] = run
            labels[name] = {"arm": "retention", "gap": gap, "width": width, "seed": seed}
    return Runs(made, labels)


DECAYS = {(1, 9): 2.0, (1, 13): 4.0, (16, 9): 0.0, (16, 13): 3.0, (64, 9): 0.0, (64, 13): 2.0}


def test_retention_compares_widths_and_gaps() -> None:
    assert verdict("d", retention(DECAYS)) == "reproduced"
    assert verdict("d", retention(dict.fromkeys(DECAYS, 2.0))) == "not reproduced"
    assert verdict("d", retention({**DECAYS, (64, 9): 3.0})) == "not reproduced"
    assert verdict("d", retention(DECAYS, seeds=2)) == "underpowered"
    assert verdict("d", retention(dict.fromkeys(DECAYS, 0.0))) == "underpowered"  # the control


def data(longer: float, seeds: int = 3, wide: float = 1.0) -> Runs:
    """Loss 2 and `wide` at widths 8 and 16, `longer` at width 8 with ten times the data."""
    losses = {(1, 8): 2.0, (1, 16): wide, (10, 8): longer, (10, 16): 0.9}
    made, labels = {}, {}
    for (factor, width), loss in losses.items():
        for seed in range(seeds):
            name, run = f"{factor}-{width}-{seed}", planted(5, utilities)
            run.metrics[0]["test.loss"] = loss
            made[name] = run
            labels[name] = {"arm": "data", "factor": factor, "width": width, "seed": seed}
    return Runs(made, labels)


def test_ten_times_the_data() -> None:
    assert verdict("e", data(1.9)) == "reproduced"
    assert verdict("e", data(0.8)) == "not reproduced"
    assert verdict("e", data(1.9, seeds=2)) == "underpowered"
    assert verdict("e", data(1.9, wide=2.1)) == "underpowered"  # the control: no gap to close


# --- language models, whose measures are given ----------------------------------------------------
class Given(Measures):
    """Language models of two widths and frequencies; each measure is a function of both."""

    def __init__(self, seeds: int, **measures: Callable[[int, float], Any]) -> None:
        labels, runs = {}, {}
        for width in (8, 32):
            for frequency in (0.12, 0.03):
                for seed in range(seeds):
                    name = f"{width}-{frequency}-{seed}"
                    labels[name] = {
                        "arm": "language",
                        "width": width,
                        "frequency": frequency,
                        "gap": 1,
                        "seed": seed,
                    }
                    runs[name] = planted(5, utilities)
        super().__init__(Runs(runs, labels))
        for measure, of in measures.items():
            setattr(self, measure, self._of(of))

    def _of(self, of: Callable[[int, float], Any]) -> Callable[..., Any]:
        def measure(name: str, *_: str) -> Any:
            own = self.runs.labels[name]
            value, jitter = of(own["width"], own["frequency"]), 0.002 * own["seed"]
            return value + jitter if isinstance(value, float) else value

        return measure


def accurate(narrow_rare: float, wide: float = 0.95) -> Callable[[int, float], float]:
    return lambda width, frequency: narrow_rare if (width, frequency) == (8, 0.03) else wide


@pytest.mark.parametrize(
    ("measure", "seeds", "expected"),
    [
        (accurate(0.6), 4, "reproduced"),
        (accurate(0.94), 4, "not reproduced"),
        (accurate(0.5, 0.6), 4, "underpowered"),  # the control: nothing is learned where frequent
        (accurate(0.6), 2, "underpowered"),
    ],
)
def test_rarer_tasks(measure: Callable[[int, float], float], seeds: int, expected: str) -> None:
    assert judge("capacity", "g", Given(seeds, accuracy=measure)).verdict == expected


@pytest.mark.parametrize(
    ("narrow", "wide", "seeds", "expected"),
    [
        (-0.5, 0.8, 4, "reproduced"),
        (0.8, 0.8, 4, "not reproduced"),
        (-0.9, -0.5, 4, "underpowered"),
        (-0.5, 0.8, 2, "underpowered"),
    ],
)
def test_features_of_the_order(narrow: float, wide: float, seeds: int, expected: str) -> None:
    study = Given(seeds, order_r2=lambda width, frequency: narrow if width == 8 else wide)
    study.site = lambda operand: "hook_embed"  # type: ignore[method-assign]
    study.learned = study.names  # type: ignore[method-assign]
    assert judge("capacity", "h", study).verdict == expected


@pytest.mark.parametrize(
    ("narrow", "wide", "signed", "seeds", "expected"),
    [
        (3.3, 1.1, 0.3, 4, "reproduced"),
        (1.1, 3.3, 0.3, 4, "not reproduced"),
        (3.3, 1.1, -0.3, 4, "not reproduced"),
        (3.3, 1.1, 0.3, 2, "underpowered"),
    ],
)
def test_interference(narrow: float, wide: float, signed: float, seeds: int, expected: str) -> None:
    def cosines(width: int, frequency: float) -> dict[str, float]:
        size = narrow if width == 8 else wide
        return {"background": size, "raw": size / 10, "signed": signed}

    study = Given(seeds, cosines=cosines, accuracy=accurate(0.6))
    assert judge("capacity", "i", study).verdict == expected


def test_interference_is_compared_where_both_models_were_still_learning() -> None:
    def cosines(width: int, frequency: float) -> dict[str, float]:
        if (width, frequency) == (32, 0.12):
            return {}  # learned before its first checkpoint
        size = {(8, 0.12): 9.0, (8, 0.03): 3.0, (32, 0.03): 1.0}[width, frequency]
        return {"background": size, "raw": 0.1, "signed": 0.3}

    found = judge("capacity", "i", Given(4, cosines=cosines, accuracy=accurate(0.6)))
    assert found.verdict == "reproduced"
    assert found.parts[0]["shown"].startswith("0.333")  # without the frequent condition
    assert "on 4 pairs" in found.ours


def test_checkpoints_while_learning_lie_before_the_task_is_learned() -> None:
    study = Given(1)
    (name, *_) = study.names()
    run = study.runs[name]
    run.metrics = [
        {"step": step, "test.greedy.accuracy.task": at}
        for step, at in ((0, 0.5), (10, 0.6), (20, 0.95), (30, 0.85), (40, 0.97))
    ]
    run.subject = lambda: SimpleNamespace(series=dict.fromkeys((0, 8, 16, 24, 40)))  # type: ignore[method-assign,assignment,return-value]
    assert study.while_learning(name) == [8, 16]


@pytest.mark.parametrize(
    ("iia", "swap", "models", "expected"),
    [
        (0.97, 0.99, 4, "reproduced"),
        (0.6, 0.99, 4, "not reproduced"),
        (0.6, 0.51, 4, "underpowered"),  # the control: not even the whole activation does it
        (0.97, 0.99, 2, "underpowered"),
    ],
)
def test_alignment(iia: float, swap: float, models: int, expected: str) -> None:
    found = {"iia": iia, "full swap": swap, "p": 0.01, "hook": "blocks.0.hook_resid_pre"}
    study = Given(4, interchange=lambda width, frequency: found)
    study.learned = lambda: list(study.runs)[:models]  # type: ignore[method-assign]
    assert judge("capacity", "j", study).verdict == expected


@pytest.mark.parametrize("letter", ["h", "j"])
def test_where_no_model_learned_the_task_the_control_failed(letter: str) -> None:
    study = Given(4, accuracy=accurate(0.5, 0.6))
    claim = judge("capacity", letter, study)
    assert claim.verdict == "underpowered" and claim.n == 0
    assert claim.control is not None and claim.control["outcome"] == "missed"
    unfinished = judge("capacity", letter, Measures(Runs({}, {})))
    assert unfinished.verdict == "not tested at this size"


def test_interchanges_are_searched_once_and_kept(tmp_path: Path, monkeypatch: Any) -> None:
    """The search's figures stand under the claim's names, and a second look runs no probe."""
    planned = find_study("capacity").runs("smoke")[-1]
    (run,) = train_many([dataclasses.replace(planned.spec, out=tmp_path / "run")])
    for name, value in {"steps": 2, "pairs": 32, "held_out": 16, "only_correct": False}.items():
        monkeypatch.setitem(language_measures.SEARCH, name, value)
    first, second = (
        Measures(Runs({"run": run}, {"run": {"arm": "language", "seed": 0}})) for _ in range(2)
    )
    for study in (first, second):
        monkeypatch.setattr(study, "learned", lambda: ["run"])
    found = first.interchange("run", "rank of a")
    direct = run_probe("das", run.subject(), variable="rank of a", **language_measures.SEARCH)
    assert found == {
        "iia": direct.metrics["iia"],
        "full swap": direct.metrics["iia_full_swap"],
        "p": direct.null["iia"].p_value,
        "hook": direct.metrics["hook"],
    }
    monkeypatch.setattr(Entry, "subject", None)  # opening a model would fail
    assert second.interchange("run", "rank of a") == found


def curves(
    accuracy: Callable[[int, float], float], step: Callable[[int], float], seeds: int
) -> Given:
    """Language models with equal losses, an accuracy there, and the step at which they learn."""
    study = Given(seeds)
    for name, labels in study.runs.labels.items():
        value = accuracy(labels["width"], labels["frequency"]) + 0.002 * labels["seed"]
        study.runs[name].metrics = [
            {"step": 10, "test.loss": 1.0, "test.greedy.accuracy.task": value},
            {
                "step": step(labels["width"]) + labels["seed"],
                "test.loss": 0.5 if labels["width"] == 32 else 1.0,
                "test.greedy.accuracy.task": 0.95,
            },
        ]
    return study


@pytest.mark.parametrize(
    ("accuracy", "seeds", "expected"),
    [
        (lambda width, frequency: 0.8 if frequency > 0.1 or width == 32 else 0.5, 4, "reproduced"),
        (lambda width, frequency: 0.8, 4, "not reproduced"),
        (lambda width, frequency: 0.8 if width == 32 else 0.5, 4, "not reproduced"),
        (
            lambda width, frequency: 0.8 if frequency > 0.1 or width == 32 else 0.5,
            2,
            "underpowered",
        ),
    ],
)
def test_equal_loss(accuracy: Callable[[int, float], float], seeds: int, expected: str) -> None:
    study = curves(accuracy, lambda width: 20, seeds)
    assert judge("capacity", "k", study, "full").verdict == expected


@pytest.mark.parametrize(
    ("steps", "seeds", "expected"),
    [
        ({8: 4000, 32: 200}, 4, "reproduced"),
        ({8: 200, 32: 4000}, 4, "not reproduced"),
        ({8: 4000, 32: 200}, 2, "underpowered"),
        ({8: math.inf, 32: 200}, 4, "underpowered"),  # one width gets there, with no other to hold
    ],
)
def test_compute(
    steps: dict[int, float], seeds: int, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = curves(lambda width, frequency: 0.5, steps.__getitem__, seeds)
    monkeypatch.setattr(claims_loss, "compute_to_learn", lambda run: 6.0 * run.metrics[-1]["step"])
    assert judge("capacity", "l", study, "full").verdict == expected


@pytest.mark.parametrize("size", ["smoke", "laptop", "full"])
def test_arms_train_as_one_ensemble(size: str) -> None:
    from mechint.training.plan import shape_of

    planned = find_study("capacity").runs(size)
    assert len({one.name for one in planned}) == len(planned)
    for arm in ("phase", "staircase", "complexity"):
        assert len({shape_of(one.spec) for one in planned if one.labels["arm"] == arm}) == 1
    assert {one.labels["width"] for one in planned if one.labels["arm"] == "phase"} >= {
        min(BUDGETS[size].widths)
    }
