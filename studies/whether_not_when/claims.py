"""The claims of the study of when sums are solved: all are ours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from mechint.studies.claims import ClaimTest, Sample, above, at_least, below, near, some_but_not_all
from mechint.studies.rows import Row
from mechint.studies.statistics import MIN_RUNS, Bar, bootstrap, pooled_difference

MIXTURE, ALONE = "triplets MAX+MED+ADD", "triplets ADD"
WIDTHS = (8, 16, 32, 64)
CONSTANT = ", constant rate"
EARLY = 5000
ALIKE = (2 / 3, 3 / 2)
"""Ratios of solving times that count as no difference; half the steps, as claimed, is outside."""

NAMES = {"normal": "N(0, 0.02)", "torch": "PyTorch's initialization"}


def ever(row: Row) -> bool:
    """Return whether a run ever solved the held-out sums."""
    return math.isfinite(row["solved_at"])


def time_ratio(*groups: Sequence[float]) -> float:
    """Geometric mean over widths of the mixture's median time over that alone; the groups are
    mixture and alone, width after width.
    """
    medians = np.log([float(np.median(each)) for each in groups])
    return float(np.exp((medians[::2] - medians[1::2]).mean()))


def groups(init: str, widths: Sequence[int], measure: Any, **more: Any) -> tuple[Sample, ...]:
    """Mixtures and models of sums alone, width after width."""
    arms = [(arm, {"init": init, "width": width}) for width in widths for arm in (MIXTURE, ALONE)]
    return tuple(Sample(arm, measure, labels=labels, **more) for arm, labels in arms)


def steady(init: str, measure: Any) -> tuple[Sample, ...]:
    """Mixtures and models of sums alone, 32 wide, trained at a constant rate."""
    labels = {"init": init, "width": 32}
    return tuple(Sample(f"{arm}{CONSTANT}", measure, labels=labels) for arm in (MIXTURE, ALONE))


def growth(mixture: Sequence[float], alone: Sequence[float]) -> float:
    """Change of the difference of the shares that have solved, from EARLY steps to the end.

    >>> round(growth([100.0, 9000.0], [200.0, math.inf]), 2)
    0.5
    """
    late = np.isfinite(mixture).mean() - np.isfinite(alone).mean()
    return float(late - (np.mean(np.array(mixture) <= EARLY) - np.mean(np.array(alone) <= EARLY)))


def wide(init: str, widths: Sequence[int]) -> str:
    """The initialization and the widths as text."""
    several = f"widths {widths[0]} to {widths[-1]} alike"
    return f"{NAMES[init]}, {several if len(widths) > 1 else f'{widths[0]} wide'},"


def whether(
    id: str, says: str, init: str, widths: Sequence[int], bar: Bar, cost: str = ""
) -> ClaimTest:
    """A claim about the share that ever solves; the control asks that runs can be seen to."""
    return ClaimTest(
        id,
        says,
        "ours; Small Models, Smarter Learning: 100% against about 50%",
        f"share of runs ever at 0.9, mixture minus alone, {wide(init, widths)}",
        bar,
        "some runs solve and some do not",
        groups(init, widths, ever),
        pooled_difference,
        some_but_not_all,
        cost=cost,
        **OURS,
    )


def when(id: str, says: str, init: str, widths: Sequence[int], cost: str = "") -> ClaimTest:
    """A claim about the time at which those that solve do."""
    return ClaimTest(
        id,
        says,
        "ours; Small Models, Smarter Learning: about half the steps (Fig. 4, 23, 24)",
        "median step at 0.9 among runs that get there, mixture over alone, bootstrap, "
        f"{wide(init, widths)}",
        ALIKE,
        "at least 3 runs of each group get there",
        groups(init, widths, lambda row: row["solved_at"], only=ever),
        partial(bootstrap, time_ratio),
        at_least(MIN_RUNS),
        cost=cost,
        **OURS,
    )


OURS: dict[str, Any] = {"fresh": True, "own": True}
MORE = "Beside maxima and medians more models ever solve held-out sums than alone"
SAME = "Those that solve do so as late beside maxima and medians as alone"
NONE = "From PyTorch's initialization no more models solve beside maxima and medians, 64 wide."
NIGHT = "0.8 core-hours: 12 runs a width and arm"
STEADY = "0.7 core-hours: 24 runs an arm and initialization"
CLAIMS = (
    whether("a1", f"{MORE}, 64 wide.", "normal", (64,), above(0)),
    whether("a2", f"{MORE}, 8 to 64 wide.", "normal", WIDTHS, above(0), NIGHT),
    when("b1", f"{SAME}, 64 wide.", "normal", (64,)),
    when("b2", f"{SAME}, 8 to 64 wide.", "normal", WIDTHS, NIGHT),
    whether("c1", NONE, "torch", (64,), below(0.2)),
    whether("c2", "The same 8 to 64 wide.", "torch", WIDTHS, below(0.2), NIGHT),
    replace(
        whether("d1", f"At a constant rate {MORE.lower()}, 32 wide.", "normal", (32,), above(0)),
        samples=steady("normal", ever),
        cost=STEADY,
        statistic="share of runs ever at 0.9, mixture minus alone, 20,000 steps,",
    ),
    ClaimTest(
        "d2",
        "The difference at 20,000 steps of a constant rate is that at 5,000.",
        "ours",
        "share at 0.9 by 20,000 steps less that by 5,000, mixture minus alone, bootstrap,",
        near(0, 0.25),
        "some runs solve and some do not",
        steady("normal", lambda row: row["solved_at"]),
        partial(bootstrap, growth),
        some_but_not_all,
        steady("normal", ever),
        cost=STEADY,
        **OURS,
    ),
    replace(
        whether("d3", "The same at a constant rate, 32 wide.", "torch", (32,), below(0.2)),
        samples=steady("torch", ever),
        cost="up to 1.9 core-hours: 48 runs",
        statistic="share of runs ever at 0.9, mixture minus alone, 20,000 steps,",
    ),
)
