"""Numbers and lists in headlines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mechint.errors import NUMBERS, counted, plural

MAX_LISTED = 8
"""At most so many names are spelled out."""


def in_words(n: int, noun: str) -> str:
    """A number and its noun, spelled out up to ten.

    >>> in_words(6, "frequency"), in_words(1, "frequency"), in_words(14, "circle")
    ('six frequencies', 'one frequency', '14 circles')
    """
    return f"{NUMBERS[n]} {plural(noun, n)}" if n < len(NUMBERS) else counted(n, noun)


def named(items: Sequence[object], limit: int = MAX_LISTED) -> str:
    """The items with commas; of more than `limit` the first ones, and how many there are more.

    >>> named([3, 15, 17]), named(range(11), 8)
    ('3, 15, 17', '0, 1, 2, 3, 4, 5 and 5 others')
    """
    if len(items) <= limit:
        return ", ".join(map(str, items))
    shown = items[: limit - 2]
    return f"{', '.join(map(str, shown))} and {counted(len(items) - len(shown), 'other')}"


def listed(items: Iterable[object]) -> str:
    """Words with commas and "and".

    >>> listed([3, 15, 17])
    '3, 15 and 17'
    """
    words = [str(item) for item in items]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
