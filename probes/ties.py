"""The first of many components, where rounding or too few examples alone set some apart."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from jaxtyping import Float

TIE = 1e-4
"""As a share of the largest: values that differ by less are the same. What float32 and the
size of a chunk move them by is less.
"""
FAR = 3
"""Standard errors of a mean difference over examples, from which on two components are apart."""


def tied(values: Float[np.ndarray, " n"]) -> list[list[int]]:
    """Indices of `values`, the largest first, those that tie with it together, in the order in
    which they stand.

    >>> tied(np.array([0.2, 0.99999998, 0.5, 0.99999999]))
    [[1, 3], [2], [0]]
    """
    tie = TIE * float(np.abs(values[np.isfinite(values)]).max(initial=0.0))
    left, groups = np.argsort(-values, kind="stable"), list[list[int]]()
    while len(left):
        with_first = values[left] >= values[left[0]] - tie
        with_first[0] = True  # a NaN ties with nothing
        groups.append(sorted(left[with_first].tolist()))
        left = left[~with_first]
    return groups


def not_told_apart(
    values: Float[np.ndarray, "component example"], top: int, others: Iterable[int]
) -> list[int]:
    """Of the components `others`, those whose `values` are not distinguishable from those of the
    largest, `top`: the mean difference is within `FAR` standard errors.

    >>> apart = np.array([[2.0, 4.0, 3.0, 4.0], [1.9, 4.1, 2.9, 4.1], [0.5, 2.4, 1.5, 2.5]])
    >>> not_told_apart(apart, 0, [1, 2])
    [1]
    """
    others = sorted(others)
    gaps = values[top] - values[others]
    error = gaps.std(1) / np.sqrt(max(gaps.shape[1] - 1, 1))
    return [i for i, gap, one in zip(others, gaps.mean(1), error, strict=True) if gap <= FAR * one]
