"""Composition scores between heads, beside random matrices of the same spectrum.

Head b composes with an earlier head a as far as it reads what a writes: ‖A B‖ / (‖A‖ ‖B‖) in
Frobenius norms, A = W_V W_O of a, and B = W_Q W_Kᵀ of b (Q-composition), its transpose
(K-composition) or W_V W_O of b (V-composition); Elhage et al. 2021. The null turns what is written
by a random rotation of the residual stream: every spectrum stays as it is. Over rotations of R^d
the squared score has mean 1/d and variance 2 tr Â² tr B̂² / ((d − 1)(d + 2)), where Â and B̂ are
AᵀA and BBᵀ divided by their traces, less 1/d on the diagonal; z is in these units, so that pairs of
any spectrum are compared. p-values are those of the largest z among all pairs and kinds, so they
are corrected for their number (Westfall & Young 1993).

Cost: per rotation one product of (heads · d_head, d_model) matrices for each kind.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.models.stacks import FactoredMatrix
from mechint.task import rng
from probes.weights.circuits import Heads

KINDS = ("Q", "K", "V")
MEMORY = 1 << 26
"""Entries of one product; more are made in parts."""


@dataclass(frozen=True)
class Composition:
    """Scores and z of every pair of heads, with the largest z of each random rotation.

    score, z: kind → (writer, reader), NaN where the writer is not before the reader; null:
    (rotation,) the largest z over all pairs and kinds.
    """

    score: dict[str, Float[np.ndarray, "writer reader"]]
    z: dict[str, Float[np.ndarray, "writer reader"]]
    null: Float[np.ndarray, " rotation"]

    def best(self, kind: str) -> tuple[int, int]:
        """The pair with the largest z."""
        flat = int(np.nanargmax(self.z[kind]))
        first, second = np.unravel_index(flat, self.z[kind].shape)
        return int(first), int(second)

    def p_values(self, kind: str) -> Float[np.ndarray, "writer reader"]:
        """Corrected for the number of pairs and kinds; NaN where there is no pair."""
        above = (self.null[:, None, None] >= self.z[kind]).sum(0)
        return np.where(np.isnan(self.z[kind]), np.nan, (1 + above) / (1 + len(self.null)))


def compose(heads: Heads, rotations: int, seed: int) -> Composition | None:
    """All pairs; None where no head can read what another wrote."""
    count = len(heads.places)
    pairs = torch.tensor([[heads.before(a, b) for b in range(count)] for a in range(count)])
    if not bool(pairs.any()):
        return None
    writes, reads = column_factor(heads.ov), reading_factors(heads)
    d_model = writes.shape[1]
    score, z, spread = {}, {}, {}
    for kind in KINDS:
        spread[kind] = expected_spread(writes, reads[kind])
        squared = squared_scores(writes, reads[kind])
        score[kind] = torch.where(pairs, squared.sqrt(), torch.nan).numpy()
        z[kind] = torch.where(pairs, _z(squared, d_model, spread[kind]), torch.nan).numpy()
    draw, null = rng("weights rotations", seed), np.empty(rotations)
    for index in range(rotations):
        turn = random_rotation(d_model, draw)
        null[index] = max(
            float(_z(squared_scores(writes, turn @ reads[k]), d_model, spread[k])[pairs].max())
            for k in KINDS
        )
    return Composition(score, z, null)


def reading_factors(heads: Heads) -> dict[str, Float[Tensor, "head d_model rank"]]:
    """Kind → what each head reads that way, of unit Frobenius norm."""
    circuits = {"Q": heads.qk, "K": heads.qk.T, "V": heads.ov}
    return {kind: column_factor(circuit.T) for kind, circuit in circuits.items()}


def column_factor(circuit: FactoredMatrix) -> Float[Tensor, "head d_model rank"]:
    """F with F Fᵀ = MᵀM / ‖M‖² of every matrix M (head, …, d_model); zeros of a matrix of zeros."""
    _, values, right = circuit.svd()
    norm = values.norm(dim=-1).clamp_min(1e-150)
    return right * (values / norm[:, None])[:, None]


def squared_scores(
    writes: Float[Tensor, "writer d_model rank"], reads: Float[Tensor, "reader d_model rank2"]
) -> Float[Tensor, "writer reader"]:
    """‖A B‖² / (‖A‖² ‖B‖²) of the matrices that the factors are of."""
    readers, d_model, rank = reads.shape
    flat = reads.permute(1, 0, 2).reshape(d_model, -1)  # (d_model, reader * rank2)
    each = max(1, MEMORY // max(1, flat.shape[1] * writes.shape[2]))
    parts = [
        (part.transpose(1, 2) @ flat).square().unflatten(-1, (readers, rank)).sum((1, 3))
        for part in writes.split(each)
    ]
    return torch.cat(parts)


def expected_spread(
    writes: Float[Tensor, "writer d_model rank"], reads: Float[Tensor, "reader d_model rank2"]
) -> Float[Tensor, "writer reader"]:
    """Standard deviation of the squared score over rotations, in closed form."""
    d = writes.shape[1]
    uneven = [
        ((each.transpose(1, 2) @ each).square().sum((1, 2)) - 1 / d).clamp_min(0)
        for each in (writes, reads)
    ]
    return (2 * uneven[0][:, None] * uneven[1] / max(1, (d - 1) * (d + 2))).sqrt()


def _z(squared: Tensor, d_model: int, spread: Tensor) -> Tensor:
    """0 where no rotation changes the score: of flat spectra, and of a head of zeros."""
    return torch.where(spread > 1e-9, (squared - 1 / d_model) / spread.clamp_min(1e-9), 0.0)


def random_rotation(n: int, draw: np.random.Generator) -> Float[Tensor, "n n"]:
    """Orthogonal, Haar-distributed."""
    q, r = np.linalg.qr(draw.standard_normal((n, n)))
    return torch.from_numpy(q * np.sign(np.diag(r)))
