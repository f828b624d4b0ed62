"""Confidence intervals of shares: exact, and Wilson's, which are shorter."""

from __future__ import annotations

from typing import Literal

CONFIDENCE = 0.95


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a binomial share (Clopper & Pearson 1934); (0, 1) of nothing.

    >>> low, high = clopper_pearson(0, 400)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0092)
    """
    return _interval(hits, n, "exact")


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95% score interval of a binomial share (Wilson 1927); (0, 1) of nothing.

    >>> low, high = wilson(9, 10)
    >>> round(low, 4), round(high, 4)
    (0.5958, 0.9821)
    """
    return _interval(hits, n, "wilson")


def _interval(hits: int, n: int, method: Literal["exact", "wilson"]) -> tuple[float, float]:
    from scipy.stats import binomtest

    if not n:
        return 0.0, 1.0
    low, high = binomtest(hits, n).proportion_ci(CONFIDENCE, method=method)
    return float(low), float(high)
