"""Nulls: what a component would write of the right answers if the answers were others."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.null import by_example, multinomial
from mechint.results import Null
from mechint.subject import Subject
from mechint.task import IGNORE, FiniteTask, rng

ENOUGH = 2000
"""Ways to rename the answers, from which on they are renamed and not permuted."""
MOST_CLASSES = 2048
"""Classes up to which they are renamed: a square of so many numbers is kept per component."""

MORE, NAMES = 50, 2**20
"""Up to how many times the samples asked for classes are renamed, with up to so many names in all:
they cost hardly more than fewer, and at the level fewer turn the verdict with the seed.
"""


def other_answers(subject: Subject, samples: int, seed: int) -> Renamed | OtherInputs:
    """The answers renamed where they can be renamed in enough ways; else those of inputs whose
    operands are, or permuted.
    """
    ways = 1.0
    for column in subject.targets.T:
        ways *= math.factorial(min(len(column[column != IGNORE].unique()), 20))
    most = max(len(column.unique()) for column in subject.targets.T)
    if ways >= ENOUGH and most <= MOST_CLASSES:
        return Renamed(subject, samples, seed)
    return permuted_operands(subject, samples, seed) or permuted_answers(subject, samples, seed)


class Renamed:
    """Every class of an output is taken for another one, the same for all inputs.

    Which inputs share an answer stays as it is, as in a Latin square, where permuted answers
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
        """(sample,) sums over the examples of the chunk and the outputs of the logits at the other
        answers. One sum of logits by right class serves all renamings."""
        total = 0.0
        for start, present, place, names in self.outputs:
            rows = place[part] >= 0
            by_class = logits.new_zeros(len(present), len(present))  # (right class, class)
            by_class.index_add_(0, place[part][rows], logits[rows][:, start + present])
            found = by_class.cpu().numpy()
            total = total + found[np.arange(len(present)), names].sum(1)
        return np.asarray(total)


class OtherInputs:
    """Every input is given the answer of another one, sample by sample, `rows` (example, sample).

    Memory: four bytes per input and sample.
    """

    def __init__(
        self,
        subject: Subject,
        rows: Int[np.ndarray, "example sample"],
        how: str,
        arrangements: float,
    ) -> None:
        assert subject.task is not None
        self.rows, self.how, self.arrangements = rows.astype(np.int32), how, arrangements
        self.targets = subject.targets
        self.starts = [part.start for part in subject.task.output_slices.values()]

    def sums(
        self, part: slice, logits: Float[Tensor, "example d_vocab_out"]
    ) -> Float[np.ndarray, " sample"]:
        """(sample,) sums over the chunk and the outputs of the logits at the other answers."""
        rows = torch.from_numpy(self.rows[part]).long().to(logits.device)
        total = logits.new_zeros(rows.shape[1])
        for i, start in enumerate(self.starts):
            classes = self.targets[:, i][rows]
            found = logits.gather(1, classes.clamp(min=0) + start)
            total += (found * (classes != IGNORE)).sum(0)
        return total.cpu().numpy()


def permuted_operands(subject: Subject, samples: int, seed: int) -> OtherInputs | None:
    """The answers with the operands' values renamed, the same for every operand; None where the
    inputs are no grid of equal operands, the values have too few orders, or an order leaves all
    answers as they are.

    An order of the values is kept as an order, of others: a random model adds up what it makes of
    either operand, and answers that grow with both, as a < b does, then vary more than permuted
    ones can. At initial weights, where values are exchangeable, p-values are uniform.
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
    operands = np.unravel_index(np.arange(len(subject.targets)), task.grid)
    rows = np.ravel_multi_index(tuple(orders[:, values].T for values in operands), task.grid)
    how = "the values of the operands renamed at random, for all operands alike"
    return OtherInputs(subject, rows, how, math.inf)


def permuted_answers(subject: Subject, samples: int, seed: int) -> OtherInputs:
    """The answers in a random order of their own for each sample, each as often as it occurs."""
    generator, n = rng("lens null", seed), len(subject.targets)
    rows = np.stack([generator.permutation(n) for _ in range(samples)], 1)
    alike = subject.targets.unique(dim=0, return_counts=True)[1].tolist()
    how = "the answers permuted among the inputs"
    return OtherInputs(subject, rows, how, multinomial(alike))


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
