"""Effects of each edge alone: exactly, by path patching, or to first order, by gradients."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.pairs import Pairs
from probes._circuits.forward import PatchedForward
from probes._circuits.scoring import Scorer, score


def path_patching(scorer: Scorer) -> Float[np.ndarray, " edge"]:
    """Share of the model's score that is lost when the edge alone carries the source (Wang et al.
    2023; Goldowsky-Dill et al. 2023).

    Cost: one head or MLP per edge and the blocks behind it, stacked.
    """
    low, high = scorer.ends
    return (high - scorer.path_scores().mean(1)) / (high - low)


def edge_attribution(scorer: Scorer, steps: int = 1) -> Float[np.ndarray, " edge"]:
    """The first-order estimate of `path_patching`: (base - source) of the sender · gradient of the
    score at the receiver's input.

    steps: 1 takes the gradient in the base run (edge attribution patching, Syed et al. 2023); more
    take its mean over runs whose embeddings lie evenly between the source's and the base's (EAP-IG,
    Hanna et al. 2024), at the midpoints of as many intervals.

    Cost: `steps` forwards and backwards per pair, whatever the number of edges.
    """
    low, high = scorer.ends
    task = scorer.subject.task
    assert task is not None
    points = [1.0] if steps == 1 else [(k + 0.5) / steps for k in range(steps)]
    total = np.zeros(len(scorer.graph.edges))
    for pairs, patched in scorer.parts():
        for point in points:

            def summed(logits: Tensor, pairs: Pairs = pairs) -> Tensor:
                return score(task, logits, pairs, scorer.ablation).sum()

            total += _attributed(patched, point, summed) / len(points)
    return total / len(scorer.pairs) / (high - low)


def _attributed(
    patched: PatchedForward, point: float, summed: Callable[[Tensor], Tensor]
) -> np.ndarray:
    """(edge,) change of sender · gradient at receiver, summed over pairs and the edge's positions,
    in the run whose embeddings lie at `point` between source (0) and base (1).
    """
    graph, taps = patched.graph, dict[int, Tensor]()

    def tap(first: int, x: Tensor) -> Tensor:
        taps[first] = x if x.requires_grad else x.detach().requires_grad_()
        return taps[first]

    embeds = torch.tensor([point if edge.sender.depth < 0 else 1.0 for edge in graph.edges])
    with torch.enable_grad():
        total = summed(patched.logits(embeds[None], tap))
        gradients = torch.autograd.grad(total, list(taps.values()), allow_unused=True)
    by_place = patched.source.new_zeros(
        len(graph.receivers), len(graph.senders), patched.source.shape[2]
    )
    for (first, x), gradient in zip(taps.items(), gradients, strict=True):
        if gradient is not None:
            product = torch.einsum("rnpd,snpd->rsp", gradient, patched.change)
            by_place[first : first + len(x)] = product
    receiver, sender, group = (torch.from_numpy(one) for one in graph.index)
    if graph.groups == 1:
        by_place, group = by_place.sum(-1, keepdim=True), group * 0
    return by_place[receiver, sender, group].double().cpu().numpy()


def correlation(exact: np.ndarray, estimate: np.ndarray) -> float:
    """Pearson correlation of two sets of effects; NaN where either is constant."""
    if len(exact) < 2 or np.ptp(exact) < 1e-9 or np.ptp(estimate) < 1e-9:
        return float("nan")
    return float(np.corrcoef(exact, estimate)[0, 1])
