"""Compiled RASP programs: right on every list, the same in TransformerLens, truth where it says."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import pytest
import torch

import tasks
from mechint import probe
from mechint.checkpoints.formats.transformer_lens_native import from_tracr
from mechint.config import ModelConfig
from mechint.models.foreign import bridge
from mechint.models.transformer import HookedTransformer
from mechint.planted.programs import PROGRAMS, rasp_program, recorded

every = pytest.mark.parametrize("program", PROGRAMS)


def all_lists(program: str) -> tuple[Any, torch.Tensor]:
    """All 1,024 lists of five numbers."""
    lists = torch.tensor([[4, *numbers] for numbers in itertools.product(range(4), repeat=5)])
    return tasks.make("rasp", program=program), lists


@every
@pytest.mark.parametrize("rotation_seed", [None, 3])
def test_a_program_is_right_on_every_list(program: str, rotation_seed: int | None) -> None:
    task, lists = all_lists(program)
    model = rasp_program(program, rotation_seed=rotation_seed).subject.model
    with torch.no_grad():
        answers = model(lists)[:, 1:].argmax(-1)
    assert answers.tolist() == [plain(row) for row in task.batch_of(lists).targets.tolist()]


def plain(targets: list[list[int]]) -> list[int]:
    return [answer for (answer,) in targets[1:]]


@every
def test_answers_are_those_of_python(program: str) -> None:
    """Not by the task: lists reversed, sorted and counted."""
    by_hand = {
        "reverse": lambda row: row[::-1],
        "sort": sorted,
        "histogram": lambda row: [row.count(number) for number in row],
    }[program]
    task, lists = all_lists(program)
    expected = [by_hand(row[1:]) for row in lists.tolist()]
    assert task.solve(lists).tolist() == expected


@every
def test_transformer_lens_computes_the_same(program: str) -> None:
    """Its own loader and its own model, on lists with padding too."""
    from transformer_lens.utilities import tracr

    model = recorded(program)
    config = tracr.make_tracr_transformer_bridge_config(model)
    theirs = bridge.boot_native(config)
    theirs.load_state_dict(tracr.make_tracr_transformer_bridge_state_dict(model), strict=False)
    ours_config, weights = from_tracr(model)
    ours = mechint_model(ours_config, weights)
    tokens = torch.randint(0, 6, (64, 6), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        assert torch.allclose(ours(tokens), theirs(tokens), atol=1e-4)


def mechint_model(config: ModelConfig, weights: dict[str, torch.Tensor]) -> HookedTransformer:
    model = HookedTransformer(config)
    model.load_weights(weights)
    return model.eval()


def scaled(x: torch.Tensor, hook: Any, out: torch.Tensor) -> torch.Tensor:
    return x + x @ out


@every
def test_every_variable_is_written_where_the_truth_says(program: str) -> None:
    plant = rasp_program(program, rotation_seed=2)
    for hook, basis in plant.truth["subspaces"].items():
        written = plant.subject.activation(hook).double()
        written = written - written.mean((0, 1))
        assert torch.allclose(written @ basis @ basis.T, written, atol=1e-3)
        assert float(written.norm()) > 1
        subject, out = plant.subject.with_answer("all"), (basis @ basis.T).float()
        rights = []
        for factor in (-1, 1):  # removed; doubled: at zero a reciprocal reads as the largest count
            edit = partial(scaled, out=factor * out)
            rights += subject.accuracy(subject.logits(hooks=[(hook, edit)])).values()
        assert min(rights) < 1, hook
    assert set(plant.truth["heads"]) <= set(plant.truth["variables"])


@pytest.mark.parametrize(("program", "head"), [("reverse", "L3H0"), ("sort", "L2H0")])
def test_the_head_that_writes_the_answer_copies_tokens(program: str, head: str) -> None:
    plant = rasp_program(program, noise=0.001, rotation_seed=1)
    metrics = probe.run("weights", plant.subject, draws=19).metrics
    assert metrics["copying.head"] == head and metrics["copying"] > 0.99
    assert plant.truth["heads"][program] == (int(head[1]), 0)


def test_small_noise_leaves_a_program_right() -> None:
    subject = rasp_program("sort", noise=0.001).subject.with_answer("all")
    assert subject.accuracy() == {"number": 1.0}
