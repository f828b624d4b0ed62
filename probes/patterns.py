"""Attention patterns, collected in chunks and scored: which keys a head looks at, against keys in
random order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mechint.activations import select
from mechint.subject import Subject
from mechint.task import rng
from probes.fourier.spectra import Array

SCORES = ("previous_token", "same_token", "induction")


@dataclass(frozen=True)
class Patterns:
    """Attention of every head, layers one after another.

    names (heads,): "L0H1"; mean (heads, query, key) over the data; argmax (heads, query, key): how
    often a key got most; to_operand (heads, example, operand): from the read position; sample
    (examples, heads, query, key) of a few examples, their tokens (examples, pos) and lengths
    (examples,).
    """

    names: list[str]
    mean: Array
    argmax: Array
    to_operand: NDArray[np.float32]
    sample: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def causal(self) -> bool:
        """Whether no query ever looks ahead."""
        return not np.triu(self.mean, 1).any()


@dataclass
class _Layer:
    mean: Tensor
    argmax: Tensor
    operands: list[Tensor] = field(default_factory=list)
    sample: list[Tensor] = field(default_factory=list)


def collect(subject: Subject, operands: list[int], examples: int) -> Patterns:
    """The patterns of all heads over the subject's data; the first `examples` are kept whole.

    Cost: one forward over the data a layer. Memory: one chunk of one layer's patterns, within the
    subject's limit.
    """
    data = subject.data
    n, ctx = data.tokens.shape
    layers = []
    for layer in range(subject.n_layers):
        found: _Layer | None = None
        hook = f"blocks.{layer}.attn.hook_pattern"
        for part, streamed in subject.stream([hook]):
            pattern, start = streamed[hook], part.start
            heads = pattern.shape[1]
            if found is None:
                zero = torch.zeros(heads, ctx, ctx, dtype=torch.float64, device=pattern.device)
                found = _Layer(zero, zero.clone())
            found.mean += pattern.sum(0, dtype=torch.float64)
            found.argmax += torch.nn.functional.one_hot(pattern.argmax(-1), ctx).sum(0)
            if operands:
                rows = select(hook, pattern, subject.answer_positions[part])
                found.operands.append(rows[..., operands].float())
            if start < examples:
                found.sample.append(pattern[: examples - start].float())
        assert found is not None
        layers.append(found)
    names = [
        f"L{layer}H{head}" for layer, found in enumerate(layers) for head in range(len(found.mean))
    ]
    to_operand = [torch.cat(found.operands).transpose(0, 1) for found in layers if operands]
    lengths = (
        data.lengths[:examples].cpu().numpy()
        if data.lengths is not None
        else np.full(min(n, examples), ctx)
    )
    return Patterns(
        names,
        torch.cat([found.mean for found in layers]).cpu().numpy() / n,
        torch.cat([found.argmax for found in layers]).cpu().numpy() / n,
        torch.cat(to_operand).cpu().numpy()
        if operands
        else np.zeros((len(names), 0, 0), np.float32),
        torch.cat([torch.cat(found.sample) for found in layers], 1).cpu().numpy(),
        data.tokens[:examples].cpu().numpy(),
        lengths,
    )


def targets(tokens: NDArray, lengths: NDArray, score: str) -> NDArray[np.bool_]:
    """(example, query, key) whether the key is what a head of that kind looks at; no key beyond an
    example's length.

    previous_token: key = query - 1; same_token: an earlier key with the query's token; induction:
    the key after an earlier occurrence of the query's token (Olsson et al. 2022).

    >>> targets(np.array([[5, 7, 5]]), np.array([3]), "induction")[0].astype(int).tolist()
    [[0, 0, 0], [0, 0, 0], [0, 1, 0]]
    """
    n, ctx = tokens.shape
    query, key = np.arange(ctx)[:, None], np.arange(ctx)[None, :]
    if score == "previous_token":
        hit = np.broadcast_to(key == query - 1, (n, ctx, ctx))
    else:
        same = (tokens[:, :, None] == tokens[:, None, :]) & (key < query)
        hit = (
            same
            if score == "same_token"
            else np.concatenate([np.zeros((n, ctx, 1), bool), same[:, :, :-1]], 2)
        )
    inside = np.arange(ctx) < lengths[:, None]
    return hit & inside[:, :, None] & inside[:, None, :]


def mass(pattern: NDArray, hit: NDArray[np.bool_]) -> Array:
    """(heads,) mean attention on the keys that are hit, over the queries that have one; zeros where
    none has.
    """
    asked = hit.any(-1).sum()
    return np.einsum("nhqk,nqk->h", pattern, hit.astype(pattern.dtype)) / max(int(asked), 1)


def shuffled_keys(ctx: int, causal: bool, seed: int, samples: int) -> Iterator[NDArray[np.int64]]:
    """(query, key) an order of the keys each query may look at, anew for every query and sample."""
    generator = rng("attention null", seed)
    for _ in range(samples):
        noise = generator.random((ctx, ctx))
        if causal:  # keys ahead sort last, in their own order
            noise = np.where(
                np.arange(ctx)[None] > np.arange(ctx)[:, None], 1 + np.arange(ctx)[None], noise
            )
        yield noise.argsort(1)


def score(patterns: Patterns, kind: str, seed: int, samples: int) -> tuple[Array, Array]:
    """(heads,) mass of one of `SCORES`, and (samples,) the largest of any head with each query's
    keys in random order.
    """
    hit = targets(patterns.tokens, patterns.lengths, kind)
    orders = shuffled_keys(patterns.mean.shape[-1], patterns.causal, seed, samples)
    null = [
        mass(patterns.sample, np.take_along_axis(hit, np.broadcast_to(order, hit.shape), 2)).max()
        for order in orders
    ]
    return mass(patterns.sample, hit), np.array(null)


def agreement(
    patterns: Patterns, target: list[int], seed: int, samples: int
) -> tuple[Array, Array, Array]:
    """Mean attention (heads,) on key ``target[query]``, share (heads,) of queries whose largest
    weight is there, and the null.

    Queries with target -1 are left out. Null (samples,): the largest mass of any head with the
    targets dealt out anew among the queries.
    """
    queries = np.array([q for q, key in enumerate(target) if key >= 0])
    keys = np.array([key for key in target if key >= 0])
    generator = rng("target null", seed)
    null = [
        patterns.mean[:, queries, generator.permutation(keys)].mean(1).max() for _ in range(samples)
    ]
    return (
        patterns.mean[:, queries, keys].mean(1),
        patterns.argmax[:, queries, keys].mean(1),
        np.array(null),
    )
