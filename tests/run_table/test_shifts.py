"""The shift test against Fisher's exact test, and its level and power in simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from mechint.decide import Decision
from mechint.run_table.shifts import (
    GroupRuns,
    at_least,
    at_most,
    at_most_by_rank,
    decide_ratio,
    estimate_ratio,
    falling,
    has_plateau,
)

SIZES = np.array([1.0, 2, 4, 8, 16])


def group(shares: np.ndarray, n: int, draw: np.random.Generator) -> GroupRuns:
    sizes = np.repeat(SIZES, n)
    return GroupRuns.of(sizes, draw.random(len(sizes)) < np.repeat(shares, n))


def decided(a: GroupRuns, b: GroupRuns, bar: float) -> Decision:
    return decide_ratio(a, b, (bar, np.inf), estimate_ratio(a, b))


def test_one_pair_of_sizes_is_fishers_test() -> None:
    a, b = GroupRuns.of([3] * 10, [1] * 2 + [0] * 8), GroupRuns.of([1] * 9, [1] * 7 + [0] * 2)
    expected = stats.fisher_exact([[7, 2], [2, 8]], "greater").pvalue
    assert at_most(a, b, 2) == pytest.approx(expected)
    assert at_most(a, b, 4) == 1  # no runs of both so far apart
    assert at_least(b, a, 0.5) == pytest.approx(expected)


def test_equal_curves_are_rarely_called_apart() -> None:
    draw, shares = np.random.default_rng(0), np.array([0.1, 0.3, 0.5, 0.8, 0.95])
    p = [at_most(group(shares, 5, draw), group(shares, 5, draw), 1) for _ in range(300)]
    assert np.mean(np.array(p) <= 0.025) <= 0.05


def test_a_ratio_of_eight_is_found_where_the_larger_group_never_passes() -> None:
    draw = np.random.default_rng(1)
    a, b = group(np.zeros(5), 8, draw), group(np.array([0.1, 0.8, 1, 1, 1]), 8, draw)
    assert decided(a, b, 1.5) and at_most(a, b, 4) <= 0.025
    assert estimate_ratio(a, b).high == np.inf
    assert decide_ratio(b, a, (1.5, np.inf), estimate_ratio(b, a)).verdict == "no"


def test_scores_decide_without_a_level() -> None:
    draw = np.random.default_rng(2)
    sizes = np.repeat(SIZES, 6)
    a = GroupRuns.of(sizes, 0.1 * np.log2(sizes) + 0.02 * draw.standard_normal(30))
    b = GroupRuns.of(sizes, 0.1 * np.log2(4 * sizes) + 0.02 * draw.standard_normal(30))
    assert at_most_by_rank(a, b, 2, 999) < 0.01 and at_most_by_rank(a, b, 4, 999) > 0.025


def test_plateaus_and_falls_are_seen() -> None:
    sizes = np.repeat([1.0, 2.0, 4.0], 10)
    level = GroupRuns.of(sizes, [0] * 10 + [1] * 5 + [0] * 5 + [1] * 5 + [0] * 5)
    assert has_plateau(level) and falling(level) > 0.05
    fall = GroupRuns.of(sizes, [1] * 10 + [1] * 10 + [0] * 10)
    assert falling(fall) < 0.001
    assert not has_plateau(GroupRuns.of(sizes, [0] * 20 + [1] * 10))
