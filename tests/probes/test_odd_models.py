"""Probes on models that nobody would train: all weights zero, sure and often wrong, sure
beyond the precision of the weights, of a group too small for a spectrum.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import probes
from mechint import planted
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from mechint.subject.pairs import Pairs
from probes._patching.measures import wrong_sources

P = 7


def edited(subject: Subject, edit: Callable[[dict[str, torch.Tensor]], Any]) -> Subject:
    model = copy.deepcopy(subject.model)
    with torch.no_grad():
        edit(dict(model.named_parameters()))
    return subject.with_model(model)


def addition(p: int = P, frequencies: tuple[int, ...] = (2,)) -> Subject:
    return planted.modular_addition(p, frequencies).subject


def sure_and_often_wrong() -> Subject:
    """Adds, with two operands mistaken for each other, and nearly no doubt."""

    def edit(weights: dict[str, torch.Tensor]) -> None:
        weights["embed.W_E"][[0, 1]] = weights["embed.W_E"][[1, 0]].clone()
        weights["unembed.W_U"].mul_(1e3)

    return edited(addition(13, (2, 5)), edit)


def test_harm_is_counted_in_accuracy_where_the_loss_says_nothing() -> None:
    subject = sure_and_often_wrong()
    assert subject.task is not None
    right = float(subject.correct().float().mean())
    assert 0.5 < right < 0.9
    assert subject.loss()["answer"] > subject.task.chance["answer"].loss
    result = PROBES["ablation"]().run(subject, seed=0)
    metrics = result.metrics
    assert metrics["harm_in"] == "0–1" and result.verdict == "yes"
    assert {"L0 attention", "L0 MLP"} <= set(metrics["needed"])
    zero = probes.ablation(subject, mode="zero", components=("mlp",))
    without = subject.logits(hooks=[("blocks.0.hook_mlp_out", lambda x, hook: 0 * x)])
    lost = float((subject.correct(without).float() - subject.correct().float()).mean())
    assert zero.metrics["accuracy_change"] == pytest.approx(lost, abs=1e-6)
    assert zero.metrics["share_of_advantage"] == pytest.approx(-lost / (right - 1 / 13), abs=1e-6)


def test_a_gradient_of_zero_is_not_compared() -> None:
    subject = edited(addition(), lambda weights: weights["unembed.W_U"].mul_(1e4))
    result = probes.gradients(subject, permutations=19)
    assert result.metrics["gradients.total"] == 0 and result.verdict == "unclear"


# --- what was removed is what is named ------------------------------------------------------------


def test_a_wrong_source_has_another_answer() -> None:
    """Of two classes another pair's source often has the same: patching it is then right too."""
    tokens = torch.arange(12).view(2, 6, 1)
    zeros = torch.zeros(6, dtype=torch.long)

    def pairs(answers: list[int], labels: list[int]) -> Pairs:
        targets = [torch.tensor(one)[:, None] for one in (answers, labels, labels)]
        return Pairs(tokens[0], tokens[1], zeros, zeros, *targets)

    many = wrong_sources(pairs([0, 0, 0, 0, 0, 0], [1, 2, 2, 3, 3, 3]))
    assert many[:, 0].tolist() == [11, 6, 6, 8, 8, 8]  # the nearest before it, with another label
    two = pairs([0, 1, 0, 1, 0, 0], [1, 0, 1, 0, 1, 1])
    assert (wrong_sources(two) >= 6).all()
    one = pairs([0] * 6, [1] * 6)  # all sources alike: bases
    assert wrong_sources(one)[:, 0].tolist() == [5, 0, 1, 2, 3, 4]


def test_what_recovers_everything_is_not_denied_for_two_classes() -> None:
    """Of a lookup table of parities the MLP's output at the answer is all there is."""
    parities = [[(x + y) % 2 for y in range(P)] for x in range(P)]
    task: Any = TASKS["modular-arithmetic"].from_dict({"p": P, "table": parities})
    result = probes.patching(planted.lookup_table(task).subject, pairs=24, null_samples=99)
    assert result.metrics["recovered"] > 0.9 and result.metrics["flips"] > 0.9
    assert result.verdict == "unclear"  # the MLP holds the answer of any right model
