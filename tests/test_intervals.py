"""Intervals of shares, against scipy.stats."""

from __future__ import annotations

import pytest
from scipy.stats import binom, binomtest

from mechint.decide import clopper_pearson, wilson
from mechint.decide.evidence import at_least


@pytest.mark.parametrize("n", [1, 2, 7, 400, 10_000])
def test_intervals_are_those_of_scipy(n: int) -> None:
    for hits in {0, 1, n // 3, n // 2, n - 1, n}:
        test = binomtest(hits, n)
        for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
            theirs = test.proportion_ci(0.95, method=method)
            assert ours(hits, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


@pytest.mark.parametrize("n", [1, 7, 400, 1_000_000])
def test_the_probability_of_as_many_is_that_of_scipy(n: int) -> None:
    for share in (1e-9, 1 / 113, 0.5, 0.98, 1.0):
        for hits in {0, 1, n // 3, n // 2, round(share * n), n}:
            assert at_least(hits, n, share) == pytest.approx(
                binom.sf(hits - 1, n, share), rel=1e-6, abs=1e-300
            )


def test_nothing_counted_bounds_nothing() -> None:
    assert clopper_pearson(0, 0) == wilson(0, 0) == (0.0, 1.0)
