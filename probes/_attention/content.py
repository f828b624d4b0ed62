"""Whether a head follows content or place: what it looks at, held against other examples' keys."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray

from mechint.subject import Subject
from mechint.task import IGNORE, Batch, rng
from probes._attention.patterns import Patterns
from probes._attention.scores import targets

SHORTEST = 3
"""Tokens of the shortest piece that is repeated: behind two, the key is the token before."""
REPEATED = 32
"""Examples of repeated tokens."""


@dataclass(frozen=True)
class Examples:
    """Attention (example, head, query, key) of some examples, and which keys count in each.

    lengths (example,); hit (example, query, key); repeated: whether the examples were made by
    `repeats`.
    """

    attention: NDArray[np.float32]
    hit: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    repeated: bool = False

    def on_others(
        self, attention: Float[np.ndarray, "example query key"]
    ) -> Float[np.ndarray, "example other"]:
        """(example, other) summed attention of an example on the keys that count in another."""
        n = len(self.hit)
        inside = np.arange(self.hit.shape[1]) < self.lengths[:, None]
        rows = (attention * inside[:, :, None]).reshape(n, -1)
        return (rows @ self.hit.reshape(n, -1).T.astype(rows.dtype)).astype(np.float64)

    def asked(self) -> Float[np.ndarray, "example other"]:
        """(example, other) how many queries inside an example have a key that counts in another."""
        inside = np.arange(self.hit.shape[1]) < self.lengths[:, None]
        return inside.astype(np.float64) @ self.hit.any(-1).T.astype(np.float64)

    def tell(self, alpha: float, least: float) -> bool:
        """Whether these examples tell content from place: a head that looks at nothing but the keys
        that count would lose more than `least` on those of other examples, and these can be dealt
        in enough ways for a null at `alpha`.
        """
        perfect = self.hit / np.maximum(self.hit.sum(-1, keepdims=True), 1)
        kept = self.on_others(perfect).sum() / max(self.asked().sum(), 1)
        packed = np.packbits(self.hit.reshape(len(self.hit), -1), axis=1)
        counts = np.unique(packed, axis=0, return_counts=True)[1]
        ways = math.lgamma(len(self.hit) + 1) - sum(math.lgamma(one + 1) for one in counts)
        return 1 - kept > least and ways + math.log(alpha) > -1e-9


def gain(
    examples: Examples, seed: int, samples: int
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " sample"]]:
    """(head,) mean attention on the keys that count, less that on the keys of an example drawn at
    random, and (sample,) the largest of any head with the keys dealt anew among the examples.

    What a head does by position it does on the keys of any example.
    """
    asked = examples.asked()
    on_others = np.stack([examples.on_others(each) for each in examples.attention.swapaxes(0, 1)])
    order = np.arange(len(asked))
    draw = rng("attention examples dealt", seed)
    orders = [order, *(draw.permutation(order) for _ in range(samples))]
    by_place = on_others.mean((1, 2)) / max(asked.mean(), 1e-12)
    scores = np.stack(
        [
            on_others[:, order, dealt].mean(1) / max(asked[order, dealt].mean(), 1e-12) - by_place
            for dealt in orders
        ]
    )
    return scores[0], scores[1:].max(1)


def tellable(
    subject: Subject, patterns: Patterns, kind: str, seed: int, *, alpha: float, least: float
) -> Examples | None:
    """The examples of `patterns` where these tell content from place, else tokens repeated at
    random distances; None where these do not either.
    """
    hit = targets(patterns.tokens, patterns.lengths, kind)
    own = Examples(patterns.sample, hit, patterns.lengths)
    if own.tell(alpha, least):
        return own
    tokens = repeats(patterns.tokens, patterns.lengths, seed)
    if tokens is None:
        return None
    lengths = np.full(len(tokens), tokens.shape[1])
    hit = targets(tokens, lengths, kind)
    made = Examples(_attention(subject, tokens), hit, lengths, repeated=True)
    return made if made.tell(alpha, least) else None


def repeats(
    tokens: Int[np.ndarray, "example pos"], lengths: Int[np.ndarray, " example"], seed: int
) -> Int[np.ndarray, "repeated pos"] | None:
    """(repeated, pos) random pieces of the examples' tokens, each repeated side by side; the piece
    of each has another length, between a quarter and three quarters of the sequence.

    A first token that all examples share, as one that begins a sequence, stays where it is. None
    where there are too few tokens or positions.

    >>> repeats(np.arange(16).reshape(2, 8), np.array([8, 8]), 0)[0].tolist()
    [14, 12, 5, 14, 12, 5, 14, 12]
    """
    first = int((tokens[:, 0] == tokens[0, 0]).all())
    n = int(lengths.max()) - first
    inside = np.arange(tokens.shape[1]) < lengths[:, None]
    pool = np.setdiff1d(tokens[inside], tokens[0, :first])
    low, high = max(SHORTEST, n // 4), min(len(pool), 3 * n // 4)
    if high <= low:
        return None
    draw = rng("attention repeated tokens", seed)
    rows = [
        np.resize(draw.permutation(pool)[: draw.integers(low, high + 1)], n)
        for _ in range(REPEATED)
    ]
    return np.concatenate([np.repeat(tokens[:1, :first], REPEATED, 0), np.stack(rows)], 1)


def _attention(subject: Subject, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
    """(example, head, query, key) of all layers' heads on `tokens` (example, pos)."""
    targets = torch.full((*tokens.shape, subject.data.targets.shape[-1]), IGNORE)
    data = Batch(torch.from_numpy(tokens), targets).to(subject.data.tokens.device)
    hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in range(subject.n_layers)]
    layers = [subject.activation(hook, None, data).float().cpu() for hook in hooks]
    return torch.cat(layers, 1).numpy()
