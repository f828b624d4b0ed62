"""Emergence: the measures find what is planted in made-up curves, and refuse curves without it."""

from __future__ import annotations

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from mechint.studies import Runs, find_study, plan
from mechint.training import Run

emergence = importlib.import_module("mechint.studies.emergence.runs")
measured = importlib.import_module("mechint.studies.emergence.measures")


def made_up(
    beta: float, exponent: float, seed: int = 0, scale: float = 20.0, sharpness: float = 12.0
) -> Run:
    """A run whose directions emerge at scale · p^exponent, as logistic curves, and whose loss is
    what they leave.
    """
    task = {"d": 64, "n_directions": 40, "beta": beta}
    steps = int(4 * scale * 40**exponent)
    model, train = (
        {"width": 120, "init_norm": 1e-3},
        {"steps": steps, "batch_size": None, "lr": 0.2, "evaluate_every": max(1, steps // 2000)},
    )
    run = Run(plan("x", "single-index", task, model, train, seed=seed).spec)
    at = np.arange(0, steps + 1, run.spec.train.evaluate_every)
    times = scale * np.arange(1, 41) ** exponent
    aligned = 1 / (1 + np.exp(-sharpness * (at[:, None] / times - 1)))
    losses = ((1 - aligned) ** 2) @ run.spec.task.amplitudes.square().numpy()
    run.metrics = [
        {
            "step": int(step),
            "test.loss": float(loss),
            **{f"test.alignment.{p}": float(value) for p, value in enumerate(row)},
        }
        for step, loss, row in zip(at, losses, aligned, strict=True)
    ]
    run.status = "finished"
    return run


def runs_of(*runs: Run) -> Runs:
    labels = {
        str(i): {"arm": "mixture", "beta": run.spec.task.beta, "seed": i}
        for i, run in enumerate(runs)
    }
    return Runs({str(i): run for i, run in enumerate(runs)}, labels)


def test_planted_exponent_is_found_and_another_one_is_not_taken_for_it() -> None:
    right = emergence._times(runs_of(made_up(1.0, 1.0), made_up(1.0, 1.0, seed=1)))
    assert right.holds
    assert right.values["exponents"][1.0] == pytest.approx([1.0, 1.0], abs=0.01)
    wrong = emergence._times(runs_of(made_up(1.0, 1.3)))
    assert not wrong.holds
    assert wrong.values["exponents"][1.0] == pytest.approx([1.3], abs=0.01)


def test_gradual_rise_is_not_sharp() -> None:
    assert not emergence._times(runs_of(made_up(1.0, 1.0, sharpness=2.5))).holds


def test_loss_is_the_sum_of_the_transitions() -> None:
    run = made_up(1.0, 1.0)
    assert emergence._additive(runs_of(run)).holds
    for row in run.metrics:
        row["test.loss"] *= 2
    assert not emergence._additive(runs_of(run)).holds


def test_loss_slope_needs_the_tail() -> None:
    found = emergence._slopes(runs_of(made_up(0.75, 0.75)))
    assert found.values["exponents"][0.75][0] == pytest.approx(-2 / 3, abs=0.06)
    assert found.values["without the tail"][0.75][0] < found.values["exponents"][0.75][0] - 0.05


def test_fitted_directions_follow_from_the_prediction_and_not_from_the_run() -> None:
    run = made_up(1.0, 1.0)
    expected = (
        run.spec.task.emergence_times(run.spec.train.lr, 1e-3, 120) * measured.SAFETY
        <= run.spec.train.steps
    )
    assert measured.fitted(run).tolist() == list(range(1, int(torch.count_nonzero(expected))))
    for row in run.metrics:
        row["test.alignment.5"] = 0.0
    assert not emergence._times(runs_of(run)).holds  # a fitted direction that was never learned


def test_sizes_are_whole() -> None:
    study = find_study("emergence")
    for size in ("smoke", "laptop", "full"):
        planned = study.runs(size)
        assert len({one.name for one in planned}) == len(planned)
        longest = [one for one in planned if one.labels["arm"] == "mixture"]
        assert all(len(measured.fitted(Run(one.spec))) >= 3 for one in longest)
    widths = {
        dataclasses.replace(one.spec.model, width=1)
        for one in study.runs("laptop")
        if one.labels["arm"] == "floor"
    }
    assert len(widths) == 1  # all widths train as one ensemble
