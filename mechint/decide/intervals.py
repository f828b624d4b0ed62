"""Shares of n: their confidence intervals, exact and Wilson's, which are shorter, and the chance of
as many.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

import numpy as np

CONFIDENCE = 0.95


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a binomial share (Clopper & Pearson 1934); (0, 1) of nothing.

    >>> low, high = clopper_pearson(0, 400)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0092)
    """
    from scipy import special  # pyright: ignore[reportMissingTypeStubs]

    inverse: Any = special.betaincinv  # pyright: ignore[reportUnknownMemberType]
    tail = (1 - CONFIDENCE) / 2
    low = inverse(hits, n - hits + 1, tail) if hits else 0.0
    high = inverse(hits + 1, n - hits, 1 - tail) if hits < n else 1.0
    return float(low), float(high)


def wilson(hits: int, n: int) -> tuple[float, float]:
    """The 95% score interval of a binomial share (Wilson 1927); (0, 1) of nothing.

    >>> low, high = wilson(9, 10)
    >>> round(low, 4), round(high, 4)
    (0.5958, 0.9821)
    """
    if not n:
        return 0.0, 1.0
    share = hits / n
    z = NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
    center = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)
    return (low if hits else 0.0), (high if hits < n else 1.0)


def at_least(hits: int, n: int, share: float) -> float:
    """Probability of `hits` or more of n where each is one with probability `share`.

    Written out because a command is to import no scipy, which would take it a third of a second.

    >>> round(at_least(2, 3, 0.5), 9), at_least(0, 3, 0.5), at_least(1, 3, 0.0)
    (0.5, 1.0, 0.0)
    """
    if hits <= 0 or (share >= 1 and hits <= n):
        return 1.0
    if hits > n or share <= 0:
        return 0.0
    first = math.lgamma(n + 1) - math.lgamma(hits + 1) - math.lgamma(n - hits + 1)
    first += hits * math.log(share) + (n - hits) * math.log1p(-share)
    more = np.arange(hits, n)
    steps = np.log((n - more) / (more + 1)) + math.log(share) - math.log1p(-share)
    return min(1.0, float(np.exp(first + np.append(0.0, steps.cumsum())).sum()))
