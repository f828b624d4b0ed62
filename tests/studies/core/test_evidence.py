"""Intervals and exact tests against brute force and the definitions; what decides and what does
not.
"""

from __future__ import annotations

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechint.studies.core.claims import (
    NOT_REPRODUCED,
    REPRODUCED,
    UNDERPOWERED,
    Criterion,
    Finding,
    Part,
)
from mechint.studies.core.evidence import (
    MIN_RUNS,
    clopper_pearson,
    earlier,
    every,
    mean_within,
    more_often,
    pairs_at_most,
    ratio_within,
    share_within,
)


def test_prose_and_code_share_one_threshold() -> None:
    rule = Criterion("at least {share:.0%} of {n} runs", share=0.95, n=3)
    assert str(rule) == "at least 95% of 3 runs" and rule["share"] == 0.95
    with pytest.raises(AssertionError, match="bar"):
        Criterion("no threshold", bar=0.9)


@pytest.mark.parametrize(
    ("outcomes", "control", "verdict"),
    [
        ([True, True], None, REPRODUCED),
        ([True, True], True, REPRODUCED),
        ([True, True], False, UNDERPOWERED),
        ([True, None], True, UNDERPOWERED),
        ([True, False, None], True, NOT_REPRODUCED),
        ([False], False, UNDERPOWERED),
    ],
)
def test_verdict_of_parts_and_control(
    outcomes: list[bool | None], control: bool | None, verdict: str
) -> None:
    parts = [Part(str(i), met, "", 3) for i, met in enumerate(outcomes)]
    seen = None if control is None else Part("control", control, "", 3)
    assert Finding(parts, "", control=seen).verdict == verdict


def test_an_undecided_control_lets_nothing_be_decided() -> None:
    for met in (True, False):
        undecided = Part("control", None, "", 3)
        assert Finding([Part("x", met, "", 3)], "", control=undecided).verdict == UNDERPOWERED


@given(st.integers(1, 30).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_exact_interval_holds_the_shares_that_could_have_given_it(hits: tuple[int, int]) -> None:
    k, n = hits
    low, high = clopper_pearson(k, n)
    assert low <= k / n <= high

    def at_least(share: float, least: int) -> float:
        return sum(math.comb(n, i) * share**i * (1 - share) ** (n - i) for i in range(least, n + 1))

    if k:
        assert at_least(low, k) == pytest.approx(0.025, abs=1e-6)
    if k < n:
        assert 1 - at_least(high, k + 1) == pytest.approx(0.025, abs=1e-6)


@given(
    st.lists(st.integers(0, 5), min_size=2, max_size=4),
    st.lists(st.integers(0, 5), min_size=2, max_size=4),
)
def test_rank_test_is_the_share_of_deals_as_extreme(first: list[int], second: list[int]) -> None:
    def pairs(a: list[int], b: list[int]) -> float:
        return sum((x < y) + (x == y) / 2 for x in a for y in b)

    both, deals = first + second, []
    for chosen in itertools.combinations(range(len(both)), len(first)):
        rest = [both[i] for i in range(len(both)) if i not in chosen]
        deals.append(pairs([both[i] for i in chosen], rest))
    observed = pairs(first, second)
    p_value = np.mean([one >= observed - 1e-9 for one in deals])
    part = earlier("x", first, second)
    assert part.shown.endswith(f"exact p = {p_value:.2g}")
    if min(len(first), len(second)) < MIN_RUNS:
        assert part.met is None
    else:
        assert (part.met is True) == (p_value <= 0.05 + 1e-9)
        assert part.met is not False or observed < len(first) * len(second) / 2


@pytest.mark.parametrize("n", [3, 5, 12])
def test_a_true_effect_is_missed_in_few_studies(n: int) -> None:
    """Of studies in which `first` lies half a standard deviation below, at most one in twenty."""
    generator = np.random.default_rng(0)
    found = [
        earlier("x", generator.normal(-0.5, 1, n).tolist(), generator.normal(0, 1, n).tolist()).met
        for _ in range(400)
    ]
    assert np.mean([met is False for met in found]) <= 0.05


def test_no_effect_is_missed_where_the_runs_are_many() -> None:
    alike = list(range(100))
    assert earlier("x", alike, alike).met is False
    assert earlier("x", alike[:20], alike[:20]).met is None


def test_the_share_of_pairs_lies_below_its_upper_end_in_39_studies_of_40() -> None:
    """Of two normal samples the share in order is Φ(shift/√2)."""
    generator, true = np.random.default_rng(1), 0.6
    shift, inside = math.sqrt(2) * NormalDist().inv_cdf(true), 0
    for _ in range(600):
        first, second = generator.normal(-shift, 1, 6), generator.normal(0, 1, 9)
        inside += true <= pairs_at_most(float((first[:, None] < second).mean()), 6, 9)
    assert inside / 600 > 0.96


def test_what_is_never_reached_comes_last() -> None:
    assert earlier("x", [1, 2, 3], [math.inf] * 3).met
    assert earlier("x", [math.inf] * 3, [1, 2, 3]).met is False


@pytest.mark.parametrize(
    ("part", "met"),
    [
        (mean_within("inside", [0.99, 1.0, 1.01], 0.9, 1.1), True),
        (mean_within("outside", [1.49, 1.5, 1.51], 0.9, 1.1), False),
        (mean_within("spans", [0.8, 1.0, 1.2], 0.9, 1.1), None),
        (mean_within("too few", [1.0, 1.0], 0.9, 1.1), None),
        (every("all", [True] * 3), True),
        (every("one not", [True, True, False]), False),
        (every("two runs", [True, True]), None),
        (every("one run does not", [False]), None),
        (every("nobody", []), None),
        (share_within("two of two that do not", 0, 2, low=0.9), None),
        (share_within("nobody", 0, 0, low=0.9), None),
        (share_within("most", 12, 12, low=0.5), True),
        (share_within("few", 1, 12, low=0.5), False),
        (share_within("three of three", 3, 3, low=0.5), None),
        (more_often("clear", (12, 12), (3, 12)), True),
        (more_often("none", (10, 40), (20, 40)), False),
        (more_often("none and none", (0, 60), (0, 60)), False),
        (more_often("too few", (3, 3), (1, 3)), None),
        (more_often("p of exactly 1/20", (3, 3), (0, 3)), True),
        (more_often("one run each", (0, 1), (1, 1)), None),
        (more_often("two runs in one group", (12, 12), (0, 2)), None),
        (more_often("nobody", (0, 0), (2, 2)), None),
        (earlier("p of exactly 1/20", [1, 2, 3], [4, 5, 6]), True),
        (earlier("all reversed", [4, 5, 6], [1, 2, 3]), False),
        (earlier("all reversed, too many to count", range(20, 40), range(20)), False),
        (earlier("half of the pairs", [1, 5, 6], [2, 3, 7]), None),
        (earlier("one run each", [5], [3]), None),
        (earlier("nobody", [], [1]), None),
        (ratio_within("above", 2.5, (2.0, 3.0), 1.5, math.inf, 5), True),
        (ratio_within("below", 1.0, (0.9, 1.1), 1.5, math.inf, 5), False),
        (ratio_within("spans", 1.6, (1.0, 2.0), 1.5, math.inf, 5), None),
    ],
)
def test_only_an_interval_decides(part: Part, met: bool | None) -> None:
    assert part.met is met, part.shown
    assert part.name != "nobody" or (part.shown, part.n) == ("no run", 0)
