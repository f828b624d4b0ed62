"""One measure of components: scores of rows when some stand as in the runs of other inputs.

    effects.share, effects.shares()        # ratio of means, and its interval over the pairs
    curve(measure, ranked, rows)           # kept by the largest alone, and left without them
    find_sufficient(measure, ranked, …)    # sets that keep what is measured, judged on other pairs

The probes patching, heads, attribution and ablation are views of it. Cost: a forward on each row
and source; then the blocks and positions behind each edit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mechint import figures
from mechint.interventions import EditedRuns, Site
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.probe.results import ProbeResult
    from mechint.subject import Subject
    from mechint.subject.pairs import Pairs

LEAST_SPAN = 1e-3
"""Of the scores at both ends, their difference from which effects are shares of it."""
DRAWS = 4000
"""Samples of a bootstrap."""
MOST, ALONE, WITHOUT = 0.5, 0.8, 0.2
"""Shares of the difference: what is most of it; what a set that suffices keeps alone, and what is
left without it."""


class CasePart(NamedTuple):
    """Some rows, runs on them, and the inputs of the runs: their own, and by name of the source."""

    rows: Int[Tensor, " _row"]
    runs: EditedRuns
    own: Int[Tensor, " _row"]
    sources: Mapping[str, Int[Tensor, " _row"]]


@dataclass(frozen=True)
class Cases:
    """Rows that effects are measured on: inputs (row, pos) read at `reads`, and by name the inputs
    from whose runs activations are taken.
    """

    subject: Subject
    inputs: Int[Tensor, "row pos"]
    reads: Int[Tensor, " row"]
    sources: Mapping[str, Int[Tensor, "row pos"]] = field(default_factory=dict)

    def parts(self, hooks: Collection[str] = (), most: int = 1 << 30) -> Iterator[CasePart]:
        """The rows in pieces of the subject's chunk, at most `most` each."""
        every = torch.arange(len(self.inputs), device=self.inputs.device)
        for rows in every.split(min(self.subject.chunk, most)):
            inputs = [tokens[rows] for tokens in (self.inputs, *self.sources.values())]
            reads = self.reads[rows].repeat(len(inputs))
            runs = EditedRuns(self.subject.model, torch.cat(inputs), reads, hooks)
            own, *others = torch.arange(len(reads), device=reads.device).split(len(rows))
            yield CasePart(rows, runs, own, dict(zip(self.sources, others, strict=True)))


SAME = "nothing is replaced: no score changes, as where inputs are alike at a position"
"""The reason for which means, as of beginnings of one text, take nothing away."""


class Shares(NamedTuple):
    """Ratios of means, (component,), and the ends of their 95% intervals."""

    value: Float[np.ndarray, " component"]
    low: Float[np.ndarray, " component"]
    high: Float[np.ndarray, " component"]


@dataclass(frozen=True)
class Effects:
    """A score of each row, and what it becomes with each component as in another run.

    base, end (row,): without an edit, and the other run's own. changed (component, row): NaN where
    the row does not have the component's position. units (row,): rows of one number are one sample.
    """

    base: Float[np.ndarray, " row"]
    end: Float[np.ndarray, " row"]
    changed: Float[np.ndarray, "component row"]
    units: Int[np.ndarray, " row"]

    @property
    def moved(self) -> Float[np.ndarray, "component row"]:
        """By how much each component changes the score."""
        return self.changed - self.base

    @property
    def there(self) -> Bool[np.ndarray, "component row"]:
        """True where the row has the component's position."""
        return ~np.isnan(self.changed)

    @property
    def kept(self) -> Effects:
        """The same from the other end: what is kept of the difference."""
        return replace(self, base=self.end, end=self.base)

    def of(self, components: Any) -> Effects:
        """Only these."""
        return replace(self, changed=self.changed[components])

    def mean(self, values: Float[np.ndarray, "... row"]) -> Float[np.ndarray, " component"]:
        """Over the rows that have the component's position."""
        n, total = self.there.sum(-1), np.where(self.there, values, 0.0).sum(-1)
        return np.divide(total, n, out=np.full(n.shape, np.nan), where=n > 0)

    @property
    def span(self) -> Float[np.ndarray, " component"]:
        """Mean score of the end less that of the base; NaN where they are nearly the same."""
        span, size = self.mean(self.end - self.base), self.mean(abs(self.end) + abs(self.base))
        return np.where(np.abs(span) > LEAST_SPAN * size, span, np.nan)

    @property
    def share(self) -> Float[np.ndarray, " component"]:
        """0: as the base; 1: as the end. A ratio of means over rows."""
        return self.mean(self.moved) / self.span + 0.0  # no negative zero

    @property
    def by_unit(self) -> Float[np.ndarray, "component unit"]:
        """Shares of the mean difference, unit by unit; NaN where a unit has none."""
        return means_by(self.units, self.moved) / self.span[:, None]

    def shares(self, draws: int = DRAWS, seed: int = 0) -> Shares:
        """The shares, with intervals by a bootstrap over units: each draw weighs what is moved and
        the difference of which it is a share alike.
        """
        units = np.unique(self.units, return_inverse=True)[1]
        n = units.max() + 1
        weights = rng("bootstrap", seed).multinomial(n, np.full(n, 1 / n), draws)
        moved = weights @ sums_by(units, np.nan_to_num(self.moved)).T  # (draw, component)
        spans = weights @ sums_by(units, self.there * (self.end - self.base)).T
        with np.errstate(invalid="ignore", divide="ignore"):
            low, high = np.quantile(moved / spans, (0.025, 0.975), axis=0)
        return Shares(self.share, low + 0.0, high + 0.0)


def means_by(
    units: Int[np.ndarray, " row"], values: Float[np.ndarray, "*component row"]
) -> Float[np.ndarray, "*component unit"]:
    """Means of the values over the rows of each unit, NaN left out; NaN where nothing is left.

    >>> means_by(np.array([0, 1, 0]), np.array([[1.0, 5.0, 3.0], [np.nan, np.nan, 2.0]]))
    array([[ 2.,  5.],
           [ 2., nan]])
    """
    counts = sums_by(units, ~np.isnan(values))
    totals = sums_by(units, np.nan_to_num(values))
    return np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)


def sums_by(
    units: Int[np.ndarray, " row"], values: Shaped[np.ndarray, "*component row"]
) -> Float[np.ndarray, "*component unit"]:
    """Sums of the values over the rows of each unit."""
    totals = np.zeros((units.max() + 1, *values.shape[:-1]))
    np.add.at(totals, units, values.T)
    return totals.T


def units_of(pairs: Pairs) -> Int[np.ndarray, " pair"]:
    """A number of the two inputs of each pair, alike both ways."""
    inputs = torch.cat([pairs.base, pairs.source]).unique(dim=0, return_inverse=True)[1]
    both = torch.stack(inputs.split(len(pairs))).sort(0).values
    return both.unique(dim=1, return_inverse=True)[1].cpu().numpy()


# --- sets of components ---------------------------------------------------------------------------
Measure = Callable[[Sequence[Sequence[Site]], Any], Effects]
"""From sets of components that are taken together, and rows, to their effects."""


def kept_and_left(
    measure: Measure, every: Sequence[Site], sets: Sequence[Sequence[Site]], rows: Any
) -> tuple[Effects, Effects]:
    """Effects kept by each set alone, all of `every` besides it being taken from the source, and
    those left without it.
    """
    others = [[site for site in every if site not in some] for some in sets]
    found = measure([*others, *sets], rows).kept
    return found.of(slice(len(sets))), found.of(slice(len(sets), None))


@dataclass(frozen=True)
class Curve:
    """Share of a score that the first components keep alone, by their number.

    cpr = ∫ F(k) dk and cmd = ∫ |1 - F(k)| dk over the share k of the components, by the trapezoidal
    rule (Mueller et al. 2025, MIB): a good order has a large cpr, a faithful one a small cmd.

    >>> curve = Curve(np.arange(3), np.array([0.0, 0.8, 1.0]))
    >>> round(curve.cpr, 3), round(curve.cmd, 3)
    (0.65, 0.35)
    """

    sizes: Int[np.ndarray, " size"]
    share: Float[np.ndarray, " size"]

    @property
    def cpr(self) -> float:
        return float(np.trapezoid(self.share, self.sizes / self.sizes[-1]))

    @property
    def cmd(self) -> float:
        return Curve(self.sizes, abs(1 - self.share)).cpr


def curve(
    measure: Measure, ranked: Sequence[Site], sizes: Sequence[int], rows: Any
) -> tuple[Curve, Shares, Shares]:
    """The curve at none, at `sizes` and at all of the components; what is kept, and left without
    them.
    """
    sizes = [0, *(size for size in sizes if size < len(ranked)), len(ranked)]
    kept, left = kept_and_left(measure, ranked, [ranked[:size] for size in sizes], rows)
    return Curve(np.array(sizes), kept.share), kept.shares(), left.shares()


@dataclass(frozen=True)
class Sufficient:
    """A set of components, and what it keeps and leaves on the pairs that judge it."""

    sites: Sequence[Site]
    kept: tuple[float, float, float]
    left: tuple[float, float, float]

    @property
    def holds(self) -> bool:
        """True where it keeps enough and little is left, and either is surely more or less than
        half.
        """
        enough = self.kept[0] >= ALONE and self.left[0] <= WITHOUT
        return enough and self.kept[1] >= MOST and self.left[2] <= 1 - MOST

    @property
    def may_hold(self) -> bool:
        """True where the intervals reach what is asked for."""
        return self.kept[2] >= ALONE and self.left[1] <= WITHOUT


def judge(
    measure: Measure, every: Sequence[Site], sets: Sequence[Sequence[Site]], rows: Any
) -> list[Sufficient]:
    """Shares that each set keeps and leaves on these rows, with intervals."""
    kept, left = (effects.shares() for effects in kept_and_left(measure, every, sets, rows))
    numbers = (np.stack(shares, 1).tolist() for shares in (kept, left))
    return [Sufficient(some, tuple(a), tuple(b)) for some, a, b in zip(sets, *numbers, strict=True)]


def find_sufficient(
    measure: Measure, every: Sequence[Site], ranked: Sequence[Site], search: Any, judged: Any
) -> list[Sufficient]:
    """Sets of the components `ranked` that suffice on the rows `search` and again on `judged`: the
    shortest beginning that does, less those that it does without, and every set that differs from
    it in one.
    """

    def passing(sets: Sequence[Sequence[Site]]) -> list[Sequence[Site]]:
        if not sets:
            return []
        kept, left = kept_and_left(measure, every, sets, search)
        enough = (kept.share >= ALONE) & (left.share <= WITHOUT)
        return [some for some, good in zip(sets, enough, strict=True) if good]

    beginnings = passing([ranked[: n + 1] for n in range(len(ranked))])
    if not beginnings:
        return []
    chosen = list(beginnings[0])
    for site in reversed(beginnings[0]):
        others = [other for other in chosen if other is not site]
        chosen = others if others and passing([others]) else chosen
    swapped = [
        [new if site is old else site for site in chosen]
        for old in chosen
        for new in ranked
        if new not in chosen
    ]
    found = judge(measure, every, [chosen, *passing(swapped)], judged)
    return [sufficient for sufficient in found if sufficient.holds]


def heads_above(least: float) -> Callable[[ProbeResult], list[str]]:
    """Heads whose number is larger, for the calibration."""
    return lambda result: [
        "L{}H{}".format(*place) for place in np.argwhere(result.arrays["by_head"] > least).tolist()
    ]


# --- pictures -------------------------------------------------------------------------------------
def draw_curve(line: Curve, shares: Mapping[str, Shares], **words: Any) -> figures.Figure:
    """Shares by the number of components, with their intervals."""
    values = {name: share.value for name, share in shares.items()}
    bands = {name: (share.low, share.high) for name, share in shares.items()}
    return figures.lines(line.sizes.tolist(), values, bands=bands, **words)


def grid(
    places: Sequence[tuple[Any, Any]], values: Sequence[float], **words: Any
) -> figures.Figure:
    """The value at each place (row, column) as a heat map on a scale of shares."""
    rows, columns = (list(dict.fromkeys(place[axis] for place in places)) for axis in (0, 1))
    z = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in zip(places, values, strict=True):
        z[rows.index(row), columns.index(column)] = value
    most = max(1.0, float(np.nanmax(np.abs(z), initial=0.0)))
    words = {"limits": (-most, most), "x": columns, **words}
    return figures.heatmap(z, y=rows, diverging=True, **words)
