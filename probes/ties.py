"""Which of many components stands first, where rounding alone sets some of them apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from probes.words import first_of

TIE = 1e-4
"""As a share of the largest: values that differ by less are not told apart. What float32 and the
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


def as_much(others: Sequence[str]) -> str:
    """What is said of those that tie with the one named; "" where there are none.

    >>> as_much([]), as_much(["mlp 0", "head 0.1"])
    ('', ' (mlp 0 and head 0.1 as much)')
    """
    return f" ({first_of(others)} as much)" if others else ""
