"""Reproducible drawing: generators that follow from a key alone, and epochs over a fixed set."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch

from mechint.task.batch import Batch

SPLITS = ("train", "validation", "test")

MAX_SEED = 2**63 - 1
"""Largest seed that a parameter takes."""


def rng(*key: int | str) -> np.random.Generator:
    """A generator that depends on `key` alone, on every machine (PCG64 over its SHA-256)."""
    digest = hashlib.sha256(repr(key).encode()).digest()
    return np.random.Generator(np.random.PCG64(np.frombuffer(digest, np.uint32).tolist()))


def epochs(data: Batch, seed: int, batch_size: int | None, start: int = 0) -> Iterator[Batch]:
    """Batches of a fixed set for ever, in a new order every epoch (what does not fill a batch is
    left out); all of it when none or too few.
    """
    n = len(data)
    if batch_size is None or batch_size >= n:
        while True:
            yield data
    per_epoch = n // batch_size
    step, epoch, order = start, -1, torch.arange(n)
    while True:
        if step // per_epoch != epoch:
            epoch = step // per_epoch
            order = torch.as_tensor(rng("order", seed, epoch).permutation(n))
        first = step % per_epoch * batch_size
        yield data[order[first : first + batch_size]]
        step += 1
