"""Activations for SAELens: batches of rows, one per example and position.

The padding behind the end of shorter examples is left out; heads, where an activation has them, are
joined into one vector. Cost: one forward per chunk of examples; memory: one chunk and one batch.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import ParameterError
from mechint.subject import At, Subject
from mechint.subject.activations import check_positions
from mechint.task import rng


def activation_batches(
    subject: Subject,
    hook: str,
    batch_size: int,
    *,
    at: At = None,
    epochs: int | None = 1,
    seed: int = 0,
) -> Iterator[Float[Tensor, "batch d_in"]]:
    """Batches of activations at `hook`, as SAELens's trainer takes them (its data provider).

    Args:
        at: "answer", one position, which every example has, or every position that each example
            has.
        epochs: how often the subject's data is gone through, each time in another order; None for
            ever. Examples are shuffled, then rows within a chunk of `subject.chunk` examples; what
            does not fill a batch joins the next epoch's first; the last batch may be smaller.
        seed: of the orders.

    Raises:
        UnknownNameError: no such hook. ParameterError: a batch size or number of epochs below 1, no
            example, or one that does not have the position.
    """
    if batch_size < 1 or (epochs is not None and epochs < 1):
        raise ParameterError(f"batch_size={batch_size}, epochs={epochs}: expected at least 1")
    subject.check_hook(hook)
    if hook.endswith(("hook_pattern", "hook_attn_scores")):
        raise ParameterError(
            f"hook {hook}: its rows are pairs of positions, expected a vector each"
        )
    if not len(subject.data):
        raise ParameterError(f"{subject.describe()}: there is no example to run")
    if isinstance(at, int):
        check_positions(hook, at, subject.data.tokens.shape[1])
        subject.data.check_position(hook, at)
    return _batches(subject, hook, batch_size, at, epochs, seed)


def _batches(
    subject: Subject, hook: str, batch_size: int, at: At, epochs: int | None, seed: int
) -> Iterator[Tensor]:
    draw, epoch = rng("activation batches", seed), 0
    kept: Tensor | None = None
    own = subject.data.own_positions(at)
    while epochs is None or epoch < epochs:
        order = torch.from_numpy(draw.permutation(len(subject.data))).to(subject.device)
        for part in order.split(subject.chunk):
            rows = subject.activation(hook, at, subject.data[part])
            if own is not None:
                rows = rows[own[part]]
            elif at is None and rows.dim() > 2:
                rows = rows.flatten(0, 1)
            rows = rows.flatten(1)[torch.from_numpy(draw.permutation(len(rows))).to(rows.device)]
            kept = rows if kept is None else torch.cat([kept, rows])
            while len(kept) >= batch_size:
                yield kept[:batch_size]
                kept = kept[batch_size:]
        epoch += 1
    if kept is not None and len(kept):
        yield kept
