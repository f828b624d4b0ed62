"""Every head's QK and OV circuit, with the norms folded in, from tokens to tokens and classes.

Rows of weights are what is read, so a stream x (pos, d_model) is scored x_q W_Q W_Kᵀ x_kᵀ and
written x W_V W_O; a norm in front is its weights and, for a layer norm, taking the mean out. What
is left out is the norm's scale, which differs by position, and every bias.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.models.parameters import HEAD_WEIGHTS, factored, per_head
from mechint.subject import Subject

if TYPE_CHECKING:
    from mechint.models.parameters import FactoredMatrix


@dataclass(frozen=True)
class HeadCircuits:
    """Weights of every head, the blocks' first norms folded in; float64 on the CPU.

    q, k, v: (head, d_model, d_head); o: (head, d_head, d_model); places: (layer, head) of each.
    n_loops: how often the blocks are passed through.
    """

    q: Float[Tensor, "head d_model d_head"]
    k: Float[Tensor, "head d_model d_head"]
    v: Float[Tensor, "head d_model d_head"]
    o: Float[Tensor, "head d_head d_model"]
    places: tuple[tuple[int, int], ...]
    n_loops: int = 1

    @classmethod
    def of(cls, subject: Subject) -> HeadCircuits:
        """Of a model with the capability HEAD_WEIGHTS."""
        model = subject.model
        weights = [_plain(getattr(model, name)) for name in HEAD_WEIGHTS]
        n_layers, n_heads = weights[3].shape[:2]
        norms = [norm_of(model, f"blocks.{layer}.ln1") for layer in range(n_layers)]
        q, k, v = (
            torch.stack([fold(*norm, each) for norm, each in zip(norms, weight, strict=True)])
            for weight in (per_head(weight, n_heads) for weight in weights[:3])
        )
        places = tuple((layer, head) for layer in range(n_layers) for head in range(n_heads))
        return cls(
            *(each.flatten(0, 1) for each in (q, k, v, weights[3])),
            places=places,
            n_loops=max(1, subject.n_layers // n_layers),
        )

    @property
    def names(self) -> list[str]:
        """L0H1 for head 1 of the first block."""
        return [f"L{layer}H{head}" for layer, head in self.places]

    @cached_property
    def qk(self) -> FactoredMatrix:
        """(head, d_model, d_model) from what a query reads to what a key reads."""
        return factored(self.q, self.k.transpose(-2, -1))

    @cached_property
    def ov(self) -> FactoredMatrix:
        """(head, d_model, d_model) from what a head reads to what it writes."""
        return factored(self.v, self.o)

    def before(self, first: int, second: int) -> bool:
        """Return whether what head `first` writes can reach head `second`."""
        return self.n_loops > 1 or self.places[first][0] < self.places[second][0]


def fold(weight: Tensor | None, centered: bool, reads: Tensor) -> Tensor:
    """`reads` (…, d_model, width) as it acts on the stream before a norm of this weight."""
    if weight is not None:
        reads = weight[:, None] * reads
    return reads - reads.mean(-2, keepdim=True) if centered else reads


def embedding(subject: Subject) -> Float[Tensor, "d_vocab d_model"]:
    """The token embedding."""
    return _plain(subject.model.W_E)


def unembedding(subject: Subject) -> Float[Tensor, "d_model d_vocab_out"] | None:
    """The unembedding with the final norm folded in; None where the model shows none."""
    weight = getattr(subject.model, "W_U", None)
    if weight is None:
        return None
    return fold(*norm_of(subject.model, "ln_final"), _plain(weight))


def same_tokens(subject: Subject) -> tuple[list[int], list[int]] | None:
    """Tokens, and the columns of the logits that name the same: by the task's texts, of the first
    output whose classes all are tokens; without a task all of them, where there are as many
    classes. None where classes are not tokens.
    """
    shape = subject.model_description
    if subject.task is None:
        n = shape.d_vocab or 0
        return (list(range(n)), list(range(n))) if n == shape.d_vocab_out else None
    ids = subject.task.vocabulary.ids
    for output in subject.task.outputs:
        if all(name in ids for name in output.class_names):
            columns = subject.task.output_slices[output.name]
            tokens = [ids[name] for name in output.class_names]
            return tokens, list(range(columns.start, columns.stop))
    return None


def eigenvalue_share(
    left: Float[Tensor, "*head token rank"], right: Float[Tensor, "*head rank token"]
) -> Float[Tensor, "*head"]:
    """Σ λ / Σ |λ| over the eigenvalues λ of left · right, −1 … 1: 1 where every token raises its
    own logit or score most, about 0 where tokens are paired at random, 0 of a circuit of zeros
    (Elhage et al. 2021, "copying" and "matching" heads).

    >>> eye = torch.eye(3, dtype=torch.float64)
    >>> [round(float(eigenvalue_share(eye, each)), 6) for each in (eye, -eye)]
    [1.0, -1.0]
    """
    # those of right · left, which is as small as a head is
    values = torch.linalg.eigvals(right @ left)
    total = values.abs().sum(-1)
    return torch.where(total > 1e-12, values.real.sum(-1) / total.clamp_min(1e-12), 0.0)


def own_share(
    left: Float[Tensor, "head token rank"], right: Float[Tensor, "head rank token"], most: int
) -> list[float]:
    """Per head, the share of the first `most` tokens whose largest entry of left · right is their
    own; a tie is none.
    """
    n, shares = min(most, left.shape[1]), []
    for reads, writes in zip(left, right, strict=True):
        rows = reads[:n] @ writes  # (token, token)
        own = rows.diagonal().clone()
        rows[torch.arange(n), torch.arange(n)] = -torch.inf
        shares.append(float((own > rows.max(-1).values + 1e-9 * own.abs()).double().mean()))
    return shares


def describes(subject: Subject, heads: HeadCircuits) -> bool:
    """Return whether the weights say what the model does: queries are the block's norm of the
    stream times W_Q, and attention adds the sum of z W_O, both up to a constant. Cost: one forward.
    """
    few = subject.data[:4]
    for layer in sorted({layer for layer, _ in heads.places}):
        rows = [index for index, place in enumerate(heads.places) if place[0] == layer]
        parts = ("hook_resid_pre", "attn.hook_q", "attn.hook_z", "hook_attn_out")
        names = [f"blocks.{layer}.{name}" for name in parts]
        x, q, z, out = (_plain(each) for each in subject.activations(names, data=few).values())
        normed = x / norm_scale(subject.model, x)
        mine = torch.einsum("bpd,hdk->bphk", normed, heads.q[rows])
        written = torch.einsum("bphk,hkd->bpd", z, heads.o[rows])
        if max(_distance(mine, q), _distance(written, out)) > 1e-3:
            return False
    return True


def _distance(mine: Tensor, own: Tensor) -> float:
    """Largest difference of what varies over examples and positions, relative to the largest."""
    difference = mine - own
    difference = difference - difference.mean((0, 1))
    return float(difference.abs().max() / own.abs().max().clamp_min(1e-12))


def norm_scale(model: Any, x: Float[Tensor, "*row d_model"]) -> Float[Tensor, "*row 1"]:
    """The number by which a norm of the model divides the stream x; 1 where it has none."""
    kind = _kind(model)
    if kind is None:
        return torch.ones_like(x[..., :1])
    centered = x if kind.startswith("RMS") else x - x.mean(-1, keepdim=True)
    return (centered.square().mean(-1, keepdim=True) + model.cfg.eps).sqrt()


def norm_of(model: Any, name: str) -> tuple[Tensor | None, bool]:
    """The factor of the norm `name`, if any, and whether it takes the mean out."""
    kind = _kind(model)
    if kind is None:
        return None, False
    try:
        weight = getattr(model.get_submodule(name), "w", None)
    except AttributeError:  # a block whose norms come after its sublayers
        weight = None
    if weight is not None:  # Gemma's norm multiplies by 1 + w
        weight = _plain(weight) + float(getattr(model.cfg, "rmsnorm_uses_offset", False))
    return weight, not kind.startswith("RMS")


def _kind(model: Any) -> str | None:
    return getattr(getattr(model, "cfg", None), "normalization_type", None)


def _plain(weight: Tensor) -> Tensor:
    return weight.detach().double().cpu()
