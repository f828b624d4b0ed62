"""Parts of the score that components write, and losses of the score without each, in three ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from mechint.interventions import (
    ExampleMean,
    Replace,
    Site,
    select_positions,
)
from mechint.probes._circuits.scoring import Ablation, score
from mechint.probes._effects import CasePart, Cases, means_by
from mechint.probes._lens.probe import Readout
from mechint.subject.components import list_components
from mechint.subject.pairs import Pairs

if TYPE_CHECKING:
    from mechint.subject import Subject

MOST_ROWS = 256
"""Pairs that are run together."""
MOST_SUM_ERROR = 1e-3
"""Of the sum of what components write directly, as a share of the largest score; above it these are
not the parts of the score."""


@dataclass(frozen=True)
class AttributionEffects:
    """(component, example) nats of score; score (example,) of the model itself. Of an example with
    several pairs, one for each of its answers, the mean over these: they are not independent.

    sum_error: largest part of the score that is neither written directly nor alike everywhere.
    """

    sites: Sequence[Site]
    direct: np.ndarray
    direct_effect: np.ndarray
    first_order: np.ndarray
    exact: np.ndarray
    score: np.ndarray
    sum_error: float

    @property
    def adds_up(self) -> bool:
        """True where what is written directly sums up to the score. It does not where what an
        activation adds to the residual stream is not itself, or times W_O, as where a norm follows
        the layer; then `direct` and `direct_effect` are not what the components write.
        """
        return self.sum_error <= MOST_SUM_ERROR * float(np.abs(self.score).max())


def measured(subject: Subject, pairs: Pairs, ablation: Ablation) -> AttributionEffects:
    """Parts that every component writes, and losses of the score without it, in three ways."""
    sites = components(subject)
    names = sorted({site.hook for site in sites})
    sources = {} if ablation == "mean" else {"other": pairs.source}
    cases = Cases(subject, pairs.base, pairs.reads, sources)
    means: dict[str, Tensor] = {}
    if ablation == "mean":
        mean = ExampleMean(len(pairs), pairs.own_positions)
        for rows, runs, *_ in cases.parts(names, MOST_ROWS):
            for name in names:
                part = mean.of(mean.sum(runs.recorded(name), rows))[None]
                means[name] = means[name] + part if name in means else part
    parts = [
        _of_part(subject, pairs[part.rows], ablation, sites, means, part)
        for part in cases.parts(names, MOST_ROWS)
    ]
    examples = pairs.examples.cpu().numpy()
    direct, effect, first, exact, own = (
        means_by(examples, np.concatenate(column, -1))
        for column in zip(*(numbers for numbers, _ in parts), strict=True)
    )
    return AttributionEffects(
        sites, direct, effect, first, exact, own, max(error for _, error in parts)
    )


def components(subject: Subject) -> list[Site]:
    """Embeddings, heads and MLPs, in the order of computation."""
    outside = [Site(name) for name in ("hook_embed", "hook_pos_embed") if name in subject.hooks]
    return [*outside, *list_components(subject, default=("head", "mlp")).sites]


def _of_part(
    subject: Subject,
    pairs: Pairs,
    ablation: Ablation,
    sites: Sequence[Site],
    means: dict[str, Tensor],
    part: CasePart,
) -> tuple[list[np.ndarray], float]:
    """direct, direct effect, first order, exact and score of a part, and the error of the sum."""
    task, (_, runs, own_inputs, sources) = subject.known_task, part
    names = sorted({site.hook for site in sites})
    own_values = {name: runs.recorded(name)[own_inputs] for name in names}
    if ablation == "mean":
        other = {name: means[name].expand_as(value) for name, value in own_values.items()}
    else:
        other = {name: runs.recorded(name)[sources["other"]] for name in names}

    def scored(logits: Tensor, rows: Tensor | slice = slice(None)) -> Tensor:
        return score(task, logits.double(), pairs[rows], ablation)

    readout = Readout(subject)
    written, replaced = (
        torch.stack([_written(subject, found[site.hook], site, pairs.reads) for site in sites])
        for found in (own_values, other)
    )  # (component, example, d_model)
    end = runs.end[own_inputs].double()
    rest, scale = end - written.sum(0), readout.scale(end)  # of rest biases are the same everywhere
    # one component at a time: of all of them the logits would take gigabytes in a language model
    direct, without = (
        torch.stack([scored(vectors @ readout.matrix / scale) for vectors in part])
        for part in (written, replaced)
    )
    own = scored(runs.base(own_inputs))
    error = float(scored((rest - rest.mean(0)) @ readout.matrix / scale).abs().max())
    error = math.inf if task.several else error  # a logsumexp is no sum
    first = torch.zeros(len(sites), len(pairs), dtype=torch.float64, device=own.device)
    for rows, found in runs.gradients(names, scored, own_inputs):
        for index, site in enumerate(sites):
            value, slope, places = found[site.hook]
            product = (value - other[site.hook][rows[:, None], places]) * slope
            entries = product[:, :, list(site.units)] if site.units else product
            first[index, rows] = entries.flatten(1).sum(1).double()
    patches = [Replace(site, site.select(other[site.hook], pairs.reads)) for site in sites]
    exact = own - runs.under(patches, own_inputs, read=scored)
    columns = (direct, direct - without, first, exact, own)
    return [column.double().cpu().numpy() for column in columns], error


def _written(subject: Subject, activation: Tensor, site: Site, reads: Tensor) -> Tensor:
    """(example, d_model) what a component adds to the residual stream at the answer, float64."""
    at_answer = select_positions(activation, reads).double()
    if site.kind != "head":
        return at_answer
    block = subject.model.blocks[(site.layer or 0) % subject.model.cfg.n_layers]
    return at_answer[:, site.units[0]] @ block.attn.W_O[site.units[0]].detach().double()
