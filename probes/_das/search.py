"""Where a variable is looked for, and what every site gives."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.models.protocol import read_only_hooks
from mechint.pairs import Pairs
from mechint.task import Variable
from probes._das.controls import input_share, random_accuracies
from probes._das.fit import fit
from probes._das.swap import SwapSite, answers_under, interchange_accuracy, mean, swap

if TYPE_CHECKING:
    from mechint.subject import Subject

Place = tuple[str, int | None]
"""A hook and a position, None for that of the answer."""
SWEPT = 64
"""Pairs, and at most as many positions, on which the whole activation is swapped everywhere."""
LEAST_OF_VALUE = 8
"""Inputs of one value whose mean is taken: that of fewer tells much of each of them."""
SPARE = 2.0
"""Standard errors of a share of the held-out pairs above the threshold, on the training pairs."""


@dataclass(frozen=True)
class Fitting:
    """How one subspace is searched for."""

    steps: int
    batch_size: int
    lr: float
    seed: int

    def options(self) -> dict[str, Any]:
        """The settings as keyword arguments of `fit`."""
        return {
            "steps": self.steps,
            "batch_size": self.batch_size,
            "lr": self.lr,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Cell:
    """One subspace of the search and what its interchange does; accuracies on held-out pairs but
    `trained`.

    correct (pair, output); input_share: of `controls.input_share`, NaN where the variable is the
    example itself, so that no two share its value; value_means: of `value_means_accuracy`, NaN
    where it is not asked, as of a subspace whose coordinates follow the variable. full_swap,
    full_swap_minimal: of the whole activation, from any source and from one that differs in the
    variable and in as little else as the task allows; the latter NaN where there are no such pairs.
    """

    place: Place
    dimension: int
    subspace: Tensor
    losses: list[float]
    trained: float
    correct: Tensor
    full_swap: float
    full_swap_minimal: float
    random: float
    input_share: float
    value_means: float = math.nan

    @property
    def iia(self) -> float:
        """Interchange intervention accuracy on held-out pairs, 0–1."""
        return mean(self.correct)

    def full_swap_fails(self, threshold: float) -> bool:
        """Whether the swap of all of the activation of minimal pairs, or, where there are none, of
        any, falls short of the threshold.
        """
        known = self.full_swap if math.isnan(self.full_swap_minimal) else self.full_swap_minimal
        return known < threshold

    @property
    def hook(self) -> str:
        """The hook whose activation the subspace is of."""
        return self.place[0]

    @property
    def where(self) -> str:
        """Hook and position, as it is shown."""
        return f"{self.hook} @ {'answer' if self.place[1] is None else self.place[1]}"

    def verdict(self, threshold: float, most_input: float) -> str:
        """holds, holds more, carries its inputs, full swap fails, or no; without the controls.

        A site holds a variable only where the swap of all of it, with a source that differs in the
        variable alone, gives the answers; a source that differs in more swaps more. Coordinates
        that vary among inputs that share the value are those of the inputs, unless their means per
        value give the answers as well: the rest of what varies is then beside the variable.
        """
        if self.iia < threshold:
            return "no"
        if self.full_swap_fails(threshold):
            return "full swap fails"
        if not self.input_share > most_input:
            return "holds"
        return "holds more" if self.value_means >= threshold else "carries its inputs"


def default_places(subject: Subject, variable: Variable, pos: int | None) -> list[Place]:
    """The residual stream before every block at the variable's own positions, and after every layer
    at the answer, where the model lets the stream be edited.
    """
    hooks, depth = set(subject.model.hook_dict), subject.n_layers
    hooks -= set(read_only_hooks(subject.model))
    own = variable.positions if pos is None else (pos,)
    places: list[Place] = []
    for layer in range(depth):
        places += [(f"blocks.{layer}.hook_resid_pre", one) for one in own[:4]]
        for name in ("hook_resid_mid", "hook_resid_post"):
            if pos is None and f"blocks.{layer}.{name}" in hooks:
                places.append((f"blocks.{layer}.{name}", None))
    return places


def moved_places(subject: Subject, minimal: Pairs, threshold: float) -> list[Place]:
    """Positions before the answer's at which the residual stream after a layer gives the
    answers when all of it is swapped: where a variable without a position of its own may be, such
    as the carry of a sum that is written at its last digit.

    minimal: pairs that differ in the variable and in as little else as the task allows, of which
    `SWEPT` are used; [] where examples are not all read at one position. At most two per layer.

    Cost: one forward over these pairs per position and per layer but the last.
    """
    pairs = minimal[:SWEPT]
    read = int(pairs.reads[0])
    if not bool(((pairs.reads == read) & (pairs.source_reads == read)).all()) or read > SWEPT:
        return []
    differ = (pairs.base != pairs.source).any(0)[:read]
    first = int(differ.int().argmax()) if bool(differ.any()) else read
    places: list[Place] = []
    for layer in range(subject.n_layers - 1):
        hook = f"blocks.{layer}.hook_resid_post"
        found = {
            pos: mean(interchange_accuracy(subject, SwapSite(subject, pairs, hook, pos), None))
            for pos in range(first, read)
        }
        best = sorted(found, key=lambda pos: found[pos], reverse=True)[:2]
        places += [(hook, pos) for pos in best if found[pos] >= threshold]
    return places


def cells(
    subject: Subject,
    variable: Variable,
    train: Pairs,
    test: Pairs,
    places: Sequence[Place],
    dimensions: Sequence[int],
    fitting: Fitting,
    *,
    threshold: float,
    most_input: float,
    minimal: Pairs | None = None,
    stop_below: float | None = None,
) -> Iterator[Cell]:
    """The subspace of every dimension at every place, the largest dimension first.

    threshold, most_input: the accuracy and the `input_share` above which value means are asked.
    minimal: pairs that differ in the variable alone, for the swap of the whole activation.
    stop_below: smaller dimensions of a place are left out once the accuracy on the training pairs
    is below this: they hold no more than a larger one.
    """
    assert subject.task is not None
    for place in places:
        on_train, on_test = (SwapSite(subject, part, *place) for part in (train, test))
        full_swap = mean(interchange_accuracy(subject, on_test, None))
        full_swap_minimal = math.nan
        if minimal is not None:
            whole = SwapSite(subject, minimal, *place)
            full_swap_minimal = mean(interchange_accuracy(subject, whole, None))
        sizes = sorted({one for one in dimensions if one <= on_test.width}, reverse=True)
        if not sizes:
            raise ParameterError(
                f"das: dimension {min(dimensions)} is above the width {on_test.width} of {place[0]}"
            )
        found = torch.cat([on_train.base, on_train.source])
        values = torch.cat([variable.value_of(tokens) for tokens in (train.base, train.source)])
        for dimension in sizes:
            subspace, losses = fit(on_train, subject.task, dimension, **fitting.options())
            trained, correct = (
                interchange_accuracy(subject, site, subspace) for site in (on_train, on_test)
            )
            random = random_accuracies(subject, on_test, dimension, 5, fitting.seed)
            share = math.nan if variable.is_example else input_share(found, values, subspace)
            means = math.nan
            if share > most_input and mean(correct) >= threshold:
                asked = variable.value_of(test.source)
                means = value_means_accuracy(subject, on_test, subspace, found, values, asked)
            yield Cell(
                place,
                dimension,
                subspace,
                losses,
                mean(trained),
                correct,
                full_swap,
                full_swap_minimal,
                sum(random) / len(random),
                share,
                means,
            )
            if stop_below is not None and mean(trained) < stop_below:
                break


def value_means_accuracy(
    subject: Subject,
    site: SwapSite,
    subspace: Float[Tensor, "width k"],
    activations: Float[Tensor, "example width"],
    values: Int[Tensor, " example"],
    source_values: Int[Tensor, " pair"],
) -> float:
    """Interchange accuracy when every source's coordinates are replaced by their mean over the
    `activations` of inputs with its value, so that they tell nothing else of it: that of the
    variable where the subspace holds it, less where it holds its inputs alone.

    Of the pairs whose value at least `LEAST_OF_VALUE` of `values` are; NaN where there are none.
    """
    present, index, counts = values.unique(return_inverse=True, return_counts=True)
    one_hot = torch.nn.functional.one_hot(index, len(present)).to(activations)
    means = one_hot.T @ activations / counts.unsqueeze(1)  # (value, width)
    place = torch.searchsorted(present, source_values.contiguous()).clamp_max(len(present) - 1)
    replaced = swap(subspace, site.base, means[place])
    correct = answers_under(subject, site, replaced, site.pairs.labels)
    return mean(correct[(present[place] == source_values) & (counts[place] >= LEAST_OF_VALUE)])


def best_cell(found: Sequence[Cell], threshold: float, most_input: float) -> Cell:
    """The smallest subspace that holds the variable on the training pairs, with `SPARE` standard
    errors of a held-out accuracy to spare or else as much as any; the one of highest accuracy among
    equals. Where none does, one whose full swap fails, or that carries its inputs; else the most
    accurate.
    """
    holding = [one for one in found if one.trained >= threshold]
    own = [one for one in holding if not one.input_share > most_input]
    whole = [one for one in own if not one.full_swap_fails(threshold)]
    chosen = whole or own or holding
    if not chosen:
        return max(found, key=lambda one: one.trained)
    # held-out pairs judge it: one just above the threshold falls below it there by chance
    error = math.sqrt(threshold * (1 - threshold) / len(chosen[0].correct))
    enough = min(threshold + SPARE * error, max(one.trained for one in chosen))
    chosen = [one for one in chosen if one.trained >= enough]
    return min(chosen, key=lambda one: (one.dimension, -one.trained))
