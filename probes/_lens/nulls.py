"""Nulls: what a component would write of the right answers if the answers were others."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.null import by_example, multinomial
from mechint.results import Null
from mechint.subject import Subject
from mechint.task import IGNORE, FiniteTask, rng

ENOUGH = 2000
"""Ways to rename the answers, from which on they are renamed and not dealt out anew."""
MOST_CLASSES = 2048
"""Classes up to which they are renamed: a square of so many numbers is kept per component."""


MORE, NAMES = 50, 2**20
"""Up to how many times the samples asked for classes are renamed, with up to so many names in all:
they cost hardly more than fewer, and at the level fewer turn the verdict with the seed.
"""


class OtherAnswers(Protocol):
    """Samples of a null: answers that take the place of the right ones."""

    how: str
    arrangements: float

    def sums(
        self, part: slice, logits: Float[Tensor, "example d_vocab_out"]
    ) -> Float[np.ndarray, " sample"]:
        """(sample,) sums over the examples of the chunk and the outputs of the logits at the other
        answers.
        """
        ...


def other_answers(subject: Subject, samples: int, seed: int) -> OtherAnswers:
    """The answers renamed where they can be renamed in enough ways; else those of inputs whose
    operands are, or dealt out anew.
    """
    ways = 1.0
    for column in subject.targets.T:
        ways *= math.factorial(min(len(column[column != IGNORE].unique()), 20))
    most = max(len(column.unique()) for column in subject.targets.T)
    if ways >= ENOUGH and most <= MOST_CLASSES:
        return Renamed(subject, samples, seed)
    return permuted_operands(subject, samples, seed) or Dealt(subject, samples, seed)


class Renamed:
    """Every class of an output is taken for another one, the same for all inputs.

    Which inputs share an answer stays as it is, as in a Latin square, where answers dealt out anew
    would vary more than the right ones can. At initial weights, where classes are exchangeable,
    p-values are uniform. At least `samples` times, and more often where that costs hardly more.
    """

    how = "the classes of the answers renamed at random"
    arrangements = math.inf

    def __init__(self, subject: Subject, samples: int, seed: int) -> None:
        assert subject.task is not None
        generator = rng("lens null", seed)
        most = max(len(column.unique()) for column in subject.targets.T)
        samples = max(samples, min(MORE * samples, NAMES // most))
        self.outputs: list[tuple[int, Tensor, Tensor, np.ndarray]] = []
        for i, columns in enumerate(subject.task.output_slices.values()):
            targets = subject.targets[:, i].contiguous()
            present = targets[targets != IGNORE].unique()  # ascending
            place = torch.searchsorted(present, targets).masked_fill(targets == IGNORE, -1)
            names = generator.permuted(np.tile(np.arange(len(present)), (samples, 1)), axis=1)
            self.outputs.append((columns.start, present, place, names))

    def sums(
        self, part: slice, logits: Float[Tensor, "example d_vocab_out"]
    ) -> Float[np.ndarray, " sample"]:
        """As `OtherAnswers.sums`: one sum of logits by right class serves all renamings."""
        total = 0.0
        for start, present, place, names in self.outputs:
            rows = place[part] >= 0
            by_class = logits.new_zeros(len(present), len(present))  # (right class, class)
            by_class.index_add_(0, place[part][rows], logits[rows][:, start + present])
            found = by_class.cpu().numpy()
            total = total + found[np.arange(len(present)), names].sum(1)
        return np.asarray(total)


class Permuted:
    """Every input is given the answer of another one: that in which all operands' values are
    renamed, the same for every operand.

    An order of the values is kept as an order, of others: a random model adds up what it makes of
    either operand, and answers that grow with both, as a < b does, then vary more than answers
    dealt out anew can. At initial weights, where values are exchangeable, p-values are uniform.
    """

    how = "the values of the operands renamed at random, for all operands alike"
    arrangements = math.inf

    def __init__(self, subject: Subject, orders: Int[np.ndarray, "sample value"]) -> None:
        assert isinstance(subject.task, FiniteTask)
        self.grid, self.orders = subject.task.grid, orders
        self.targets, self.starts = subject.targets, _starts(subject)

    def rows(self, part: slice) -> Int[Tensor, "example sample"]:
        """(example, sample) the input whose answer each example of the chunk is given."""
        operands = np.unravel_index(np.arange(len(self.targets))[part], self.grid)
        renamed = tuple(self.orders[:, values].T for values in operands)  # (example, sample) each
        return torch.from_numpy(np.ravel_multi_index(renamed, self.grid))

    def sums(
        self, part: slice, logits: Float[Tensor, "example d_vocab_out"]
    ) -> Float[np.ndarray, " sample"]:
        """As `OtherAnswers.sums`, at the answers of the renamed inputs."""
        return _sums_at(self.rows(part), self.targets, self.starts, logits)


def permuted_operands(subject: Subject, samples: int, seed: int) -> Permuted | None:
    """The answers with the operands' values renamed; None where the inputs are no grid of equal
    operands, the values have too few orders, or an order leaves all answers as they are.
    """
    task = subject.task
    if not isinstance(task, FiniteTask) or not subject.on_grid or len(set(task.grid)) != 1:
        return None
    n = task.grid[0]
    if len(task.grid) < 2 or math.factorial(min(n, 20)) < ENOUGH:
        return None
    generator = rng("lens null of operands", seed)
    orders = np.stack([generator.permutation(n) for _ in range(samples)])
    answers = subject.targets.cpu().numpy().reshape(*task.grid, -1)
    axes = len(task.grid)
    if any((answers[np.ix_(*[order] * axes)] == answers).all() for order in orders):
        return None
    return Permuted(subject, orders)


class Dealt:
    """The answers in a random order of their own for each sample, each as often as it occurs.

    Memory: four bytes per input and sample.
    """

    how = "the answers dealt out anew among the inputs"

    def __init__(self, subject: Subject, samples: int, seed: int) -> None:
        assert subject.task is not None
        generator, n = rng("lens null", seed), len(subject.targets)
        self.targets, self.starts = subject.targets, _starts(subject)
        self.orders = np.empty((n, samples), np.int32)
        for sample in range(samples):
            self.orders[:, sample] = generator.permutation(n)
        alike = subject.targets.unique(dim=0, return_counts=True)[1].tolist()
        self.arrangements = multinomial(alike)

    def rows(self, part: slice) -> Int[Tensor, "example sample"]:
        """(example, sample) the input whose answer each example of the chunk is given."""
        return torch.from_numpy(self.orders[part]).long()

    def sums(
        self, part: slice, logits: Float[Tensor, "example d_vocab_out"]
    ) -> Float[np.ndarray, " sample"]:
        """As `OtherAnswers.sums`, at the answers that the inputs of the chunk were dealt."""
        return _sums_at(self.rows(part), self.targets, self.starts, logits)


def _starts(subject: Subject) -> list[int]:
    """(output,) the first column of each output's logits."""
    assert subject.task is not None
    return [part.start for part in subject.task.output_slices.values()]


def _sums_at(
    rows: Int[Tensor, "example sample"],
    targets: Int[Tensor, "all_examples output"],
    starts: list[int],
    logits: Float[Tensor, "example d_vocab_out"],
) -> Float[np.ndarray, " sample"]:
    """(sample,) sums of the logits at the answers of the inputs `rows`."""
    rows = rows.to(logits.device)
    total = logits.new_zeros(rows.shape[1])
    for i, start in enumerate(starts):
        classes = targets[:, i][rows]
        found = logits.gather(1, classes.clamp(min=0) + start)
        total += (found * (classes != IGNORE)).sum(0)
    return total.cpu().numpy()


def above_chance(
    right: Bool[np.ndarray, " answer"],
    chance: Float[np.ndarray, " answer"],
    example: Int[np.ndarray, " answer"],
) -> Null:
    """The share of `right` answers against that of the best constant ones, right with probability
    `chance` each (binomial). The answers of one `example` hang together, so that it counts once, by
    its share of right ones.
    """
    from scipy.stats import binom

    hits, n = by_example(right, example)
    _, own, answers = np.unique(example, return_inverse=True, return_counts=True)
    expected = float((np.bincount(own, chance) / answers).mean())
    p_value = float(binom.sf(hits - 1, n, min(expected, 1.0)))
    accuracy, mean = float(right.mean()), float(chance.mean())
    std = math.sqrt(mean * (1 - mean) / n)
    how = "the best constant answer, binomial over distinct examples"
    return Null("lens.final_accuracy", accuracy, mean, std, p_value, how)
