"""Confidence intervals of shares: exact, and Wilson's, which are shorter."""

from __future__ import annotations

import math
from typing import Any

CONFIDENCE = 0.95


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a binomial share (Clopper & Pearson 1934); (0, 1) of nothing.

    >>> low, high = clopper_pearson(0, 400)
    >>> round(low, 4), round(high, 4)
    (0.0, 0.0092)
    """
    inverse: Any = _special().betaincinv
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
    z = float(_special().ndtri((1 + CONFIDENCE) / 2))
    center = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = (center - half) / (1 + z * z / n), (center + half) / (1 + z * z / n)
    return (low if hits else 0.0), (high if hits < n else 1.0)


def _special() -> Any:
    from scipy import special  # scipy.stats, which has both, takes a second to import

    return special
