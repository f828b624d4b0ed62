"""The memory that examples take, told before they are made."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

from mechint.errors import ParameterError

PROC, GROUPS = Path("/proc"), Path("/sys/fs/cgroup")
BYTES = 8
"""Of a token, and of a target."""

COPIES = 4
"""Copies of the examples in memory while they are made: drawn, joined, labeled, returned."""


def free_memory() -> int:
    """Bytes of memory that this machine could give now, and the limits of this process allow."""
    return max(0, min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), *_left()]))


def _left() -> Iterator[int]:
    """Bytes that the machine, the limit on addresses, and each control group (of version 1 and 2)
    leave this process; nothing where the system does not say.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        yield 1024 * _numbers(PROC / "meminfo")["MemAvailable"]
    with contextlib.suppress(OSError, ValueError, IndexError):
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        pages = int((PROC / "self/statm").read_text(encoding="ascii").split()[0])
        if limit != resource.RLIM_INFINITY:
            yield limit - pages * resource.getpagesize()
    with contextlib.suppress(OSError, ValueError):
        for line in (PROC / "self/cgroup").read_text(encoding="utf-8").splitlines():
            _, kinds, path = line.split(":", 2)
            if kinds and "memory" not in kinds.split(","):
                continue
            top = GROUPS / "memory" if kinds else GROUPS
            limit, used = ("memory.limit_in_bytes", "rss") if kinds else ("memory.max", "anon")
            for place in (top / path.strip("/"), *(top / path.strip("/")).parents):
                with contextlib.suppress(OSError, ValueError, KeyError):
                    allowed = int((place / limit).read_text(encoding="ascii"))
                    yield allowed - _numbers(place / "memory.stat")[used]


def _numbers(file: Path) -> dict[str, int]:
    """Name → number of a file with one of each in a line."""
    words = (line.split() for line in file.read_text(encoding="ascii").splitlines())
    return {name.rstrip(":"): int(number) for name, number, *_ in words}


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
