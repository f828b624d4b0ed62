"""The part of the answers that is left where components say the same on every input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float

from mechint.interventions import Mean, RecordedForward, Site, hooks_of, select_positions
from mechint.pairs import Pairs
from probes._patching.measures import chunks, logit_difference
from probes.ties import tied

if TYPE_CHECKING:
    from mechint.subject import Subject

MOST = 0.5
"""The share that a component has to recover, to flip, and to take away at its mean, to carry most
of a variable.
"""


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
            found = RecordedForward(subject.model, tokens, part.reads, names).activations
            values = [one.select(found[one.hook], part.reads) for one in sites]
            totals = [a.to(b) + b.sum(0) for a, b in zip(totals, values, strict=True)]
    spans = np.zeros(2)
    for part, sites in parts:
        held = [Mean(one, total / n) for one, total in zip(sites, totals, strict=True)]
        for row, interventions in enumerate(([], held)):
            for sign, tokens in ((-1, part.base), (1, part.source)):
                hooks = hooks_of(interventions, part.reads)
                with torch.no_grad():
                    logits = subject.model.run_with_hooks(tokens, fwd_hooks=hooks)
                logits = select_positions(logits, part.reads)
                spans[row] += sign * float(logit_difference(task, logits, part).double().sum())
    return float(spans[1] / spans[0]) if abs(spans[0]) > 1e-9 else math.nan
