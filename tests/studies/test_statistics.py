"""Intervals and power, computed another way."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from studies.statistics import Estimate, Planned, bootstrap, difference, exponent, mean, share


@pytest.mark.parametrize(("hits", "n"), [(0, 8), (3, 12), (12, 12)])
def test_the_interval_of_a_share_cuts_binomial_tails(hits: int, n: int) -> None:
    found = share([True] * hits + [False] * (n - hits))
    if hits:
        assert stats.binom.sf(hits - 1, n, found.low) == pytest.approx(0.025)
    if hits < n:
        assert stats.binom.cdf(hits, n, found.high) == pytest.approx(0.025)
    assert found.n == n and found.value == hits / n


def test_the_interval_of_a_mean_is_students() -> None:
    """Hand-computed: mean 3, standard deviation √2.5, t of four degrees of freedom 2.776."""
    found = mean([1.0, 2.0, 3.0, 4.0, 5.0])
    half = 2.7764 * math.sqrt(2.5 / 5)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-3)
    assert math.isinf(mean([1.0, 2.0]).low) and mean([0.9, 1.0, 1.0], (0, 1)).high == 1


def test_the_interval_of_a_difference_is_the_published_one() -> None:
    """Newcombe 1998, table II, case a, method 10: 56/70 - 48/80, 0.0524 to 0.3339."""
    found = difference([True] * 56 + [False] * 14, [True] * 48 + [False] * 32)
    assert found.value == pytest.approx(0.2)
    assert (found.low, found.high) == pytest.approx((0.0524, 0.3339), abs=5e-4)


def test_a_bootstrap_of_means_comes_near_the_normal_interval() -> None:
    values = np.random.default_rng(0).standard_normal(200).tolist()
    found = bootstrap(lambda each: float(np.mean(each)), values)
    error = 1.96 * np.std(values) / math.sqrt(200)
    assert found.high - found.low == pytest.approx(2 * error, rel=0.1)
    lost = bootstrap(lambda each: exponent([1, 2], each[:2]), [1.0, math.inf, 4.0])
    assert math.isinf(lost.low)


def test_power_is_the_share_of_simulated_campaigns_that_decide() -> None:
    generator = np.random.default_rng(0)
    planned, bar = Planned(12, 0.75), (0.4, math.inf)
    drawn = [share(list(generator.random(12) < 0.75)).held_to(bar) for _ in range(400)]
    assert np.mean([bool(one) for one in drawn]) == pytest.approx(planned.power(bar), abs=0.08)
    planned, bar = Planned(6, 0.3, 0.25), (0.0, math.inf)
    drawn = [
        mean((0.3 + 0.25 * generator.standard_normal(6)).tolist()).held_to(bar) for _ in range(400)
    ]
    assert np.mean([bool(one) for one in drawn]) == pytest.approx(planned.power(bar), abs=0.08)


def test_an_interval_decides_only_on_its_side_of_the_bar() -> None:
    for estimate, bar, verdict in (
        (Estimate(0.5, 0.45, 0.6, 9), (0.4, math.inf), "yes"),
        (Estimate(0.5, 0.3, 0.6, 9), (0.4, math.inf), "unclear"),
        (Estimate(0.2, 0.1, 0.3, 9), (0.4, math.inf), "no"),
        (Estimate(0.2, 0.1, 0.3, 9), (0.15, 0.25), "unclear"),
        (Estimate(0.2, 0.1, 0.3, 9), (0.31, 0.4), "no"),
        (Estimate(0.2, 0.18, 0.22, 9), (0.15, 0.25), "yes"),
        (Estimate(math.nan, -math.inf, math.inf, 9), (0.15, 0.25), "unclear"),
    ):
        assert estimate.held_to(bar).verdict == verdict
