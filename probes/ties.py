"""The first of many components, where rounding alone sets some apart."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

TIE = 1e-4
"""As a share of the largest: values that differ by less are the same. What float32 and the
size of a chunk move them by is less.
"""


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
