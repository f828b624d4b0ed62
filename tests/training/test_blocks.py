"""An ensemble in blocks: cut by the plan alone, the mathematics of the whole, and the same bits
on one core as on several.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import tasks
from mechint.training import blocks, spec, train_many
from mechint.training.run import Run, Spec
from mechint.training.schedule import Progress
from mechint.training.trainer import Ensemble

ADDITION = tasks.make("modular-arithmetic", p=7, train_fraction=0.6)
LISTOPS = tasks.make("listops")
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 32}
TRAIN = {"steps": 30, "evaluate_every": 10, "checkpoints": None, "lr": 1e-2}


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ensembles are cut however small they are."""
    monkeypatch.setattr(blocks, "LEAST", 0)


def ensemble(models: int, task=ADDITION, model=SMALL, **train: Any) -> Ensemble:
    """Models of their own seeds, data and rates."""
    runs = [
        Run(spec(task, model, {**TRAIN, "lr": 1e-2 / (seed + 1), **train}, seed=seed))
        for seed in range(models)
    ]
    return Ensemble(runs, [None] * models, torch.device("cpu"))


def advanced(subject: Ensemble, steps: int = 5) -> torch.Tensor:
    """Its parameters (model, parameter) after some steps."""
    for _ in range(steps):
        subject.advance()
    return subject.parameters.values.clone()


@given(st.integers(1, 200), st.integers(1, 1 << 32))
def test_every_model_is_in_one_block_in_order(models: int, model_bytes: int) -> None:
    cut = blocks.cut(models, model_bytes)
    sizes = [len(range(models)[block]) for block in cut]
    assert [i for block in cut for i in range(models)[block]] == list(range(models))
    assert min(sizes) > 0
    assert max(sizes) - min(sizes) <= 1
    assert len(cut) == (2 if models > 1 and models * model_bytes >= blocks.LEAST else 1)


TRAININGS = [
    {},
    {"optimizer": "muon", "clip": 0.5},
    {"optimizer": "sgd", "momentum": 0.9, "weight_decay": 0.1},
    {"grokfast": "ema", "orthogonal_grad": True},
    {"grokfast": "ma", "grokfast_window": 3},
    {"batch_size": 8, "loss": "stablemax"},
]


@pytest.mark.parametrize("train", TRAININGS)
def test_blocks_descend_as_the_whole_does(train, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "LEAST", 1 << 60)
    whole = ensemble(5, precision="float64", **train)
    monkeypatch.setattr(blocks, "LEAST", 0)
    halves = ensemble(5, precision="float64", **train)
    assert [len(each.blocks) for each in (whole, halves)] == [1, 2]
    assert torch.allclose(advanced(halves), advanced(whole), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("task", [ADDITION, LISTOPS], ids=lambda task: task.name)
def test_the_metrics_of_halves_are_those_of_the_whole(task, monkeypatch) -> None:
    def metrics(least: int) -> list[list[dict[str, float]]]:
        monkeypatch.setattr(blocks, "LEAST", least)
        train = {**TRAIN, "steps": 4, "evaluate_every": 2, "eval_examples": 20, "batch_size": 8}
        train |= {"precision": "float64"}
        return [
            run.metrics for run in train_many([spec(task, SMALL, train, seed=s) for s in range(3)])
        ]

    for ours, theirs in zip(metrics(0), metrics(1 << 60), strict=True):
        assert [row["step"] for row in ours] == [0, 2, 4]
        for row, expected in zip(ours, theirs, strict=True):
            assert row == pytest.approx(expected, rel=1e-9)


def test_the_dropout_of_a_model_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = {**SMALL, "dropout": 0.2}
    monkeypatch.setattr(blocks, "LEAST", 1 << 60)
    expected = advanced(ensemble(4, model=model, precision="float64"))
    monkeypatch.setattr(blocks, "LEAST", 0)
    found = advanced(ensemble(4, model=model, precision="float64"))
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("task", [ADDITION, LISTOPS], ids=lambda task: task.name)
def test_blocks_of_one_thread_each_have_the_same_bits_on_one_core_or_two(task, always) -> None:
    found, before = [], torch.get_num_threads()
    for n in (1, 2, 3):
        torch.set_num_threads(n)
        try:
            subject = ensemble(4, task, {**SMALL, "n_layers": 2, "normalization_type": "LN"})
            assert len(subject.blocks) == 2
            found.append(advanced(subject, 3))
        finally:
            torch.set_num_threads(before)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_plan_of_several_has_the_same_bits_whether_halves_step_side_by_side(always) -> None:
    def weights(threads: int | None) -> list[dict[str, torch.Tensor]]:
        shapes = [{**SMALL, "d_model": width} for width in (16, 24)]
        specs = [spec(ADDITION, model, TRAIN, seed=seed) for model in shapes for seed in range(3)]
        return [run.subject().model.weights() for run in train_many(specs, threads=threads)]

    for ours, theirs in zip(weights(None), weights(1), strict=True):
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_is_left_of_an_ensemble_is_cut_anew(always) -> None:
    subject, others = ensemble(5, precision="float64"), ensemble(5, precision="float64")
    advanced(subject)
    subject.drop_models([0, 3])
    assert [range(3)[block.models] for block in subject.blocks] == [range(2), range(2, 3)]
    expected = advanced(others, 8)[[1, 2, 4]]
    assert torch.allclose(advanced(subject, 3), expected, rtol=1e-9, atol=1e-11)


def test_resume_after_one_has_left_continues_bit_for_bit(always, tmp_path: Path) -> None:
    """The first stands still and leaves at 30; the others are stopped at 40 and go on in halves."""
    train = {**TRAIN, "steps": 60, "stop_patience": 3, "stop_delta": 1e-9}

    def specs(place: str) -> list[Spec]:
        rates = (0.0, 1e-2, 1e-2, 5e-3)
        return [
            spec(ADDITION, SMALL, {**train, "lr": lr}, seed=seed, out=tmp_path / place / str(seed))
            for seed, lr in enumerate(rates)
        ]

    pressed: list[int] = []

    def press(now: Progress) -> None:
        if now.step == 40 and not pressed:
            pressed.append(now.step)
            os.kill(os.getpid(), signal.SIGINT)

    whole = train_many(specs("whole"))
    with pytest.raises(KeyboardInterrupt, match="stopped at step 40"):
        train_many(specs("cut"), progress=press)
    again = train_many(specs("cut"), resume=True)
    assert [run.final["step"] for run in again] == [30, 60, 60, 60]
    for a, b in zip(whole, again, strict=True):
        assert a.path is not None and b.path is not None
        for name in ("metrics.jsonl", "ckpt.pt"):
            assert (a.path / name).read_bytes() == (b.path / name).read_bytes()


def test_what_a_block_raises_is_raised(always, threads: int) -> None:
    subject = ensemble(4)

    def fails(*_: Any) -> None:
        raise ValueError("of the second block")

    subject.blocks[1].learner.losses = fails  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(ValueError, match="of the second block"):
        subject.advance()
