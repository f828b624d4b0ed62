"""Shares, intervals, curves and sets of components against other code and closed forms."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mechint.interventions import Site
from probes._effects import Effects, curve, find_sufficient, judge

HEADS = [Site.head(layer, head) for layer in range(2) for head in range(3)]


def resampled(effects: Effects, component: int, draws: int) -> tuple[float, float]:
    """The 95% interval of a ratio of sums over the units drawn, one draw at a time."""
    generator, ratios = random.Random(0), []
    units = sorted(set(effects.units.tolist()))
    for _ in range(draws):
        moved = span = 0.0
        for unit in generator.choices(units, k=len(units)):
            for row in np.flatnonzero(effects.units == unit):
                if not np.isnan(effects.changed[component, row]):
                    moved += effects.changed[component, row] - effects.base[row]
                    span += effects.end[row] - effects.base[row]
        ratios.append(moved / span)
    low, high = np.quantile(ratios, (0.025, 0.975))
    return float(low), float(high)


def test_intervals_are_those_of_a_bootstrap_of_both_sums() -> None:
    """What is moved goes with the difference of which it is a share: the interval is narrow where
    one with a constant denominator is wide. Some rows lack the second component.
    """
    draw = np.random.default_rng(0)
    units = np.repeat(np.arange(24), 2)
    size = draw.gamma(4, 1, 24)[units]
    moved = np.stack([0.6, -0.2] * size[:, None] + 0.1 * draw.normal(size=(48, 2)), 1)
    moved[1, ::5] = np.nan
    effects = Effects(-size / 2, size / 2, moved - size / 2, units)
    shares = effects.shares()
    for component, expected in enumerate((0.6, -0.2)):
        low, high = resampled(effects, component, 2000)
        found = shares.low[component], shares.high[component]
        assert found[1] - found[0] == pytest.approx(high - low, rel=0.1)
        assert found == pytest.approx((low, high), abs=0.1 * (high - low))
        assert found[0] < expected < found[1]
    half = 1.96 * moved[0].reshape(24, 2).mean(1).std(ddof=1) / 24**0.5 / size.mean()
    assert half > 2 * (shares.high[0] - shares.low[0]) / 2
    assert np.nanmean(effects.by_unit[0]) == pytest.approx(shares.value[0])


def measured(score: Callable[[set[Site]], float], pairs: int = 20) -> Any:
    """A measure of sets by the share of the difference that the heads left from the base keep."""
    size = 1 + np.arange(pairs) % 3

    def measure(sets: Sequence[Sequence[Site]], rows: Any) -> Effects:
        kept = np.array([score(set(HEADS) - set(some)) for some in sets])
        end, at = size[rows].astype(float), np.arange(pairs)[rows]
        return Effects(0 * end, end, end * (1 - kept[:, None]), at)

    return measure


def test_the_curve_of_heads_that_add_up() -> None:
    weights = dict(zip(HEADS, (0.5, 0.3, -0.2, 0.2, 0.1, 0.1), strict=True))
    measure = measured(lambda heads: sum(weights[one] for one in heads))
    line, kept, left = curve(measure, HEADS, (1, 2, 3), ...)
    assert line.sizes.tolist() == [0, 1, 2, 3, 6]
    expected = [0.0, 0.5, 0.8, 0.6, 1.0]
    assert line.share == pytest.approx(expected) and kept.low == pytest.approx(expected)
    assert left.value == pytest.approx([1 - one for one in expected])
    assert line.cpr == pytest.approx((0.25 + 0.65 + 0.7 + 3 * 0.8) / 6)
    assert line.cmd == pytest.approx((0.75 + 0.35 + 0.3 + 3 * 0.2) / 6)


def test_every_set_that_suffices_is_found() -> None:
    """The first head is needed, and the second or the fourth; the third keeps three tenths."""
    a, b, against, c, *_ = HEADS

    def score(heads: set[Site]) -> float:
        both = a in heads and bool({b, c} & heads)
        return both * 0.7 + 0.3 * (against in heads)

    measure, half = measured(score), np.arange(10)
    found = find_sufficient(measure, HEADS, [a, b, against, c], half, half + 10)
    assert [set(one.sites) for one in found] == [{a, b, against}, {a, c, against}]

    def alone(heads: set[Site]) -> float:
        return float(a in heads) * (0.5 + 0.5 * (b in heads or c in heads))

    found = find_sufficient(measured(alone), HEADS, [a, against, b, c], half, half + 10)
    assert [set(one.sites) for one in found] == [{a, b}, {a, c}]
    assert found[0].kept[0] == pytest.approx(1) and found[0].left == pytest.approx((0, 0, 0))


def test_a_set_whose_interval_reaches_what_is_asked_for_is_not_denied() -> None:
    """Of 20 pairs the first head keeps 0.9 in some and 0.6 in the others: more or fewer of them."""

    def judged(good: int) -> Any:
        def measure(sets: Sequence[Sequence[Site]], rows: Any) -> Effects:
            share = np.where(np.arange(20) < good, 0.9, 0.6)
            changed = np.array([(1 - share if HEADS[0] not in some else share) for some in sets])
            return Effects(np.zeros(20), np.ones(20), changed, np.arange(20))

        (found,) = judge(measure, HEADS, [HEADS[:1]], ...)
        return found

    assert [judged(n).kept[0] for n in (0, 12, 20)] == pytest.approx([0.6, 0.78, 0.9])
    assert [judged(n).left[0] for n in (0, 12, 20)] == pytest.approx([0.4, 0.22, 0.1])
    assert [judged(n).holds for n in (0, 12, 20)] == [False, False, True]
    assert [judged(n).may_hold for n in (0, 12, 20)] == [False, True, True]


def test_a_set_is_judged_on_pairs_that_it_was_not_found_on() -> None:
    """On the first half one head keeps all, on the other half another one."""

    def measure(sets: Sequence[Sequence[Site]], rows: Any) -> Effects:
        here = [HEADS[0] if row < 10 else HEADS[1] for row in rows]
        changed = np.array([[float(one in some) for one in here] for some in sets])
        return Effects(np.zeros(len(rows)), np.ones(len(rows)), changed, np.asarray(rows))

    half = np.arange(10)
    assert find_sufficient(measure, HEADS, HEADS[:1], half, half)
    assert not find_sufficient(measure, HEADS, HEADS[:1], half, half + 10)
    assert judge(measure, HEADS, [HEADS[:1]], half + 10)[0].kept[0] == 0
