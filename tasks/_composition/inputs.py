"""The inputs of composition: fresh permutations, their split by hash, and the hops that a training
batch asks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as replaced
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.task import IGNORE, MAX_SEED, Batch, GeneratedTask, Vocabulary, rng
from tasks.holdout import BUCKETS, in_split

TABULATED = 8
"""Up to so many points all permutations are listed (8! rows), and drawing one is a look-up."""

FEW = 1024
"""Up to so many inputs they are listed, for the split and the chance level."""


@dataclass(frozen=True)
class CompositionInputs(GeneratedTask):
    """k fresh permutations of n points, and the hidden ones between them."""

    n: int = setting(6, "points that are permuted", low=2, high=64)
    k: int = setting(4, "permutations composed", low=1, high=32)
    hops: tuple[int, ...] = setting(
        (1, 2, 4), "hop lengths asked for, one output each", low=1, high=32
    )
    perm_seed: int = setting(0, "seed of the hidden permutations", low=0, high=MAX_SEED)
    weights: tuple[float, ...] | None = setting(
        None,
        (
            "probability with which a training example asks each hop; every hop of every example "
            "when none"
        ),
        low=0,
        high=1e6,
    )
    stages: tuple[int, ...] | None = setting(
        None,
        "first training batch of each hop; all from the start when none",
        low=0,
        high=1_000_000_000,
    )
    cumulative: bool = setting(True, "earlier hops stay in later stages")
    labels: str = setting(
        "true", "shuffled: every input has random answers of its own", choices=("true", "shuffled")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.hops or len(set(self.hops)) != len(self.hops) or max(self.hops) > self.k:
            self.reject("hops", f"different numbers from 1 to k={self.k}")
        for name in ("weights", "stages"):
            given = getattr(self, name)
            if given is not None and len(given) != len(self.hops):
                self.reject(name, f"one number for each of the {len(self.hops)} hops")
        if any(not self._chances(step).any() for step in {0, *(self.stages or ())}):
            self.reject(
                "weights" if self.stages is None else "stages", "some hop to train on at every step"
            )
        if math.factorial(self.n) ** self.k < 2 * len(BUCKETS):
            self.reject(
                "k",
                (
                    f"more: n={self.n} and k={self.k} give too few inputs for a train, a "
                    "validation and a test split"
                ),
            )

    # --- inputs -----------------------------------------------------------------------------------
    @property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(
            tuple(f"{layer}:{value}" for layer in range(self.k) for value in range(self.n))
        )

    @property
    def n_ctx(self) -> int:
        return self.k * self.n

    @cached_property
    def permutations(self) -> Int[Tensor, "k n"]:
        """(k, n) the hidden permutations πᵢ."""
        drawn = rng("hidden permutations", self.n, self.k, self.perm_seed).permuted(
            np.tile(np.arange(self.n), (self.k, 1)), axis=1
        )
        return torch.from_numpy(drawn)

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        low, high = BUCKETS[split]
        kept, missing = [], n
        while missing > 0:
            drawn = self._draw(math.ceil(missing * 16 / (high - low) * 1.05) + 8, generator)
            kept.append(
                drawn.index_select(
                    0, in_split(self._hash(drawn), split).nonzero().flatten()[:missing]
                )
            )
            missing -= len(kept[-1])
        tokens = torch.cat(kept) if len(kept) > 1 else kept[0]
        return self.batch_of(tokens)

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        """As for every generated task; a training batch asks the hops of its stage, by their
        weights.
        """
        for step, batch in enumerate(super().stream(split, seed, batch_size, start), start):
            yield self._asked(batch, step, seed) if split == "train" else batch

    def _draw(self, n: int, generator: np.random.Generator) -> Tensor:
        """Tokens (n, k * n) of uniformly random permutations."""
        if self.n <= TABULATED:
            rows = torch.from_numpy(generator.integers(0, len(self._all_permutations), n * self.k))
            permutations = self._all_permutations.index_select(0, rows).view(n, self.k, self.n)
        else:
            permutations = torch.from_numpy(generator.random((n, self.k, self.n)).argsort(-1))
        return permutations.add_(self._offsets).flatten(1)

    @cached_property
    def _all_permutations(self) -> Tensor:
        return torch.tensor(list(itertools.permutations(range(self.n))))

    @cached_property
    def _offsets(self) -> Tensor:
        return torch.arange(0, self.n_ctx, self.n)[:, None]

    def _every_input(self) -> Tensor | None:
        """Tokens of all inputs where they are few, else None."""
        if math.factorial(self.n) ** self.k > FEW:
            return None
        values = torch.tensor(
            list(itertools.product(self._all_permutations.tolist(), repeat=self.k))
        )
        return (values + self._offsets).flatten(1)

    def _hash(self, tokens: Tensor) -> Tensor:
        """(batch,) a linear hash modulo 2⁶⁴, the same for all hidden permutations."""
        return tokens @ self._coefficients[:, 0].to(tokens.device)

    @cached_property
    def _coefficients(self) -> Tensor:
        """(pos, 1 + output) odd multipliers: of the hash, and of the shuffled labels; with few
        inputs, such that no split is empty.
        """
        keys = (rng("hash", self.n, self.k, attempt) for attempt in itertools.count())
        drawn = (
            torch.from_numpy(key.integers(0, 1 << 62, (self.n_ctx, 1 + len(self.hops)))) | 1
            for key in keys
        )
        inputs = self._every_input()
        if inputs is None:
            return next(drawn)
        return next(
            odd
            for odd in drawn
            if all(in_split(inputs @ odd[:, 0], split).any() for split in BUCKETS)
        )

    # --- which hops a training batch asks ---------------------------------------------------------
    def _chances(self, step: int) -> np.ndarray:
        """(output,) weight of each hop in training batch `step`; zero where it is not asked."""
        weights = np.ones(len(self.hops)) if self.weights is None else np.array(self.weights)
        if self.stages is None:
            return weights
        begun = np.array(self.stages) <= step
        latest = np.array(self.stages) == max(
            [stage for stage in self.stages if stage <= step], default=-1
        )
        return weights * (begun if self.cumulative else latest)

    def _asked(self, batch: Batch, step: int, seed: int) -> Batch:
        chances = self._chances(step)
        if self.weights is None:
            asked = torch.from_numpy(chances > 0)
        else:
            chosen = rng("hop", seed, step).choice(
                len(chances), len(batch), p=chances / chances.sum()
            )
            asked = torch.from_numpy(chosen[:, None, None] == np.arange(len(chances)))
        return batch if asked.all() else replaced(batch, targets=batch.targets.where(asked, IGNORE))
