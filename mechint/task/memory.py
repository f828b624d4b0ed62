"""The memory that examples take, told before they are made."""

from __future__ import annotations

import os
from pathlib import Path

from mechint.errors import ParameterError

BYTES = 8
"""Of a token, and of a target."""

COPIES = 4
"""Copies of the examples in memory while they are made: drawn, joined, labeled, returned."""


def free_memory() -> int:
    """Bytes of memory that this machine could give now."""
    try:
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def example_bytes(n: int, n_ctx: int, n_outputs: int) -> int:
    """About how many bytes `n` examples of `n_ctx` tokens take at most while they are made.

    >>> example_bytes(100, 3, 1) == 100 * 3 * 2 * 8 * 4
    True
    """
    return n * n_ctx * (1 + n_outputs) * BYTES * COPIES


def check_fits(name: str, n: int, n_ctx: int, n_outputs: int) -> None:
    """ParameterError where `n` examples do not fit in what is free."""
    needed, free = example_bytes(n, n_ctx, n_outputs), free_memory()
    if needed > free:
        raise ParameterError(
            f"{name}: {n} examples of {n_ctx} tokens and {n_outputs} outputs need about "
            f"{needed / 2**30:.3g} GiB; {free / 2**30:.3g} GiB are free; ask for fewer, or make "
            "the task smaller"
        )
