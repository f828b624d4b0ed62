"""The search: orthonormal columns whose interchange best gives the counterfactual labels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task import IGNORE, Task
from probes._das.swap import SwapSite


def fit(
    site: SwapSite,
    task: Task,
    dimension: int,
    *,
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
    labels: Int[Tensor, "pair output"] | None = None,
) -> tuple[Float[Tensor, "width k"], list[float]]:
    """The subspace of this dimension whose interchange best gives the labels, and the loss of every
    step; see `fit_jointly`.

    labels: (pair, output) in place of the pairs' own.
    """
    subspace, losses = fit_jointly(
        [site],
        task,
        [dimension],
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        labels=None if labels is None else [labels],
    )
    return subspace, losses


def fit_jointly(
    sites: Sequence[SwapSite],
    task: Task,
    dimensions: Sequence[int],
    *,
    steps: int,
    batch_size: int,
    lr: float,
    seed: int,
    labels: Sequence[Int[Tensor, "_pair output"]] | None = None,
) -> tuple[Float[Tensor, "width k"], list[float]]:
    """One basis for several variables: columns ``dimensions[i]`` wide, one after the other, for the
    pairs of ``sites[i]``, all at the same place of the model.

    Minimizes the cross-entropy of the labels (Geiger et al. 2024, Eq. 4), summed over variables,
    with Adam, the learning rate falling linearly to zero. The columns are kept orthonormal by
    Householder reflections (QR) of a free matrix, so that k of them cost products with k columns,
    not with a whole rotation. Equal bits for equal seeds.

    Raises:
        ParameterError: more dimensions than the activation is wide.
    """
    width, total = sites[0].width, sum(dimensions)
    if total > width:
        raise ParameterError(
            f"das: dimension {total} is above the width {width} of {sites[0].hook}"
        )
    generator = torch.Generator().manual_seed(seed)
    labels = [site.pairs.labels for site in sites] if labels is None else labels
    free = random_subspace(width, total, generator).to(sites[0].base).requires_grad_()
    adam, losses = torch.optim.Adam([free], lr=lr), []
    for step in range(steps):
        with torch.enable_grad():
            columns, parts = orthonormal(free).split(list(dimensions), 1), []
            for site, part, wanted in zip(sites, columns, labels, strict=True):
                rows = torch.randint(len(site.pairs), (batch_size,), generator=generator)
                rows = rows.to(site.base.device)
                parts.append(answer_loss(task, site.swapped(part, rows), wanted[rows]))
            loss = torch.stack(parts).sum()
            (free.grad,) = torch.autograd.grad(loss, free)
        adam.param_groups[0]["lr"] = lr * (1 - step / steps)
        adam.step()
        with torch.no_grad():  # orthonormal again, so that the step size keeps its meaning
            free.copy_(orthonormal(free))
        losses.append(loss.detach())
    return free.detach(), torch.stack(losses).tolist()


def orthonormal(free: Float[Tensor, "width k"]) -> Float[Tensor, "width k"]:
    """Orthonormal columns that span the columns of `free`, in their order and sense.

    >>> orthonormal(torch.tensor([[3.0], [4.0]])).flatten().tolist()
    [0.6000000238418579, 0.800000011920929]
    """
    if free.shape[1] == 1:
        return free / free.norm()
    q, r = torch.linalg.qr(free)
    return q * torch.where(r.diagonal() < 0, -1.0, 1.0).to(q)


def answer_loss(
    task: Task, logits: Float[Tensor, "row d_vocab_out"], labels: Int[Tensor, "row output"]
) -> Float[Tensor, ""]:
    """Mean over outputs of the cross-entropy (nats) of labels (row, output)."""
    losses = []
    for output, columns in enumerate(task.output_slices.values()):
        if bool((labels[:, output] != IGNORE).any()):
            losses.append(
                F.cross_entropy(logits[:, columns], labels[:, output], ignore_index=IGNORE)
            )
    return torch.stack(losses).mean()


def random_subspace(
    width: int, dimension: int, generator: torch.Generator
) -> Float[Tensor, "width k"]:
    """Orthonormal columns of a uniformly distributed subspace, float64."""
    square = torch.randn(width, dimension, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0]
