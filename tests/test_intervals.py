"""Intervals of shares, against scipy.stats."""

from __future__ import annotations

import pytest
from scipy.stats import binomtest

from mechint.decide import clopper_pearson, wilson


@pytest.mark.parametrize("n", [1, 2, 7, 400, 10_000])
def test_intervals_are_those_of_scipy(n: int) -> None:
    for hits in {0, 1, n // 3, n // 2, n - 1, n}:
        test = binomtest(hits, n)
        for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
            theirs = test.proportion_ci(0.95, method=method)
            assert ours(hits, n) == pytest.approx((theirs.low, theirs.high), abs=1e-12)


def test_nothing_counted_bounds_nothing() -> None:
    assert clopper_pearson(0, 0) == wilson(0, 0) == (0.0, 1.0)
