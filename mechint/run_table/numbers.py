"""The cells of a table of models that count as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mechint.errors import UnknownNameError

Row = Mapping[str, Any]


def is_number(value: Any) -> bool:
    """Return whether a cell holds a finite number; a truth value, a text, NaN and ∞ are none.

    >>> [is_number(value) for value in (1, 0.5, True, float("nan"), float("inf"), "1", None)]
    [True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def in_words(column: str) -> str:
    """A column of measured numbers as a title: the probe, and what it measured.

    >>> in_words("norms.norms.L0 MLP"), in_words("lens.final_accuracy"), in_words("test.loss")
    ('norms: L0 MLP', 'lens: final accuracy', 'test loss')
    """
    first, dot, rest = column.partition(".")
    words = rest.removeprefix(f"{first}.").replace("_", " ").replace(".", " ")
    if first in ("train", "test"):
        return f"{first} {words}"
    return f"{first}: {words}" if dot else column


def all_numbers(rows: Sequence[Row], column: str) -> bool:
    """Return whether every row holds a number in `column`."""
    return all(is_number(row.get(column)) for row in rows)


def check_column(rows: Sequence[Row], column: str) -> None:
    """Raise UnknownNameError where no row has `column`."""
    names = {name for row in rows for name in row}
    if column not in names:
        raise UnknownNameError.of("column", column, names)
