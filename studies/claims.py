"""A claim of a paper as one testable statement, and its verdict.

    @claim("b1", "Read after the last layer, a mixture learns all hops.",
           theirs="all hops (figure)", statistic="share of runs that learn every hop",
           bar=above(0.4), planned=Planned(16, at=0.75), control="every run learns the 1-hop")
    def mixture(rows): ...

*supported*: the 95% interval of the statistic lies within the bar; *refuted*: outside of it;
*inconclusive*: it spans the bar, or the positive control fails; *not run*: no run says anything.

A criterion that was changed after runs were seen is `fresh`: what those runs say of it is
exploratory, a note and no verdict, and the runs of size fresh, of seeds never seen, judge it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from mechint.decide import Decision
from mechint.decide.words import STUDY
from mechint.errors import MechintError
from mechint.probe.results import PaperClaim
from mechint.studies.rows import NoRunsError, Rows
from mechint.studies.statistics import MIN_RUNS, Bar, Estimate, Planned

VERDICTS = SUPPORTED, REFUTED, INCONCLUSIVE, NOT_RUN = tuple(STUDY.values())


def above(end: float) -> Bar:
    """Values above `end`."""
    return end, math.inf


def below(end: float) -> Bar:
    """Values below `end`."""
    return -math.inf, end


def near(middle: float, margin: float) -> Bar:
    """Values within `margin` of `middle`."""
    return middle - margin, middle + margin


def in_words(bar: Bar) -> str:
    """A bar as text.

    >>> in_words(above(0.4)), in_words(near(2, 0.3))
    ('above 0.4', 'from 1.7 to 2.3')
    """
    low, high = bar
    if math.isinf(high):
        return f"above {low:g}"
    return f"below {high:g}" if math.isinf(low) else f"from {low:g} to {high:g}"


@dataclass(frozen=True)
class PositiveControl:
    """The positive control of a measurement: what must hold for it to be able to see the effect."""

    met: bool
    shown: str


def control_of(flags: Sequence[bool], least: float = 1.0) -> PositiveControl:
    """Met where at least the share `least` of the flags is, and there is one.

    >>> control_of([True, False], 0.5)
    PositiveControl(met=True, shown='1 of 2')
    """
    hits = sum(map(bool, flags))
    return PositiveControl(bool(flags) and hits >= least * len(flags), f"{hits} of {len(flags)}")


@dataclass(frozen=True)
class Found:
    """The finding of the rows: the estimate, the control, and a note that a reader needs.

    decision: of an exact test; by the estimate's interval where there is none.
    """

    estimate: Estimate
    control: PositiveControl
    note: str = ""
    decision: Decision | None = None


@dataclass(frozen=True)
class ClaimTest:
    """One testable statement and how rows are held against it.

    id: letter of the paper's claim and a number; theirs: the paper's figure, and where; statistic,
    bar, control: the criterion, fixed before the runs; planned: runs and what was expected of them;
    cost: of a claim that two cores do not decide; fresh: the criterion was changed after runs of
    size laptop were seen, and fresh seeds judge it; late: after those that judge it were seen;
    own: a statement of ours, which the paper does not make.
    """

    id: str
    statement: str
    theirs: str
    statistic: str
    bar: Bar
    control: str
    judge: Callable[[Rows], Found]
    planned: Planned | None = None
    cost: str = ""
    fresh: bool = False
    own: bool = False
    late: bool = False

    @property
    def criterion(self) -> str:
        """The criterion as text."""
        return f"{self.statistic} {in_words(self.bar)}; control: {self.control}"

    def hold(self, study: str, rows: Rows, size: str) -> PaperClaim:
        """The claim with the verdict that the rows give it."""
        asked = PaperClaim(
            study,
            self.id,
            self.statement,
            theirs=self.theirs,
            criterion=self.criterion,
            power=self.planned.power(self.bar) if self.planned else None,
            size=size,
            own=self.own,
            late=self.late,
        )
        rows = Rows(rows)
        if size == "fresh" and not self.fresh:
            return dataclasses.replace(asked, note="judged by the runs of size laptop")
        try:
            found = self.judge(rows)
        except NoRunsError as missing:
            reason = f"takes {self.cost}" if self.cost else str(missing)
            return dataclasses.replace(asked, note=reason)
        except MechintError as error:
            return dataclasses.replace(asked, verdict=INCONCLUSIVE, note=f"not measured: {error}")
        estimate, control = found.estimate, found.control
        asked = dataclasses.replace(asked, experiment=tuple(sorted(rows.arms)))
        if self.fresh and size in ("laptop", "overnight"):
            seen = f"exploratory, on runs that suggested it: {estimate}"
            return dataclasses.replace(asked, note=seen)
        unmet = Decision("unclear", f"no verdict, for want of the control: {control.shown}")
        exact = found.decision
        held = estimate.held_to(self.bar) if exact is None else exact
        decision = held if control.met else unmet
        return dataclasses.replace(
            asked,
            verdict=STUDY[decision.verdict],
            value=estimate.value,
            interval=(estimate.low, estimate.high),
            n=estimate.n,
            power=self._power(estimate.n),
            ours=str(estimate),
            control=f"{'met' if control.met else 'failed'}: {control.shown}",
            note=found.note if control.met else decision.reason,
            date=span(rows.dates),
        )

    def _power(self, n: int) -> float | None:
        """The power that `n` runs, those made, have for what was planned."""
        if self.planned is None or n < MIN_RUNS:
            return None
        return dataclasses.replace(self.planned, n=n).power(self.bar)


def span(dates: Iterable[str]) -> str:
    """The first and the last of some dates.

    >>> span(["2026-11-23", "2026-11-26", "2026-11-25"]), span(["2026-11-23"])
    ('2026-11-23 to 2026-11-26', '2026-11-23')
    """
    found = sorted(set(dates))
    return " to ".join(dict.fromkeys([found[0], found[-1]])) if found else ""


def claim(
    id: str,
    statement: str,
    *,
    theirs: str,
    statistic: str,
    bar: Bar,
    control: str,
    planned: Planned | None = None,
    cost: str = "",
    fresh: bool = False,
    own: bool = False,
    late: bool = False,
) -> Callable[[Callable[[Rows], Found]], ClaimTest]:
    """Make a ClaimTest of the function that judges it."""

    def made(judge: Callable[[Rows], Found]) -> ClaimTest:
        criterion = (id, statement, theirs, statistic, bar, control)
        return ClaimTest(*criterion, judge, planned, cost, fresh, own, late)

    return made
