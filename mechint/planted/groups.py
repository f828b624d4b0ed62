"""The product of any finite group by chosen irreducible representations: matrices, their product,
character readout.

Embedding: element x ↦ the entries of ρ(x). Feed-forward: ρ(x)ρ(y), entry by entry. Unembedding:
logit(z) ∝ Σ_ρ tr(ρ(x)ρ(y)ρ(z)ᵀ) = Σ_ρ χ_ρ(x·y·z⁻¹) (Chughtai et al. 2023, Sec. 4). A product of two
numbers u, v in −1 … 1 is ((u + v)² − (u − v)²) / 4, and a square is interpolated by ReLUs at knots
h apart, exact at the knots and at most h²/4 too large between them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from mechint.errors import ParameterError
from mechint.groups.representations import representations
from mechint.planted.assembly import (
    Perturbation,
    Planted,
    Slots,
    assemble,
    attend,
    blank,
    config_for,
    make_task,
)
from mechint.planted.modular import MARGIN

KNOTS = 6
"""Knots between 0 and 2, the largest |u ± v|."""


def group_product(
    group: str = "S4",
    irreps: Sequence[str] = ("standard",),
    *,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
) -> Planted:
    """x·y in `group` by the representations `irreps`; accuracy 1.0 when noise is 0.

    Args:
        group: as ``mechint.groups.finite.parse`` reads it. irreps: names whose characters together
            tell the identity from all else.
        noise, rotation_seed, seed: see `Perturbation`.

    Returns:
        truth: "irreps", "heads" {"x": (0, 0), "y": (0, 1)}, "subspaces" of the embedding and of the
            answer.

    Raises:
        DataError: no such irrep. ParameterError: irreps that do not determine the product.

    >>> group_product("S3", ["standard"]).subject.accuracy()
    {'answer': 1.0}
    """
    task = make_task("groups", group=group)
    known = task.symmetry.group
    matrices = [
        torch.from_numpy(np.ascontiguousarray(representations(known).matrices(name)))
        for name in irreps
    ]
    margin = _margin(known.identity, matrices, irreps)
    table = torch.cat([rho.flatten(1) for rho in matrices], 1)  # (n, width)
    width, products = table.shape[1], sum(rho.shape[1] ** 3 for rho in matrices)
    slots = Slots(x=width, y=width, answer=width, position=3)
    config = config_for(task, slots, n_heads=2, d_head=width, d_mlp=products * 4 * KNOTS)
    weights = blank(config)
    weights["embed.W_E"][list(task.symmetry.tokens), slots["x"]] = table
    weights["pos_embed.W_pos"][:, slots["position"]] = torch.eye(3, dtype=torch.float64)
    eye = torch.eye(width, dtype=torch.float64)
    for head, slot in enumerate("xy"):
        attend(weights, slots, head, 2, head)
        weights["blocks.0.attn.W_V"][head, slots["x"]] = eye
        weights["blocks.0.attn.W_O"][head, :, slots[slot]] = eye
    _write_products(weights, slots, [rho.shape[1] for rho in matrices])
    weights["unembed.W_U"][slots["answer"]] = MARGIN / margin * table.T
    truth = {
        "mechanism": "group product by representations",
        "irreps": tuple(irreps),
        "heads": {"x": (0, 0), "y": (0, 1)},
        "subspaces": {
            "hook_embed": slots.basis("x"),
            "blocks.0.hook_resid_post": slots.basis("answer"),
        },
    }
    return assemble(config, weights, task, truth, Perturbation(noise, rotation_seed, seed))


def _margin(identity: int, matrices: Sequence[Tensor], irreps: Sequence[str]) -> float:
    """By how much Σ_ρ χ_ρ falls from the identity to the next best element."""
    characters = torch.zeros(1)
    for rho in matrices:
        characters = characters + rho.diagonal(dim1=1, dim2=2).sum(1)
    rest = torch.cat([characters[:identity], characters[identity + 1 :]])
    margin = float((characters[identity] - rest).min()) if len(rest) else 0.0
    if margin < 1e-6:
        raise ParameterError(
            f"planted: irreps={tuple(irreps)}: some element besides the identity acts as it "
            "in all of them; add a faithful one"
        )
    return margin


def _write_products(weights: dict[str, Tensor], slots: Slots, dimensions: Sequence[int]) -> None:
    """Neurons for every product of entries in ρ(x)ρ(y), and their sums into the slot "answer"."""
    w_in, b_in, w_out = (weights[f"blocks.0.mlp.{name}"] for name in ("W_in", "b_in", "W_out"))
    h, neuron, start = 2 / KNOTS, 0, 0
    for d in dimensions:
        for i, k, j in np.ndindex(d, d, d):
            u, v = slots["x"].start + start + i * d + k, slots["y"].start + start + k * d + j
            for sign in (1.0, -1.0):  # the square of u + v, minus that of u − v
                for side in (1.0, -1.0):
                    for knot in range(KNOTS):
                        w_in[u, neuron], w_in[v, neuron] = side, side * sign
                        b_in[neuron] = -knot * h
                        # the interpolant's slope is h before the first knot and grows by 2h at each
                        w_out[neuron, slots["answer"].start + start + i * d + j] = (
                            sign * (h if knot == 0 else 2 * h) / 4
                        )
                        neuron += 1
        start += d * d
