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


def per_time(rate: float) -> str:
    """A rate, given per second, in the unit that suits it.

    >>> per_time(1234.0), per_time(0.5), per_time(0.002)
    ('1,234 per second', '30 per minute', '7.2 per hour')
    """
    units = {"second": 1, "minute": 60, "hour": 3600}
    unit = next((name for name, seconds in units.items() if rate * seconds >= 1), "hour")
    number = rate * units[unit]
    return f"{number:,.0f} per {unit}" if number >= 10 else f"{number:.2g} per {unit}"
