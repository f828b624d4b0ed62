"""What a part gives: rows that hold a number of the device against a number of the CPU or a target.

A row is JSON: `name`; `value` and `limit` with their `unit`; `holds`, None where it could not be
measured; a `note`. The rows of `benchmarks.gpu` are those of the table and are kept as they are.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
Row = dict[str, Any]


def at_most(name: str, value: float, limit: float, unit: str, note: str = "") -> Row:
    """A row that holds where `value` is finite and at most `limit`.

    >>> at_most("loss", 0.5, 1.0, "nats")["holds"], at_most("loss", math.nan, 1.0, "nats")["holds"]
    (True, False)
    """
    holds = math.isfinite(value) and value <= limit
    return {
        "name": name,
        "value": value,
        "limit": limit,
        "unit": unit,
        "holds": holds,
        "note": note,
    }


def unmeasured(name: str, note: str) -> Row:
    """A row that could not be measured here, and why."""
    return {
        "name": name,
        "value": None,
        "limit": None,
        "unit": "",
        "holds": None,
        "note": note,
    }


def guarded(name: str, measure: Callable[[], Row]) -> Row:
    """The row that `measure` gives, with its seconds; one that does not hold where it raises, so
    that an error costs its own row alone.

    >>> guarded("sum", lambda: at_most("sum", 1.0, 2.0, "nats"))["holds"]
    True
    >>> guarded("share", lambda: at_most("share", 1 / 0, 1.0, ""))["note"].split(" at ")[0]
    'ZeroDivisionError'
    """
    start = time.monotonic()
    try:
        row = measure()
    except Exception as error:  # whatever a device raises
        row = {**unmeasured(name, _where(error)), "holds": False}
    return {**row, "seconds": round(time.monotonic() - start, 2)}


def _where(error: Exception) -> str:
    """The kind of an error, the innermost line of this repository it passed, and what it says."""
    places = [
        f"{Path(frame.filename).relative_to(ROOT)}:{frame.lineno}"
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(ROOT) and "site-packages" not in frame.filename
    ]
    said = str(error).partition("\n")[0]
    return f"{type(error).__name__} at {places[-1] if places else '?'}: {said}"


def apart(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Largest |a − b| / max(1, |b|) of two lists; infinite where one is longer or not a number.

    >>> apart([1.0, 200.0], [1.0, 100.0]), apart([1.0], [])
    (1.0, inf)
    """
    if len(ours) != len(theirs):
        return math.inf
    gaps = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, theirs, strict=True)]
    return math.inf if any(math.isnan(gap) for gap in gaps) else max(gaps, default=0.0)


def farthest(theirs: Mapping[str, float], ours: Mapping[str, float]) -> tuple[float, str]:
    """Largest |a − b| / max(1, |b|) of the numbers of two sides by name, and which that is. Equal
    ones agree, infinite or not a number on both sides; infinite where a side lacks a name.

    >>> farthest({"a": 1.0, "b": math.nan, "c": 3.0}, {"a": 1.0, "b": math.nan, "c": 2.0})
    (0.5, 'c')
    >>> farthest({"a": 1.0, "b": 2.0}, {"b": 2.0, "c": 1.0})
    (inf, 'a, c on one side alone')
    """
    alone = sorted(set(theirs) ^ set(ours))
    if alone:
        return math.inf, f"{', '.join(alone)} on one side alone"

    def gap(name: str) -> float:
        a, b = theirs[name], ours[name]
        same = a == b or (math.isnan(a) and math.isnan(b))
        return 0.0 if same else apart([a], [b])

    name = max(ours, key=gap, default="none")
    return (gap(name), name) if ours else (0.0, name)


def numbers(tree: Any, path: str = "") -> dict[str, float]:
    """Path → number of every number in nested mappings and lists; truth values and texts left out.

    >>> numbers({"a": {"b": [1, 2.5]}, "c": True, "d": "e"})
    {'a/b/0': 1.0, 'a/b/1': 2.5}
    """
    if isinstance(tree, bool):
        return {}
    if isinstance(tree, int | float):
        return {path: float(tree)}
    if isinstance(tree, Mapping):
        entries = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple):
        entries = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return {}
    inside = (numbers(value, f"{path}/{key}".lstrip("/")) for key, value in entries)
    return {key: value for found in inside for key, value in found.items()}
