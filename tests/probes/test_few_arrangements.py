"""Nulls that permute few things: how many arrangements they tell apart, by enumeration, and that a
perfect mechanism among so few is not denied.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import probes
from mechint import planted
from mechint.decide.null import groupings


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


@pytest.mark.parametrize("p", [5, 7])
def test_a_perfect_circle_of_few_tokens_is_unclear(p: int) -> None:
    subject = planted.modular_addition(p=p, frequencies=(1,), seed=0).subject
    quick = {"fourier": {"removal_samples": 9}, "neurons": {"examples": 8}}
    for name, place in (("embedding", 1), ("fourier", 0), ("fourier", 1), ("neurons", 0)):
        finding = probes.run(name, subject, **quick.get(name, {})).findings[place]
        assert finding.verdict == "unclear" and "few values" in finding.reason, (name, finding)
