"""Nulls that permute few things: how many arrangements they tell apart, by enumeration, and that a
perfect mechanism among so few is not denied.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import probes
from mechint import planted
from mechint.decide.null import Null, groupings, orderings


def orders(n: int) -> list[list[int]]:
    return [list(order) for order in itertools.permutations(range(n))]


@pytest.mark.parametrize(("n", "modulus"), [(6, 2), (7, 2), (7, 4)])
def test_groupings_by_enumeration(n: int, modulus: int) -> None:
    classes = np.arange(n) % modulus
    dealt = {
        frozenset(frozenset(np.flatnonzero(classes[order] == one)) for one in range(modulus))
        for order in orders(n)
    }
    assert groupings(np.bincount(classes).tolist()) == pytest.approx(len(dealt))


def test_what_is_reached_by_luck() -> None:
    """By the binomial distribution: 1 of 499 samples reaches a perfect one of 1260 in a third of
    the runs, and one of 20000 in one of forty.
    """

    def few(reached: int, arrangements: float, samples: int = 499) -> str | None:
        values = 1.0 * (np.arange(samples) < reached)
        return Null.sampled("m", 1.0, values, "", arrangements).too_few_arrangements(0.002)

    assert "1 of 499 null samples" in str(few(1, 1260))
    assert few(1, 20_000) is None and few(4, 1260) is None
    assert few(0, 1260) is None  # reached the level
    assert "p ≤ 0.002 takes 500" in str(few(0, 499)) and "takes 500" in str(few(400, 499))
    assert few(0, 500) is None
    assert few(3, math.inf) is None and few(3, orderings(21)) is None


@pytest.mark.parametrize("p", [5, 7])
def test_a_perfect_circle_of_few_tokens_is_unclear(p: int) -> None:
    subject = planted.modular_addition(p=p, frequencies=(1,), seed=0).subject
    quick = {"fourier": {"removal_samples": 9}, "neurons": {"examples": 8}}
    for name, place in (("embedding", 1), ("fourier", 0), ("fourier", 1), ("neurons", 0)):
        finding = probes.run(name, subject, **quick.get(name, {})).findings[place]
        assert finding.verdict == "unclear" and "few values" in finding.reason, (name, finding)
