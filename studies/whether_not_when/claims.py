"""The claims of the study of when sums are solved: all are ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mechint.studies.claims import ClaimTest, Found, PositiveControl, above, below, claim
from mechint.studies.rows import NoRunsError, Rows
from mechint.studies.statistics import MIN_RUNS, Bar, bootstrap, difference, share

MIXTURE, ALONE = "triplets MAX+MED+ADD", "triplets ADD"
WIDTHS = (8, 16, 32, 64)
ALIKE = (2 / 3, 3 / 2)
"""Ratios of solving times that count as no difference; half the steps, as claimed, is outside."""

NAMES = {"normal": "N(0, 0.02)", "torch": "PyTorch's initialization"}


def arms(rows: Rows, init: str, widths: Sequence[int]) -> dict[int, tuple[Rows, Rows]]:
    """Width → mixtures and models of sums alone; NoRunsError where one was not trained."""
    return {
        width: (
            rows.where(arm=MIXTURE, init=init, width=width),
            rows.where(arm=ALONE, init=init, width=width),
        )
        for width in widths
    }


def ever(rows: Rows) -> list[bool]:
    """For each run, whether it ever solved the held-out sums."""
    return [math.isfinite(at) for at in rows.column("solved_at")]


def times(rows: Rows) -> list[float]:
    """The steps at which the runs that solve do."""
    return [at for at in rows.column("solved_at") if math.isfinite(at)]


def time_ratio(*groups: Sequence[float]) -> float:
    """Geometric mean over widths of the mixture's median time over that alone; the groups are
    mixture and alone, width after width.
    """
    medians = np.log([float(np.median(each)) for each in groups])
    return float(np.exp((medians[::2] - medians[1::2]).mean()))


def whether(rows: Rows, init: str, widths: Sequence[int]) -> Found:
    """The share that ever solves, mixture less alone; the control asks that mixtures can be seen to
    solve at all, in either initialization.
    """
    pairs = arms(rows, init, widths).values()
    mixture, alone = ([one for pair in pairs for one in ever(pair[side])] for side in (0, 1))
    shown = share([*mixture, *alone])
    return Found(
        difference(mixture, alone), PositiveControl(0 < shown.value < 1, f"{shown.shown} solve")
    )


def when(rows: Rows, init: str, widths: Sequence[int]) -> Found:
    """The solving time, mixture over alone, of the runs that solve."""
    groups = [times(one) for pair in arms(rows, init, widths).values() for one in pair]
    fewest = min(map(len, groups))
    if not fewest:
        raise NoRunsError("a group of runs of which none solves")
    control = PositiveControl(fewest >= MIN_RUNS, f"at least {fewest} solve in each group")
    medians = ", ".join(f"{np.median(each):,.0f}" for each in groups)
    return Found(bootstrap(time_ratio, *groups), control, f"median steps {medians}")


def whether_claim(
    id: str, says: str, init: str, widths: Sequence[int], bar: Bar, cost: str = ""
) -> ClaimTest:
    """A claim about the share that ever solves."""

    @claim(
        id,
        says,
        theirs="ours; Small Models, Smarter Learning: 100% against about 50%",
        statistic="share of runs ever at 0.9, mixture minus alone, "
        f"{NAMES[init]}, {_wide(widths)},",
        bar=bar,
        control="some runs solve and some do not",
        cost=cost,
        fresh=True,
        own=True,
    )
    def judge(rows: Rows) -> Found:
        return whether(rows, init, widths)

    return judge


def when_claim(id: str, says: str, init: str, widths: Sequence[int], cost: str = "") -> ClaimTest:
    """A claim about the time at which those that solve do."""

    @claim(
        id,
        says,
        theirs="ours; Small Models, Smarter Learning: about half the steps (Fig. 4, 23, 24)",
        statistic="median step at 0.9 among runs that get there, mixture over alone, bootstrap, "
        f"{NAMES[init]}, {_wide(widths)},",
        bar=ALIKE,
        control="at least 3 runs of each group get there",
        cost=cost,
        fresh=True,
        own=True,
    )
    def judge(rows: Rows) -> Found:
        return when(rows, init, widths)

    return judge


def _wide(widths: Sequence[int]) -> str:
    return f"{widths[0]} wide" if len(widths) == 1 else f"widths {widths[0]} to {widths[-1]} alike"


MORE = "Beside maxima and medians more models ever solve held-out sums than alone"
SAME = "Those that solve do so as late beside maxima and medians as alone"
NIGHT = "0.8 core-hours: 12 runs a width and arm"
CLAIMS = (
    whether_claim("a1", f"{MORE}, 64 wide.", "normal", (64,), above(0)),
    whether_claim("a2", f"{MORE}, 8 to 64 wide.", "normal", WIDTHS, above(0), NIGHT),
    when_claim("b1", f"{SAME}, 64 wide.", "normal", (64,)),
    when_claim("b2", f"{SAME}, 8 to 64 wide.", "normal", WIDTHS, NIGHT),
    whether_claim(
        "c1",
        "From PyTorch's initialization no more models solve beside maxima and medians, 64 wide.",
        "torch",
        (64,),
        below(0.2),
    ),
    whether_claim(
        "c2",
        "The same 8 to 64 wide.",
        "torch",
        WIDTHS,
        below(0.2),
        NIGHT,
    ),
)
