"""The probe subspace: which tasks a narrow encoder serves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.errors import counted
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Figure, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Subspace(Probe):
    """Which tasks' features does the encoder hold, and how much of the frequent tasks' signal?

    With P the projector on the encoder's column space of rank m, Π_t that on task t's subspace of
    rank r_t, and M = Σ p_t C_t of priors and covariances:

        features held = Tr(P Π_t)          signal kept = Tr(P M) / Tr(M)

    Theory: a trained encoder holds the m features of largest utility. Null: random subspaces of
    rank m.
    """

    name: ClassVar[str] = "subspace"
    topic: ClassVar[str] = "learning and capacity"
    source: ClassVar[str] = (
        "Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
        "Retention, Sec. 3, Theorems 3 and 4"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK,)
    lead_rank: ClassVar[int] = 70
    level: ClassVar[float] = 0.005

    mass: float = setting(
        0.75, "prior that the frequent tasks have together, at least", low=0, high=1
    )
    samples: int = setting(400, "random subspaces of the null", low=1)

    def unmet(self, subject: Subject) -> str | None:
        if getattr(subject.model, "W_enc", None) is None:
            return "the model has no encoder W_enc"
        if not hasattr(subject.task, "bases"):
            return "its task names no subspaces"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        bottleneck = Trial(
            "bottleneck",
            library.bottleneck,
            library.untrained(library.bottleneck) | {"another mixture": library.another_mixture},
            lambda result, plant: float(
                np.abs(
                    np.array(result.metrics["subspace.features_held"]) - plant.truth["features"]
                ).max()
            ),
            "features held, largest error",
            tolerance=0.01,
        )
        return Calibration((bottleneck,), {"samples": 199})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        task: Any = subject.task
        report = Report(self, subject)
        bases, utilities = (_array(value) for value in (task.bases, task.utilities))
        q = column_space(_array(subject.model.W_enc))  # (n, width)
        captured = held_share(q, bases)  # (task, feature)
        held, predicted = captured.sum(1), np.array(task.retained_features(q.shape[1]), float)
        frequent = list(task.common(self.mass))
        draw = rng("subspace null", seed)
        random = [
            held_share(column_space(draw.standard_normal(q.shape)), bases)
            for _ in range(self.samples)
        ]

        report.metric("subspace.width", q.shape[1])
        for name, tasks in (("signal", slice(None)), ("frequent_signal", frequent)):
            samples = [_signal(shares[tasks], utilities[tasks]) for shares in random]
            kept = _signal(captured[tasks], utilities[tasks])
            how = "random subspaces of the same rank"
            report.metric(f"subspace.{name}", kept, null=samples, how=how)
        report.metric("subspace.features_held", held.tolist())
        agreeing = float((np.abs(held - predicted) < 0.5).mean())
        report.metric("subspace.agreement", agreeing)

        signal, null = report.metrics["subspace.signal"], report.nulls["subspace.signal"]
        learned = int((held > 0.5).sum())
        report.finding(
            Claim(
                f"The encoder keeps {signal:.0%} of the signal, features of {learned} of "
                f"{counted(len(held), 'task')}.",
                no="The encoder keeps no more of the signal than a random one.",
                unclear="Whether the encoder keeps more of the signal is unclear.",
                lead=True,
                at_chance=True,
            ),
            Effect.of(null, "", "signal kept", "random subspaces"),
            least=null.mean,
        )
        report.table("tasks", _table(captured, predicted, q.shape[1] / q.shape[0]))
        report.array("captured", captured)
        report.array("encoder_space", q)
        random_held = captured.shape[1] * q.shape[1] / q.shape[0]
        report.figure("features", _figure(held, predicted, random_held, signal))
        return report.result()


def column_space(encoder: Float[np.ndarray, "n column"]) -> Float[np.ndarray, "n rank"]:
    """Orthonormal (n, rank) with the column space of encoder (n, columns); directions below 1e-7 of
    the largest do not count.

    >>> column_space(np.array([[2.0, 4.0], [0.0, 0.0]])).round(9).__abs__().tolist()
    [[1.0], [0.0]]
    """
    u, s, _ = np.linalg.svd(encoder, full_matrices=False)
    return u[:, s > 1e-7 * max(s.max(initial=0.0), 1e-300)]


def held_share(
    q: Float[np.ndarray, "n rank"], bases: Float[np.ndarray, "task feature n"]
) -> Float[np.ndarray, "task feature"]:
    """‖P b‖² of every unit feature b of bases (task, feature, n): (task, feature), 0–1."""
    return ((bases @ q) ** 2).sum(-1)


def _signal(captured: np.ndarray, utilities: np.ndarray) -> float:
    """Tr(P M) / Tr(M) of the tasks whose features these are."""
    return float((captured * utilities).sum() / utilities.sum())


def _array(value: Tensor) -> np.ndarray:
    return value.detach().double().cpu().numpy()


def _table(captured: np.ndarray, predicted: np.ndarray, expected: float) -> Table:
    """A row per task; `expected` is the alignment of a random encoder of the same width."""
    alignment = captured.mean(1)
    corrected = (alignment - expected) / (1 - expected) if expected < 1 else np.ones_like(alignment)
    columns = {
        "features held": captured.sum(1),
        "predicted": predicted,
        "alignment": alignment,
        "corrected": corrected,
    }
    return Table(
        {
            "task": list(range(len(alignment))),
            **{name: column.tolist() for name, column in columns.items()},
        },
        "one row per task, the most frequent first",
    )


def _figure(held: np.ndarray, predicted: np.ndarray, random: float, signal: float) -> Figure:
    """random: features of a task that a random encoder holds; signal: share that is kept."""
    return figures.bars(
        list(range(len(held))),
        {"held": held, "predicted by utility": predicted},
        title="Features of every task in the encoder",
        x_title="task, most frequent first",
        y_title="features held (of the task's rank)",
        levels={"random subspace": random},
        caption="How many features of each task the encoder's column space holds, beside the "
        f"number its utility predicts; together {signal:.3g} of the signal.",
    )
