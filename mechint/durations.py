"""A time span in words, the same wherever one is shown."""

from __future__ import annotations


def in_words(seconds: float) -> str:
    """A duration in the unit that suits it.

    >>> in_words(30), in_words(600), in_words(7200)
    ('30 s', '10 min', '2.0 h')
    """
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
