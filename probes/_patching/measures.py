"""Effects of every patch and of a wrong source, and what is left without a component."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import EditedRuns, Mean, Site, Take
from mechint.probes._effects import MOST, Cases, Effects, units_of
from mechint.probes.ties import tied
from mechint.subject.counterfactuals import partners
from mechint.subject.pairs import Pairs, logit_difference
from mechint.task import Task

if TYPE_CHECKING:
    from mechint.subject import Subject

KINDS = ("resid_pre", "attention", "head", "mlp")
"""Kinds of components that may be patched."""


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


def effects_of(
    subject: Subject, pairs: Pairs, components: Sequence[Site], *, from_answer: bool = False
) -> tuple[Effects, Effects, Float[np.ndarray, "component pair"]]:
    """Effects of each component alone, taken from the pair's source and from a wrong one, and where
    the former flips the answer.

    from_answer: the positions of the components are counted from that of each pair's answer: 0 it
    itself, -1 the one before it.
    """
    task = subject.known_task
    sources = {"own": pairs.source, "wrong": wrong_sources(pairs)}
    parts: list[list[Tensor]] = []
    for rows, runs, own, other in Cases(subject, pairs.base, pairs.reads, sources).parts():
        some = pairs[rows]
        sites = placed(components, some.reads) if from_answer else components

        def difference(logits: Tensor, rows: Tensor, some: Pairs = some) -> Tensor:
            return logit_difference(task, logits, some[rows])

        def both(logits: Tensor, rows: Tensor, some: Pairs = some) -> Tensor:
            each = flipped(task, logits, some[rows])
            return torch.stack([logit_difference(task, logits, some[rows]), each], -1)

        found = runs.under([Take(site, other["own"]) for site in sites], own, read=both)
        wrong = runs.under([Take(site, other["wrong"]) for site in sites], own, read=difference)
        ends = (difference(runs.base(inputs), own) for inputs in (own, other["own"]))
        parts.append([*found.unbind(-1), wrong, *ends])
    changed, flips, wrong, base, end = (
        torch.cat(column, -1).double().cpu().numpy() for column in zip(*parts, strict=True)
    )
    if from_answer:
        places = np.array([component.pos for component in components])
        absent = places[:, None] + pairs.reads.cpu().numpy() < 0
        changed, flips, wrong = (
            np.where(absent, np.nan, values) for values in (changed, flips, wrong)
        )
    units = units_of(pairs)
    return Effects(base, end, changed, units), Effects(base, end, wrong, units), flips


def exchanged(
    subject: Subject, pairs: Pairs, component: Site, *, from_answer: bool = False
) -> float:
    """Share of the pairs that give the label with the component as in the source, among those whose
    source is answered otherwise; NaN where there is none. What holds the answer gives the source's.
    """
    told = (pairs.labels != pairs.source_answers).any(-1) & pairs.changed.any(-1)
    told &= pairs.reads == pairs.source_reads
    if from_answer:
        told &= pairs.reads + place_of(component) >= 0
    if not bool(told.any()):
        return math.nan
    *_, flips = effects_of(subject, pairs[told], [component], from_answer=from_answer)
    return float(flips.mean())


def placed(components: Sequence[Site], reads: Int[Tensor, " pair"]) -> list[Site]:
    """The components at positions counted from that of each pair's answer; a pair without the
    position is left as it is.
    """
    return [
        replace(component, pos=tuple((reads + place_of(component)).tolist()))
        for component in components
    ]


def place_of(component: Site) -> int:
    """The one position of a component."""
    assert isinstance(component.pos, int), component
    return component.pos


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
def left_by(
    subject: Subject,
    pairs: Pairs,
    components: Sequence[Site],
    recovered: Float[np.ndarray, " component"],
    *,
    from_answer: bool,
) -> Callable[[int], float]:
    """`left_without` by index of the component; where another one recovers less than -MOST, as half
    of a pair that cancels does, the larger of that and what is left without both.
    """
    opposed = int(np.nan_to_num(recovered).argmin())

    def left(index: int) -> float:
        sets = [[index]] + [[index, opposed]] * bool(recovered[opposed] < -MOST)
        sites = [[components[i] for i in some] for some in sets]
        return max(left_without(subject, pairs, some, from_answer=from_answer) for some in sites)

    return left


def first_needed(
    among: Sequence[int],
    recovered: Float[np.ndarray, " component"],
    flips: Float[np.ndarray, " component"],
    left: Callable[[int], float],
    apart: Callable[[int], float],
) -> tuple[list[int], dict[int, float]]:
    """Of the components `among`, those that recover the most of all that also flip most answers,
    leave at most half and flip most `apart`, too, several where these tie; the first where none
    does. And what is left without each that was tried: those that recover and flip enough, down to
    these.
    """
    groups = [[among[i] for i in group] for group in tied(recovered[list(among)])]
    tried: dict[int, float] = {}
    for group in groups:
        tried |= {i: left(i) for i in group if min(recovered[i], flips[i]) >= MOST}
        needed = [i for i in group if tried.get(i, 1.0) <= 1 - MOST and not apart(i) < MOST]
        if needed:
            return needed, tried
    return next((group for group in groups if tried.keys() & {*group}), groups[0]), tried


def left_without(
    subject: Subject, pairs: Pairs, components: Sequence[Site], *, from_answer: bool = False
) -> float:
    """Of the logit difference between source and base, what is left of it where `components` stand
    at their means over both in both runs: 1 where the answers do without them, 0 where nothing
    else tells base from source. Over the pairs that have all of the components' positions.

    In a patched run a component disagrees with all others, as it may never do on any input; here it
    says the same on every input.
    """
    task, hooks = subject.known_task, {component.hook for component in components}
    if from_answer:
        pairs = pairs[pairs.reads + min(map(place_of, components)) >= 0]
    if not len(pairs):
        return math.nan
    cases = Cases(subject, pairs.base, pairs.reads, {"own": pairs.source})
    means, spans = [torch.zeros(())] * len(components), np.zeros(2)

    def sites_of(runs: EditedRuns) -> Sequence[Site]:
        return placed(components, runs.reads) if from_answer else components

    for _, runs, *_ in cases.parts(hooks):
        values = [site.select(runs.recorded(site.hook), runs.reads) for site in sites_of(runs)]
        means = [a.to(b) + b.sum(0) / (2 * len(pairs)) for a, b in zip(means, values, strict=True)]
    for rows, runs, *_ in cases.parts(hooks):
        both = pairs[rows.repeat(2)]
        signs = torch.tensor([-1.0, 1.0], device=rows.device).repeat_interleave(len(rows))

        def apart(
            logits: Tensor, rows: Tensor, both: Pairs = both, signs: Tensor = signs
        ) -> Tensor:
            return logit_difference(task, logits, both[rows]).double() * signs[rows]

        held = [Mean(site, mean) for site, mean in zip(sites_of(runs), means, strict=True)]
        spans += runs.under([[], held], read=apart).sum(1).cpu().numpy()
    return float(spans[1] / spans[0]) if abs(spans[0]) > 1e-9 else math.nan
