"""How the time of a step grows with width, context and models, and that of DAS with pairs: the
exponent a in time ∝ size^a, by least squares in the logarithms of both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from benchmarks.das import HOOK, LR, trained
from benchmarks.timing import Bench, Row, Seconds, shown, timer
from benchmarks.workloads import Workload, listops
from mechint.counterfactuals import draw
from probes._das import SwapSite, fit

WARM_UP = 2
WIDTHS, LENGTHS, MODELS, PAIRS = (24, 48, 96, 192), (16, 64, 256), (1, 4, 16, 64), (64, 256, 1024)
DAS_STEPS = 20


def slope(sizes: Mapping[float, float]) -> float:
    """The exponent of size → seconds.

    >>> round(slope({1.0: 2.0, 2.0: 8.0, 4.0: 32.0}), 6)
    2.0
    """
    x, y = (np.log(np.array(list(one), dtype=float)) for one in (sizes, sizes.values()))
    return float(np.polyfit(x, y, 1)[0])


def rows(bench: Bench) -> Iterator[Row]:
    """The rows of growth."""
    yield grown(bench, "step, listops over width", WIDTHS, lambda n: stepped(listops(n, 3, 1.0)))
    yield grown(bench, "step, running-sign 48×3 over context", LENGTHS, in_context)
    yield grown(
        bench,
        "step, listops 24×2 over models",
        MODELS,
        lambda n: stepped(listops(24, 2, 1.0), n),
    )
    yield grown(bench, "DAS, comparison over pairs a step", PAIRS, aligned())


def grown(
    bench: Bench,
    name: str,
    over: tuple[int, ...],
    of: Callable[[int], Seconds],
) -> Row:
    """One row: the exponent, with the seconds at the ends."""
    found: dict[float, float] = {}
    for n in over:
        once = of(n)
        found[n] = statistics.median(once() for _ in range(bench.repeats(3)))
    (least, low), *_, (most, high) = found.items()
    note = f"{1e3 * low:.3g} ms at {least:g}, {1e3 * high:.3g} ms at {most:g}"
    return shown(f"growth: {name}", slope(found), "exponent", note)


def stepped(workload: Workload, models: int = 1) -> Seconds:
    """A training step of `models` models, warmed up."""
    ensemble = workload.ensemble(range(models))
    for _ in range(WARM_UP):
        ensemble.advance()
    return timer(ensemble.advance, max(1, 8 // models))


def in_context(length: int) -> Seconds:
    """A step on sequences of `length`, every position of which is read."""
    shape = {"n_layers": 3, "d_model": 48, "n_heads": 1, "attn_only": False}
    return stepped(Workload(f"{length}", "running-sign", 1.0, 1, {"length": length}, shape))


def aligned() -> Callable[[int], Seconds]:
    """pairs a step → a DAS fit of `DAS_STEPS` steps."""
    subject = trained()
    task = subject.task
    assert task is not None
    pairs = draw(subject, task.variables["rank of a"], 2048, 0)
    site = SwapSite(subject, pairs, HOOK, 0)

    def of(batch: int) -> Seconds:
        return timer(lambda: fit(site, task, 1, steps=DAS_STEPS, batch_size=batch, lr=LR, seed=0))

    return of
