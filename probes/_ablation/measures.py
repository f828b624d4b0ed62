"""Scores of every answer under each ablation alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import DataError, MechintError
from mechint.interventions import Intervention, Mean, Site, Take, Zero, asked, fill_means
from mechint.models.foreign.untouched import all_finite
from mechint.probes._effects import Cases
from mechint.subject.counterfactuals import partners
from mechint.task import IGNORE, Batch, answer_scores

if TYPE_CHECKING:
    from mechint.subject import Subject


def scores(
    subject: Subject,
    data: Batch,
    others: Int[Tensor, "example pos"] | None,
    ablated: Sequence[Site],
    mode: str,
) -> tuple[Float[Tensor, "example output 2"], Float[Tensor, "component example output 2"]]:
    """(example, output, 2) accuracy and loss as the model is, (component, example, output, 2) with
    each component alone ablated.

    others: tokens of another example for each, from whose run activations are taken ("resample").
    """
    task = subject.known_task
    plain, changed = [], []
    hooks, (reads, targets) = {site.hook for site in ablated}, asked(subject, data)
    edits: Sequence[Intervention] = [Zero(site) for site in ablated]
    if mode == "mean":
        edits = fill_means(subject, [Mean(site) for site in ablated], data)
    cases = Cases(subject, data.tokens, reads, {} if others is None else {"other": others})
    for rows, runs, own, other in cases.parts(hooks):
        if not all(all_finite(runs.recorded(hook)) for hook in hooks):
            raise MechintError(f"ablation: activations of {subject.describe()} are not finite")
        if mode == "resample":
            edits = [Take(site, other["other"]) for site in ablated]

        def read(logits: Tensor, part: Any, wanted: Tensor = targets[rows]) -> Tensor:
            return answer_scores(task, logits, wanted[part])

        plain.append(read(runs.base(own), slice(None)))
        changed.append(runs.under(edits, own, read=read))
    return torch.cat(plain).cpu(), torch.cat(changed, 1).cpu()


def with_answer(subject: Subject, data: Batch) -> Batch:
    """The examples that have the answer that `subject` is asked about, in some output."""
    has = (asked(subject, data)[1] != IGNORE).any(-1)
    return data if bool(has.all()) else data[has]


def with_others(
    subject: Subject, data: Batch, seed: int
) -> tuple[Batch, Int[Tensor, "example pos"]]:
    """The examples that share the position of their answer with another one, and the tokens
    of such an other for each: what stands at a position of one is then no padding of the other.

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
    return data[has], data.tokens[other][has]
