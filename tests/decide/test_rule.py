"""The rule of decision: each clause alone, on evidence for which only that clause decides."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from mechint.decide import (
    Bound,
    Decision,
    Evidence,
    MaxNull,
    Null,
    Skill,
    all_of,
    best_constant,
    decide,
)
from mechint.decide.evidence import CHANCE_LEVEL
from mechint.decide.null import by_example, multinomial, sign_flips, why_undecidable

SKILLED = Skill(0.95, 0.15, 1000)


def null(p_samples: int, reached: int = 0) -> Null:
    """Of which `reached` samples reach what was observed."""
    return Null.sampled("x", 1.0, [2.0] * reached + [0.0] * (p_samples - reached), "drawn")


@pytest.mark.parametrize(
    ("hits", "n", "bound", "verdict"),
    [
        (100, 100, Bound(0.9), "yes"),
        (94, 100, Bound(0.9), "unclear"),  # 0.875 to 0.972
        (80, 100, Bound(0.9), "no"),  # up to 0.867
        (94, 100, Bound(0.9, of="value"), "yes"),
        (0, 100, Bound(0.15, "below"), "yes"),
        (12, 100, Bound(0.15, "below"), "unclear"),
        (40, 100, Bound(0.15, "below"), "no"),
        (12, 100, Bound(0.15, "below", of="value"), "yes"),
    ],
)
def test_a_bound_is_asked_of_the_near_end(hits: int, n: int, bound: Bound, verdict: str) -> None:
    found = decide(Evidence.share(hits, n), bound=bound)
    assert found.verdict == verdict and bool(found.reason) == (verdict != "yes")


def test_what_lies_on_a_bound_is_not_beyond_it() -> None:
    for side in ("above", "below"):
        assert decide(Evidence(value=0.0, n=9), bound=Bound(0.0, side)).verdict == "no"  # type: ignore[arg-type]


def test_a_bound_above_chance_is_a_share_of_the_models_own_accuracy() -> None:
    """Of a model with 95%, 15% being chance, nine tenths are 87%: 0.845 to 0.927 has that in it."""
    found = Evidence.share(445, 500)  # 0.859 to 0.914
    assert decide(found, bound=Bound(0.9, above_chance=True), chance=SKILLED).verdict == "unclear"
    assert decide(found, bound=Bound(0.88, above_chance=True), chance=SKILLED).verdict == "yes"
    assert decide(found, bound=Bound(0.88), chance=SKILLED).verdict == "unclear"
    near = Skill(0.16, 0.11, 4000)
    assert near.beats_chance
    # as good as a constant answer: by raw accuracies 84% of the model's
    idle = decide(Evidence.share(440, 4000), bound=Bound(0.9, above_chance=True), chance=near)
    assert idle.verdict == "no"


def test_nothing_is_decided_of_a_model_at_chance() -> None:
    perfect = Evidence.share(100, 100)
    for chance in (Skill(0.2, 0.2, 1000), Skill(0.21, 0.2, 100), Skill(1.0, 0.5, 5)):
        found = decide(perfect, bound=Bound(0.1), chance=chance)
        said = any(why in found.reason for why in ("without its input", "too few"))
        assert found.verdict == "unclear" and said
    assert "too few" in decide(perfect, bound=Bound(0.1), chance=Skill(1.0, 0.5, 5)).reason
    assert decide(perfect, bound=Bound(0.1), chance=SKILLED)


def test_the_chance_gate_is_the_binomial_tail() -> None:
    for accuracy, chance, n in ((0.2, 0.11, 100), (0.15, 0.11, 500), (0.13, 0.11, 500)):
        tail = stats.binom.sf(round(accuracy * n) - 1, n, chance)
        assert Skill(accuracy, chance, n).p == pytest.approx(tail)
        assert Skill(accuracy, chance, n).beats_chance == (tail <= CHANCE_LEVEL)
        asked = Skill(accuracy, chance, n, questions=1000)
        assert asked.beats_chance == (1000 * tail <= CHANCE_LEVEL)
    assert not Skill(0.0, 0.0, 50).beats_chance
    for p_value, beaten in ((0.0006, True), (0.0009, True), (0.0011, False), (0.002, False)):
        assert Skill(0.9, 0.1, 100, p_value=p_value).beats_chance == beaten
    assert not Skill(0.1, 0.2, 100, p_value=1e-9).beats_chance
    given = Skill(0.9, 0.1, 100, p_value=0.5)
    assert not given.beats_chance and "not shown to answer right" in given.reason


def test_a_null_has_to_be_able_to_decide_and_is_beaten_at_its_level() -> None:
    value = Evidence(value=1.0, n=10)
    assert decide(value, null=null(19)).verdict == "yes"
    assert decide(value, null=null(18)).verdict == "unclear"  # p = 1/19 at best
    assert decide(value, null=null(9), level=0.1).verdict == "yes"
    assert decide(value, null=null(99, 3)).verdict == "yes"
    for reached, verdict in ((4, "yes"), (5, "unclear"), (9, "unclear"), (10, "no")):
        assert decide(value, null=null(99, reached)).verdict == verdict  # p from 0.05 to 0.11
    assert decide(value, null=[null(99, 50), null(99, 5)]).verdict == "no"
    assert decide(value, null=null(99, 10), level=0.2).verdict == "yes"
    assert decide(value, null=[null(99), null(99, 50)]).verdict == "no"
    assert decide(value, null=[null(99), null(9)]).verdict == "unclear"
    few = Null.sampled("x", 1.0, [0.0] * 99, "dealt", arrangements=12)
    assert decide(value, null=few).verdict == "unclear"
    assert decide(value, null=null(99), bound=Bound(2.0)).verdict == "no"
    # a wavering null leaves nothing open of what lies short of the bound
    assert decide(value, null=null(99, 5), bound=Bound(2.0, of="value")).verdict == "no"
    assert decide(value, null=null(99, 5), bound=Bound(0.5, of="value")).verdict == "unclear"
    assert decide(value, null=null(9), bound=Bound(2.0)).verdict == "unclear"


def test_what_is_not_a_number_is_unclear_and_no_surprise() -> None:
    assert decide(Evidence(value=math.nan, n=9), bound=Bound(0.5)).verdict == "unclear"
    assert Null.sampled("x", math.nan, [0.1] * 199, "drawn").p_value == 1.0
    assert Null.sampled("x", 1.0, [math.nan] * 199, "drawn").p_value == 1.0
    holed = Null.sampled("x", 1.0, [math.nan, 0.0, 0.0, 0.0], "drawn")
    assert holed.p_value == 2 / 5
    assert decide(Evidence(value=1.0, n=9), null=holed, level=1.0).verdict == "unclear"


def test_few_observations_are_unclear_and_none_is_untested() -> None:
    assert decide(Evidence.share(0, 0), bound=Bound(0.5)).verdict == "untested"
    assert decide(Evidence.share(23, 23), bound=Bound(0.5), least=24).verdict == "unclear"
    assert decide(Evidence.share(24, 24), bound=Bound(0.5), least=24).verdict == "yes"


def test_several_tests_of_one_claim() -> None:
    """By hand: "no" before "unclear" before "yes" before "untested", whatever the order."""
    order = ("no", "unclear", "yes", "untested")
    for verdicts in itertools.product(order, repeat=3):
        found = all_of(Decision(one) for one in verdicts)  # type: ignore[arg-type]
        assert found.verdict == min(verdicts, key=order.index)
    assert all_of([]).verdict == "untested"
    assert [bool(Decision(one)) for one in order] == [False, False, True, False]  # type: ignore[arg-type]


def test_the_best_constant_is_one_answer_to_all_outputs() -> None:
    draw = np.random.default_rng(0)
    for outputs in (1, 2, 3):
        answers = draw.integers(0, 3, (200, outputs))
        best = max(
            np.mean([(row == one).all() for row in answers])
            for one in itertools.product(range(3), repeat=outputs)
        )
        assert best_constant(answers) == pytest.approx(best)
    # of outputs that are not asked, any answer is right there; rows without any are not counted
    answers = np.array([[0, -1], [0, 1], [-1, 1], [1, 0], [-1, -1]])
    assert best_constant(answers) == 3 / 4
    assert best_constant(np.array([[-1], [-1]])) == 0.0
    mostly = np.array([[0, -1], [0, -1], [0, -1], [0, 2], [1, 2]])
    assert best_constant(mostly) == 4 / 5
    apart = np.array([[0, -1]] * 3 + [[-1, 7]] * 3 + [[1, -1], [-1, 8]])
    assert best_constant(apart) == 6 / 8  # (0, 7), which no row has
    against = np.array([[0, 1]] * 4 + [[1, 0]] * 2 + [[2, 0]] * 2 + [[-1, 0]])
    assert best_constant(against) == 4 / 9  # not the commonest class of each output, (0, 0)
    wide = draw.integers(0, 2, (500, 29))
    assert best_constant(wide) < 0.01


def test_the_interval_of_a_determination_has_the_truth_in_it() -> None:
    """R² of y = x + noise is 1 / (1 + σ²): in 95 of 100 intervals, by the binomial 88 or more."""
    draw, held = np.random.default_rng(1), 0
    for _ in range(100):
        x, noise = draw.normal(size=300), 0.5 * draw.normal(size=300)
        found = Evidence.determination(noise**2, (x + noise) ** 2)
        assert found.value == pytest.approx(1 - (noise**2).sum() / ((x + noise) ** 2).sum())
        held += found.low <= 0.8 <= found.high
    assert held >= 88


def test_a_difference_is_taken_on_the_same_resamples() -> None:
    """Of one statistic and the same less a hundredth, nothing is left to draw."""
    errors, totals = np.random.default_rng(2).random((2, 200))
    one = Evidence.determination(errors, totals)
    other = Evidence.determination(errors + 0.01 * totals, totals)
    difference = one - other
    assert difference.value == pytest.approx(0.01)
    assert difference.interval == pytest.approx((0.01, 0.01))
    assert one.high - one.low > 0.05
    half = one.times(0.5)
    assert half.interval == pytest.approx((one.low / 2, one.high / 2))
    assert Evidence(value=2.0, n=3).times(0.5).value == 1.0
    students = Evidence(value=2.0, n=3, given=(1.0, 3.0))
    assert (students.low, students.high) == (1.0, 3.0)
    assert decide(students, bound=Bound(1.5)).verdict == "unclear"
    nothing = Evidence.determination(np.zeros(0), np.zeros(0))
    assert math.isnan(nothing.value) and nothing.n == 0
    nothing = Evidence.ratio(np.zeros(0))
    assert math.isnan(nothing.value) and nothing.n == 0
    assert math.isnan(Evidence.ratio(np.ones(3), np.zeros(3)).value)


def test_evidence_in_words() -> None:
    found, plain = Evidence.share(9, 10), Evidence(value=0.25, n=4)
    drawn = Evidence.ratio(np.array([0.1] * 10))
    assert [str(one) for one in (found, plain)] == ["0.900 (0.596 to 0.982)", "0.25"]
    assert str(drawn) == "0.100 (0.100 to 0.100)"


# --- nulls ----------------------------------------------------------------------------------------
def test_sums_of_the_same_numbers_in_another_order_are_equal() -> None:
    """Every order of a sum of thirds reaches it: p is 1, whichever the processor's sum is."""
    values = [1 / 3, 1e-3, 7.7, 1e3, -0.1]
    sums = [sum(order) for order in itertools.permutations(values)]
    assert len(set(sums)) > 1, "orders do not show in these sums"
    for sign in (1.0, -1.0):
        for observed in {sign * one for one in sums}:
            drawn = sign * np.array(sums)
            assert Null.sampled("x", observed, drawn, "orders").p_value == 1.0
            found = MaxNull(np.array([observed]), drawn[:, None])
            assert found.p_values == 1.0
            higher = Null.sampled("x", observed + 1e-9 * abs(observed), drawn, "orders")
            assert higher.p_value == higher.floor
    for observed, reached in ((math.inf, 1), (-math.inf, 3), (0.0, 2)):
        found = Null.sampled("x", observed, [math.inf, 0.0, -1.0], "orders")
        assert found.p_value == (1 + reached) / 4


def test_rounding_is_no_effect() -> None:
    """Changes of a millionth of the largest, all of one sign, are rounding; t = Σ x / √(Σ x²) is
    √n of those above a ten thousandth.
    """
    changes = np.stack([np.ones(12), np.full(12, 1e-6)])
    found = sign_flips(changes, 999, 0)
    assert found.p_values[0] <= 0.01 < 0.2 < found.p_values[1]
    changes = np.outer([3.0, 3.6e-4, 2.4e-4], np.ones(16))
    found = sign_flips(changes, 9, 0)
    assert found.test.observed == pytest.approx([4.0, 4.0, 3.2])
    assert found.mean == pytest.approx(changes.mean(1)) and found.patterns == 2**16
    assert sign_flips(np.zeros((2, 5)), 99, 0).p_values.tolist() == [1.0, 1.0]
    assert sign_flips(np.ones((1, 70)), 9, 0).patterns == math.inf


def test_signs_of_few_examples_are_all_taken_and_counted_exactly() -> None:
    """Of sums in whole numbers, also where two of them differ by a millionth, or not at all."""
    for row in ([3, 1, 2, 3, 1], [1000000, 1000000, 1, 500000, 500000], [7, 0, 7, 0, 1]):
        sums = [
            np.dot(signs, row) >= sum(row) for signs in itertools.product([1, -1], repeat=len(row))
        ]
        found = sign_flips(np.array([row]) / 7, 31, 0)
        assert found.p_values[0] == np.mean(sums) and len(found.test.samples) == 31
    assert len(sign_flips(np.ones((1, 5)), 30, 0).test.samples) == 30


def test_rows_of_one_example_count_once() -> None:
    """Three thirds are a whole success, whatever their sum is in floating point."""
    right = np.array([1, 0, 0] * 3 + [1] * 7)
    example = np.array([0] * 3 + [1] * 3 + [2] * 3 + [3 + i for i in range(7)])
    assert by_example(right, example) == (8, 10)


def test_few_arrangements_are_told_by_the_samples_that_reach_a_perfect_one() -> None:
    """Of 20 arrangements one in 20 samples is the observed one: P(9 of 99 or more) is .060 and says
    nothing, P(10 or more) .027. What is beaten all the same at .05, as with 4 of 99, is decided.
    """
    for reached, undecided in ((0, False), (4, False), (5, True), (9, True), (10, False)):
        samples = [1.0] * reached + [0.0] * (99 - reached)
        found = Null.sampled("x", 1.0, samples, "dealt", arrangements=20)
        assert (found.too_few_arrangements(0.05) is not None) == undecided
    few = Null.sampled("x", 1.0, [0.0] * 5, "dealt", arrangements=20)
    assert "5 null samples" in str(why_undecidable([few], 0.05))


def test_a_null_as_it_is_printed_and_what_it_cannot_decide() -> None:
    for value, mean, std in ((math.nan, 0.0, 0.0), (1.0, 0.0, math.nan), (1.0, math.nan, 1.0)):
        assert math.isnan(Null("x", value, mean, std, 0.5, "drawn").z)
    flat = [Null("x", value, 0.0, 0.0, 0.5, "drawn") for value in (1.0, -1.0, 0.0)]
    assert [one.z for one in flat] == [math.inf, -math.inf, 0.0]
    texts = [Null("x", 1.0, 0.0, 1.0, p, "binomial").p_text for p in (7e-13, 1.2e-12, 0.5)]
    assert texts == ["p < 1e-12", "p = 1.2e-12", "p = 0.5"]
    assert Null.sampled("x", 1.0, [math.inf, 0.0], "drawn").quantiles == ()
    assert multinomial([2000, 2000, 2000]) == math.inf
    one = Null.sampled("x", 1.0, [0.5], "drawn")
    assert (one.std, one.quantiles) == (0.0, ())
    assert len(Null.sampled("x", 1.0, [0.5, 0.5], "drawn").quantiles) == 21
    assert (
        why_undecidable([null(59)], 0.01) is not None and why_undecidable([null(99)], 0.01) is None
    )
