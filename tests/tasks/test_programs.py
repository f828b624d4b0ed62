"""Programs of tasks: interventions by hand, and inputs on which rivals differ."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import pytest
import torch

import tasks
from mechint.errors import MechintError, NotApplicableError, UnknownNameError
from mechint.task import Program, Step


def test_what_follows_from_a_given_variable_is_computed_again() -> None:
    double = Step("double", 7, lambda tokens: 2 * tokens[:, 0])
    square = Step("square", 37, lambda tokens, double: double**2, ("double",))
    other = Step("other", 3, lambda tokens: tokens[:, 0])
    program = Program("squares", (double, square, other), (("square",), ("other",)))
    tokens = torch.tensor([[1], [2]])
    values = program.run(tokens, {"double": torch.tensor([5, 0])})
    assert {name: value.tolist() for name, value in values.items()} == {
        "double": [5, 0],
        "square": [25, 0],
        "other": [1, 2],
    }
    assert set(program.run(tokens, only=("square",))) == {"double", "square"}
    assert set(program.run(tokens, {"double": 3}, only=("square",))) == {"double", "square"}
    assert program.reached("double") == (0,) and program.reached("other") == (1,)
    with pytest.raises(UnknownNameError, match="did you mean 'double'"):
        program.run(tokens, {"duoble": 1})


FIRST = Step("first", 2, lambda tokens: tokens[:, 0])
DOUBLE = Step("double", 3, lambda tokens, first: 2 * first, ("first",))


@pytest.mark.parametrize(
    ("steps", "answer", "said"),
    [
        ((DOUBLE, FIRST), "double", "'double' reads 'first', which comes later"),
        ((DOUBLE,), "double", "'double' reads 'first', which is no step"),
        ((FIRST, FIRST), "first", "two steps are called 'first'"),
        ((FIRST, DOUBLE), "doubel", "did you mean 'double'"),
    ],
)
def test_a_program_whose_steps_cannot_be_followed_is_refused_when_it_is_made(
    steps: tuple[Step, ...], answer: str, said: str
) -> None:
    with pytest.raises(MechintError, match=said):
        Program("refused", steps, ((answer, None),))


def test_ripple_and_lookahead_carry_differ_where_nine_is_passed() -> None:
    """17 + 81 = 98. A carry forced into place 1, whose sum is 9, moves on only as a ripple."""
    task = tasks.digit_sum(digits=2, leading=9)
    tokens = torch.tensor([task.tokens_of("17+81=098")])
    ripple, lookahead = task.programs["ripple"], task.programs["lookahead"]
    given = {"carry_0": 1}
    assert [ripple.run(tokens, given)[f"digit_{k}"].item() for k in (2, 1, 0)] == [1, 0, 8]
    assert [lookahead.run(tokens, given)[f"digit_{k}"].item() for k in (2, 1, 0)] == [0, 0, 8]
    assert lookahead.run(tokens)["propagate_1"].item() == 1


def test_clock_and_pizza_by_term_by_term_sums() -> None:
    task = tasks.modular_arithmetic(p=11)
    tokens = task.examples().tokens[torch.tensor([3, 40, 75, 118])]
    given = {"angle_2": torch.tensor([0, 3, 7, 10])}
    for name in ("clock", "pizza"):
        program = task.programs[name]
        values = program.run(tokens, given)
        for row, (x, y) in enumerate(tokens[:, :2].tolist()):
            logits = [
                sum(
                    math.cos(2 * math.pi * (k * c - values[f"angle_{k}"][row].item()) / 11)
                    * (abs(math.cos(math.pi * k * (x - y) / 11)) if name == "pizza" else 1)
                    for k in (1, 2, 3, 4, 5)
                )
                for c in range(11)
            ]
            assert values["answer"][row].item() == logits.index(max(logits))
    assert "pizza" not in tasks.modular_arithmetic(p=12).programs
    assert list(tasks.modular_arithmetic(p=11, labels="shuffled").programs) == ["table"]


def test_a_task_without_programs_runs_none() -> None:
    whole = tasks.max_of_list(n=9, length=3)

    class Bare(type(whole)):  # type: ignore[misc]
        programs: ClassVar[Any] = {}
        variables: ClassVar[Any] = whole.variables

    tokens = torch.tensor([[3, 8, 1]])
    with pytest.raises(NotApplicableError, match="it states no program"):
        Bare(n=9, length=3).run(tokens, {"element_1": 2})
    with pytest.raises(NotApplicableError, match="single-index"):
        tasks.single_index().run(tokens)


def test_listops_resolves_the_rest_of_an_expression() -> None:
    task = tasks.listops(operations=("ADD",))
    tokens = torch.tensor([task.tokens_of("s(%12(%34))>(%127)>0=0e")])
    assert task.run(tokens, {"first_step": 9})["answer"].tolist() == [2]
    assert task.run(tokens, {"first_step": 9, "operand_0": 5})["answer"].tolist() == [6]
    ids = task.vocabulary.ids
    targets = task.targets(tokens, {"first_step": 9})[0, :, 0].tolist()
    assert [t for t in targets if t >= 0] == [ids[c] for c in "(%129)>2=2e"]
