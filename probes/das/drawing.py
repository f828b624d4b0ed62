"""The pairs that a search for a subspace is trained on and judged by."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mechint.counterfactuals import asked_answer, draw
from mechint.errors import DataError, ParameterError
from mechint.pairs import Pairs
from mechint.task import FiniteTask, Task, Variable

if TYPE_CHECKING:
    from mechint.subject import Subject

MINIMAL_PAIRS = 256
"""Most pairs on which the whole activation is swapped with a source that differs in the variable
alone.
"""


def most_pairs(task: Task, variable: Variable) -> float:
    """How many different independent pairs the examples of `task` make; infinity where it cannot
    list these.
    """
    if not isinstance(task, FiniteTask):
        return math.inf
    n = math.prod(task.grid)
    return n * (n - 1) if variable.is_example else n * n


def independent_pairs(
    subject: Subject, variable: Variable, trained: int, held_out: int, seed: int, only_correct: bool
) -> Pairs:
    """The pairs that are trained on, then those that are held out.

    Raises:
        ParameterError: the examples of the task do not make so many; before a forward.
        DataError: they make them, but too few are answered correctly, or change the answer.
    """
    assert subject.task is not None
    n, most = trained + held_out, most_pairs(subject.task, variable)
    if n > most:
        third = int(most) // 3
        advice = f"for example --set das.pairs={most - third} --set das.held_out={third}"
        raise ParameterError(
            f"das: pairs={trained}: expected at most {most}, held_out={held_out} included: "
            f"{subject.describe()} has no more different pairs; "
            f"{advice if third > 1 else 'give it more examples'}"
        )
    return draw(subject, variable, n, seed, only_correct=only_correct, answer=asked_answer(subject))


def minimal_pairs(
    subject: Subject, variable: Variable, held_out: int, seed: int, only_correct: bool
) -> Pairs | None:
    """Pairs whose source differs in the variable alone, as many as are held out; None where there
    are not so many.
    """
    try:
        return draw(
            subject,
            variable,
            min(held_out, MINIMAL_PAIRS),
            seed + 1,
            only_correct=only_correct,
            relation="minimal",
            answer=asked_answer(subject),
        )
    except DataError:
        return None
