"""Scores of every answer under each ablation alone, and neurons by their first-order effect."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import DataError, MechintError
from mechint.interventions import (
    Intervention,
    Mean,
    Site,
    Take,
    Zero,
    asked,
    fill_means,
)
from mechint.models.foreign.untouched import all_finite
from mechint.probe.results import Null
from mechint.probes._effects import Cases
from mechint.subject.counterfactuals import partners
from mechint.task import IGNORE, LOSS, Batch, answer_scores, rng

if TYPE_CHECKING:
    from mechint.subject import Subject

NEURON_EXAMPLES = 128
"""Examples on which sets of neurons are compared."""


@dataclass(frozen=True)
class Examples:
    """Examples to ablate on; others (example, pos): tokens of another example for each, whose
    activations take the place of its own, where they do ("resample").
    """

    data: Batch
    others: Int[Tensor, "example pos"] | None = None

    def __len__(self) -> int:
        return len(self.data)

    def sample(self, n: int, seed: int) -> Examples:
        """At most `n` of them, drawn without replacement."""
        if len(self) <= n:
            return self
        order = np.sort(rng("ablation", seed).permutation(len(self))[:n])
        rows = torch.from_numpy(order).to(self.data.tokens.device)
        return Examples(self.data[rows], None if self.others is None else self.others[rows])


def neuron_importance(
    subject: Subject,
    data: Batch,
    mode: str = "zero",
    others: Int[Tensor, "example pos"] | None = None,
) -> Float[Tensor, "layer neuron"]:
    """Mean over examples of Σ_pos |∂loss/∂a · (a - r)|, a the neuron's activation, r what replaces
    it in an ablation of this mode, loss summed over outputs (nats).

    mode: "zero"; "mean", over `data`; "resample", the activations on the tokens `others`.
    """
    task = subject.task
    assert task is not None
    names = [f"blocks.{layer}.mlp.hook_post" for layer in range(subject.n_layers)]
    sums: dict[str, Tensor] = {}
    toward: dict[str, Tensor] = {}
    if mode == "mean":
        filled = fill_means(subject, [Mean(Site(name)) for name in names], data)
        toward = {one.site.hook: one.value for one in filled}  # type: ignore[attr-defined]
    _, targets = asked(subject, data)
    others = others if mode == "resample" else None
    for rows, runs, own, source in _cases(subject, data, others).parts(names):

        def score(logits: Tensor, part: Tensor, rows: Tensor = rows) -> Tensor:
            return answer_scores(task, logits, targets[rows[part]])[..., LOSS].nansum(-1)

        for part, found in runs.gradients(names, score, own):
            for name, (value, slope, places) in found.items():
                if source:
                    value = value - runs.recorded(name)[source["other"][part, None], places]
                elif mode == "mean":
                    value = value - toward[name][places]
                product = (slope * value).abs().sum((0, 1)).double()
                sums[name] = sums[name] + product if name in sums else product
    return torch.stack([sums[name] for name in names]) / len(data)


def _cases(subject: Subject, data: Batch, others: Tensor | None) -> Cases:
    sources = {} if others is None else {"other": others}
    return Cases(subject, data.tokens, asked(subject, data)[0], sources)


def scores(
    subject: Subject, examples: Examples, ablated: Sequence[Site], mode: str
) -> tuple[Float[Tensor, "example output 2"], Float[Tensor, "component example output 2"]]:
    """(example, output, 2) accuracy and loss as the model is, (component, example, output, 2) with
    each component alone ablated.
    """
    task = subject.task
    assert task is not None
    plain, changed = [], []
    hooks, targets = {site.hook for site in ablated}, asked(subject, examples.data)[1]
    edits: Sequence[Intervention] = [Zero(site) for site in ablated]
    if mode == "mean":
        edits = fill_means(subject, [Mean(site) for site in ablated], examples.data)
    for rows, runs, own, other in _cases(subject, examples.data, examples.others).parts(hooks):
        if not all(all_finite(runs.recorded(hook)) for hook in hooks):
            raise MechintError(f"ablation: activations of {subject.describe()} are not finite")
        if mode == "resample":
            edits = [Take(site, other["other"]) for site in ablated]

        def read(logits: Tensor, part: Any, wanted: Tensor = targets[rows]) -> Tensor:
            return answer_scores(task, logits, wanted[part])

        plain.append(read(runs.base(own), slice(None)))
        changed.append(runs.under(edits, own, read=read))
    return torch.cat(plain).cpu(), torch.cat(changed, 1).cpu()


@dataclass(frozen=True)
class Harm:
    """Cost of the ablation of each component, changes (component, example), in `unit`.

    advantage: what the model has over chance, in the same unit; metric: the name of the largest.
    """

    metric: str
    unit: str
    changes: np.ndarray
    advantage: float

    @property
    def total(self) -> Float[np.ndarray, " component"]:
        """(component,) means over the examples."""
        return self.changes.mean(1)

    @property
    def share(self) -> Float[np.ndarray, " component"]:
        """(component,) shares of the advantage; 0 where the model has none."""
        return self.total / self.advantage if self.advantage > 0 else 0 * self.total


def compare_neurons(
    subject: Subject,
    examples: Examples,
    layer: int,
    neurons: Sequence[int],
    *,
    width: int,
    mode: str,
    n: int,
    seed: int,
) -> Null:
    """The loss increase when these neurons are ablated together, against as many random ones of the
    layer's `width`.

    One set is ablated once, however often it is drawn: the same set in another order would differ
    from it by rounding.
    """
    generator = rng("neurons", seed)
    drawn = [generator.choice(width, len(neurons), replace=False).tolist() for _ in range(n)]
    sets = [tuple(sorted(one)) for one in [neurons, *drawn]]
    row = {one: index for index, one in enumerate(dict.fromkeys(sets))}
    groups = [Site.neurons(layer, one) for one in row]
    base, ablated = scores(subject, examples, groups, mode)
    increase = (ablated - base)[..., LOSS].flatten(1).nanmean(-1)[[row[one] for one in sets]]
    return Null.sampled(
        "neurons_loss_increase",
        float(increase[0]),
        increase[1:].numpy(),
        f"random sets of {len(neurons)} neurons of layer {layer}",
        float(min(math.comb(width, len(neurons)), 10**300)),
    )


def with_answer(subject: Subject, data: Batch) -> Batch:
    """The examples that have the answer that `subject` is asked about, in some output."""
    has = (asked(subject, data)[1] != IGNORE).any(-1)
    return data if bool(has.all()) else data[has]


def with_others(subject: Subject, data: Batch, seed: int) -> Examples:
    """The examples that share the position of their answer with another one, each with such an
    other: what stands at a position of one is then no padding of the other.

    Raises:
        DataError: there are none.
    """
    reads, _ = asked(subject, data)
    other = partners(reads, seed)
    has = other != torch.arange(len(other), device=other.device)
    if not bool(has.any()):
        raise DataError(
            f"{subject.describe()}: no two of {len(data)} examples are read at the same position, "
            "so none has another one to take activations from; ablate with mode=mean or zero"
        )
    return Examples(data[has], data.tokens[other][has])
