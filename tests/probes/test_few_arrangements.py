"""Nulls that permute few things: how many arrangements they tell apart, by enumeration, and that a
perfect mechanism among so few is not denied.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

import probes
from mechint import planted
from mechint.config import ModelConfig
from mechint.groups.named import parse
from mechint.groups.spectrum import Harmonics, element_orders
from mechint.models.transformer import HookedTransformer
from mechint.null import Null, groupings, orderings
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._neurons.probe import block_shares

CLOSE = 1 - 1e-9


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


def test_empty_groups_have_no_part_in_groupings() -> None:
    assert groupings([0, 0, 5]) == pytest.approx(1)
    assert groupings([0, 3, 0, 3]) == pytest.approx(10)
    assert groupings([1] * 300) == pytest.approx(1)  # 300! does not fit into a float


@pytest.mark.parametrize("spec", ["S3", "C5", "C2xC2", "C6"])
def test_orders_of_a_groups_elements_by_enumeration(spec: str) -> None:
    """Orders that leave every share of random rows, up to names, are those that are counted; for
    the order of both operands of a neuron likewise.
    """
    group = parse(spec)
    n = group.order
    rows = np.random.default_rng(0).standard_normal((n, 3))
    grid = np.random.default_rng(1).standard_normal((n, n, 1))
    harmonics = Harmonics(group)
    known = harmonics.known

    def shares(order: list[int]) -> np.ndarray:
        energy = np.asarray(known.energy(rows[order] - rows.mean(0)))[1:]
        blocks = block_shares(harmonics, grid[np.ix_(order, order)])[:, 0]
        return np.concatenate([np.sort(energy), np.sort(blocks)])

    own = shares(list(range(n)))
    alike = sum(np.allclose(shares(order), own) for order in orders(n))
    # an order that inverts a group that is not commutative does, too: one more of each
    assert math.factorial(n) / alike <= element_orders(group) * CLOSE**-1
    assert element_orders(group) <= 2 * math.factorial(n) / alike


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


def test_arrangements_are_kept_in_json_where_they_are_few() -> None:
    for arrangements in (462.0, math.inf):
        null = Null.sampled("m", 1.0, [0.0] * 9, "how", arrangements)
        assert ("arrangements" in null.to_dict()) == math.isfinite(arrangements)
        assert Null.from_dict(null.to_dict()) == null


@pytest.mark.parametrize("p", [5, 7])
def test_a_perfect_circle_of_few_tokens_is_unclear(p: int) -> None:
    subject = planted.modular_addition(p=p, frequencies=(1,), seed=0).subject
    quick = {"fourier": {"removal_samples": 9}, "neurons": {"examples": 8}}
    for name, place in (("embedding", 1), ("fourier", 0), ("fourier", 1), ("neurons", 0)):
        finding = probes.run(name, subject, **quick.get(name, {})).findings[place]
        assert finding.verdict == "unclear" and "few values" in finding.reason, (name, finding)


def test_five_classes_are_too_few_for_the_logits() -> None:
    subject = planted.modular_addition(p=5, frequencies=(1,), seed=0).subject
    for name in ("fourier", "clock-pizza", "progress"):
        result = probes.run(name, subject)
        assert result.verdict == "unclear", (name, result.findings)
        assert "in only 6 ways" in result.findings[0].reason


@pytest.mark.parametrize(("n", "verdict"), [(11, "unclear"), (12, "unclear"), (17, "yes")])
def test_parity_of_few_tokens_is_not_denied(n: int, verdict: str) -> None:
    rows = 1e-3 * np.random.default_rng(0).standard_normal((n, 8))
    rows += np.where(np.arange(n) % 2, 1.0, -1.0)[:, None] * np.linspace(1, 2, 8)
    task = TASKS["modular-arithmetic"](p=n)
    config = {"d_model": 8, "n_heads": 1, "d_vocab": n + 1, "d_vocab_out": n}
    subject = Subject(HookedTransformer(ModelConfig(**config)), task)
    with torch.no_grad():
        subject.model.W_E[:n] = torch.from_numpy(rows)
    result = probes.run("embedding", subject)
    assert result.metrics["parity.separation"] > 0.99 and result.findings[-1].verdict == verdict
