"""The plan of what trains together: a function of the runs that are asked for, and of nothing else.

Runs of one shape are cut, in their order, into ensembles of equal size that need at most `TILE`
bytes each. Neither cores, nor workers, nor free memory, nor what is finished already has a say, so
that the same plan gives the same bits wherever and however often it is stopped. `TILE` keeps the
activations of a step near the caches, where larger ensembles gain nothing, and leaves several
ensembles for several workers.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mechint.config import ModelConfig, Settings
from mechint.errors import MechintError, ParameterError
from mechint.models import parameter_shapes
from mechint.task import IGNORE, FiniteTask, batch
from mechint.training.optimizer import PER_MODEL_FIELDS
from mechint.training.run import Spec

INIT_FIELDS = ("init_mode", "initializer_range", "embed_std", "width", "ambient")
"""Fields of a model's configuration that change its initial weights and not its shape."""

TILE = {"cpu": 1 << 28, "cuda": 1 << 34}
"""Bytes that one ensemble may need, by the kind of device."""

MOST = 128
"""Models that one ensemble may have."""


@dataclass(frozen=True)
class EnsemblePart:
    """Runs that train as one ensemble.

    members: their places in the plan; bytes: what one of them needs, estimated; ensemble: an
    identifier that depends on the members' configurations alone.
    """

    members: tuple[int, ...]
    bytes: int
    ensemble: str

    def work(self, steps: int) -> int:
        """The cost of training `steps` steps, in a unit of its own."""
        return self.bytes * len(self.members) * steps


def partition(specs: Sequence[Spec], device: str = "cpu", most: int = MOST) -> list[EnsemblePart]:
    """The ensembles of a plan, largest work first.

    Args:
        specs: the runs; device: "cpu" or "cuda".
        most: models that one ensemble may have, as a part of the plan.

    Raises:
        ParameterError: no such kind of device.
    """
    if device not in TILE:
        raise ParameterError(f"device {device!r}: expected one of {', '.join(TILE)}")
    groups: dict[str, list[int]] = {}
    for index, spec in enumerate(specs):
        groups.setdefault(ensemble_key(spec), []).append(index)
    parts = []
    for members in groups.values():
        needed = model_bytes(specs[members[0]])
        portions = -(-len(members) // max(1, min(most, TILE[device] // needed)))
        size = -(-len(members) // portions)
        for start in range(0, len(members), size):
            parts.append(part_of(specs, members[start : start + size], needed))
    return sorted(parts, key=lambda part: -part.work(specs[part.members[0]].train.steps))


def part_of(
    specs: Sequence[Spec], members: Sequence[int], needed: int | None = None
) -> EnsemblePart:
    """The ensemble of the runs at `members`; needed: bytes of one, estimated when None."""
    if needed is None:
        needed = model_bytes(specs[members[0]])
    return EnsemblePart(tuple(members), needed, identifier([specs[i].to_dict() for i in members]))


def identifier(specs: Sequence[Mapping[str, Any]]) -> str:
    """Name of an ensemble, made of its members' configurations (`Spec.to_dict`), in order."""
    text = json.dumps(list(specs), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def ensemble_key(spec: Spec) -> str:
    """All that runs of one ensemble have in common, as text."""
    task = spec.task
    outputs = [output.n_classes for output in task.outputs]
    # a student's loss reads the task itself, a transformer's its batches alone
    reads_task = task.model_kind != "transformer"
    parameters = task.to_dict() if reads_task else [task.n_ctx, task.d_vocab, outputs]
    model = {name: value for name, value in spec.model.to_dict().items() if name not in INIT_FIELDS}
    train = spec.train.to_dict()
    training = {name: value for name, value in train.items() if name not in PER_MODEL_FIELDS}
    # a finite task's training and test set, which an ensemble stacks
    split = task.split(spec.data_seed) if isinstance(task, FiniteTask) else {}
    sizes = [len(split[name]) for name in ("train", "test") if name in split]
    return json.dumps([task.name, parameters, model, training, sizes])


# --- memory ---------------------------------------------------------------------------------------
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


def model_bytes(spec: Spec) -> int:
    """Bytes of training one model, estimated: weights, optimizer, activations of a step."""
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


def check_memory(specs: Sequence[Spec], device: torch.device) -> None:
    """MechintError where one model, or its batch, needs more memory than is free."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else batch.free_memory()
    for spec in specs:
        task, size = spec.task, spec.train.batch_size
        if size is None:  # all examples, or the exact population loss
            size = math.prod(task.grid) if isinstance(task, FiniteTask) else 1
        needed = weight_bytes(spec) + 8 * size * max(1, task.n_ctx)
        if needed > free:
            raise MechintError(
                f"train: one model of {spec.task.name} needs about {needed / 2**30:.3g} GiB and "
                f"{free / 2**30:.3g} GiB are free; make the model or its batch smaller"
            )
