"""The split of an input, by a hash of its tokens: nothing is stored, and no held-out input is ever
trained on.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

BUCKETS = {"test": (0, 1), "validation": (1, 2), "train": (2, 16)}
"""Each input falls by its hash into one of 16 buckets; a split owns a range of them."""


def in_split(code: Int[Tensor, " batch"], split: str) -> Bool[Tensor, " batch"]:
    """Return whether inputs of hash `code`, a linear one modulo 2⁶⁴, belong to `split`."""
    low, high = BUCKETS[split]
    bucket = (code >> 40) & 15
    return (bucket >= low) & (bucket < high)
