"""Rows of the table: paired runs in turn, the ratio of each pair, and medians of both.

Machines are noisy, and a ratio holds where a time does not: ours and the peer run A B A B …, and
the ratio is the median over the pairs. `ratio` is always peer over ours, so more is better; `met`
compares it with `target`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.peers.process import Peer, find_peer

Row = dict[str, Any]
Seconds = Callable[[], float]


class BenchSettings:
    """Settings of every section.

    threads: of ours and of the peer; quick: a single short pair each, to see that all runs; folder:
    a place for runs.
    """

    def __init__(self, threads: int, quick: bool = False) -> None:
        torch.set_num_threads(threads)
        self.threads, self.quick = threads, quick
        self._folder = TemporaryDirectory(prefix="mechint-bench-")
        self.folder = Path(self._folder.name)
        self.peer: Peer | None = find_peer(threads)

    def repeats(self, n: int) -> int:
        return 1 if self.quick else n

    def close(self) -> None:
        if self.peer is not None:
            self.peer.close()
        self._folder.cleanup()


def seconds(action: Callable[[], Any]) -> float:
    """Wall-clock seconds of one call."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def timer(action: Callable[[], Any], times: int = 1) -> Seconds:
    """A function that makes the call `times` times and gives the seconds of one."""

    def run() -> float:
        return seconds(lambda: [action() for _ in range(times)]) / times

    return run


def paired(ours: Seconds, peer: Seconds, repeats: int) -> tuple[float, float, float]:
    """Medians of ours and of the peer, and of their ratio pair by pair.

    >>> paired(iter([1.0, 2.0, 4.0]).__next__, iter([3.0, 6.0, 4.0]).__next__, 3)
    (2.0, 4.0, 3.0)
    """
    pairs = [(ours(), peer()) for _ in range(repeats)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(b / a for a, b in pairs),
    )


def versus(workload: str, measured: tuple[float, float, float], target: float, **more: Any) -> Row:
    """A row from `paired`; seconds unless `unit` says otherwise."""
    ours, peer, ratio = measured
    return {
        "workload": workload,
        "ours": ours,
        "peer": peer,
        "ratio": ratio,
        "target": target,
        "met": ratio >= target,
        "unit": "s",
        "bound": "ratio",
        **more,
    }


def bounded(workload: str, ours: float, target: float, bound: str, **more: Any) -> Row:
    """A row without a peer: `ours` is to be "at most" or "at least" the target."""
    met = ours <= target if bound == "at most" else ours >= target
    return {
        "workload": workload,
        "ours": ours,
        "peer": None,
        "ratio": None,
        "target": target,
        "met": met,
        "unit": "s",
        "bound": bound,
        **more,
    }


def missing(
    workload: str, ours: float | None, target: float, note: str, bound: str = "ratio"
) -> Row:
    """A row that could not be measured, and why."""
    return {
        "workload": workload,
        "ours": ours,
        "peer": None,
        "ratio": None,
        "target": target,
        "met": None,
        "unit": "s",
        "bound": bound,
        "note": note,
    }
