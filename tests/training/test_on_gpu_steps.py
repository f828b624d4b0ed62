"""Losses that are checked late, as on a GPU."""

from __future__ import annotations

import torch

import tasks
from mechint.training import spec, trainer
from mechint.training.run import Run
from mechint.training.trainer import Ensemble

SMALL = {"d_model": 8, "n_heads": 1, "d_head": 8, "d_mlp": 16}


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
