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
from collections.abc import Sequence
from dataclasses import dataclass

from mechint.errors import ParameterError, counted
from mechint.task import FiniteTask
from mechint.training.estimate import disk_bytes, model_bytes, parameter_count
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
        groups.setdefault(shape_of(spec), []).append(index)
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
    """The ensemble of the runs at `members`; `needed`: estimated bytes per run, computed when
    None.
    """
    if needed is None:
        needed = model_bytes(specs[members[0]])
    return EnsemblePart(tuple(members), needed, identifier([specs[i] for i in members]))


def identifier(specs: Sequence[Spec]) -> str:
    """Names an ensemble by its members' configurations, in order."""
    text = json.dumps([spec.to_dict() for spec in specs], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shape_of(spec: Spec) -> str:
    """All that runs of one ensemble have in common, as text."""
    task, alone = spec.task, spec.task.model_kind != "transformer"
    outputs = [output.n_classes for output in task.outputs]
    parameters = task.to_dict() if alone else [task.n_ctx, task.d_vocab, outputs]
    model = {name: value for name, value in spec.model.to_dict().items() if name not in INIT_FIELDS}
    train = spec.train.to_dict()
    training = {name: value for name, value in train.items() if name not in PER_MODEL_FIELDS}
    return json.dumps([task.name, parameters, model, training, _split_sizes(spec)])


def _split_sizes(spec: Spec) -> list[int]:
    """Sizes of a finite task's training and test set: an ensemble stacks them to evaluate, and to
    train on all at once.
    """
    split = spec.task.split(spec.data_seed) if isinstance(spec.task, FiniteTask) else {}
    return [len(split[name]) for name in ("train", "test") if name in split]


def announcement(
    specs: Sequence[Spec], parts: Sequence[EnsemblePart], workers: int = 1, times: int = 1
) -> str:
    """Memory and disk that runs will take, in a line.

    parts: their ensembles; workers: ensembles in training at once; times: how often as much is
    trained, for the trials of a search.
    """
    at_once = sorted((part.bytes * len(part.members) for part in parts), reverse=True)[:workers]
    disk = times * sum(disk_bytes(spec) for spec in specs if spec.out is not None)
    models, ensembles = times * len(specs), times * len(parts)
    several = f"{counted(models, 'model')} in {counted(ensembles, 'ensemble')} of "
    text = several if models > 1 else ""
    text += f"{max(parameter_count(spec.model) for spec in specs):,} parameters: "
    text += f"about {max(sum(at_once) / 2**30, 0.01):.2g} GiB of memory"
    return text + (f", {max(disk / 1e6, 1):,.0f} MB of disk" if disk else "")
