"""Precision of students, shared batches, and losses that are checked late, as on a GPU."""

from __future__ import annotations

import pytest
import torch

import tasks
from mechint.training import spec, trainer
from mechint.training.learners import RegressionLearner
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

SMALL = {"d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 16}


@pytest.mark.parametrize("name", ["regression-mixture", "single-index"])
def test_students_train_in_float64(name):
    made = spec(tasks.make(name), {}, {"steps": 5, "precision": "float64"})
    trained = Ensemble([Run(made)], torch.device("cpu"))
    assert trained.advance().dtype == torch.float64


def test_a_batch_that_students_share_is_moved_once():
    """On another device than the CPU, here one without numbers."""
    task = tasks.make("regression-mixture", n=8, n_tasks=2, rank=2)
    made = spec(task, {"width": 4}, {"steps": 5, "precision": "float64"})
    there = RegressionLearner(3 * [made.model], 3 * [task], made.train, torch.device("meta"))
    moved = there.prepare(3 * [next(task.stream("train", 0, 16))])
    for tensor in (moved.tokens, moved.targets, moved.masks["task"]):
        assert tensor.stride(0) == 0 and len(tensor) == 3 and tensor.device.type == "meta"
    assert moved.tokens.dtype == torch.float64


def diverging(
    folder, monkeypatch, check_every: int, state_seconds: float
) -> tuple[Run, list[bool]]:
    """A run whose loss stops being finite, with its losses looked at every so many steps; and
    whether the weights were finite at each commit of a running state.
    """
    made = spec(
        tasks.make("modular-arithmetic", p=7),
        SMALL,
        {
            "steps": 60,
            "warmup": 0,
            "optimizer": "sgd",
            "lr": 1e30,
            "evaluate_every": 60,
            "checkpoints": None,  # at each the losses are looked at
        },
    )
    run, committed = Run(made), []
    trained = Ensemble([run], torch.device("cpu"))
    trained.check_every = check_every
    commit = trained.commit

    def recorded():
        committed.extend([bool(trained.parameters.values.isfinite().all())] * len(trained.runs))
        commit()

    monkeypatch.setattr(trained, "commit", recorded)
    monkeypatch.setattr(trainer, "STATE_SECONDS", state_seconds)
    trained.train()
    return run, committed


def test_where_a_run_diverged_is_said_only_when_it_was_looked_at_in_time(tmp_path, monkeypatch):
    soon, _ = diverging(tmp_path / "a", monkeypatch, 1, 1e9)
    late, _ = diverging(tmp_path / "b", monkeypatch, 50, 1e9)
    assert soon.status == late.status == "failed" and soon.step == late.step < 49
    assert "not finite, first in " in soon.error
    assert "not finite; try a smaller lr" in late.error


def test_weights_that_are_not_finite_are_never_committed_to_go_on_from(tmp_path, monkeypatch):
    often, committed = diverging(tmp_path, monkeypatch, 50, -1.0)
    assert often.status == "failed" and committed and all(committed)
