"""Activations for SAELens: batches from memory, or safetensors shards on disk.

Rows are (example, position) pairs, without the padding behind the end of shorter examples; heads,
where an activation has them, are joined into one vector.
Cost: one forward per chunk of examples; memory: one chunk and one batch or shard.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

import mechint
from mechint.errors import ParameterError, RunError
from mechint.files import check_space, make_directory, replacing, write_text
from mechint.subject import At, Subject
from mechint.task import Batch, rng

INDEX = "activations.json"


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
        at: "answer", one position of the examples that have it, or every position that each
            example has.
        epochs: how often the subject's data is gone through, each time in another order; None for
            ever. Examples are shuffled, then rows within a chunk of `subject.chunk` examples; what
            does not fill a batch joins the next epoch's first; the last batch may be smaller.
        seed: of the orders.

    Raises:
        UnknownNameError: no such hook. ParameterError: a batch size or number of epochs below 1, or
            no example, or none that has the position.
    """
    if batch_size < 1 or (epochs is not None and epochs < 1):
        raise ParameterError(f"batch_size={batch_size}, epochs={epochs}: expected at least 1")
    _check(subject, hook, at)
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
            found = subject.activation(hook, at, subject.data[part])
            rows = _rows(found, at, None if own is None else own[part])
            rows = rows[torch.from_numpy(draw.permutation(len(rows))).to(rows.device)]
            kept = rows if kept is None else torch.cat([kept, rows])
            while len(kept) >= batch_size:
                yield kept[:batch_size]
                kept = kept[batch_size:]
        epoch += 1
    if kept is not None and len(kept):
        yield kept


def export_activations(
    subject: Subject,
    hook: str,
    path: str | Path,
    *,
    at: At = None,
    rows_per_shard: int = 1 << 16,
) -> list[Path]:
    """Write the activations at `hook` of all of the subject's data into directory `path`.

    Shards ``activations-00000.safetensors``, … hold "activations" (row, d_in) in the model's own
    type, and "example", "position" and "token" (row,) of each row, in the order of `subject.data`;
    ``activations.json``, written last, names them and says of which model, task and hook they are.

    Args:
        at: as for `activation_batches`.
        rows_per_shard: rows of every shard but the last.

    Returns:
        The shards.

    Raises:
        UnknownNameError: no such hook. ParameterError: no example, none that has the position, or
            an activation that has no position. RunError: the directory holds an export, or cannot
            be written.
    """
    from safetensors.torch import save_file

    if rows_per_shard < 1:
        raise ParameterError(f"rows_per_shard={rows_per_shard}: expected at least 1")
    _check(subject, hook, at)
    place = make_directory(path)
    if (place / INDEX).exists():
        raise RunError(f"{place}: holds an export; choose another directory or remove it")
    shards: list[Path] = []
    counts: list[int] = []
    for rows in _shards(subject, hook, at, rows_per_shard):
        shard = place / f"activations-{len(shards):05}.safetensors"
        check_space(shard, sum(value.nbytes for value in rows.values()))
        with replacing(shard) as beside:
            save_file(rows, beside, {"hook": hook})
        shards.append(shard)
        counts.append(len(rows["activations"]))
        width, kind = rows["activations"].shape[1], str(rows["activations"].dtype)
    index: dict[str, Any] = {
        "hook": hook,
        "d_in": width,
        "dtype": kind.removeprefix("torch."),
        "rows": sum(counts),
        "shards": {shard.name: count for shard, count in zip(shards, counts, strict=True)},
        "of": subject.provenance,
        "mechint": mechint.__version__,
    }
    write_text(place / INDEX, json.dumps(index, indent=1, default=str) + "\n")
    return shards


def _shards(subject: Subject, hook: str, at: At, size: int) -> Iterator[dict[str, Tensor]]:
    kept: dict[str, Tensor] = {}
    every = subject.data.own_positions(at)
    for start in range(0, len(subject.data), subject.chunk):
        data = subject.data[start : start + subject.chunk]
        found = subject.activation(hook, at, data)
        own = None if every is None else every[start : start + subject.chunk]
        examples, places = _places(subject, hook, at, data, found, own)
        part = {
            "activations": _rows(found, at, own).cpu(),
            "example": (start + examples).cpu(),
            "position": places.cpu(),
            "token": data.tokens[examples, places].cpu(),
        }
        kept = {name: torch.cat([kept[name], part[name]]) for name in part} if kept else part
        while len(kept["activations"]) >= size:
            yield {name: value[:size].contiguous() for name, value in kept.items()}
            kept = {name: value[size:] for name, value in kept.items()}
    if len(kept["activations"]):
        yield {name: value.contiguous() for name, value in kept.items()}


def _places(
    subject: Subject, hook: str, at: At, data: Batch, found: Tensor, own: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Example and position of every row; own: as for `_rows`."""
    n, length = data.tokens.shape
    if at is None:
        if found.shape[:2] != (n, length):
            raise ParameterError(
                f"hook {hook}: shape {tuple(found.shape)}, expected (example, pos, …)"
            )
        every = torch.arange(n * length, device=found.device)
        every = every if own is None else every[own.flatten()]
        return every // length, every % length
    if at == "answer":
        some = subject.with_data(data)
        return some.answer_examples, some.answer_positions
    examples = torch.arange(n, device=found.device)
    examples = examples if own is None else examples[own]
    return examples, torch.full_like(examples, at % length)


def _check(subject: Subject, hook: str, at: At) -> None:
    subject.check_hook(hook)
    if hook.endswith(("hook_pattern", "hook_attn_scores")):
        raise ParameterError(
            f"hook {hook}: its rows are pairs of positions, expected a vector each"
        )
    if not len(subject.data):
        raise ParameterError(f"{subject.describe()}: there is no example to run")
    own = subject.data.own_positions()
    if own is None or not isinstance(at, int):
        return
    width = own.shape[1]
    if not -width <= at < width or not bool(own[:, at].any()):
        raise ParameterError(f"{subject.describe()}: no example has a position {at}")


def _rows(
    activation: Float[Tensor, " *activation"], at: At, own: Bool[Tensor, "example ..."] | None
) -> Float[Tensor, "row d_in"]:
    """The rows of an activation (example, [pos, [head,]] d) that are data, its heads joined; own:
    of these examples, as `Batch.own_positions` says.
    """
    if own is not None and activation.shape[: own.dim()] == own.shape:
        activation = activation[own]
    elif at is None and activation.dim() > 2:
        activation = activation.flatten(0, 1)
    return activation.flatten(1)
