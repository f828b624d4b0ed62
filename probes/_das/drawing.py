"""The pairs that a search for a subspace is trained on and judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mechint.counterfactuals import asked_answer, draw
from mechint.errors import DataError, ParameterError
from mechint.pairs import Pairs
from mechint.task import Batch, FiniteTask, Variable, sides

if TYPE_CHECKING:
    from mechint.subject import Subject

MINIMAL_PAIRS = 256
"""Most pairs on which the whole activation is swapped with a source that differs in the variable
alone.
"""


HELD_OUT = 1 / 3
"""Share of the examples that is held out where they are a sample (`FiniteTask.is_sample`)."""
LEAST_EXAMPLES = 10
"""Held-out examples of a sample from which a sentence is said: pairs of them that share none are
five then, and five right of five against none have p = 1/252, four 1/70 (Fisher's exact test).
"""


@dataclass(frozen=True)
class Drawn:
    """Pairs that a subspace is trained on, and other pairs, on which it is judged.

    fitted: where the examples are a sample, those that `train` is made of, else None: no pair of
    `test` has any of them. apart: nor a stated counterfactual of any of them.
    """

    train: Pairs
    test: Pairs
    fitted: Batch | None = None
    apart: bool = True

    @property
    def unseen(self) -> float:
        """Share of `test` whose base and source are in no pair of `train`."""
        trained = _inputs(self.train.base) | _inputs(self.train.source)
        both = zip(self.test.base.tolist(), self.test.source.tolist(), strict=True)
        new = [tuple(base) not in trained and tuple(source) not in trained for base, source in both]
        return sum(new) / len(new)

    @property
    def examples(self) -> int | None:
        """Different examples in `test` where these are a sample; None where they are not."""
        if self.fitted is None:
            return None
        return len(_inputs(self.test.base) | _inputs(self.test.source))


def _inputs(tokens: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(row) for row in tokens.tolist()}


def most_pairs(n: int, variable: Variable) -> int:
    """How many different independent pairs n examples make."""
    return n * (n - 1) if variable.is_example else n * n


def search_pairs(
    subject: Subject, variable: Variable, trained: int, held_out: int, seed: int, only_correct: bool
) -> Drawn:
    """The pairs that are trained on, and those that are held out: others of the same inputs, or,
    where the inputs of the task are a sample, pairs of examples that no training pair has.

    Raises:
        ParameterError: the examples of the task do not make so many; before a forward.
        DataError: they make them, but too few are answered correctly, or change the answer.
    """
    task = subject.task
    assert task is not None
    if isinstance(task, FiniteTask) and task.is_sample:
        return _divided(subject, task, variable, trained, held_out, seed, only_correct)
    n = trained + held_out
    most = most_pairs(math.prod(task.grid), variable) if isinstance(task, FiniteTask) else math.inf
    if n > most:
        third = int(most) // 3
        raise ParameterError(
            f"das: pairs={trained}: expected at most {most}, held_out={held_out} included: "
            f"{subject.describe()} has no more different pairs; "
            f"{_advice(int(most) - third, third)}"
        )
    answer = asked_answer(subject)
    drawn = draw(subject, variable, n, seed, only_correct=only_correct, answer=answer)
    return Drawn(drawn[:trained], drawn[trained:])


def _divided(
    subject: Subject,
    task: FiniteTask,
    variable: Variable,
    trained: int,
    held_out: int,
    seed: int,
    only_correct: bool,
) -> Drawn:
    """Pairs of examples that are trained on, and pairs of others."""
    found = sides(task, HELD_OUT, seed)
    most, most_held = (most_pairs(len(one), variable) for one in (found.fitted, found.held_out))
    if trained > most or held_out > most_held:
        raise ParameterError(
            f"das: pairs={trained}, held_out={held_out}: expected at most {most} and {most_held}: "
            f"of {subject.describe()} {len(found.fitted)} examples are trained on and "
            f"{len(found.held_out)} held out; {_advice(most, most_held)}"
        )
    fitted, others = (task.examples()[one] for one in (found.fitted, found.held_out))
    train, test = (
        draw(
            subject,
            variable,
            n,
            seed,
            only_correct=only_correct,
            answer=asked_answer(subject),
            among=among,
        )
        for n, among in ((trained, fitted), (held_out, others))
    )
    return Drawn(train, test, fitted, found.apart)


def _advice(pairs: int, held_out: int) -> str:
    """Settings that there are pairs enough for."""
    if min(pairs, held_out) < 2:
        return "give it more examples"
    return f"for example --set das.pairs={pairs} --set das.held_out={held_out}"


def minimal_pairs(
    subject: Subject,
    variable: Variable,
    held_out: int,
    seed: int,
    only_correct: bool,
    among: Batch | None,
) -> Pairs | None:
    """Pairs whose source differs in the variable alone, as many as are held out, those of them that
    are made of the examples `among`; None where there are not so many, or none.
    """
    try:
        drawn = draw(
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
    if among is None:
        return drawn
    drawn = drawn[drawn.made_of(among.tokens)]
    return drawn if len(drawn) else None
