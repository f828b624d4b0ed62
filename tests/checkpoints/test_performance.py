"""The performance of models whose outputs are not asked equally often."""

from __future__ import annotations

import math

import pytest

from mechint.checkpoints import Assumption, load_checkpoint
from mechint.checkpoints.performance import CHANCE_LEVEL, SplitPerformance, measure
from mechint.planted.trained import small_transformer
from mechint.subject import Subject
from tests.conformance.three_operands import ThreeOperands


def test_every_output_is_shown_with_the_answers_of_its_own() -> None:
    """Of 96 answers 60 are sums and 36, those of an even b, the other; shares of these counts."""
    task = ThreeOperands()
    even = sum(b % 2 == 0 for b in range(task.n_b))
    subject = Subject(small_transformer(task, 0, 8, 16), task)
    found = measure(subject, None)
    assert found is not None
    assert found.n == {"sum": 3 * 5 * 4, "more": 3 * even * 4} == {"sum": 60, "more": 36}
    for name, accuracy in found.accuracy.items():
        assert accuracy * found.n[name] == pytest.approx(round(accuracy * found.n[name]))


def of(accuracy: float, n: int, loss: float = 0.1, level: float = 0.5, **more) -> SplitPerformance:
    """A performance on one output whose chance is `level` and 0.7 nats."""
    chance = {"y": {"accuracy": level, "loss": 0.7}}
    return SplitPerformance(
        {"y": accuracy}, {"y": loss}, chance, {"y": n}, **{"splits": {}, **more}
    )


def test_chance_is_an_exact_binomial_test() -> None:
    """Of ten coins all ten show heads with probability 1/1024, of nine with 1/512."""
    assert of(1.0, 10).at_chance == of(1.0, 10).too_few == []
    assert of(1.0, 9).too_few == ["y"] and of(1.0, 9).at_chance == []
    many = of(0.55, 960)
    tail = sum(math.comb(960, k) for k in range(528, 961)) / 2**960
    assert (tail > CHANCE_LEVEL) == (many.at_chance == ["y"])


def test_few_prompts_answered_right_are_not_at_chance() -> None:
    """One clean and one corrupted prompt are an experiment (users 1.1)."""
    (said,) = of(1.0, 2).warnings({})
    assert "too few to tell an accuracy of 1" in said and "no mechanism" not in said


def test_a_loss_above_a_constant_answers_names_the_assumption() -> None:
    assumed = {"attention_dir": Assumption("causal", "default"), "zero": Assumption([], "")}
    (said,) = of(0.875, 500, loss=1.3).warnings({}, assumed)
    assert "assumed are attention_dir" in said and "zero" not in said
    overfit = of(0.4, 500, loss=1.3, splits={"train": {"loss": {"y": 0.1}, "accuracy": {"y": 1}}})
    assert overfit.misread == []


@pytest.mark.full
def test_brackets_read_as_causal_name_the_direction(published) -> None:
    opened = load_checkpoint(published / "arena/brackets_model_state_dict.pt", "balanced-brackets")
    (said,) = opened.warnings()
    assert "--set model.attention_dir=bidirectional" in said
