"""What every patch does, what it is estimated to do, and what a wrong source does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import (
    RecordedForward,
    Replace,
    Site,
    activation_gradients,
    select_positions,
)
from mechint.pairs import Pairs
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.subject import Subject

KINDS = ("resid_pre", "attention", "head", "mlp")
"""What may be patched."""


def patched(
    recorded: RecordedForward, source: RecordedForward, sites: Sequence[Site]
) -> Float[Tensor, "site pair d_vocab_out"]:
    """Logits (site, pair, d_vocab_out) of the recorded base inputs with each site alone taken from
    the source.
    """
    return recorded.under(
        [
            Replace(site, site.select(source.activations[site.hook], source.answer_positions))
            for site in sites
        ]
    )


def logit_difference(
    task: Task, logits: Float[Tensor, "*site pair d_vocab_out"], pairs: Pairs
) -> Float[Tensor, "*site pair"]:
    """(..., pair) logit of the counterfactual label minus logit of the base's answer, mean over the
    outputs that change.
    """
    differences = []
    for output, columns in enumerate(task.output_slices.values()):
        part, changed = logits[..., columns], pairs.changed[:, output]
        index = [
            classes[:, output].clamp_min(0).expand(part.shape[:-1]).unsqueeze(-1)
            for classes in (pairs.labels, pairs.answers)
        ]
        label, answer = (part.gather(-1, classes).squeeze(-1) for classes in index)
        differences.append((label - answer) * changed)
    return sum(differences, torch.zeros_like(differences[0])) / pairs.changed.sum(-1).clamp_min(1)


def flipped(
    task: Task, logits: Float[Tensor, "*site pair d_vocab_out"], pairs: Pairs
) -> Float[Tensor, "*site pair"]:
    """(..., pair) share of the changed outputs that are answered with the counterfactual label."""
    answers = torch.stack(
        [logits[..., columns].argmax(-1) for columns in task.output_slices.values()], -1
    )
    return ((answers == pairs.labels) & pairs.changed).sum(-1) / pairs.changed.sum(-1).clamp_min(1)


def attribution(
    subject: Subject, pairs: Pairs, source: RecordedForward, components: Sequence[Site]
) -> Float[Tensor, "component pair"]:
    """(component, pair) first-order estimate of each patch's change of the logit difference.

    (source activation - base activation) · gradient of the base's logit difference with respect to
    the activation (Nanda 2023, Attribution Patching); one backward for all components.
    """
    task = subject.task
    assert task is not None

    def score(logits: Tensor) -> Tensor:
        return logit_difference(task, select_positions(logits, pairs.reads), pairs).sum()

    names = {component.hook for component in components}
    products = {  # (pair, pos) or (pair, pos, head)
        name: ((source.activations[name] - value) * gradient).sum(-1)
        for name, (value, gradient) in activation_gradients(
            subject.model, pairs.base, names, score
        ).items()
    }
    chosen = [
        one.select(products[one.hook][..., None], pairs.reads).flatten(1).sum(1)
        for one in components
    ]
    return torch.stack(chosen)


@dataclass(frozen=True)
class Effects:
    """(component, pair) numbers of every patch; base and source (pair,) logit differences without a
    patch.
    """

    difference: np.ndarray
    flips: np.ndarray
    estimate: np.ndarray
    null: np.ndarray
    base: np.ndarray
    source: np.ndarray

    def recovered(
        self, difference: Float[np.ndarray, "component pair"]
    ) -> Float[np.ndarray, " component"]:
        """(component,) 0: as the base; 1: as the source. A ratio of means over pairs."""
        span = self.source.mean() - self.base.mean()
        return (difference - self.base).mean(-1) / (span if abs(span) > 1e-12 else np.nan)


def effects_of(subject: Subject, pairs: Pairs, components: Sequence[Site]) -> Effects:
    """What each component alone does when it is taken from the pair's source, pair by pair."""
    assert subject.task is not None
    names, parts = {component.hook for component in components}, []
    wrong = wrong_sources(pairs)
    for rows in torch.arange(len(pairs), device=subject.device).split(subject.chunk):
        part = pairs[rows]
        base, source = (
            RecordedForward(subject.model, tokens, part.reads, names, subject.memory)
            for tokens in (part.base, part.source)
        )
        other = RecordedForward(subject.model, wrong[rows], part.reads, names, subject.memory)
        logits = patched(base, source, components)
        numbers = (
            logit_difference(subject.task, logits, part),
            flipped(subject.task, logits, part),
            attribution(subject, part, source, components),
            logit_difference(subject.task, patched(base, other, components), part),
            logit_difference(subject.task, base.logits, part),
            logit_difference(subject.task, source.logits, part),
        )
        parts.append([number.double().cpu().numpy() for number in numbers])
    return Effects(*(np.concatenate(column, -1) for column in zip(*parts, strict=True)))


def wrong_sources(pairs: Pairs) -> Int[Tensor, "pair pos"]:
    """For every pair the source of another pair, the nearest before it that is answered otherwise
    than its own; where all sources have one answer, as they may of two classes, the base of one.
    """
    wrong, left = pairs.source.roll(1, 0), torch.ones_like(pairs.reads, dtype=torch.bool)
    for tokens, answers in ((pairs.source, pairs.source_answers), (pairs.base, pairs.answers)):
        for shift in range(1, len(pairs)):
            other = (answers.roll(shift, 0) != pairs.labels) & pairs.changed
            found = left & other.any(-1)
            wrong = torch.where(found[:, None], tokens.roll(shift, 0), wrong)
            left &= ~found
            if not bool(left.any()):
                return wrong
    return wrong


def largest_by_wrong_sources(
    effects: Effects, among: Sequence[int], n: int, seed: int
) -> Float[np.ndarray, " sample"]:
    """(n,) the largest recovery over the components `among` under wrong sources, in `n` resamples
    of the pairs.
    """
    generator = np.random.default_rng(seed)
    span = effects.source.mean() - effects.base.mean()
    wrong = (effects.null - effects.base)[list(among)]  # (component, pair)
    pairs = wrong.shape[1]
    draws = (generator.multinomial(pairs, np.full(pairs, 1 / pairs), n) / pairs).T
    return (wrong @ draws).max(0) / (span if abs(span) > 1e-12 else np.nan)


def spearman(a: Float[np.ndarray, " n"], b: Float[np.ndarray, " n"]) -> float:
    """Rank correlation; NaN where either is constant."""
    from scipy.stats import spearmanr

    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.asarray(spearmanr(a, b))[0])
