"""What a found subspace is held against: random directions of the same norm, directions that need
no search, arbitrary labels, inputs that share the value, and what reads the site.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import ResidSite
from mechint.results import Null
from mechint.task import Variable
from probes._das.fit import random_subspace
from probes._das.swap import (
    SwapSite,
    answers_under,
    interchange_accuracy,
    mean,
    mean_accuracies,
    swap,
)
from probes._weights.circuits import fold

if TYPE_CHECKING:
    from mechint.subject import Subject


PENALTIES = (1e-8, 1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Of the ridge regression, relative to the mean variance of the coordinates."""


# --- random directions ----------------------------------------------------------------------------
def random_accuracies(
    subject: Subject, site: SwapSite, dimension: int, n: int, seed: int
) -> list[float]:
    """Interchange accuracy of `n` random subspaces."""
    generator = torch.Generator().manual_seed(seed)
    drawn = (random_subspace(site.width, dimension, generator).to(site.base) for _ in range(n))
    return mean_accuracies(
        subject, site, (swap(subspace, site.base, site.source) for subspace in drawn)
    )


def norm_matched_accuracies(
    subject: Subject, site: SwapSite, subspace: Float[Tensor, "width k"], n: int, seed: int
) -> list[float]:
    """Interchange accuracy of `n` random subspaces whose change of every activation is scaled to
    the norm of the found subspace's.
    """
    generator = torch.Generator().manual_seed(seed + 1)
    size = ((site.source - site.base) @ subspace).norm(dim=1, keepdim=True)

    def replacement() -> Tensor:
        drawn = random_subspace(site.width, subspace.shape[1], generator).to(site.base)
        change = swap(drawn, site.base, site.source) - site.base
        return site.base + change * size / change.norm(dim=1, keepdim=True).clamp_min(1e-12)

    return mean_accuracies(subject, site, (replacement() for _ in range(n)))


# --- directions that need no search ---------------------------------------------------------------
def mean_difference_subspace(
    site: SwapSite, values: Int[Tensor, " pair"], dimension: int
) -> Float[Tensor, "width k"]:
    """The first principal directions of the mean activations per value of the bases; of two values,
    the difference of their means.
    """
    present, index = values.unique(return_inverse=True)
    sums = torch.zeros(len(present), site.width, dtype=torch.float64, device=values.device)
    sums.index_add_(0, index, site.base.double())
    means = sums / index.bincount().unsqueeze(1)
    return _leading(means - means.mean(0), dimension).to(site.base)


def linear_probe_subspace(
    site: SwapSite, values: Int[Tensor, " pair"], dimension: int
) -> Float[Tensor, "width k"]:
    """The first principal directions of a ridge regression's weights onto the one-hot values.

    The penalty, relative to the mean variance of the coordinates, is the one with the least squared
    error on every fourth pair, fitted on the others; then all are fitted.
    """
    x = site.base.double()
    one_hot = torch.nn.functional.one_hot(values.unique(return_inverse=True)[1]).double()
    held = torch.arange(len(x), device=x.device) % 4 == 3
    errors = [
        float((_ridge(x[~held], one_hot[~held], penalty, x[held]) - one_hot[held]).square().sum())
        if bool(held.any())
        else penalty
        for penalty in PENALTIES
    ]
    best = PENALTIES[min(range(len(errors)), key=lambda i: errors[i])]
    return _leading(_ridge_weights(x, one_hot, best).T, dimension).to(site.base)


def _ridge(x: Tensor, y: Tensor, penalty: float, new: Tensor) -> Tensor:
    """Prediction of y at the inputs `new` by ridge regression on x."""
    return (new - x.mean(0)) @ _ridge_weights(x, y, penalty) + y.mean(0)


def _ridge_weights(x: Tensor, y: Tensor, penalty: float) -> Tensor:
    """(width, value) weights of ridge regression of the centered y on the centered x."""
    x = x - x.mean(0)
    gram = x.T @ x
    shift = penalty * gram.trace() / len(gram) + 1e-12
    eye = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    return torch.linalg.solve(gram + shift * eye, x.T @ (y - y.mean(0)))


def _leading(rows: Tensor, dimension: int) -> Tensor:
    """(width, dimension) the leading right singular directions of rows (n, width), filled up with
    arbitrary ones where there are fewer.
    """
    axes = torch.linalg.svd(rows, full_matrices=True)[2]
    return axes[:dimension].T


# --- the variable, or the inputs it is computed from? ---------------------------------------------
def input_share(
    activations: Float[Tensor, "example width"],
    values: Int[Tensor, " example"],
    subspace: Float[Tensor, "width k"],
) -> float:
    """Variance of the coordinates among inputs that share the variable's value, over their variance
    among all: 0 where the coordinates are a function of the variable, 1 where they say nothing of
    it beyond what other inputs with the same value do.

    NaN where no two inputs share a value, or the coordinates do not vary.
    """
    z = activations.double() @ subspace.double()
    index = values.unique(return_inverse=True)[1]
    counts = index.bincount()
    free = len(z) - int((counts > 0).sum())
    total = float((z - z.mean(0)).square().sum()) / max(len(z) - 1, 1)
    if free < 1 or total <= 1e-20:
        return math.nan
    sums = torch.zeros(len(counts), z.shape[1], dtype=z.dtype, device=z.device)
    means = sums.index_add_(0, index, z) / counts.clamp_min(1).unsqueeze(1)
    return float((z - means[index]).square().sum()) / free / total


def kept_answers(
    subject: Subject,
    site: SwapSite,
    subspace: Float[Tensor, "width k"],
    base_values: Int[Tensor, " pair"],
    source_values: Int[Tensor, " pair"],
    seed: int,
) -> float:
    """Share of bases that keep their answer when the subspace is taken from another input with the
    same value; NaN where there is none.
    """
    generator = np.random.default_rng(seed)
    members: dict[int, list[int]] = {}
    for index, value in enumerate(source_values.tolist()):
        members.setdefault(value, []).append(index)
    partner = [members.get(value, []) for value in base_values.tolist()]
    has = torch.tensor([bool(one) for one in partner], device=site.base.device)
    if not bool(has.any()):
        return math.nan
    chosen = torch.tensor(
        [one[generator.integers(len(one))] if one else 0 for one in partner],
        device=site.base.device,
    )
    replaced = swap(subspace, site.base, site.source[chosen])
    kept = answers_under(subject, site, replaced, site.pairs.answers)
    return mean(kept[has])


def arbitrary_labels(site: SwapSite, variable: Variable, seed: int) -> Int[Tensor, "pair output"]:
    """The labels of the pairs when every value of the variable is taken for another one, the same
    for all pairs: a search that fits these fits anything.
    """
    order = np.random.default_rng(seed).permutation(variable.n_values)
    renamed = np.empty_like(order)
    renamed[order] = np.roll(order, 1)  # no value keeps its own
    values = variable.value_of(site.pairs.source).cpu()
    labels = variable.label(
        site.pairs.base.cpu(), torch.from_numpy(renamed)[values.clamp(0, variable.n_values - 1)]
    )
    rows = torch.arange(len(labels))
    return labels[rows, site.pairs.reads.cpu()].to(site.base.device)


# --- what reads the site --------------------------------------------------------------------------
@dataclass(frozen=True)
class ReaderSplit:
    """A subspace split by what reads the site (Makelov et al. 2023).

    null_share: share of the basis's squared norm in the null space of all weights that read the
    site: directions that change nothing unless something else does. row_accuracy, null_accuracy:
    interchange accuracy of the parts in the row space and in the null space alone.
    """

    null_share: float
    row_accuracy: float
    null_accuracy: float


def reader_split(
    subject: Subject, site: SwapSite, subspace: Float[Tensor, "width k"]
) -> ReaderSplit | None:
    """How much of the subspace no reader sees; None where the readers are not linear maps we know.

    Readers are the weights through which the activation goes on: W_out of neurons, W_O of heads,
    and of the residual stream every W_Q, W_K, W_V, W_in and W_U that follows, each behind its norm;
    without heads and neurons that write nothing, and what queries read for keys that are zero.
    """
    weights = readers(site)
    if weights is None:
        return None
    u, s, _ = torch.linalg.svd(weights, full_matrices=False)
    row_space = u[:, s > 1e-6 * s[0]].to(subspace)  # (width, rank)
    inside = row_space @ (row_space.T @ subspace)
    outside = subspace - inside
    share = float(outside.square().sum() / subspace.square().sum())
    parts = []
    for part in (inside, outside):
        basis, sizes, _ = torch.linalg.svd(part, full_matrices=False)
        basis = basis[:, sizes > 1e-3]
        parts.append(mean(interchange_accuracy(subject, site, basis)))
    return ReaderSplit(share, *parts)


def readers(site: SwapSite) -> Float[Tensor, "width outputs"] | None:
    """The weights that read the site, side by side, float64; None where we do not know them.

    Weights behind a norm are given as they read the stream in front of it: times the norm's own,
    and centered over d_model. Its scale, one number for all directions, is left out.
    """
    if site.start is None:
        return None
    if site.writes is not None:
        return site.writes.double()
    p, config = site.weights, site.model.config

    def behind(norm: str, weight: Tensor) -> Tensor:
        # every norm of these models is a layer norm; one without weights (LNPre) centers, too
        normed = config.normalization_type is not None
        return fold(p.get(f"{norm}.w"), normed, weight.double())

    found = [behind("ln_final", p["unembed.W_U"])]
    for layer in range(config.depth):
        block = f"blocks.{layer % config.n_layers}"
        if site.start <= ResidSite.pre(layer):
            found.append(behind(f"{block}.ln1", _read_by_heads(p, f"{block}.attn")))
        if site.start <= ResidSite.mid(layer) and not config.attn_only:
            writes = p[f"{block}.mlp.W_out"].any(1)  # (d_mlp,)
            found.append(behind(f"{block}.ln2", p[f"{block}.mlp.W_in"][:, writes]))
    return torch.cat(found, 1)


def _read_by_heads(p: Mapping[str, Tensor], attn: str) -> Float[Tensor, "d_model columns"]:
    """Columns that span what queries, keys and values of heads read of the stream and pass on: the
    column spaces of W_Q W_Kᵀ, of W_K W_Qᵀ and W_K b_Q, and of W_V W_O, of heads whose W_V W_O is
    not zero. A weight whose product with the next is zero reads nothing.
    """
    q, k, v = (p[f"{attn}.W_{letter}"].double() for letter in "QKV")

    def through(first: Tensor, second: Tensor) -> Tensor:
        """Of the column space of first @ secondᵀ, as many columns as `first` has."""
        return first @ torch.linalg.qr(second)[1].mT

    values = through(v, p[f"{attn}.W_O"].double().mT)
    parts = [through(q, k), through(k, q), values]
    if f"{attn}.b_Q" in p:
        parts.append(k @ p[f"{attn}.b_Q"].double().unsqueeze(-1))
    written = values.flatten(1).any(1)  # (head,)
    return rearrange(torch.cat(parts, -1)[written], "head d_model column -> d_model (head column)")


def difference(
    metric: str, observed: float, control: float, n: int, how: str, *, few: bool = False
) -> Null:
    """Two shares of the same `n` pairs against each other, as if they were independent (which is
    on the safe side); a normal approximation.

    few: with Yates's correction for continuity, by which it stays close to the exact test.

    >>> round(difference("iia", 1.0, 0.0, 5, "", few=True).p_value, 3), round(1 / 252, 3)
    (0.006, 0.004)
    """
    share = (observed + control) / 2
    std = math.sqrt(max(2 * share * (1 - share), 1 / n) / n)
    excess = observed - control - (1 / n if few else 0)
    p_value = 0.5 * math.erfc(excess / std / math.sqrt(2))
    return Null(metric, observed - control, 0.0, std, p_value, how)
