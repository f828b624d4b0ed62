"""Memory and disk that runs will take, estimated before they take them.

The bytes of one model also decide how many train as one ensemble, so they are a function of the
configuration and the data alone, never of the machine.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from pathlib import Path

import torch

from mechint.config import ModelConfig, Settings
from mechint.errors import MechintError
from mechint.files import check_space
from mechint.models import parameter_shapes
from mechint.task import IGNORE, FiniteTask, memory
from mechint.training.run import Spec
from mechint.training.schedule import kept_steps

FILE_BYTES, ROW_BYTES = 8192, 128
"""Bytes of a checkpoint besides its weights, and of a row of metrics per output, about."""


def parameter_count(config: Settings) -> int:
    """Numbers in the weights of a model of `config`, counted without making them.

    >>> parameter_count(ModelConfig(d_model=128, d_vocab=114, d_vocab_out=113))
    227313
    """
    return sum(math.prod(shape) for shape in parameter_shapes(config).values())


def weight_bytes(spec: Spec) -> int:
    """Bytes of one model's weights, gradient and optimizer state."""
    train = spec.train
    copies = 6 + (train.grokfast_window if train.grokfast == "ma" else 0)
    return (8 if train.precision == "float64" else 4) * copies * parameter_count(spec.model)


def disk_bytes(spec: Spec) -> int:
    """Bytes that the directory of one run grows to, estimated from above: its checkpoints, the last
    weights, the state to resume from with the one that replaces it, and the rows of metrics.
    """
    train, numbers = spec.train, parameter_count(spec.model)
    kept = len(kept_steps(train, numbers)) + 1
    evaluations = train.steps // train.evaluate_every + kept
    return (
        kept * (4 * numbers + FILE_BYTES)
        + 2 * (weight_bytes(spec) + FILE_BYTES)
        + evaluations * ROW_BYTES * (1 + len(spec.task.outputs))
    )


def model_bytes(spec: Spec) -> int:
    """Bytes that training one model takes, estimated: weights, optimizer, and the activations that
    one step keeps for its backward.
    """
    task, config, size = spec.task, spec.model, spec.train.batch_size
    if isinstance(config, ModelConfig):
        activations = _activations(spec, config)
    elif size is None:  # the exact population loss
        activations = parameter_count(config)
    else:
        activations = 3 * size * (task.n_ctx + task.d_vocab_out) + parameter_count(config)
    return weight_bytes(spec) + 8 * activations


def _activations(spec: Spec, config: ModelConfig) -> int:
    """Numbers that a transformer keeps for its backward: all positions in every block but the last,
    which is asked at the answers alone.
    """
    task, size = spec.task, spec.train.batch_size
    if isinstance(task, FiniteTask):
        n = len(task.split(spec.data_seed)["train"])
        size = n if size is None else min(n, size)
    assert size is not None
    few = next(task.stream("train", spec.data_seed, 2))
    answers = int((few.targets != IGNORE).sum()) / len(few)
    positions = min(config.n_ctx, answers) + (config.n_layers - 1) * config.n_ctx
    wide = 8 * config.d_model + (0 if config.attn_only else 2 * (config.d_mlp or 0))
    row = wide + 3 * config.n_heads * config.n_ctx
    return math.ceil(size * (positions * row + 3 * answers * config.d_vocab_out))


# --- the machine ----------------------------------------------------------------------------------
def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return memory.free_memory()


def check_resources(specs: Sequence[Spec], device: torch.device) -> None:
    """Refuse runs that the machine cannot hold, before anything of them is made.

    Raises:
        MechintError: one model needs more memory than is free. RunError: the runs need more room on
            the disk than there is.
    """
    free = free_memory(device)
    for spec in specs:
        task, size = spec.task, spec.train.batch_size
        if size is None:  # all examples, or the exact population loss
            size = math.prod(task.grid) if isinstance(task, FiniteTask) else 1
        needed = weight_bytes(spec) + 8 * size * max(1, task.n_ctx)
        if needed > free:
            raise does_not_fit(spec, needed, free)
    room: dict[Path, int] = {}
    for spec in specs:
        if spec.out is not None:
            place = next(path for path in (spec.out, *spec.out.absolute().parents) if path.exists())
            room[place] = room.get(place, 0) + max(0, disk_bytes(spec) - _size_of(spec.out))
    for place, size in room.items():
        check_space(place, size)


def _size_of(directory: Path) -> int:
    """Bytes of the files under `directory`; one that another process takes away counts nothing."""
    size = 0
    for file in directory.rglob("*"):
        with contextlib.suppress(OSError):
            size += file.stat().st_size
    return size


def does_not_fit(spec: Spec, needed: int, limit: int) -> MechintError:
    """The error that a run needs more memory than there is."""
    return MechintError(
        f"train: one model of {spec.task.name} needs about {needed / 2**30:.3g} GiB and "
        f"{limit / 2**30:.3g} GiB are free; make the model or its batch smaller"
    )
