"""What a model holds about its answer: logits and activations grouped by the answer, where a cyclic
group acts on it.

Everything is summed over chunks of examples, so memory is bounded by the subject's chunk and cache.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.activations import LOGITS
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes._fourier.cosines import also_unseen, cosine_spectrum
from probes._fourier.spectra import (
    Array,
    KeyFrequencyRule,
    Spectrum,
    cyclic_order,
    energies,
    step_down,
)


@dataclass(frozen=True)
class Cycle:
    """A cyclic group on the classes of an output: ``classes[i]`` is the class (a column of the
    output) of generatorⁱ.
    """

    output: str
    index: int
    classes: tuple[int, ...]

    @property
    def n(self) -> int:
        """Number of elements of the cyclic group."""
        return len(self.classes)


def cycles(subject: Subject) -> list[Cycle]:
    """The outputs whose classes a cyclic group acts on, where the data has every answer at the read
    position.

    For a product modulo a prime the non-zero classes alone.
    """
    task, found = subject.task, []
    assert task is not None
    for index, output in enumerate(task.outputs):
        group, classes = output.group, np.arange(output.n_classes)
        if (
            group is None
            and task.symmetry is not None
            and len(task.outputs) == 1
            and max(task.symmetry.tokens) < output.n_classes
        ):
            group, classes = task.symmetry.group, np.array(task.symmetry.tokens)
        if group is not None and group.is_cyclic and group.order > 1:
            cycle = Cycle(output.name, index, tuple(classes[cyclic_order(group)].tolist()))
            where, on = answer_positions(cycle, subject.targets[:, index])
            if (
                len(where[on].unique()) == cycle.n
            ):  # what some answers never show has no mean to compare
                found.append(cycle)
    return found


def value_tokens(subject: Subject) -> list[int] | None:
    """Tokens of the cyclic group that acts on the operands, in the order of their logarithms; None
    where there is none.
    """
    symmetry = subject.task.symmetry if subject.task else None
    if symmetry is None or not symmetry.group.is_cyclic or symmetry.group.order < 2:
        return None
    return [symmetry.tokens[i] for i in cyclic_order(symmetry.group)]


def checkpoints(subject: Subject, count: int) -> Iterator[tuple[int, Subject]]:
    """(step, the subject at that step) of up to `count` checkpoints evenly over the run's, first
    and last among them.
    """
    available = sorted(subject.series)
    for i in sorted(
        {round(at) for at in np.linspace(0, len(available) - 1, min(count, len(available)))}
    ):
        yield available[i], subject.at_step(available[i])


def chunks(
    subject: Subject, hook: str = LOGITS
) -> Iterator[tuple[Float[Tensor, "row ..."], Int[Tensor, "row output"]]]:
    """(activation or logits at the answer, targets (batch, output)) over the data."""
    for part, found in subject.stream([hook], at="answer"):
        yield found[hook], subject.targets[part]


def answer_positions(
    cycle: Cycle, targets: Int[Tensor, " row"]
) -> tuple[Int[Tensor, " row"], Bool[Tensor, " row"]]:
    """(batch,) exponent of every answer with respect to the generator, and whether the answer lies
    on the cycle.
    """
    size = max(int(targets.max()), *cycle.classes) + 2
    exponent = torch.full((size,), -1, dtype=torch.int64, device=targets.device)
    exponent[torch.tensor(cycle.classes, device=targets.device)] = torch.arange(
        cycle.n, device=targets.device
    )
    where = exponent[targets]  # IGNORE = -1 reads the last entry, which no class has
    return where, where >= 0


@dataclass(frozen=True)
class Sums:
    """Activations summed by answer: sums (n, d), counts (n,), mean (d,) over all inputs, squares Σ
    |v - mean|².
    """

    sums: Array
    counts: Array
    mean: Array
    squares: float

    @property
    def centered(self) -> Float[np.ndarray, "n d"]:
        """(n, d) sums of v - mean."""
        return self.sums - self.counts[:, None] * self.mean

    @property
    def means(self) -> Float[np.ndarray, "n d"]:
        """(n, d) mean of v - mean for every answer; zero where an answer does not occur."""
        return self.centered / np.maximum(self.counts, 1)[:, None]


def not_by_heart(
    subject: Subject,
) -> tuple[str, Callable[[slice, Bool[Tensor, " row"]], Bool[Tensor, " row"]]] | None:
    """The rows whose answers a model cannot have by heart: what they are, and a function (part of
    the rows, which of these it answers right) -> which of them they are. None where the data were
    drawn from held-out examples to begin with.

    Held-out inputs where the split it was trained with is known, else those that it answers wrong.
    """
    if not isinstance(subject.task, FiniteTask):
        return None
    if subject.split is None:
        return "inputs answered wrong", lambda part, right: ~right
    held_out = torch.ones(len(subject.data), dtype=torch.bool, device=subject.device)
    held_out[subject.split["train"].to(subject.device)] = False
    rows = held_out[subject.answer_examples]
    return "held-out inputs", lambda part, right: rows[part]


class AnswerTally:
    """Vectors summed by answer, a chunk at a time."""

    def __init__(self, n: int, device: torch.device) -> None:
        self.sums: Tensor | None = None
        self.counts = torch.zeros(n, dtype=torch.float64, device=device)
        self.squares = 0.0

    def add(self, where: Int[Tensor, " row"], values: Float[Tensor, "row d"]) -> None:
        """Add float64 `values`, whose answers are `where`."""
        if self.sums is None:
            self.sums = values.new_zeros(len(self.counts), values.shape[1])
        self.sums.index_add_(0, where, values)
        self.counts.index_add_(0, where, torch.ones_like(where, dtype=torch.float64))
        self.squares += float(values.square().sum())

    def total(self) -> Sums:
        """All that was added."""
        assert self.sums is not None
        total = self.counts.sum().clamp_min(1)
        mean = self.sums.sum(0) / total
        return Sums(
            self.sums.cpu().numpy(),
            self.counts.cpu().numpy(),
            mean.cpu().numpy(),
            self.squares - float(total * mean.square().sum()),
        )


def answer_sums(subject: Subject, cycle: Cycle, hook: str) -> Sums:
    """Sums by answer of an activation at the read position."""
    tally = AnswerTally(cycle.n, subject.device)
    for values, targets in chunks(subject, hook):
        where, on = answer_positions(cycle, targets[:, cycle.index])
        tally.add(where[on], values[on].double())
    return tally.total()


def logit_sums(subject: Subject, cycle: Cycle) -> tuple[Sums, tuple[str, Sums] | None]:
    """Sums by answer of the logits of the cycle's classes, centered over them; and the same over
    the rows of `not_by_heart`, with what they are, None where they do not show every answer.
    """
    assert subject.task is not None
    columns = subject.task.output_slices[cycle.output]
    classes = torch.tensor(cycle.classes, device=subject.device)
    whole, some = (AnswerTally(cycle.n, subject.device) for _ in range(2))
    rest = not_by_heart(subject)
    for part, recorded in subject.stream([LOGITS], at="answer"):
        targets, logits = subject.targets[part, cycle.index], recorded[LOGITS][:, columns]
        where, on = answer_positions(cycle, targets)
        values = logits[:, classes].double()
        values = values - values.mean(1, keepdim=True)
        whole.add(where[on], values[on])
        if rest is not None:
            unseen = on & rest[1](part, logits.argmax(-1) == targets)
            some.add(where[unseen], values[unseen])
    enough = rest is not None and bool(some.counts.all())
    return whole.total(), (rest[0], some.total()) if rest is not None and enough else None


def logit_spectrum(subject: Subject, cycle: Cycle, rule: KeyFrequencyRule, seed: int) -> Spectrum:
    """The cosines of the logits of one output with the waves in answer - class, and its key
    frequencies.

    A frequency that is key over all inputs has to be key on those that the model cannot have by
    heart, too: of training pairs learned by heart some frequencies stand out because of the random
    weights they were learned with.
    """
    whole, rest = logit_sums(subject, cycle)

    def spectrum(of: Sums) -> Spectrum:
        return cosine_spectrum(of.centered, of.counts, of.squares, rule, seed)

    found = spectrum(whole)
    if rest is None:
        return found
    return also_unseen(found, dataclasses.replace(spectrum(rest[1]), where=rest[0]))


def residual_spectrum(
    subject: Subject, cycle: Cycle, hook: str, rule: KeyFrequencyRule, permutations: int, seed: int
) -> Spectrum:
    """Share of the variance of the mean activation per answer at each frequency, against 2/(n - 1)
    and permuted operands.

    A permutation σ of the operands' values groups the inputs by answer(σx, σy) in place of
    answer(x, y): whatever the activation computes stays, what it has to do with the answer goes;
    energies are compared, not shares of what little is left. Where the data are not a grid of two
    operands, the answers are shuffled among the inputs. Shuffling the means themselves would not
    do: the mean of a product of two random waves is already heavy-tailed. The null is drawn
    only where a share exceeds the uniform level.
    """
    means = answer_sums(subject, cycle, hook).means
    total = float((means**2).sum())
    level = rule.factor * 2 / max(cycle.n - 1, 1)
    shares = (
        energies(means) / total
        if total > 1e-20 * max(float(np.abs(means).max()), 1.0)
        else np.zeros(cycle.n // 2)
    )
    if shares.max() <= level:
        return Spectrum(shares, [], level, shares[:0])
    null = _permuted_energies(subject, cycle, hook, permutations, seed) / total
    return step_down(shares, level, rule.alpha, lambda keys: null)


def _permuted_energies(
    subject: Subject, cycle: Cycle, hook: str, permutations: int, seed: int
) -> Array:
    """(permutations,) largest energy at one frequency of the means by answer(σx, σy)."""
    where, on = answer_positions(cycle, subject.targets[:, cycle.index])
    groups, generator, task = [], rng("residual null", seed), subject.task
    grid = task.grid if isinstance(task, FiniteTask) and subject.on_grid else ()
    for _ in range(permutations):
        if len(grid) == 2 and grid[0] == grid[1]:
            order = torch.from_numpy(generator.permutation(grid[0])).to(where.device)
            groups.append(where.reshape(grid)[order][:, order].flatten())
        else:
            groups.append(
                where[torch.from_numpy(generator.permutation(len(where))).to(where.device)]
            )
    sums: Tensor | None = None
    start, answered = 0, bool((where >= 0).all())
    for values, _ in chunks(subject, hook):
        values = values.double()
        sums = values.new_zeros(permutations, cycle.n, values.shape[1]) if sums is None else sums
        for i, group in enumerate(groups):
            part = group[start : start + len(values)]
            if answered:
                sums[i].index_add_(0, part, values)
            else:
                sums[i].index_add_(0, part[part >= 0], values[part >= 0])
        start += len(values)
    assert sums is not None
    counts = torch.bincount(where[on], minlength=cycle.n).clamp_min(1).double()
    return np.array([energies((summed / counts[:, None]).cpu().numpy()).max() for summed in sums])
