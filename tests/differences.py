"""Departures of values from recorded ones, with a tolerance for what a processor rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any


def differences(where: str, old: Any, new: Any, rtol: float, atol: float) -> Iterator[str]:
    """Departures of `new` from the recorded `old`, a line each; names only in `new` are ignored."""
    if isinstance(old, dict):
        if not isinstance(new, dict):
            yield f"{where}: recorded a mapping, got {new!r}"
            return
        for name, value in old.items():
            if name in new:
                yield from differences(f"{where} / {name}", value, new[name], rtol, atol)
            else:
                yield f"{where} / {name}: recorded, but missing now"
    elif isinstance(old, list):
        if not isinstance(new, list) or len(new) != len(old):
            yield f"{where}: recorded {old!r}, got {new!r}"
            return
        for i, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from differences(f"{where}[{i}]", one, other, rtol, atol)
    elif not same(old, new, rtol, atol):
        gap = f" (off by {abs(new - old):.2g})" if number(old) and number(new) else ""
        yield f"{where}: recorded {old!r}, got {new!r}{gap}"


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def same(old: Any, new: Any, rtol: float, atol: float) -> bool:
    """Floats to tolerance, nan equal to nan, inf to inf of its sign; all else exactly."""
    if isinstance(old, float) and number(new):
        if math.isnan(old) or math.isnan(new):
            return math.isnan(old) and math.isnan(new)
        return old == new or math.isclose(old, new, rel_tol=rtol, abs_tol=atol)
    return old == new and (type(old) is type(new) or (number(old) and number(new)))


def report(lines: list[str]) -> str:
    more = [f"… and {len(lines) - 20} more"] if len(lines) > 20 else []
    return "\n".join([f"{len(lines)} recorded values changed:", *lines[:20], *more])
