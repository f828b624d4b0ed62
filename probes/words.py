"""Lists in the sentences of findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mechint.errors import counted

LISTED = 8
"""At most so many names are spelled out in a sentence."""


def listed(items: Iterable[object]) -> str:
    """Words with commas and "and".

    >>> listed([3, 15, 17])
    '3, 15 and 17'
    """
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def first_of(items: Sequence[object]) -> str:
    """The first `LISTED` words, and how many more there are.

    >>> first_of(range(11))
    '0, 1, 2, 3, 4, 5, 6, 7 and 3 others'
    """
    more = [counted(len(items) - LISTED, "other")] if len(items) > LISTED else []
    return listed([*items[:LISTED], *more])
