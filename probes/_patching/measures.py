"""Effects of every patch and of a wrong source, and what is left without a component."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.interventions import EditedRuns, Mean, Site, Take, hooks_of, select_positions
from mechint.interventions.runs import Read
from mechint.models.protocol import run_hooked
from mechint.probes.ties import tied
from mechint.subject.counterfactuals import partners
from mechint.subject.pairs import Pairs
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.subject import Subject

KINDS = ("resid_pre", "attention", "head", "mlp")
"""Kinds of components that may be patched."""
MOST = 0.5
"""The share that a component has to recover, to flip, and to take away at its mean, to carry most
of a variable.
"""
LEAST_SPAN = 1e-3
"""Of the logit differences of base and source, their difference from which it has shares."""


def runs_of(
    subject: Subject,
    pairs: Pairs,
    sources: Sequence[Int[Tensor, "pair pos"]],
    sites: Sequence[Site],
) -> tuple[EditedRuns, list[Int[Tensor, " pair"]]]:
    """Runs on the bases and on each kind of source, and their inputs."""
    tokens = torch.cat([pairs.base, *sources])
    every = torch.arange(len(tokens), device=tokens.device)
    reads, names = pairs.reads.repeat(1 + len(sources)), {site.hook for site in sites}
    return EditedRuns(subject.model, tokens, reads, names), list(every.split(len(pairs)))


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
    """(..., pair) share of the changed outputs that are answered with the counterfactual label;
    where an answer is held against one other, 1 where the label is above the base's answer.
    """
    if task.wrong_answers(pairs.base) is not None:
        return (logit_difference(task, logits, pairs) > 0).to(logits)
    answers = torch.stack(
        [logits[..., columns].argmax(-1) for columns in task.output_slices.values()], -1
    )
    return ((answers == pairs.labels) & pairs.changed).sum(-1) / pairs.changed.sum(-1).clamp_min(1)


@dataclass(frozen=True)
class Effects:
    """(component, pair) numbers of every patch, `null` those of a wrong source, NaN where a pair
    does not have the component's position; base and source (pair,) logit differences without a
    patch.
    """

    difference: np.ndarray
    flips: np.ndarray
    null: np.ndarray
    base: np.ndarray
    source: np.ndarray

    def recovered(
        self, difference: Float[np.ndarray, "component pair"]
    ) -> Float[np.ndarray, " component"]:
        """(component,) 0: as the base; 1: as the source. A ratio of means over pairs."""
        return self.mean(difference - self.base) / self.span

    @property
    def there(self) -> Bool[np.ndarray, "component pair"]:
        """(component, pair) whether the pair has the component's position."""
        return ~np.isnan(self.difference)

    def mean(self, numbers: Float[np.ndarray, "component pair"]) -> Float[np.ndarray, " component"]:
        """(component,) over the pairs that have the component's position."""
        return np.where(self.there, numbers, 0.0).sum(-1) / self.there.sum(-1)

    @property
    def span(self) -> Float[np.ndarray, " component"]:
        """(component,) mean difference of the source less that of the base, over the pairs that
        have the component's position; NaN where they are nearly the same.
        """
        shape = self.difference.shape
        source, base = (self.mean(np.broadcast_to(one, shape)) for one in (self.source, self.base))
        either = np.broadcast_to(np.abs(self.source) + np.abs(self.base), shape)
        size = LEAST_SPAN * self.mean(either)
        return np.where(np.abs(source - base) > size, source - base, np.nan)

    @property
    def gains(self) -> Float[np.ndarray, "component pair"]:
        """(component, pair) what the pair's own source recovers beyond a wrong one."""
        return (self.difference - self.null) / self.span[:, None]


def effects_of(
    subject: Subject, pairs: Pairs, components: Sequence[Site], *, from_answer: bool = False
) -> Effects:
    """Effects of each component alone, taken from the pair's source, pair by pair.

    from_answer: the positions of the components are counted from that of each pair's answer: 0 it
    itself, -1 the one before it.
    """
    wrong, shape = wrong_sources(pairs), (len(components), len(pairs))
    numbers = [np.full(size, np.nan) for size in [shape] * 3 + [shape[1:]] * 2]
    for rows, sites in chunks(subject, pairs, components, from_answer=from_answer):
        part = _effects(subject, pairs[rows], wrong[rows], list(sites.values()))
        for whole, found in zip(numbers, part, strict=True):
            at = rows.cpu().numpy()
            whole[at if whole.ndim == 1 else (np.array(list(sites))[:, None], at)] = found
    return Effects(*numbers)


def chunks(
    subject: Subject, pairs: Pairs, components: Sequence[Site], *, from_answer: bool
) -> Iterator[tuple[Int[Tensor, " _row"], dict[int, Site]]]:
    """The pairs in pieces of the subject's chunk, with the components that they have, by index, at
    positions of the input.
    """
    every = torch.arange(len(pairs), device=subject.device)
    reads = pairs.reads.unique().tolist() if from_answer else [0]
    for read in reads:
        group, sites = every, {index: one for index, one in enumerate(components)}
        if from_answer:
            group = (pairs.reads == read).nonzero().flatten()
            sites = {
                index: replace(one, pos=one.pos + read)
                for index, one in sites.items()
                if isinstance(one.pos, int) and one.pos + read >= 0
            }
        for rows in group.split(subject.chunk):
            yield rows, sites


def _effects(
    subject: Subject, pairs: Pairs, wrong: Int[Tensor, "pair pos"], components: Sequence[Site]
) -> list[np.ndarray]:
    """The numbers of `Effects` for some pairs, read at any position, and sites at fixed ones."""
    assert subject.task is not None
    runs, (base, source, other) = runs_of(subject, pairs, [pairs.source, wrong], components)
    task = subject.task

    def difference(logits: Tensor, rows: Tensor) -> Tensor:
        return logit_difference(task, logits, pairs[rows])

    def both(logits: Tensor, rows: Tensor) -> Tensor:
        each = flipped(task, logits, pairs[rows])
        return torch.stack([difference(logits, rows), each], -1)

    def patched(source: Tensor, read: Read) -> Tensor:
        return runs.under([Take(site, source) for site in components], base, read=read)

    numbers = (
        *patched(source, both).unbind(-1),
        patched(other, difference),
        difference(runs.base(base), base),
        difference(runs.base(source), base),
    )
    return [number.double().cpu().numpy() for number in numbers]


def with_wrong_source(pairs: Pairs) -> Pairs:
    """The pairs that share the position of their answer with another pair: the others have no
    `wrong_sources`. All where all of them are read at one position.
    """
    if len(pairs.reads.unique()) < 2:
        return pairs
    return pairs[partners(pairs.reads, None) != torch.arange(len(pairs), device=pairs.reads.device)]


def wrong_sources(pairs: Pairs) -> Int[Tensor, "pair pos"]:
    """For every pair the source of another pair that is read at the same position, the nearest
    before it that is answered otherwise than its own and is not its base, which would change
    nothing; where all sources have one answer, as they may of two classes, the base of one.
    """
    wrong, left = (
        pairs.source[partners(pairs.reads, None)],
        torch.ones_like(pairs.reads, dtype=torch.bool),
    )
    for tokens, answers in ((pairs.source, pairs.source_answers), (pairs.base, pairs.answers)):
        for shift in range(1, len(pairs)):
            other = (answers.roll(shift, 0) != pairs.labels) & pairs.changed
            found = left & other.any(-1) & (pairs.reads.roll(shift, 0) == pairs.reads)
            found &= (tokens.roll(shift, 0) != pairs.base).any(-1)
            wrong = torch.where(found[:, None], tokens.roll(shift, 0), wrong)
            left &= ~found
            if not bool(left.any()):
                return wrong
    return wrong


# --- what is left without a component -------------------------------------------------------------
class Left(NamedTuple):
    """The share left without a component, and the index of the one taken out with it."""

    share: float
    opposed: int | None = None


def left_by(
    subject: Subject,
    pairs: Pairs,
    components: Sequence[Site],
    recovered: Float[np.ndarray, " component"],
    *,
    from_answer: bool,
) -> Callable[[int], Left]:
    """`left_without` by index of the component; where another one recovers less than -MOST, as half
    of a pair that cancels does, the larger of that and what is left without both.
    """
    opposed = int(np.nan_to_num(recovered).argmin())

    def without(*indices: int) -> float:
        sites = [components[index] for index in indices]
        return left_without(subject, pairs, sites, from_answer=from_answer)

    def left(index: int) -> Left:
        alone = without(index)
        both = without(index, opposed) if recovered[opposed] < -MOST else alone
        return Left(both, opposed) if both > alone else Left(alone)

    return left


def first_needed(
    among: Sequence[int],
    recovered: Float[np.ndarray, " component"],
    flips: Float[np.ndarray, " component"],
    left: Callable[[int], Left],
) -> tuple[list[int], dict[int, Left]]:
    """Of the components `among`, those that recover the most of all that also flip most answers and
    leave at most half, several where these tie; the first where none does. And what is left without
    each that was tried: those that recover and flip enough, down to these.
    """
    groups = [[among[i] for i in group] for group in tied(recovered[list(among)])]
    tried: dict[int, Left] = {}
    for group in groups:
        tried |= {i: left(i) for i in group if min(recovered[i], flips[i]) >= MOST}
        needed = [i for i in group if i in tried and tried[i].share <= 1 - MOST]
        if needed:
            return needed, tried
    return groups[0], tried


def left_without(
    subject: Subject, pairs: Pairs, components: Sequence[Site], *, from_answer: bool = False
) -> float:
    """Of the logit difference between source and base, what is left of it where `components` stand
    at their means over both in both runs: 1 where the answers do without them, 0 where nothing
    else tells base from source. Over the pairs that have all of the components' positions.

    In a patched run a component disagrees with all others, as it may never do on any input; here it
    says the same on every input.
    """
    task, names = subject.task, {one.hook for one in components}
    assert task is not None
    parts = [
        (pairs[rows], list(sites.values()))
        for rows, sites in chunks(subject, pairs, components, from_answer=from_answer)
        if len(sites) == len(components)
    ]
    totals, n = [torch.zeros(())] * len(components), 2 * sum(len(part) for part, _ in parts)
    for part, sites in parts:
        for tokens in (part.base, part.source):
            runs = EditedRuns(subject.model, tokens, part.reads, names)
            values = [one.select(runs.recorded(one.hook), part.reads) for one in sites]
            totals = [a.to(b) + b.sum(0) for a, b in zip(totals, values, strict=True)]
    spans = np.zeros(2)
    for part, sites in parts:
        held = [Mean(one, total / n) for one, total in zip(sites, totals, strict=True)]
        for row, interventions in enumerate(([], held)):
            for sign, tokens in ((-1, part.base), (1, part.source)):
                hooks = hooks_of(interventions, part.reads)
                with torch.no_grad():
                    logits = run_hooked(subject.model, tokens, hooks)
                logits = select_positions(logits, part.reads)
                spans[row] += sign * float(logit_difference(task, logits, part).double().sum())
    return float(spans[1] / spans[0]) if abs(spans[0]) > 1e-9 else math.nan
