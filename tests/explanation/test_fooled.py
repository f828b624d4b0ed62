"""Sentences that were said of models and are not true of them; each has to be held back now."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch

import mechint
from mechint import planted
from mechint.explanation import Explanation, Part, audit, head, site
from mechint.explanation.claims import inputs_of, key_of, one_hot
from mechint.subject.components import site_of
from mechint.task import Program, Step

MODELS = Path(__file__).parents[2] / "examples" / "models"


def test_the_example_brings_its_answer_from_its_key() -> None:
    subject = mechint.load(MODELS / "maximum.pt")
    best = audit(subject, head(0, 0).copies("largest token"))
    assert best.standing == "stands" and best.value("coverage") > 0.98
    (moved,) = [test for test in best.tests if test.kind == "moved key"]
    assert moved.value > 0.8 and moved.effect.baseline == 0.0
    assert best.accounted is not None and best.accounted.verb == "explains"


def test_markers_are_no_operands() -> None:
    """BOS (10) and SEP (11) have larger numbers than every digit; "largest token" was the first."""
    tokens = torch.tensor([[10, 3, 11, 9, 11, 4], [10, 7, 11, 2, 11, 7], [10, 0, 11, 5, 11, 6]])
    inputs = inputs_of(tokens)
    assert inputs.structural.tolist() == [10, 11]
    assert inputs.is_operand(tokens, inputs.at).tolist() == [[i % 2 == 1 for i in range(6)]] * 3
    assert key_of("largest token", tokens, {}).tolist() == [3, 1, 5]
    assert key_of("smallest token", tokens, {}).tolist() == [1, 3, 1]
    assert key_of("second largest token", tokens, {}).tolist() == [5, 1, 3]


def test_a_variable_is_known_up_to_what_the_answers_tell_apart() -> None:
    """A digit with a meaningless bit stood at the last layer, better than the example's own sum."""
    subject = mechint.load(MODELS / "digits.pt")
    program = subject.task.own_program  # type: ignore[union-attr]
    assert program is not None
    assert program.answers[-1] == ("digit_0",)

    def bit(tokens: Any) -> Any:
        return (tokens[:, 0] * 7 + tokens[:, 3] * 3) % 2

    tag = Step("tag", 20, lambda tokens, total: total % 10 * 2 + bit(tokens), ("sum_0",))
    digit = Step("digit_0", 10, lambda tokens, tag: tag // 2, ("tag",))
    steps = [
        new for one in program.steps for new in ((tag, digit) if one.name == "digit_0" else (one,))
    ]
    refined = Program("refined", tuple(steps), program.answers)
    last = site("L1 resid_post @ answer").where
    for name, n, under in (("tag", 20, refined), ("sum_0", 19, program)):
        claim = Explanation("e", under, (Part(name, last, (name,), one_hot(name, n)),))
        found = audit(subject, claim, examples=400)
        assert found.standing == "untested", name
        (told,) = [test for test in found.tests if test.kind == "resolution"]
        assert (told.value, told.n) == (10, n) and "digit_0" in told.reason
    (known,) = [one.known for one in found.claims]
    assert known == "up to mod 10"


def test_a_part_that_changes_nothing_does_not_stand_beside_a_true_one() -> None:
    subject = mechint.load(MODELS / "digits.pt")
    program = subject.task.own_program  # type: ignore[union-attr]
    assert program is not None
    false = Part("carry_0", site("L0 resid_pre @ 0").where, ("carry_0",), one_hot("carry_0", 2))
    last = site("L1 resid_post @ answer").where
    true = Part("digit_0", last, ("digit_0",), one_hot("digit_0", 10))
    found = audit(subject, Explanation("e", program, (false, true)))
    assert [one.standing for one in found.claims] == ["untested", "stands"]
    assert found.standing == "superfluous" and "carry_0" in found.reason


def test_parts_of_one_name_have_fits_of_their_own() -> None:
    """The true one was edited by the fit of the false one, and called wrong."""
    subject = planted.modular_addition(13, (2, 5)).subject
    true = Part("answer", site_of("L0 resid_post @ answer"), ("answer",), one_hot("answer", 13))
    for place, standing in (("L0 resid_pre @ 0", "wrong"), ("L0 resid_post @ 0", "untested")):
        false = dataclasses.replace(true, site=site_of(place))
        for order in ((true, false), (false, true)):
            found = {one.claim: one.standing for one in audit(subject, *order).claims}
            assert found == {
                f"answer at {true.site}": "stands",
                f"answer at {false.site}": standing,
            }
