"""Confidence intervals of shares: exact, and Wilson's, which are shorter."""

from __future__ import annotations

CONFIDENCE = 0.95


def clopper_pearson(hits: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The exact interval of a binomial share (Clopper & Pearson 1934); (0, 1) of nothing.

    >>> low, high = clopper_pearson(0, 400)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0092)
    """
    from scipy.stats import beta

    tail = (1 - confidence) / 2
    low = float(beta.ppf(tail, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, n - hits)) if hits < n else 1.0
    return low, high


def wilson(hits: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """The score interval of a binomial share (Wilson 1927); (0, 1) of nothing.

    >>> low, high = wilson(9, 10)
    >>> round(low, 4), round(high, 4)
    (0.5958, 0.9821)
    """
    from scipy.stats import binomtest

    if not n:
        return 0.0, 1.0
    low, high = binomtest(hits, n).proportion_ci(confidence, method="wilson")
    return float(low), float(high)
