"""Share of the loss that a dictionary keeps when its reconstruction replaces the activation.

The share recovered is (L₀ − L_rec) / (L₀ − L): 1 where the reconstruction does as well as the
activation itself, 0 where it does as badly as zeros (Bricken et al. 2023, Towards
Monosemanticity; SAELens's ce_loss_score). Cost: three forwards.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from mechint.dictionaries.dictionary import Dictionary, Reconstruct
from mechint.errors import ParameterError
from mechint.interventions import Site, Zero, asked, loss_under
from mechint.subject import Subject
from mechint.task import IGNORE

ROUNDING = 1e-12
"""Share of the squares of an activation below which its variance is rounding of the sums."""


@dataclass(frozen=True)
class Recovery:
    """loss, reconstructed, zeroed: cross-entropy at the answer in nats, mean over the outputs that
    are asked, with the activation as it is, rebuilt, and set to zero; recovered: see the module,
    NaN where zeros cost nothing. l0: latents above zero per row, mean; explained: share of the
    activation's variance that the reconstruction explains, ≤ 1, NaN where it does not vary; both
    over the positions that the examples have, without padding.
    """

    loss: float
    reconstructed: float
    zeroed: float
    recovered: float
    l0: float
    explained: float


def recovery(subject: Subject, dictionary: Dictionary, site: Site | None = None) -> Recovery:
    """Return what the dictionary keeps of the subject's loss on its data.

    site: where the reconstruction is put; the dictionary's own hook at every position when None.

    Raises:
        ParameterError: the subject has no task, the dictionary names no hook, or another width.
    """
    if subject.task is None or not len(subject.answers):
        raise ParameterError(f"{subject.describe()}: no answer, so there is no loss to recover")
    site = dictionary.site if site is None else site
    loss, rebuilt, zeroed = (
        _mean(subject, loss_under(subject, edits))
        for edits in ([], [Reconstruct(site, dictionary)], [Zero(site)])
    )
    l0, explained = _fit(subject, dictionary, site)
    span = zeroed - loss
    recovered = (zeroed - rebuilt) / span if span > 1e-9 else float("nan")
    return Recovery(loss, rebuilt, zeroed, recovered, l0, explained)


def _fit(subject: Subject, dictionary: Dictionary, site: Site) -> tuple[float, float]:
    """Mean latents above zero, and the share of variance explained."""
    active = count = 0.0
    error = total = torch.zeros((), dtype=torch.float64)
    sums = torch.zeros(dictionary.d_in, dtype=torch.float64)
    every, _ = asked(subject, subject.data)
    own = subject.data.own_positions(site.pos)
    for start in range(0, len(subject.data), subject.chunk):
        rows = slice(start, start + subject.chunk)
        found = subject.activation(site.hook, data=subject.data[rows])
        x = site.select(found, every[rows])
        x = (x if own is None else x[own[rows]]).reshape(-1, dictionary.d_in)
        latents, rebuilt = dictionary.encode(x), dictionary.reconstruct(x)
        active += float((latents > 0).sum())
        count += len(x)
        x, rebuilt = x.double().cpu(), rebuilt.double().cpu()
        error = error + (x - rebuilt).square().sum()
        total = total + x.square().sum()
        sums = sums + x.sum(0)
    variance = float(total - sums.square().sum() / count)
    varies = variance > ROUNDING * float(total)
    return active / count, 1 - float(error) / variance if varies else float("nan")


def _mean(subject: Subject, losses: dict[str, float]) -> float:
    """Over the outputs with an answer; the others have no loss."""
    answered = (subject.targets != IGNORE).any(0).tolist()
    asked_of = [loss for loss, some in zip(losses.values(), answered, strict=True) if some]
    return sum(asked_of) / len(asked_of)
