"""Composition scores between heads, beside heads turned within the subspace that all share.

Head b composes with an earlier head a as far as it reads what a writes: ‖A B‖ / (‖A‖ ‖B‖) in
Frobenius norms, A = W_V W_O of a, and B = W_Q W_Kᵀ of b (Q-composition), its transpose
(K-composition) or W_V W_O of b (V-composition); Elhage et al. 2021.

Trained weights fill a part of the residual stream, some directions more than others, so that heads
overlap without having learned to read each other. With C the mean covariance of what all heads
write and read, each of unit norm, the null reads C^½ R C^-½ B in place of B, R a random rotation of
the span of C: heads lie where heads of this model lie, in proportion, and nowhere in particular. A
pair is held against its own null, z = (squared score − mean) / standard deviation over the draws,
so that pairs of any spectrum are compared; a draw's z is taken over the other draws and what was
observed, so that all are treated alike. p-values are those of the largest z among all pairs and
kinds, so they are corrected for their number (Westfall & Young 1993).

Where all heads share a few directions these turns move little, and who reads whom they cannot tell.
So z is also taken over R of the whole residual stream, in closed form: with Grams P = AᵀA / ‖A‖²
and Q = B Bᵀ / ‖B‖², tr(P R Q Rᵀ) has the mean 1 / d and the variance
2 (‖P‖² − 1/d) (‖Q‖² − 1/d) / ((d − 1)(d + 2)). What exceeds these alone is told by no weights.

Cost: per draw one product of (heads · d_head, d_model) matrices for each kind. Memory: the scores
of all pairs in every draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.decide import NEAR
from mechint.decide.null import p_values
from mechint.probes._weights.circuits import HeadCircuits
from mechint.probes.spectra import Array
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.models.parameters import FactoredMatrix

KINDS = ("Q", "K", "V")
MEMORY = 1 << 26
"""Entries of one product; more are made in parts."""
SPAN = 1e-6
"""Directions with less of the largest variance are none that heads use."""


@dataclass(frozen=True)
class HeadComposition:
    """Scores and z of every pair of heads, with the largest z of each draw of turned heads.

    score, z: kind → (writer, reader), NaN where the writer is not before the reader; whole: z over
    rotations of the whole residual stream; null: (draw,) the largest z over all pairs and kinds.
    """

    score: dict[str, Float[np.ndarray, "writer reader"]]
    z: dict[str, Float[np.ndarray, "writer reader"]]
    whole: dict[str, Float[np.ndarray, "writer reader"]]
    null: Float[np.ndarray, " draw"]

    def best(self, kind: str) -> tuple[int, int]:
        """The pair with the largest z, of those that turns can tell apart where there are some."""
        z = np.where(self.z[kind] == 0, np.finfo(np.float64).min, self.z[kind])
        first, second = np.unravel_index(int(np.nanargmax(z)), z.shape)
        return int(first), int(second)

    def p_values(self, kind: str) -> Float[np.ndarray, "writer reader"]:
        """Corrected for the number of pairs and kinds; NaN where there is no pair."""
        z = self.z[kind]
        return np.where(np.isnan(z), np.nan, p_values(self.null[:, None, None], z))

    def hidden(self, kind: str, level: float) -> bool:
        """Return whether no pair exceeds turns within what all heads share, and one might exceed
        those of the whole residual stream.
        """
        none = np.nanmin(self.p_values(kind)) > level
        return bool(none and p_values(self.null, float(np.nanmax(self.whole[kind]))) <= NEAR)


def compose(heads: HeadCircuits, draws: int, seed: int) -> HeadComposition | None:
    """All pairs; None where no head can read what another wrote."""
    count = len(heads.places)
    pairs = np.array([[heads.before(a, b) for b in range(count)] for a in range(count)])
    if not pairs.any():
        return None
    writes, reads = column_factor(heads.ov), reading_factors(heads)
    factors = torch.cat([writes, *reads.values()])
    shared = torch.einsum("hdk,hek->de", factors, factors) / len(factors)
    draw = rng("weights rotations", seed)
    squared = np.stack(
        [
            np.stack([squared_scores(writes, each).numpy()[pairs] for each in turned])
            for turned in (
                [*reads.values()],
                *(_turned(reads, random_turn(shared, draw)) for _ in range(draws)),
            )
        ]
    )  # (1 + draw, kind, pair); the first is what was observed
    z = standardized(squared)

    def by_kind(values: Float[np.ndarray, "kind pair"]) -> dict[str, Array]:
        found = {kind: np.full(pairs.shape, np.nan) for kind in KINDS}
        for kind, row in zip(KINDS, values, strict=True):
            found[kind][pairs] = row
        return found

    return HeadComposition(
        by_kind(np.sqrt(squared[0])),
        by_kind(z[0]),
        by_kind(np.stack([turned_anyhow(writes, each).numpy()[pairs] for each in reads.values()])),
        z[1:].max((1, 2)),
    )


def random_turn(
    shared: Float[Tensor, "d_model d_model"], draw: np.random.Generator
) -> Float[Tensor, "d_model d_model"]:
    """C^½ R C^-½ of a covariance C and a random rotation R of its span.

    >>> shared = torch.diag(torch.tensor([4.0, 1.0, 0.0], dtype=torch.float64))
    >>> turn = random_turn(shared, np.random.default_rng(0))
    >>> bool(torch.allclose(turn @ shared @ turn.T, shared))
    True
    """
    values, basis = torch.linalg.eigh(shared.double())
    kept = values > SPAN * values[-1]
    root, basis = values[kept].sqrt(), basis[:, kept]
    return (basis * root) @ random_rotation(len(root), draw) @ (basis / root).T


def _turned(reads: dict[str, Tensor], turn: Tensor) -> list[Tensor]:
    """The directions that every head reads, turned, of unit norm again."""
    moved = [turn @ each for each in reads.values()]
    return [each / each.norm(dim=(1, 2), keepdim=True).clamp_min(1e-150) for each in moved]


def standardized(
    values: Float[np.ndarray, "draw kind pair"],
) -> Float[np.ndarray, "draw kind pair"]:
    """Each value less the mean of the others over draws, in standard deviations of the others; 0
    where these do not vary: of flat spectra that fill the span, and of a head of zeros.

    >>> standardized(np.array([5.0, 1.0, 3.0])[:, None, None])[0].round(3).item()
    2.121
    """
    others = len(values) - 1
    # centered first: sums of squares would cancel
    values = values - values.mean(0)
    mean = -values / others
    spread = np.sqrt(
        np.maximum(((values**2).sum(0) - values**2) / others - mean**2, 0)
        * (others / max(1, others - 1))
    )
    return np.where(spread > 1e-9, (values - mean) / np.maximum(spread, 1e-9), 0.0)


def reading_factors(heads: HeadCircuits) -> dict[str, Float[Tensor, "head d_model rank"]]:
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


def turned_anyhow(
    writes: Float[Tensor, "writer d_model rank"], reads: Float[Tensor, "reader d_model rank2"]
) -> Float[Tensor, "writer reader"]:
    """The z of squared scores over all rotations of the residual stream."""
    d = writes.shape[1]
    spread, other = ((each.mT @ each).square().sum((1, 2)) - 1 / d for each in (writes, reads))
    variance = 2 * torch.outer(spread, other).clamp_min(1e-18) / ((d - 1) * (d + 2))
    return (squared_scores(writes, reads) - 1 / d) / variance.sqrt()


def random_rotation(n: int, draw: np.random.Generator) -> Float[Tensor, "n n"]:
    """Orthogonal, Haar-distributed."""
    q, r = np.linalg.qr(draw.standard_normal((n, n)))
    return torch.from_numpy(q * np.sign(np.diag(r)))
