"""Muon: momentum whose steps are orthogonal matrices (Jordan et al. 2024).

The momentum of a weight matrix is replaced by the nearest matrix with all singular values near 1,
which a Newton-Schulz iteration finds without decomposing anything. Embeddings, the unembedding,
biases and norm weights are not such matrices; Adam moves them.
"""

from __future__ import annotations

from collections.abc import Mapping

from jaxtyping import Float
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration (Jordan et al. 2024, "Newton-Schulz iteration coefficients")."""

STEPS = 5

NOT_HIDDEN = ("W_E", "W_pos", "W_U")


def orthogonalize(
    matrices: Float[Tensor, "*batch rows cols"], steps: int = STEPS
) -> Float[Tensor, "*batch rows cols"]:
    """About U Vᵀ for every matrix U S Vᵀ: its singular values are brought to within 0.3 of 1.

    X ← aX + (bA + cA²)X with A = XXᵀ, from X = M / ‖M‖ on.

    >>> import torch
    >>> spectrum = torch.linalg.svdvals(orthogonalize(torch.diag(torch.tensor([9.0, 3.0, 1.0]))))
    >>> bool((spectrum - 1).abs().max() < 0.35)
    True
    """
    a, b, c = COEFFICIENTS
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.flatten(-2).norm(dim=-1)[..., None, None] + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT  # (..., rows, rows)
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


def is_hidden(name: str, shape: tuple[int, ...]) -> bool:
    """Return whether Muon moves the parameter: a matrix that neither embeds nor unembeds.

    >>> is_hidden("blocks.0.mlp.W_in", (8, 32)), is_hidden("embed.W_E", (9, 8))
    (True, False)
    """
    kind = name.rpartition(".")[2]
    return kind.startswith("W") and kind not in NOT_HIDDEN and len(shape) >= 2


def as_matrices(name: str, value: Float[Tensor, "model ..."]) -> Float[Tensor, "... row column"]:
    """A stacked parameter (model, *shape) as matrices (..., in, out); the heads of an attention
    layer are parts of one matrix, and the neurons of a two-layer network are its outputs.
    """
    kind = name.rpartition(".")[2]
    if kind in ("W_Q", "W_K", "W_V") and value.dim() == 4:
        return value.transpose(1, 2).flatten(2)  # (model, d_model, head * d_head)
    if kind == "W_O" and value.dim() == 4:
        return value.flatten(1, 2)  # (model, head * d_head, d_model)
    return value.mT if kind == "W" else value


def from_matrices(
    name: str, matrices: Float[Tensor, "... row column"], shape: tuple[int, ...]
) -> Float[Tensor, "model ..."]:
    """The inverse of `as_matrices`, for a parameter of `shape`."""
    kind = name.rpartition(".")[2]
    if kind in ("W_Q", "W_K", "W_V") and len(shape) == 3:
        head, _, d_head = shape
        return matrices.unflatten(2, (head, d_head)).transpose(1, 2)
    return (matrices.mT if kind == "W" else matrices).reshape(-1, *shape)


def updates(
    moments: Mapping[str, Float[Tensor, "model _parameter"]], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Float[Tensor, "model _parameter"]]:
    """Update of each hidden parameter at a learning rate of 1: the orthogonalized momentum,
    times √max(1, out / in), as (model, parameter) rows.
    """
    moved = {}
    for name, moment in moments.items():
        matrices = as_matrices(name, moment.view(-1, *shapes[name]))
        read, written = matrices.shape[-2:]
        step = orthogonalize(matrices) * max(1.0, written / read) ** 0.5
        moved[name] = from_matrices(name, step, shapes[name]).flatten(1)
    return moved
