"""Linear regressions that compete for width, with the theory that says which features one keeps.

Source: "Why Larger Models Learn More", Sec. 3 and App. B.1, C. Task t has the covariance C_t = B_t
Λ_t B_tᵀ in a block of its own (B_tᵀ B_s = 0), and its teacher answers in the block's coordinates, y
= Λ_t^{1/2} B_tᵀ x, which has the losses of C_t^{1/2} x. A width-m encoder with projector P and the
best decoders leaves L_t = Tr(C_t (I - P)).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import ParameterError
from mechint.task import MAX_SEED, Batch, Chance, Output, rng
from mechint.tasks.vectors import RegressionTask, orthonormal

TOLERANCE = 0.1
"""The most by which whole numbers of inputs may move the rare task's share, as a part of it."""


@dataclass(frozen=True)
class RegressionMixture(RegressionTask):
    """Linear regressions in orthogonal blocks, task prior and spectrum as power laws.

    A batch has `tokens` (batch, n) and `targets` (batch, rank), float32, and ``masks["task"]``
    (batch,) int64, the task of each input. Tasks are numbered from 0, the most frequent, on; the
    rare task is the last one.

    With ``gap`` G above 1 the rare task is left out of all batches but every G-th, which is
    enlarged by the G·p·batch_size inputs that are due, a whole number; the first batch is refused
    where this moves the long-run share by more than a tenth of p. An enlarged batch is averaged
    over its own size, or, with ``normalization="fixed"``, over the batch size set (by `weights`).

    >>> task = RegressionMixture(n=6, n_tasks=3, rank=2, alpha=1.0, beta=0.5)
    >>> task.retained_features(3), task.critical_width(1)
    ([2, 1, 0], 3)
    """

    name: ClassVar[str] = "regression-mixture"
    topic: ClassVar[str] = "regression"
    source: ClassVar[str] = (
        "Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
        "Retention, Sec. 3"
    )
    model_kind: ClassVar[str] = "linear-bottleneck"
    model_defaults: ClassVar[Mapping[str, Any]] = {"width": 16}
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 8000,
        "batch_size": 256,
        "lr": 0.01,
        "betas": (0.9, 0.999),
        "weight_decay": 0.0,
        "schedule": "inverse_sqrt",
        "warmup": 200,
        "clip": 1.0,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.n": 8,
            "task.n_tasks": 2,
            "task.rank": 2,
            "model.width": 4,
            "train.steps": 600,
        },
        "paper": {"train.steps": 8000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {"fast": "test loss 1e-12 by step 600, seed 0"}

    n: int = setting(64, "inputs", low=1, high=8192)
    n_tasks: int = setting(8, "tasks in the mixture", low=1, high=8192)
    rank: int = setting(
        8, "features of a task; 1 makes every task a single direction", low=1, high=8192
    )
    alpha: float = setting(
        1.0, "prior of task t (from 1) is proportional to t^-alpha", low=0, high=16
    )
    beta: float = setting(0.7, "eigenvalue j (from 1) of a task is j^-beta", low=0, high=16)
    beta_rarest: float | None = setting(
        None, "beta of the last task, those between lying on a line; beta when none", low=0, high=16
    )
    gap: int = setting(
        1,
        "steps from one showing of the rare task to the next, at the same long-run frequency",
        low=1,
        high=1_000_000,
    )
    normalization: str = setting(
        "batch",
        "an enlarged batch is averaged over its own size, or over the batch size set",
        choices=("batch", "fixed"),
    )
    rotation: int | None = setting(
        None, "seed of the rotation of the blocks; coordinate axes when none", low=0, high=MAX_SEED
    )
    labels: str = setting(
        "true",
        "the targets, or those of other inputs of the same task",
        choices=("true", "shuffled"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        features = self.n_tasks * self.rank
        expected = f"at least n_tasks × rank = {features}, so that the blocks are orthogonal"
        self.require("n", features <= self.n, expected)
        self.require("gap", self.gap == 1 or self.n_tasks > 1, "1 where there is a single task")

    # --- the truth --------------------------------------------------------------------------------
    @cached_property
    def priors(self) -> Float[Tensor, " task"]:
        """(task,) p_t, float64."""
        weights = torch.arange(1, self.n_tasks + 1, dtype=torch.float64) ** -self.alpha
        return weights / weights.sum()

    @cached_property
    def spectra(self) -> Float[Tensor, "task feature"]:
        """(task, feature) λ_{t,j} = j^-β_t, float64; the first is 1, so priors alone order the
        leading features.
        """
        betas = torch.linspace(
            self.beta,
            self.beta if self.beta_rarest is None else self.beta_rarest,
            self.n_tasks,
            dtype=torch.float64,
        )
        return torch.arange(1, self.rank + 1, dtype=torch.float64) ** -betas.unsqueeze(-1)

    @cached_property
    def bases(self) -> Float[Tensor, "task feature n"]:
        """(task, feature, n) orthonormal eigenvectors, float64."""
        return torch.from_numpy(
            orthonormal(self.n_tasks * self.rank, self.n, self.rotation)
        ).unflatten(0, (self.n_tasks, self.rank))

    @cached_property
    def readouts(self) -> Float[Tensor, "task rank n"]:
        """(task, rank, n) the teachers, float64: task t answers ``readouts[t] @ x``."""
        return self.spectra.sqrt().unsqueeze(-1) * self.bases

    def tables(self) -> dict[str, Any]:
        return {
            "priors": self.priors.tolist(),
            "spectra": self.spectra.tolist(),
            "readouts": self.readouts.tolist(),
        }

    # --- the theory -------------------------------------------------------------------------------
    @property
    def utilities(self) -> Float[Tensor, "task feature"]:
        """(task, feature) u_{t,j} = p_t λ_{t,j}: features are learned in this order (Theorem 3)."""
        return self.priors.unsqueeze(-1) * self.spectra

    def retained_features(self, width: int) -> list[int]:
        """Features of every task that the best encoder of `width` columns keeps; of equal utilities
        the first task's go first.
        """
        order = self.utilities.flatten().argsort(descending=True, stable=True)[:width]
        return torch.bincount(order // self.rank, minlength=self.n_tasks).tolist()

    def critical_width(self, task: int | None = None, features: int = 1) -> int:
        """Smallest width that keeps at least `features` features of `task`, or of every task,
        whatever way ties fall.

        Raises:
            ParameterError: no such task, or more features than `rank`.
        """
        if not 1 <= features <= self.rank:
            raise ParameterError(
                f"{self.name}: features={features}: expected 1 to rank={self.rank}"
            )
        if task is not None and not 0 <= task < self.n_tasks:
            raise ParameterError(f"{self.name}: task={task}: expected 0 to {self.n_tasks - 1}")
        weakest = (
            self.utilities[:, features - 1].min()
            if task is None
            else self.utilities[task, features - 1]
        )
        return int((self.utilities >= weakest).sum())

    def residual(self, width: int) -> float:
        """Σ_{i > width} u_(i): the mixture loss of the best encoder of `width` columns."""
        return float(self.utilities.flatten().sort(descending=True).values[width:].sum())

    def common(self, mass: float = 0.75) -> tuple[int, ...]:
        """The smallest set of most frequent tasks whose priors add up to `mass` or more."""
        return tuple(range(int((self.priors.cumsum(0) < mass - 1e-12).sum()) + 1))[: self.n_tasks]

    def common_spectrum(self, mass: float = 0.75) -> Float[Tensor, " mode"]:
        """Eigenvalues μ_i > 0 of M_C, C = common(mass), descending."""
        return self.utilities[list(self.common(mass))].flatten().sort(descending=True).values

    # --- the contract -----------------------------------------------------------------------------
    @property
    def n_ctx(self) -> int:
        """Inputs a vector has."""
        return self.n

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("y", self.rank),)

    @property
    def chance(self) -> Mapping[str, Chance]:
        """The best constant is zero, of loss Σ_t p_t Tr C_t; accuracy means nothing and is 0."""
        return {"y": Chance(0.0, float(self.utilities.sum()))}

    def brute_force(self, tokens: Sequence[float]) -> list[list[float]]:  # type: ignore[override]
        """The answer of every task's teacher to one input, row t for task t."""
        return [
            [sum(w * x for w, x in zip(row, tokens, strict=True)) for row in rows]
            for rows in self.readouts.tolist()
        ]

    def answer(
        self, x: Float[Tensor, "batch n"], task: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch rank"]:
        """Targets (batch, rank) of x (batch, n), each by the teacher of its task (batch,)."""
        every = (x.double() @ self.readouts.flatten(0, 1).T).unflatten(
            -1, (self.n_tasks, self.rank)
        )
        return every[torch.arange(len(x)), task].float()

    def _batch(self, task: np.ndarray, generator: np.random.Generator) -> Batch:
        """Fresh inputs for the given tasks."""
        x = torch.from_numpy(generator.standard_normal((len(task), self.n), np.float32))
        seen = (
            x
            if self.labels == "true"
            else torch.from_numpy(generator.standard_normal((len(task), self.n), np.float32))
        )
        index = torch.from_numpy(task)
        return Batch(x, self.answer(seen, index), masks={"task": index})

    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        return self._batch(generator.choice(self.n_tasks, n, p=self.priors.numpy()), generator)

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        if self.gap == 1 or batch_size is None:
            yield from super().stream(split, seed, batch_size, start)
            return
        rare = float(self.priors[-1])
        common = self.priors[:-1].numpy() / (1 - rare)
        usual, due = burst_sizes(self.name, rare, self.gap, batch_size)
        for step in itertools.count(start):
            generator = rng("burst", self.name, split, seed, step)
            task = generator.choice(self.n_tasks - 1, usual, p=common)
            if (step + 1) % self.gap == 0:
                task = np.concatenate([task, np.full(due, self.n_tasks - 1)])
            batch = self._batch(task, generator)
            if self.normalization == "fixed":
                batch = Batch(
                    batch.tokens,
                    batch.targets,
                    torch.full((len(task),), len(task) / batch_size),
                    masks=batch.masks,
                )
            yield batch


def burst_sizes(name: str, rare: float, gap: int, batch_size: int) -> tuple[int, int]:
    """Inputs of the other tasks in every batch, and of the rare one, of share `rare`, in every
    `gap`-th batch.

    Args:
        name: of the task, for the message.

    Raises:
        ParameterError: whole numbers of inputs would move the rare task's long-run share by more
            than `TOLERANCE` of it.

    >>> burst_sizes("mixture", rare=0.1, gap=5, batch_size=32)
    (29, 16)
    """
    usual, due = max(1, round(batch_size * (1 - rare))), round(gap * rare * batch_size)
    share = due / (gap * usual + due)
    if abs(share - rare) > TOLERANCE * rare:
        raise ParameterError(
            f"{name}: gap={gap}: with batch_size={batch_size}, {gap * rare * batch_size:.2g} "
            f"inputs of the rare task are due at a time; {due} would make its share {share:.2%}, "
            f"not {rare:.2%}; expected a larger gap or batch_size, with 5 due or more"
        )
    return usual, due
