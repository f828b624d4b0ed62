"""Which tasks a narrow encoder serves: how its column space lies to the subspace of every task.

P projects onto the encoder's column space (from its SVD, so no basis matters), Π_t onto task t's
subspace of rank r_t. Alignment a_t = Tr(P Π_t) / r_t, features held a_t r_t; corrected for a random
subspace of the same width m in n inputs, (a_t − m/n) / (1 − m/n), which falls far below 0 for
unlearned tasks where the blocks fill the space, so read the features beside it. Signal kept: Tr(P
M) / Tr(M), M = Σ p_t C_t; residual of the frequent tasks ρ_C = Tr((I − P) M_C), C the fewest most
frequent tasks with prior `mass` (capacity, Theorems 3 and 4). Theory: a trained encoder holds the m
features of largest utility p_t λ_{t,j}.

Cost: one SVD of (n, width), and one per sample of the null. Memory: a few (task · feature, n)
matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import Figure, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Subspace(Probe):
    """Which tasks' features does the encoder hold, and how much of the frequent tasks' signal is
    left out?

    The null draws random subspaces of the encoder's rank. The signal kept decides, at p ≤ 0.005.
    """

    name: ClassVar[str] = "subspace"
    source: ClassVar[str] = (
        "Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
        "Retention, Sec. 3, Theorems 3 and 4"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK,)

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

    @property
    def significance(self) -> float:
        return 0.005

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
        self._signal(report, captured, random, utilities, frequent)
        report.metric("subspace.features_held", held.tolist())
        agreeing = float((np.abs(held - predicted) < 0.5).mean())
        report.metric("subspace.agreement", agreeing)

        signal, null = report.metrics["subspace.signal"], report.nulls["subspace.signal"]
        measured = (
            f"The encoder of rank {q.shape[1]} keeps {signal:.3f} of the signal, a random one "
            f"{null.mean:.3f}"
        )
        report.finding(
            f"{measured}; {int((held > 0.5).sum())} of {len(held)} tasks have a feature, "
            f"{agreeing:.0%} hold as many as their utility predicts; residual ρ_C = "
            f"{report.metrics['subspace.residual']:.3g}",
            question="whether the encoder keeps more of the signal than a random one",
            otherwise=measured,
            effect=signal - null.mean,
            at_chance=True,  # of the encoder's weights
        )
        report.table("tasks", _table(captured, predicted, q.shape[1] / q.shape[0]))
        report.array("captured", captured)
        report.array("encoder_space", q)
        for name, figure in _figures(held, predicted, captured, q.shape[1] / q.shape[0]).items():
            report.figure(name, figure)
        if len(subject.series) > 1:
            table, figure = self._series(subject, bases)
            report.table("series", table)
            report.figure("series", figure)
        return report.result()

    def _signal(
        self,
        report: Report,
        captured: np.ndarray,
        random: list[np.ndarray],
        utilities: np.ndarray,
        frequent: list[int],
    ) -> None:
        """Signal kept and residual of the frequent tasks, beside those of random encoders."""
        total, how = utilities[frequent].sum(), "random subspaces of the same rank"

        def frequent_signal(one: np.ndarray) -> float:
            return 1 - _residual(one, utilities, frequent) / total

        report.metric(
            "subspace.signal",
            _signal(captured, utilities),
            null=[_signal(one, utilities) for one in random],
            how=how,
        )
        report.metric(
            "subspace.frequent_signal",
            frequent_signal(captured),
            null=[frequent_signal(one) for one in random],
            how=how,
        )
        report.metric("subspace.residual", _residual(captured, utilities, frequent))
        residuals = [_residual(one, utilities, frequent) for one in random]
        report.metric("subspace.residual_random", float(np.mean(residuals)))

    def _series(self, subject: Subject, bases: np.ndarray) -> tuple[Table, Figure]:
        """Features held at every checkpoint of the run."""
        steps = list(subject.series)
        rows = np.stack(
            [
                held_share(column_space(_array(subject.series[step]()["W_enc"])), bases).sum(1)
                for step in steps
            ]
        )
        by_task = {f"task {i}": column.tolist() for i, column in enumerate(rows.T)}
        figure = figures.lines(
            steps,
            by_task,
            title="Features held through training",
            x_title="step",
            y_title="features held (of the task's rank)",
            caption="Features are learned in the order of their utility.",
        )
        return Table({"step": steps, **by_task}, "features held at every checkpoint"), figure


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
    return float((captured * utilities).sum() / utilities.sum())


def _residual(captured: np.ndarray, utilities: np.ndarray, frequent: list[int]) -> float:
    return float(((1 - captured) * utilities)[frequent].sum())


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


def _figures(
    held: np.ndarray, predicted: np.ndarray, captured: np.ndarray, expected: float
) -> dict[str, Figure]:
    """`expected`: the share of a feature that a random encoder holds."""
    return {
        "features": figures.bars(
            list(range(len(held))),
            {"held": held, "predicted by utility": predicted},
            title="Features of every task in the encoder",
            x_title="task, most frequent first",
            y_title="features held (of the task's rank)",
            levels={"random subspace": expected * captured.shape[1]},
            caption=(
                "How many features of each task the encoder's column space holds, beside the "
                "number its utility predicts."
            ),
        ),
        "captured": figures.heatmap(
            captured,
            title="Share of every feature in the encoder",
            x_title="feature, largest eigenvalue first",
            y_title="task, most frequent first",
            z_title="share of the feature held (0–1)",
            limits=(0, 1),
            caption="Features with a large utility, top left, are kept first.",
        ),
    }
