"""Differences between two results of one probe: metrics, nulls, tables, arrays and statuses."""

from __future__ import annotations

import numbers
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from mechint.results import ProbeResult


def differences(expected: ProbeResult, got: ProbeResult, tolerance: float) -> Iterator[str]:
    """Say what differs, one line each: "`name` is a and b", a of `expected`.

    Real numbers may differ by `tolerance`, relative to 1 or to themselves; whole numbers, texts,
    statuses, names and lengths may not. A number that is not finite is like itself alone. Columns
    of p-values are left out; what they are made of is compared.
    """
    parts = zip(_parts(expected), _parts(got), strict=True)
    for (name, value), (_, other) in parts:
        yield from _walk(name, value, other, tolerance)


def _parts(result: ProbeResult) -> Iterator[tuple[str, Any]]:
    """The parts that are compared, with their names; metrics by their own."""
    yield "", result.metrics
    yield "status", result.verdict
    yield "status of sentence", [finding.verdict for finding in result.findings]
    yield "null of ", {name: [null.observed, null.mean] for name, null in result.null.items()}
    yield (
        "table ",
        {
            # a p-value is a rank among the null's samples: at a tie the last bit decides it
            name: {key: cells for key, cells in table.columns.items() if "p_value" not in key}
            for name, table in result.tables.items()
        },
    )
    yield "array ", result.arrays


def _walk(name: str, value: Any, other: Any, tolerance: float) -> Iterator[str]:
    value, other = _plain(value), _plain(other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        if list(value) != list(other):
            yield f"{name or 'the metrics'} has {list(value)} and {list(other)}"
            return
        for key, item in value.items():
            inner = f"{name}{key}" if not name or name.endswith(" ") else f"{name}[{key}]"
            yield from _walk(inner, item, other[key], tolerance)
    elif isinstance(value, list) and isinstance(other, list):
        if len(value) != len(other):
            yield f"{name} has {len(value)} and {len(other)} entries"
            return
        for index, (item, its) in enumerate(zip(value, other, strict=True)):
            yield from _walk(f"{name}[{index}]", item, its, tolerance)
    elif not _close(value, other, tolerance):
        yield f"{name} is {value} and {other}"


def _plain(value: Any) -> Any:
    """A value as Python's own: arrays, tensors and tuples as lists, NumPy's numbers as numbers."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _close(value: Any, other: Any, tolerance: float) -> bool:
    real = isinstance(value, numbers.Real) and isinstance(other, numbers.Real)
    if not real or isinstance(value, numbers.Integral):
        return bool(value == other)
    a, b = float(value), float(other)
    if not (np.isfinite(a) and np.isfinite(b)):
        return a == b or (np.isnan(a) and np.isnan(b))
    return abs(a - b) <= tolerance * max(1.0, abs(a))


__all__ = ["differences"]
