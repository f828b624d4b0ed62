"""Controls of a found subspace: random subspaces, the same search for arbitrary labels and
in untrained models, and what reads the site.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.config import ModelConfig, centers
from mechint.interventions import detached_weights, resumes
from mechint.probe.results import Null
from mechint.probes._das._swap import SwapSite, answers_under, interchange_accuracy, mean, swap
from mechint.probes._das.search import SPARE, Drawn, SiteCell, fit, own_tokens, random_subspace
from mechint.probes._weights.circuits import fold
from mechint.subject.activations import slices
from mechint.subject.pairs import Pairs
from mechint.task import Variable

if TYPE_CHECKING:
    from mechint.subject import Subject


AT_ONCE = 4096
"""Pairs of all random subspaces together that run in one forward."""


def random_accuracies(
    subject: Subject, site: SwapSite, dimension: int, n: int, seed: int
) -> list[float]:
    """Interchange accuracy of `n` random subspaces."""
    generator, labels = torch.Generator().manual_seed(seed), site.pairs.labels
    found: list[float] = []
    for some in slices(n, max(1, min(AT_ONCE, subject.chunk) // len(labels))):
        drawn = [random_subspace(site.width, dimension, generator) for _ in range(n)[some]]
        swaps = [swap(subspace.to(site.base), site.base, site.source) for subspace in drawn]
        right = answers_under(subject, site, torch.cat(swaps), labels.repeat(len(swaps), 1))
        found += [mean(part) for part in right.split(len(labels))]
    return found


def arbitrary_accuracy(
    subject: Subject, variable: Variable, best: SiteCell, drawn: Drawn, fitting: dict[str, Any]
) -> tuple[float, int]:
    """Interchange accuracy of the same search for arbitrary labels, and the pairs that it is of."""
    parts = (drawn.train, drawn.test)
    labels = arbitrary_labels(variable, parts, fitting["seed"])
    train, test = (
        SwapSite(subject, as_varied(part, new), *best.place)
        for part, new in zip(parts, labels, strict=True)
    )
    subspace, _ = fit(train, subject.known_task, best.dimension, **fitting)
    return mean(interchange_accuracy(subject, test, subspace)), len(test.pairs)


def as_varied(pairs: Pairs, labels: Int[Tensor, "pair output"]) -> Pairs:
    """Pairs with these labels, as many left out as keep the answer, and as have the commonest
    label, above the shares that do so in `pairs`: a search that answers alike whatever it swaps is
    right of most pairs where most labels are alike, and is no control.
    """
    own, made = pairs.changed.any(-1), dataclasses.replace(pairs, labels=labels)
    made = made[_at_most(~made.changed.any(-1), 1 - float(own.double().mean()))]
    return made[_at_most(_commonest(made.labels), float(_commonest(pairs.labels).double().mean()))]


def _commonest(labels: Int[Tensor, "pair output"]) -> Bool[Tensor, " pair"]:
    """(pair,) which have the commonest label."""
    found, index, counts = labels.unique(dim=0, return_inverse=True, return_counts=True)
    return index == counts.argmax() if len(found) else index.bool()


def _at_most(marked: Bool[Tensor, " pair"], share: float) -> Bool[Tensor, " pair"]:
    """(pair,) which to keep for at most this share of marked ones: all others, and the first
    marked; all where no other is left.

    >>> _at_most(torch.tensor([True, True, False, True, False]), 1 / 3).tolist()
    [True, False, True, False, True]
    """
    others = int((~marked).sum())
    if not others or share >= 1:
        return torch.ones_like(marked)
    return ~marked | (marked.cumsum(0) <= round(others * share / (1 - share)))


def untrained_accuracy(
    subject: Subject, best: SiteCell, drawn: Drawn, fitting: dict[str, Any]
) -> float:
    """Interchange accuracy of the same search in a model of `Subject.controls_in_turn`."""
    initial = next(subject.controls_in_turn([fitting["seed"]]))
    train, test = (SwapSite(initial, part, *best.place) for part in (drawn.train, drawn.test))
    subspace, _ = fit(train, subject.known_task, best.dimension, **fitting)
    return mean(interchange_accuracy(initial, test, subspace))


def arbitrary_labels(
    variable: Variable, parts: Sequence[Pairs], seed: int
) -> list[Int[Tensor, "_pair output"]]:
    """The labels of some pairs where the values are permuted among the different inputs of the
    variable, alike in all parts: a search that fits these fits anything.
    """
    sources = torch.cat([part.source for part in parts]).cpu()
    inputs, own = own_tokens(variable, sources).unique(dim=0, return_inverse=True)
    values = torch.zeros(len(inputs), dtype=torch.int64)
    values[own] = variable.value_of(sources)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(values)))
    permuted = values[order][own].split([len(part) for part in parts])
    labels: list[Tensor] = []
    for part, new in zip(parts, permuted, strict=True):
        every = variable.label(part.base.cpu(), new)
        labels.append(every[torch.arange(len(part)), part.reads.cpu()].to(part.base.device))
    return labels


# --- what reads the site --------------------------------------------------------------------------
@dataclass(frozen=True)
class ReaderSplit:
    """A subspace split by what reads the site (Makelov et al. 2023).

    null_share: share of the basis's squared norm in the null space of all weights that read the
    site: directions that change nothing unless something else does. row_accuracy:
    interchange accuracy of the part in the row space alone.
    """

    null_share: float
    row_accuracy: float

    def falls_short(self, iia: float, threshold: float, n: int) -> bool:
        """Return whether the part that is read falls short of the threshold, and of the accuracy
        of the whole on the same `n` pairs by more than `SPARE` standard errors.

        >>> ReaderSplit(0.0, 0.898).falls_short(0.902, 0.9, 256)
        False
        >>> ReaderSplit(0.5, 0.75).falls_short(1.0, 0.9, 256)
        True
        """
        error = math.sqrt(threshold * (1 - threshold) / n)
        return self.row_accuracy < min(threshold, iia - SPARE * error)


def reader_split(
    subject: Subject, site: SwapSite, subspace: Float[Tensor, "width k"]
) -> ReaderSplit | None:
    """Share of the subspace that no reader sees; None where the readers are no known linear maps.

    Readers are the weights through which the activation goes on: W_out of neurons, W_O of each
    head, and of the residual stream every W_Q, W_K, W_V, W_in and W_U that follows, each behind its
    norm; without heads and neurons that write nothing, and what queries read for keys that are
    zero.
    """
    weights = readers(site)
    if weights is None:
        return None
    u, s, _ = torch.linalg.svd(weights, full_matrices=False)
    row_space = u[:, s > 1e-6 * s[0]].to(subspace)  # (width, rank)
    inside = row_space @ (row_space.T @ subspace)
    share = float((subspace - inside).square().sum() / subspace.square().sum())
    basis, sizes, _ = torch.linalg.svd(inside, full_matrices=False)
    seen = interchange_accuracy(subject, site, basis[:, sizes > 1e-3])
    return ReaderSplit(share, mean(seen))


def readers(site: SwapSite) -> Float[Tensor, "width outputs"] | None:
    """The weights that read the site, side by side, float64; None where we do not know them.

    Weights behind a norm are given as they read the stream in front of it: times the norm's own,
    and centered over d_model. Its scale, one number for all directions, is left out.
    """
    start = site.site.resid if resumes(site.model) else None
    if start is None:
        return None
    p, config = detached_weights(site.model), site.model.config
    own = f"blocks.{(site.site.layer or 0) % config.n_layers}"
    if site.site.kind == "head":  # each head is a place of its own, whatever others write
        return torch.block_diag(*p[f"{own}.attn.W_O"].double())
    if site.site.kind == "neuron":
        return p[f"{own}.mlp.W_out"].double()

    def behind(norm: str, weight: Tensor) -> Tensor:
        return fold(p.get(f"{norm}.w"), centers(config.normalization_type), weight.double())

    found = [behind("ln_final", p["unembed.W_U"])]
    for layer in range(config.depth):
        block = f"blocks.{layer % config.n_layers}"
        if start <= 2 * layer:
            found.append(behind(f"{block}.ln1", _read_by_heads(p, f"{block}.attn", config)))
        if start <= 2 * layer + 1 and not config.attn_only:
            writes = p[f"{block}.mlp.W_out"].any(1)  # (d_mlp,)
            names = ("W_in", "W_gate") if config.gated_mlp else ("W_in",)
            read = torch.cat([p[f"{block}.mlp.{name}"][:, writes] for name in names], 1)
            found.append(behind(f"{block}.ln2", read))
    return torch.cat(found, 1)


def _read_by_heads(
    p: Mapping[str, Tensor], attn: str, config: ModelConfig
) -> Float[Tensor, "d_model columns"]:
    """Columns that span what queries, keys and values of heads read of the stream and pass on: the
    column spaces of W_Q W_Kᵀ, of W_K W_Qᵀ and W_K b_Q, and of W_V W_O, of heads whose W_V W_O is
    not zero. A weight whose product with the next is zero reads nothing. Where queries and keys are
    turned or normed between the two, all that W_Q and W_K read.
    """
    q, k, v = (p[f"{attn}.W_{letter}"].double() for letter in "QKV")

    def through(first: Tensor, second: Tensor) -> Tensor:
        """Of the column space of first @ secondᵀ, as many columns as `first` has."""
        return first @ torch.linalg.qr(second)[1].mT

    values = through(v, p[f"{attn}.W_O"].double().mT)
    parts = [through(q, k), through(k, q), values]
    if config.use_qk_norm or not config.embeds_positions:
        parts = [q, k, values]
    if f"{attn}.b_Q" in p:
        parts.append(k @ p[f"{attn}.b_Q"].double().unsqueeze(-1))
    written = values.flatten(1).any(1)  # (head,)
    return rearrange(torch.cat(parts, -1)[written], "head d_model column -> d_model (head column)")


def difference(
    metric: str,
    observed: float,
    control: float,
    n: int,
    how: str,
    *,
    of_control: int | None = None,
    few: bool = False,
) -> Null:
    """A share of `n` pairs and one of `of_control` pairs, the same ones when None, against each
    other, as if they were independent (which is on the safe side); a normal approximation.

    few: with Yates's correction for continuity, by which it stays close to the exact test.

    >>> round(difference("iia", 1.0, 0.0, 5, "", few=True).p_value, 3), round(1 / 252, 3)
    (0.006, 0.004)
    """
    m = n if of_control is None else of_control
    share = (n * observed + m * control) / (n + m)
    std = math.sqrt(max(share * (1 - share) * (1 / n + 1 / m), 1 / min(n, m) ** 2))
    excess = observed - control - ((1 / n + 1 / m) / 2 if few else 0)
    p_value = 0.5 * math.erfc(excess / std / math.sqrt(2))
    return Null(metric, observed - control, 0.0, std, p_value, how)
