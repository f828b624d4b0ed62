"""A claim of a paper as one testable statement, a row of a table, and its verdict.

    ClaimTest(
        "b1", "Read after the last layer, a mixture learns all hops.", theirs="all hops (figure)",
        statistic="share of runs that learn every hop", bar=above(0.4),
        samples=(Sample("mixture", learned_all),), estimator=share,
        control="every run learns the 1-hop",
        beside=(Sample("mixture", learned_first),), check=control_of,
        planned=Planned(16, at=0.75),
    )

The estimator gets the values of the samples, the check those of the samples beside, or the same
where there are none beside. *supported*: the 95% interval of the estimate lies within the bar;
*refuted*: outside of it; *inconclusive*: it spans the bar, or the positive control fails; *not
run*: no run says anything.

A criterion that was changed after runs were seen is `fresh`: what those runs say of it is
exploratory, a note and no verdict, and the runs of size fresh, of seeds never seen, judge it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mechint.decide import Decision
from mechint.decide.words import STUDY
from mechint.errors import MechintError
from mechint.probe.results import PaperClaim
from mechint.studies.rows import NoRunsError, Row, Rows
from mechint.studies.statistics import Bar, Estimate, Planned, share

VERDICTS = SUPPORTED, REFUTED, INCONCLUSIVE, NOT_RUN = tuple(STUDY.values())
Values = Sequence[Any]


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
class Sample:
    """The runs of an arm, or of several, and what is read of them.

    measure: a column by its dotted name, of the runs that have it, or a function of a run; by: the
    label of which all runs with one value are a unit, and the measure a function of its rows;
    labels: of the runs; only: which of them are kept.

    >>> rows = Rows([{"arm": "a", "seed": 1, "x": 0.5}, {"arm": "a", "seed": 2, "x": 0.7}])
    >>> Sample("a", "x")(rows), Sample("a", len, by="seed")(rows)
    ([0.5, 0.7], [1, 1])
    """

    arm: str | tuple[str, ...]
    measure: str | Callable[[Any], Any]
    by: str = ""
    labels: Mapping[str, Any] = field(default_factory=dict[str, Any])
    only: Callable[[Row], bool] = bool

    def __call__(self, rows: Rows) -> list[Any]:
        """The values; NoRunsError where there is no such run."""
        arms = (self.arm,) if isinstance(self.arm, str) else self.arm
        runs = [row for arm in arms for row in rows.where(arm=arm, **self.labels)]
        kept = Rows([row for row in runs if self.only(row)])
        if isinstance(self.measure, str):
            return kept.having(self.measure).column(self.measure)
        return [self.measure(unit) for unit in (kept.by(self.by).values() if self.by else kept)]


@dataclass(frozen=True)
class PositiveControl:
    """The positive control of a measurement: what must hold for it to be able to see the effect."""

    met: bool
    shown: str


def control_of(flags: Values, least: float = 1.0) -> PositiveControl:
    """Met where at least the share `least` of the flags is, and there is one.

    >>> control_of([True, False], 0.5)
    PositiveControl(met=True, shown='1 of 2')
    """
    hits = sum(map(bool, flags))
    return PositiveControl(bool(flags) and hits >= least * len(flags), f"{hits} of {len(flags)}")


def interval_above(
    end: float, estimator: Callable[..., Estimate] = share
) -> Callable[..., PositiveControl]:
    """Met where the interval of an estimate lies above `end`."""

    def check(*groups: Values) -> PositiveControl:
        found = estimator(*groups)
        return PositiveControl(found.low > end, str(found))

    return check


def value_in(
    low: float, high: float = math.inf, of: Callable[[Values], Any] = np.mean
) -> Callable[..., PositiveControl]:
    """Met where a number of the values, their mean, lies from `low` to `high`."""

    def check(values: Values) -> PositiveControl:
        found = float(of(values)) if values else math.nan
        return PositiveControl(low <= found <= high, f"{found:.3g}")

    return check


def at_least(runs: int) -> Callable[..., PositiveControl]:
    """Met where every group has so many runs."""
    return lambda *groups: PositiveControl(
        min(map(len, groups)) >= runs, f"{' and '.join(str(len(one)) for one in groups)} runs"
    )


def some_but_not_all(*groups: Values) -> PositiveControl:
    """Met where some flags hold and some do not, all groups together."""
    found = share([flag for group in groups for flag in group])
    return PositiveControl(0 < found.value < 1, f"{found.shown} solve")


def every(*checks: Callable[..., PositiveControl]) -> Callable[..., PositiveControl]:
    """Met where each check of a group of its own is, in their order."""

    def check(*groups: Values) -> PositiveControl:
        found = [one(group) for one, group in zip(checks, groups, strict=True)]
        return PositiveControl(all(one.met for one in found), "; ".join(o.shown for o in found))

    return check


@dataclass(frozen=True)
class ClaimTest:
    """One testable statement and how rows are held against it.

    id: letter of the paper's claim and a number; theirs: the paper's figure, and where; statistic,
    bar, control: the criterion, fixed before the runs, and samples, estimator, beside, check: the
    same to be computed; a claim without samples is not run; note: a sentence of the rows; planned:
    runs and what was expected of them; cost: of a claim that two cores do not decide; fresh: the
    criterion was changed after runs of size laptop were seen, and fresh seeds judge it; late: after
    those that judge it were seen; own: a statement of ours, which the paper does not make.
    """

    id: str
    statement: str
    theirs: str
    statistic: str
    bar: Bar
    control: str
    samples: tuple[Callable[[Rows], Values], ...] = ()
    estimator: Callable[..., Estimate] = share
    check: Callable[..., PositiveControl] = control_of
    beside: tuple[Callable[[Rows], Values], ...] = ()
    note: Callable[[Rows], str] = lambda _: ""
    planned: Planned | None = None
    cost: str = ""
    fresh: bool = False
    own: bool = False
    late: bool = False

    @property
    def criterion(self) -> str:
        """The criterion as text."""
        return f"{self.statistic} {in_words(self.bar)}; control: {self.control}"

    def judge(self, rows: Rows) -> tuple[Estimate, PositiveControl]:
        """The estimate and the control of the rows; NoRunsError where they say nothing."""
        if not self.samples:
            raise NoRunsError("no size trains its runs")
        groups = [sample(rows) for sample in self.samples]
        estimate = self.estimator(*groups)
        return estimate, self.check(*([sample(rows) for sample in self.beside] or groups))

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
            estimate, control = self.judge(rows)
        except NoRunsError as missing:
            reason = f"takes {self.cost}" if self.cost else str(missing)
            return dataclasses.replace(asked, note=reason)
        except MechintError as error:
            return dataclasses.replace(asked, verdict=INCONCLUSIVE, note=f"not measured: {error}")
        asked = dataclasses.replace(asked, experiment=tuple(sorted(rows.arms)))
        if self.fresh and size in ("laptop", "overnight"):
            seen = f"exploratory, on runs that suggested it: {estimate}"
            return dataclasses.replace(asked, note=seen)
        decision = estimate.held_to(self.bar)
        if not control.met:
            decision = Decision("unclear", f"no verdict, for want of the control: {control.shown}")
        exact = not control.met or estimate.decision is not None
        return dataclasses.replace(
            asked,
            verdict=STUDY[decision.verdict],
            value=estimate.value,
            interval=(estimate.low, estimate.high),
            n=estimate.n,
            ours=str(estimate),
            control=f"{'met' if control.met else 'failed'}: {control.shown}",
            note=decision.reason if exact else self.note(rows),
        )
