"""Pairs that a search for a subspace is trained on and judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from mechint.counterfactuals import asked_answer, draw
from mechint.errors import DataError
from mechint.pairs import Pairs
from mechint.task import Batch, FiniteTask, Variable, sides

if TYPE_CHECKING:
    from mechint.subject import Subject

MINIMAL_PAIRS = 256
"""Most pairs on which the whole activation is swapped with a source that differs in the variable
alone.
"""
MIN_PAIRS = 24
"""Pairs in all, a third of them held out, without which nothing is searched."""
HELD_OUT = 1 / 3
"""Share of the examples that is held out where they are a sample (`FiniteTask.is_sample`)."""
MIN_EXAMPLES = 10
"""Held-out examples of a sample from which something is said: pairs of them that share none are
five then, and five right of five against none have p = 1/252, four 1/70 (Fisher's exact test).
"""


@dataclass(frozen=True)
class Drawn:
    """Pairs that a subspace is trained on, and other pairs, on which it is judged.

    minimal: pairs whose source differs from the base in the variable and in as little else as the
    task allows, fewer than `MINIMAL_PAIRS` where the task has no more, None where it has none.
    fitted: where the examples are a sample, those that `train` is made of, else None: no pair of
    `test` has any of them. apart: nor a stated counterfactual of any of them.
    """

    train: Pairs
    test: Pairs
    minimal: Pairs | None = None
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


def draw_pairs(
    subject: Subject, variable: Variable, trained: int, held_out: int, seed: int, only_correct: bool
) -> Drawn:
    """Pairs to train on, and pairs held out: others of the same inputs, or, where the inputs of the
    task are a sample, pairs of examples that no training pair has. Of a small task as many as it
    has, in the same proportion.

    Raises:
        DataError: there are fewer than `MIN_PAIRS`.
    """
    task = subject.task
    assert task is not None
    if isinstance(task, FiniteTask) and task.is_sample:
        return _draw_divided(subject, task, variable, trained, held_out, seed, only_correct)
    n = trained + held_out
    if isinstance(task, FiniteTask):
        n = int(min(n, count_pairs(math.prod(task.grid), variable)))
    least, answer = min(n, MIN_PAIRS), asked_answer(subject)
    drawn = draw(subject, variable, n, seed, only_correct=only_correct, answer=answer, least=least)
    held = max(2, round(len(drawn) * held_out / (trained + held_out)))
    minimal = draw_minimal(subject, variable, held_out, seed, only_correct, None)
    return Drawn(drawn[held:], drawn[:held], minimal)


def count_pairs(n: int, variable: Variable) -> int:
    """Number of different independent pairs that n examples make."""
    return n * (n - 1) if variable.is_example else n * n


def _draw_divided(
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
    fitted, others = (task.examples()[one] for one in (found.fitted, found.held_out))
    parts: list[Pairs] = []
    for wanted, among in ((trained, fitted), (held_out, others)):
        n = min(wanted, count_pairs(len(among), variable))
        if n < 2:
            raise DataError(
                f"{subject.describe()}: {len(fitted)} examples can be trained on and "
                f"{len(others)} held out; two of each make a pair: give it more examples"
            )
        options = {"answer": asked_answer(subject), "among": among, "least": 2}
        parts.append(draw(subject, variable, n, seed, only_correct=only_correct, **options))
    minimal = draw_minimal(subject, variable, held_out, seed, only_correct, fitted)
    train, test = parts
    return Drawn(train, test, minimal, fitted, found.apart)


def draw_minimal(
    subject: Subject,
    variable: Variable,
    held_out: int,
    seed: int,
    only_correct: bool,
    among: Batch | None,
) -> Pairs | None:
    """Pairs whose source differs in the variable and in as little else as the task allows, at most
    as many as are held out; those made of the examples `among`. None where there are none.
    """
    n, answer = min(held_out, MINIMAL_PAIRS), asked_answer(subject)
    options = {"only_correct": only_correct, "relation": "minimal", "answer": answer, "least": 1}
    try:
        drawn = draw(subject, variable, n, seed + 1, **options)
    except DataError:
        return None
    if among is not None:
        drawn = drawn[drawn.made_of(among.tokens)]
    return drawn if len(drawn) else None
