"""Puts written weights into a HookedTransformer, and blurs them on demand: decoy, rotation, noise.

A builder writes its weights in named slots of the residual stream (`Slots`), in float64. `assemble`
then, in this order, adds a decoy mechanism that shares the residual stream, rotates the residual
stream, and adds noise to every weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.models.parameters import parameter_shapes
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from mechint.task import Task, rng

SHARP = 40.0
"""Attention score by which a written head prefers its key: what leaks elsewhere is exp(-40)."""

_WRITES = ("W_E", "W_pos", "W_O", "b_O", "W_out", "b_out")
"""Parameters whose last axis is the residual stream; the second-last axis of the others that touch
it is.
"""
_READS = ("W_Q", "W_K", "W_V", "W_in", "W_U")


@dataclass(frozen=True)
class Planted:
    """A written model and what it is known to do.

    truth: "mechanism" (its name), then what the builder planted, e.g. "frequencies", "heads" {role:
    (layer, head)}, "subspaces" {hook: (d_model, k) orthonormal columns}, "unused" what is
    represented and not used.
    """

    subject: Subject
    truth: Mapping[str, Any]


@dataclass(frozen=True)
class Perturbation:
    """The distance of a plant from the textbook.

    noise: standard deviation of Gaussian noise on every weight, relative to the root mean square of
    the tensor it falls on. rotation_seed: seed of a random rotation of the residual stream; None
    leaves the basis aligned. seed: of the noise.
    """

    noise: float = 0.0
    rotation_seed: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.noise < np.inf:
            raise ParameterError(f"planted: noise={self.noise}: expected at least 0")


def make_task(task: str | Task, **parameters: Any) -> Any:
    """The task of that name in the registry, of whatever family; or `task` with `parameters`."""
    if isinstance(task, Task):
        return type(task).from_dict(task.to_dict() | parameters)
    return TASKS[task].from_dict(parameters)


class Slots:
    """Named, disjoint ranges of the residual stream.

    >>> slots = Slots(value=3, answer=2)
    >>> slots["answer"], slots.width
    (slice(3, 5, None), 5)
    """

    def __init__(self, **widths: int) -> None:
        self.width, self._slices = 0, dict[str, slice]()
        for name, width in widths.items():
            self._slices[name] = slice(self.width, self.width + width)
            self.width += width

    def __getitem__(self, name: str) -> slice:
        return self._slices[name]

    def basis(self, name: str) -> Float[Tensor, "width k"]:
        """(width, k) the unit vectors of a slot."""
        return torch.eye(self.width, dtype=torch.float64)[:, self[name]]


def config_for(task: Task, slots: Slots, **settings: Any) -> ModelConfig:
    """The configuration of a plant of `task` with the residual stream `slots`."""
    return ModelConfig.for_task(task, d_model=slots.width, attn_scale=1.0, **settings)


def attend(
    weights: Mapping[str, Tensor], slots: Slots, head: int, read: int, position: int
) -> None:
    """Let `head` of the first block attend from position `read` to `position`, by its slot."""
    first = slots["position"].start
    weights["blocks.0.attn.W_Q"][head, first + read, 0] = SHARP
    weights["blocks.0.attn.W_K"][head, first + position, 0] = 1.0


def blank(config: ModelConfig) -> dict[str, Tensor]:
    """All parameters as zeros in float64, for a builder to write into."""
    return {
        name: torch.zeros(shape, dtype=torch.float64)
        for name, shape in parameter_shapes(config).items()
    }


def assemble(
    config: ModelConfig,
    weights: Mapping[str, Tensor],
    task: Task,
    truth: Mapping[str, Any],
    perturbation: Perturbation,
    **subject: Any,
) -> Planted:
    """The plant of `weights` with its rotation and noise; `subject` are arguments of
    Subject.

    ``truth["subspaces"]`` follow the residual stream into its new basis.
    """
    weights, subspaces = dict(weights), dict(truth.get("subspaces", {}))
    if perturbation.rotation_seed is not None:
        turn = random_rotation(config.d_model, perturbation.rotation_seed)
        weights = {name: _turned(name, weight, turn) for name, weight in weights.items()}
        subspaces = {hook: turn.T @ basis for hook, basis in subspaces.items()}
    if perturbation.noise:
        generator = rng("planted noise", perturbation.seed)
        weights = {
            name: noised(weight, perturbation.noise, generator) for name, weight in weights.items()
        }
    model = HookedTransformer(config)
    model.load_weights({name: weight.float() for name, weight in weights.items()})
    source = {
        "path": f"planted {truth['mechanism']}",
        "format": "planted",
        "perturbation": dataclasses.asdict(perturbation),
    }
    return Planted(
        Subject(model, task, provenance=source, **subject), {**truth, "subspaces": subspaces}
    )


def random_rotation(n: int, seed: int) -> Float[Tensor, "n n"]:
    """(n, n) float64 orthogonal, Haar-distributed."""
    q, r = np.linalg.qr(rng("planted rotation", seed).standard_normal((n, n)))
    return torch.from_numpy(q * np.sign(np.diag(r)))


def _turned(name: str, weight: Tensor, turn: Tensor) -> Tensor:
    kind = name.rpartition(".")[2]
    if kind in _WRITES:
        return weight @ turn
    return turn.T @ weight if kind in _READS else weight


def noised(
    weight: Float[Tensor, "*shape"], noise: float, generator: np.random.Generator
) -> Float[Tensor, "*shape"]:
    """`weight` with Gaussian noise of `noise` times its root mean square."""
    return weight + noise * weight.square().mean().sqrt() * torch.from_numpy(
        generator.standard_normal(tuple(weight.shape))
    )
