"""Which tasks a narrow encoder serves: how its column space lies to the subspace of every task.

P projects onto the encoder's column space (from its SVD, so no basis matters), Π_t onto task t's
subspace of rank r_t. Alignment a_t = Tr(P Π_t) / r_t, features held a_t r_t; corrected for a random
subspace of the same width m in n inputs, (a_t − m/n) / (1 − m/n), which falls far below 0 for
unlearned tasks where the blocks fill the space, so read the features beside it. Signal kept: Tr(P
M) / Tr(M), M = Σ p_t C_t; residual of the frequent tasks ρ_C = Tr((I − P) M_C), C the fewest most
frequent tasks with prior `mass` (capacity, Theorems 3 and 4). Theory: a trained encoder holds the m
features of largest utility p_t λ_{t,j}.

Cost: one SVD of (n, width), and one a sample of the null. Memory: a few (task · feature, n)
matrices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.probe import Probe
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import rng


@dataclass(frozen=True)
class Subspace(Probe):
    """Which tasks' features does the encoder hold, and how much of the frequent tasks' signal is
    left out?

    The null draws random subspaces of the encoder's rank. Detection: the signal kept, p ≤ 0.005.
    """

    name: ClassVar[str] = "subspace"
    source: ClassVar[str] = (
        "Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
        "Retention, Sec. 3, Theorems 3 and 4"
    )
    needs: ClassVar[tuple[str, ...]] = ("task",)

    mass: float = setting(
        0.75, "prior that the frequent tasks have together, at least", low=0, high=1
    )
    samples: int = setting(400, "random subspaces of the null", low=19)

    def unmet(self, subject: Subject) -> str | None:
        if getattr(subject.model, "W_enc", None) is None:
            return "the model has no encoder W_enc"
        if not hasattr(subject.task, "bases"):
            return "its task names no subspaces"
        return None

    def detects(self, result: ProbeResult) -> bool:
        return result.null["subspace.signal"].p_value <= 0.005

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        task: Any = subject.task
        bases, utilities = (_array(value) for value in (task.bases, task.utilities))
        n_tasks, rank, n = bases.shape
        q = column_space(_array(subject.model.W_enc))
        width = q.shape[1]
        captured = held_share(q, bases)
        held, alignment = captured.sum(1), captured.mean(1)
        frequent = list(task.common(self.mass))
        signal, residual = _signal(captured, utilities), _residual(captured, utilities, frequent)
        draw = rng("subspace null", seed)
        random = [
            held_share(column_space(draw.standard_normal((n, width))), bases)
            for _ in range(self.samples)
        ]
        nulls = {
            "subspace.signal": Null.sampled(
                "subspace.signal",
                signal,
                [_signal(one, utilities) for one in random],
                "random subspaces of the same rank",
            ),
            "subspace.frequent_signal": Null.sampled(
                "subspace.frequent_signal",
                1 - residual / utilities[frequent].sum(),
                [
                    1 - _residual(one, utilities, frequent) / utilities[frequent].sum()
                    for one in random
                ],
                "random subspaces of the same rank",
            ),
        }
        predicted = np.array(task.retained_features(width), dtype=np.float64)
        agreeing = float((np.abs(held - predicted) < 0.5).mean())
        metrics = {
            "subspace.width": width,
            "subspace.signal": signal,
            "subspace.frequent_signal": nulls["subspace.frequent_signal"].observed,
            "subspace.residual": residual,
            "subspace.residual_random": float(
                np.mean([_residual(one, utilities, frequent) for one in random])
            ),
            "subspace.features_held": held.tolist(),
            "subspace.agreement": agreeing,
        }
        corrected = (alignment - width / n) / (1 - width / n) if width < n else np.ones(n_tasks)
        columns = {
            "task": list(range(n_tasks)),
            "features held": held,
            "predicted": predicted,
            "alignment": alignment,
            "corrected": corrected,
        }
        table = Table(
            {
                name: list(map(float, column)) if name != "task" else column
                for name, column in columns.items()
            },
            "a row is a task, the most frequent first",
        )
        chance = nulls["subspace.signal"]
        finding = (
            f"the encoder of rank {width} keeps {signal:.3f} of the signal (random "
            f"{chance.mean:.3f}, p = {chance.p_value:.2g}); "
            f"{int((held > 0.5).sum())} of {n_tasks} tasks have a feature, {agreeing:.0%} "
            f"hold as many as their utility predicts; residual ρ_C = {residual:.3g}"
        )
        shown, tables = _figures(held, predicted, captured, width / n * rank), {"tasks": table}
        if len(subject.series) > 1:
            tables["series"], shown["series"] = self._series(subject, bases)
        return self.result(
            metrics=metrics,
            finding=finding,
            null=nulls,
            tables=tables,
            arrays={"captured": captured, "encoder_space": q},
            figures=shown,
        )

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


def column_space(encoder: np.ndarray) -> np.ndarray:
    """Orthonormal (n, rank) with the column space of encoder (n, columns); directions below 1e-7 of
    the largest do not count.

    >>> column_space(np.array([[2.0, 4.0], [0.0, 0.0]])).round(9).__abs__().tolist()
    [[1.0], [0.0]]
    """
    u, s, _ = np.linalg.svd(encoder, full_matrices=False)
    return u[:, s > 1e-7 * max(s.max(initial=0.0), 1e-300)]


def held_share(q: np.ndarray, bases: np.ndarray) -> np.ndarray:
    """‖P b‖² of every unit feature b of bases (task, feature, n): (task, feature), 0–1."""
    return ((bases @ q) ** 2).sum(-1)


def _signal(captured: np.ndarray, utilities: np.ndarray) -> float:
    return float((captured * utilities).sum() / utilities.sum())


def _residual(captured: np.ndarray, utilities: np.ndarray, frequent: list[int]) -> float:
    return float(((1 - captured) * utilities)[frequent].sum())


def _array(value: Tensor) -> np.ndarray:
    return value.detach().double().cpu().numpy()


def _figures(
    held: np.ndarray, predicted: np.ndarray, captured: np.ndarray, random: float
) -> dict[str, Figure]:
    return {
        "features": figures.bars(
            list(range(len(held))),
            {"held": held, "predicted by utility": predicted},
            title="Features of every task in the encoder",
            x_title="task, most frequent first",
            y_title="features held (of the task's rank)",
            levels={"random subspace": random},
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
