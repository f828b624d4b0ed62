"""Capacity: encoders with planted features are judged as the theory says; the other measures
against brute force.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint.models.linear_bottleneck import measures
from mechint.studies import Runs, find_study, plan
from mechint.studies.capacity.language import left_out_r2
from mechint.studies.capacity.measures import kept, share_as_predicted
from mechint.training import Run

capacity = importlib.import_module("mechint.studies.capacity.regressions")
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
    order: Callable[[Run], torch.Tensor], arms: tuple[str, ...] = ("phase", "staircase")
) -> Runs:
    names = {f"{arm}-{width}": planted(width, order) for arm in arms for width in WIDTHS}
    return Runs(
        names,
        {
            name: {"arm": name.split("-")[0], "width": run.spec.model.width, "seed": 0}
            for name, run in names.items()
        },
    )


def utilities(run: Run) -> torch.Tensor:
    return run.spec.task.utilities


def frequencies(run: Run) -> torch.Tensor:
    return run.spec.task.priors[:, None].expand(-1, run.spec.task.rank)


def rarest_first(run: Run) -> torch.Tensor:
    return -run.spec.task.utilities


def test_order_of_utility_is_told_from_the_others() -> None:
    right = capacity._order(runs_of(utilities))
    assert right.values["shares"]["utility"] == 1.0
    assert right.holds == (
        max(right.values["shares"][name] for name in ("frequency", "spectrum")) < 0.8
    )
    wrong = capacity._order(runs_of(frequencies))
    assert not wrong.holds
    assert wrong.values["shares"]["frequency"] == 1.0


def test_critical_widths_and_threshold() -> None:
    assert capacity._critical(runs_of(utilities)).values["shares"] == {
        "phase": 1.0,
        "staircase": 1.0,
    }
    assert not capacity._critical(runs_of(frequencies)).holds
    assert capacity._residuals(runs_of(utilities)).holds
    early = capacity._residuals(runs_of(rarest_first))
    assert not early.holds
    assert early.values["above the threshold"] > 0


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


def test_retention_compares_widths_and_gaps() -> None:
    def runs(table: dict[tuple[int, int], float]) -> Runs:
        made, labels = {}, {}
        for (gap, width), features in table.items():
            run = planted(width, utilities)
            run.metrics[0]["test.features.3"] = features
            made[f"{gap}-{width}"], labels[f"{gap}-{width}"] = (
                run,
                {"arm": "retention", "gap": gap, "width": width, "seed": 0},
            )
        return Runs(made, labels)

    decays = {(1, 9): 2.0, (1, 13): 4.0, (16, 9): 0.0, (16, 13): 3.0, (64, 9): 0.0, (64, 13): 2.0}
    assert capacity._retained(runs(decays)).holds
    assert not capacity._retained(runs({key: 2.0 for key in decays})).holds
    assert not capacity._retained(runs({**decays, (64, 9): 3.0})).holds


@pytest.mark.parametrize("size", ["smoke", "laptop", "full"])
def test_arms_train_as_one_ensemble(size: str) -> None:
    from mechint.training.plan import shape_of

    planned = find_study("capacity").runs(size)
    assert len({one.name for one in planned}) == len(planned)
    for arm in ("phase", "staircase", "complexity"):
        assert len({shape_of(one.spec) for one in planned if one.labels["arm"] == arm}) == 1
    assert {one.labels["width"] for one in planned if one.labels["arm"] == "phase"} >= {
        min(capacity.BUDGETS[size].widths)
    }
