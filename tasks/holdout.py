"""The split of an input, by a hash of its tokens: nothing is stored, and no held-out input is ever
trained on.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

BUCKETS = {"test": (0, 1), "validation": (1, 2), "train": (2, 16)}
"""Each input falls by its hash into one of 16 buckets; a split owns a range of them."""


def in_split(code: Int[Tensor, " batch"], split: str) -> Bool[Tensor, " batch"]:
    """Return whether inputs of hash `code`, a linear one modulo 2⁶⁴, belong to `split`."""
    low, high = BUCKETS[split]
    bucket = (code >> 40) & 15
    return (bucket >= low) & (bucket < high)


def draw_in(
    split: str,
    n: int,
    spare: float,
    draw: Callable[[int, np.random.Generator], Tensor],
    code: Callable[[Tensor], Tensor],
    generator: np.random.Generator,
) -> Int[Tensor, "n pos"]:
    """`n` inputs of `split` among those that `draw` makes, whose hash is `code`; as many are drawn
    at a time as are missing on average, times `spare`.
    """
    low, high = BUCKETS[split]
    kept, missing = list[Tensor](), n
    while missing > 0 or not kept:
        drawn = draw(math.ceil(missing * 16 / (high - low) * spare) + 8, generator)
        kept.append(drawn[in_split(code(drawn), split)][:missing])
        missing -= len(kept[-1])
    return torch.cat(kept)


def random_class(
    code: Int[Tensor, "batch 1"], odd: Int[Tensor, " answer"], n: int
) -> Int[Tensor, "batch answer"]:
    """A random class below `n` of every input and answer, fixed by its hash and the answer's odd
    multiplier.
    """
    return ((code * odd >> 33) & 0x3FFFFFFF) % n


def plain_class(code: int, odd: int, n: int) -> int:
    """`random_class` of one answer, by Python's integers."""
    return (code * odd % 2**64 >> 33) % 2**30 % n
