"""The search: orthonormal columns whose interchange best gives the counterfactual labels, among all
subspaces, principal directions or units.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task import IGNORE, Task
from probes._das._swap import SwapSite

AMONG = ("subspaces", "principal", "units")
UNIT_COST = 0.01
"""Nats that a unit of the mask costs."""


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
    among: str = "subspaces",
) -> tuple[Float[Tensor, "width k"], list[float]]:
    """The subspace of this dimension whose interchange best gives the labels, and the loss of every
    step.

    Minimizes the cross-entropy of the labels (Geiger et al. 2024, Eq. 4) with Adam on a free matrix
    whose QR decomposition gives the orthonormal columns, the learning rate falling linearly to
    zero. Equal bits for equal seeds.

    labels: (pair, output) in place of the pairs' own. among: "principal" takes the first principal
    directions of the activations, whatever the labels; "units" those of most weight in a mask that
    the same loss trains (desiderata-based masking, Davies et al. 2023).

    Raises:
        ParameterError: more dimensions than the activation is wide.
    """
    if dimension > site.width:
        raise ParameterError(
            f"das: dimension {dimension} is above the width {site.width} of {site.hook}"
        )
    labels = site.pairs.labels if labels is None else labels
    generator = torch.Generator().manual_seed(seed)
    if among == "principal":
        each = torch.cat([site.base, site.source])
        subspace = torch.linalg.svd(each - each.mean(0)).Vh[:dimension].T.contiguous()
        with torch.no_grad():
            every = torch.arange(min(batch_size, len(site.pairs)), device=site.base.device)
            loss = answer_loss(task, site.swapped(subspace, every), labels[every])
        return subspace, [float(loss)]
    units = torch.eye(site.width).to(site.base) if among == "units" else None
    free = random_subspace(site.width, dimension, generator).to(site.base).requires_grad_()
    if units is not None:
        free = site.base.new_zeros(site.width).requires_grad_()
    adam, losses = torch.optim.Adam([free], lr=lr), []
    for step in range(steps):
        rows = torch.randint(len(site.pairs), (batch_size,), generator=generator)
        rows = rows.to(site.base.device)
        with torch.enable_grad():
            subspace = orthonormal(free) if units is None else units * free.sigmoid().sqrt()
            loss = answer_loss(task, site.swapped(subspace, rows), labels[rows])
            loss = loss if units is None else loss + UNIT_COST * free.sigmoid().sum()
            (free.grad,) = torch.autograd.grad(loss, free)
        adam.param_groups[0]["lr"] = lr * (1 - step / steps)
        adam.step()
        with torch.no_grad():  # orthonormal again, so that the step size keeps its meaning
            free.copy_(orthonormal(free) if units is None else free)
        losses.append(loss.detach())
    if units is not None:
        return units[:, free.topk(dimension).indices], torch.stack(losses).tolist()
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
    """Mean over outputs of the mean cross-entropy (nats) of labels (row, output), in the precision
    of the logits.
    """
    losses = [
        F.cross_entropy(logits[:, columns], labels[:, output], ignore_index=IGNORE)
        for output, columns in enumerate(task.output_slices.values())
        if bool((labels[:, output] != IGNORE).any())
    ]
    return torch.stack(losses).mean()


def random_subspace(
    width: int, dimension: int, generator: torch.Generator
) -> Float[Tensor, "width k"]:
    """Orthonormal columns of a uniformly distributed subspace, float64."""
    square = torch.randn(width, dimension, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(square)[0]
