"""Chance: the best constant answer, counted as the accuracy beside it is counted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int

from mechint.decide.evidence import at_least
from mechint.errors import counted

CHANCE_LEVEL = 1e-3
"""One-sided binomial level at which a model counts as better than the best constant answer."""
AT_CHANCE = "the model is not shown to answer better than chance"
MAX_CONSTANTS = 512
"""Constant answers that are tried where some outputs are not asked, the most frequent ones."""


def best_constant(answers: Int[np.ndarray, "row output"], ignore: int = -1) -> float:
    """Share of rows that the best constant answer gets right in every output that is asked there.

    answers: classes, `ignore` where an output is not asked. Of outputs that are counted together
    the constant is one answer to all of them: far rarer than each alone.

    >>> best_constant(np.array([[0, 0], [0, 1], [1, 0], [1, 1]]))
    0.25
    >>> best_constant(np.array([[0, 7], [0, -1], [1, 7]]))
    0.6666666666666666
    """
    asked = answers != ignore
    answers, asked = answers[:, asked.any(0)], asked[:, asked.any(0)]
    if not answers.size:
        return 0.0
    rows, counts = np.unique(answers, axis=0, return_counts=True)
    if asked.all():
        return float(counts.max() / len(answers))
    modes = [np.unique(column[column != ignore], return_counts=True) for column in answers.T]
    fill = np.array([values[found.argmax()] for values, found in modes])
    tried = rows[np.argsort(-counts, kind="stable")[:MAX_CONSTANTS]]
    tried = np.unique(np.where(tried == ignore, fill, tried), axis=0)
    right = [((answers == one) | ~asked)[asked.any(1)].all(1).mean() for one in tried]
    return float(max(right))


def why_too_few(accuracy: float, chance: float, n: int, output: str = "") -> str:
    """The reason for which n answers cannot tell an accuracy from chance.

    >>> why_too_few(1.0, 1.0, 50, "sign")
    "all 50 answers on 'sign' are the same, which a constant answers"
    """
    of = f" on {output!r}" if output else ""
    if chance >= 1:
        return f"all {n:,} answers{of} are the same, which a constant answers"
    few = f"{counted(n, 'answer')}{of} are too few to tell an accuracy of {accuracy:.3g}"
    return f"{few} from chance ({chance:.3g})"


@dataclass(frozen=True)
class Skill:
    """A model's accuracy beside chance of the same count.

    accuracy, chance: shares of n answers. p_value: one-sided, of as many right by the best constant
    answer; binomial over n where None is given. questions: how many such are asked at once
    (Bonferroni). output: of the task, where it is of one alone.
    """

    accuracy: float
    chance: float
    n: int
    p_value: float = -1.0
    questions: int = 1
    output: str = ""

    @cached_property
    def p(self) -> float:
        """The p-value, computed where none was given."""
        if self.p_value >= 0:
            return self.p_value
        return at_least(round(self.accuracy * self.n), self.n, self.chance)

    @property
    def beats_chance(self) -> bool:
        """True if the model answers better than the best constant answer, at `CHANCE_LEVEL`.

        >>> Skill(0.9, 0.1, 100).beats_chance, Skill(0.2, 0.1, 20).beats_chance
        (True, False)
        """
        return self.accuracy > self.chance and self.p * self.questions <= CHANCE_LEVEL

    @property
    def too_few(self) -> bool:
        """True if even all answers right could not be distinguished from chance."""
        return self.chance**self.n * self.questions > CHANCE_LEVEL

    @property
    def reason(self) -> str:
        """The reason for which nothing can be said of the answers of such a model; "" where some
        can.
        """
        if self.beats_chance:
            return ""
        if self.too_few:
            return why_too_few(self.accuracy, self.chance, self.n)
        return f"{AT_CHANCE} (accuracy {self.accuracy:.3g}, chance {self.chance:.3g})"

    def above(self, accuracy: float) -> float:
        """An accuracy above chance, as a share of the model's own.

        >>> Skill(0.9, 0.1, 100).above(0.5)
        0.5
        """
        return (accuracy - self.chance) / (self.accuracy - self.chance)

    def at(self, share: float) -> float:
        """The accuracy at a share of the way from chance to the model's own.

        >>> Skill(0.9, 0.1, 100).at(0.5)
        0.5
        """
        return self.chance + share * (self.accuracy - self.chance)
