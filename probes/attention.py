"""What the attention heads look at: patterns, operands over the input grid, kinds of heads, a
stated target.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe, unmet_need
from mechint.results import Figure, Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import FiniteTask
from probes.fourier.spectra import Array, upper_quantile
from probes.patterns import SCORES, Patterns, agreement, collect, score

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

PANELS, PIXELS = 12, 57
"""At most so many panels in a figure, and so many rows and columns of the input grid in one."""


@dataclass(frozen=True)
class Attention(Probe):
    """Where does each head look: from the answer's position to the operands, at the previous or an
    earlier equal token, at a target?

    With A[q, k] the attention of a head from query q to key k, averaged over the data:

    - `operand.attention`: A from the read position to every operand, on tasks with an input grid;
      as images over the grid;
    - `operand.preference`: (A_a − A_b)/(A_a + A_b) for the first two operands, −1 … 1 (remainders:
      heads attend to one digit each); null: the largest |preference| of any head in `untrained`
      models of the same architecture. `operand.swing` is the standard deviation over the inputs of
      the same, taken of every input alone;
    - `previous_token`, `same_token`, `induction`: mean attention on the key before the query, on
      earlier keys with the query's token, on the keys after those (Olsson et al. 2022), over the
      queries that have such a key and the first `examples` examples; null: the largest of any head
      with every query's keys in random order;
    - `target.mass`, `target.argmax`: mean attention on a stated key for every query, and the share
      of queries whose largest weight lies there (composition: (i, j) → (i, π_i(j))); null: the
      largest mass of any head with the targets dealt anew.

    A head is called by a kind when its score exceeds `least` and the null at family-wise level
    `alpha` (over all heads). Cost: one forward over the data a layer. Memory: a chunk of patterns,
    and `examples` examples whole.
    """

    name: ClassVar[str] = "attention"
    source: ClassVar[str] = (
        "remainders, Sec. 5; joint-training, attention arcs; composition, claim d; Olsson et "
        "al. 2022"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.ATTENTION,)
    quick: ClassVar[bool] = True

    example: int = setting(0, "example whose attention is drawn as arcs", low=0)
    examples: int = setting(32, "examples that are kept whole, for scores and arcs", low=1)
    target: tuple[int, ...] | None = setting(
        None, "key each query is expected to look at, -1 for none; the task's own when none", low=-1
    )
    least: float = setting(0.4, "least score by which a head is called a kind", low=0, high=1)
    alpha: float = setting(0.002, "family-wise level against the nulls", low=1e-6, high=1)
    samples: int = setting(999, "samples of the nulls", low=1)
    untrained: int = setting(
        20, "untrained models in the null of the preference; 0 for none", low=0
    )

    def unmet(self, subject: Subject) -> str | None:
        if len(subject.data) == 0:
            return "it has no examples to attend over; name a task or give data"
        ctx = subject.data.tokens.shape[1]
        if self.target is not None and (len(self.target) != ctx or max(self.target) >= ctx):
            return (
                f"attention.target has {len(self.target)} keys up to {max(self.target)}; expected "
                f"one for each of {ctx} positions"
            )
        if self.example >= min(len(subject.data), self.examples):
            return (
                f"attention.example={self.example}: there are "
                f"{min(len(subject.data), self.examples)} examples kept"
            )
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction),
            library.misses(
                lambda result: [
                    (role, one)
                    for role in ("previous_token", "induction")
                    for one in result.metrics[f"{role}.heads"]
                ],
                lambda plant: [
                    ("previous_token", library.head("previous token")(plant)),
                    ("induction", library.head("induction")(plant)),
                ],
            ),
            "heads missed or made up",
            settings={"samples": 199},
            detects=lambda result: bool(
                result.metrics["previous_token.heads"] and result.metrics["induction.heads"]
            ),
        )
        return Calibration((induction,))

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        operands = operand_positions(subject)
        patterns = collect(subject, operands, self.examples)
        metrics: dict[str, Any] = {"heads": patterns.names}
        nulls: dict[str, Null] = {}
        self._scores(patterns, seed, metrics, nulls)
        if operands:
            self._operands(subject, patterns, operands, seed, metrics, nulls)
        target = list(self.target) if self.target is not None else task_target(subject)
        if target is not None:
            self._target(patterns, target, seed, metrics, nulls)
        shown = _figures(subject, patterns, operands, self.example)
        table = _table(patterns, metrics)
        return self.result(
            metrics=metrics,
            finding=_finding(metrics),
            null=nulls,
            tables={"heads": table},
            arrays={"pattern": patterns.mean.astype(np.float32)},
            figures=shown,
        )

    def _scores(
        self, patterns: Patterns, seed: int, metrics: dict[str, Any], nulls: dict[str, Null]
    ) -> None:
        for kind in SCORES:
            values, null = score(patterns, kind, seed, min(self.samples, 199))
            self._called(kind, patterns.names, values, null, metrics)
            nulls[f"{kind}.largest"] = Null.sampled(
                f"{kind}.largest",
                float(values.max()),
                null,
                "the largest of any head with every query's keys in random order",
            )

    def _called(
        self, kind: str, names: list[str], values: Array, null: Array, metrics: dict[str, Any]
    ) -> None:
        """Scores by head, the largest, and the heads that are called by the kind."""
        threshold = max(self.least, upper_quantile(null, self.alpha))
        metrics[f"{kind}.score"] = dict(zip(names, values.tolist(), strict=True))
        metrics[f"{kind}.largest"] = float(values.max())
        metrics[f"{kind}.heads"] = [
            name for name, value in zip(names, values, strict=True) if value > threshold
        ]

    def _operands(
        self,
        subject: Subject,
        patterns: Patterns,
        operands: list[int],
        seed: int,
        metrics: dict[str, Any],
        nulls: dict[str, Null],
    ) -> None:
        means = patterns.to_operand.astype(np.float64).mean(1)  # (heads, operand)
        metrics["operand.positions"] = operands
        metrics["operand.attention"] = {
            name: row.tolist() for name, row in zip(patterns.names, means, strict=True)
        }
        if len(operands) < 2:
            return
        values = preference(means)
        each = patterns.to_operand.astype(np.float64)
        swing = (
            (each[..., 0] - each[..., 1]) / np.maximum(each[..., 0] + each[..., 1], 1e-12)
        ).std(1)
        metrics["operand.preference"] = dict(zip(patterns.names, values.tolist(), strict=True))
        metrics["operand.swing"] = dict(zip(patterns.names, swing.tolist(), strict=True))
        metrics["operand.largest_preference"] = float(np.abs(values).max())
        if self.untrained and not unmet_need(Need.REINITIALIZE, subject):
            metrics["operand.heads"] = {}
            models = (subject.untrained(seed * self.untrained + i) for i in range(self.untrained))
            part = subject.data[:: max(1, len(subject.data) // 256)]
            null = np.array(
                [
                    np.abs(preference(_operand_means(model, part, operands))).max()
                    for model in models
                ]
            )
            how = (
                f"the largest of any head in {self.untrained} untrained models of the same "
                "architecture"
            )
            nulls["operand.largest_preference"] = Null.sampled(
                "operand.largest_preference", metrics["operand.largest_preference"], null, how
            )
            threshold = max(self.least, upper_quantile(null, self.alpha))
            called = [
                (name, operands[0] if value > 0 else operands[1])
                for name, value in zip(patterns.names, values, strict=True)
                if abs(value) > threshold
            ]
            metrics["operand.heads"] = dict(called)

    def _target(
        self,
        patterns: Patterns,
        target: list[int],
        seed: int,
        metrics: dict[str, Any],
        nulls: dict[str, Null],
    ) -> None:
        values, best, null = agreement(patterns, target, seed, self.samples)
        self._called("target", patterns.names, values, null, metrics)
        metrics["target.mass"], metrics["target.argmax"] = (
            metrics.pop("target.score"),
            dict(zip(patterns.names, best.tolist(), strict=True)),
        )
        nulls["target.largest"] = Null.sampled(
            "target.largest",
            float(values.max()),
            null,
            "the largest mass of any head with the targets dealt anew among the queries",
        )


# --- what the task says ---------------------------------------------------------------------------
def operand_positions(subject: Subject) -> list[int]:
    """Positions of the operands of a task with an input grid, read at one position; []
    elsewhere.
    """
    task = subject.task
    if (
        not isinstance(task, FiniteTask)
        or not subject.data.reads
        or len(task.grid) > subject.data.tokens.shape[1]
    ):
        return []
    return list(range(len(task.grid)))


def task_target(subject: Subject) -> list[int] | None:
    """The key that each query is expected to look at in the first layer, where the task says it."""
    stated = subject.task.attention_target() if subject.task is not None else None
    return None if stated is None else [int(key) for key in stated]


def preference(means: Array) -> Array:
    """(heads,) (A_a − A_b)/(A_a + A_b) of mean attention (heads, operand): 1 looks at the first
    operand alone, −1 at the second.
    """
    return (means[:, 0] - means[:, 1]) / np.maximum(means[:, 0] + means[:, 1], 1e-12)


def _operand_means(subject: Subject, data: Any, operands: list[int]) -> Array:
    layers = [
        subject.activation(f"blocks.{layer}.attn.hook_pattern", "answer", data)
        for layer in range(subject.n_layers)
    ]
    return np.concatenate([layer.double().mean(0)[:, operands].cpu().numpy() for layer in layers])


# --- words and pictures ---------------------------------------------------------------------------
def _table(patterns: Patterns, metrics: Mapping[str, Any]) -> Table:
    columns: dict[str, list[Any]] = {"head": patterns.names}
    for kind in (
        "previous_token.score",
        "same_token.score",
        "induction.score",
        "operand.preference",
        "target.mass",
        "target.argmax",
    ):
        if kind in metrics:
            columns[kind] = [metrics[kind][name] for name in patterns.names]
    for i, position in enumerate(metrics.get("operand.positions", [])):
        columns[f"to position {position}"] = [
            metrics["operand.attention"][name][i] for name in patterns.names
        ]
    return Table(
        columns,
        "one row a head; attention 0–1, preference −1 (second operand) … 1 (first)",
        {"previous_token.score": "mean attention"},
    )


def _figures(
    subject: Subject, patterns: Patterns, operands: list[int], example: int
) -> dict[str, Figure]:
    some = patterns.names[:PANELS]
    shown = {
        "patterns": figures.image_grid(
            {name: patterns.mean[i] for i, name in enumerate(some)},
            title="Mean attention of every head",
            x_title="key position",
            y_title="query position",
            z_title="attention (0–1)",
            caption=(
                "A row is where a position looks on average; a diagonal below the main one is a "
                "previous-token head."
            ),
            limits=(0, 1),
        )
    }
    if len(operands) == 2:
        shown["operands"] = _grid_figure(subject, patterns, operands)
    elif not operands:
        length = int(patterns.lengths[example])
        vocabulary = subject.task.vocabulary.tokens if subject.task else None
        text = [
            vocabulary[token] if vocabulary else str(token)
            for token in patterns.tokens[example, :length]
        ]
        last = patterns.names[-4:] if len(patterns.names) >= 4 else patterns.names
        shown["arcs"] = figures.arcs(
            text,
            {
                name: patterns.sample[example, patterns.names.index(name), :length, :length]
                for name in last
            },
            title=f"Attention over example {example}",
            caption=(
                "An arc joins a token to each token it draws from; the stronger, the darker. The "
                "last heads of the model."
            ),
            threshold=0.15,
        )
    return shown


def _grid_figure(subject: Subject, patterns: Patterns, operands: list[int]) -> Figure:
    rows, columns = subject.task.grid  # type: ignore[union-attr]
    step = (slice(None, None, -(-rows // PIXELS)), slice(None, None, -(-columns // PIXELS)))
    panels = {}
    for i, name in enumerate(patterns.names[: PANELS // 2]):
        for column, position in enumerate(operands):
            panels[f"{name} to position {position}"] = patterns.to_operand[i, :, column].reshape(
                rows, columns
            )[step]
    return figures.image_grid(
        panels,
        title="Attention from the answer's position to the operands, for every input",
        x_title="second operand",
        y_title="first operand",
        z_title="attention (0–1)",
        caption=(
            "Each panel is a head and an operand, each pixel an input: dark everywhere means that "
            "the head looks there whatever the input."
        ),
        limits=(0, 1),
        columns=2,
    )


def _finding(metrics: Mapping[str, Any]) -> str:
    parts = []
    for kind in SCORES:
        heads = metrics[f"{kind}.heads"]
        if heads:
            values = ", ".join(f"{name} ({metrics[f'{kind}.score'][name]:.2f})" for name in heads)
            parts.append(f"{kind.replace('_', ' ').capitalize()} heads: {values}.")
    if not parts:
        parts.append(
            "No head looks at the previous token, at an equal one or at what followed one "
            "more than keys in random order would."
        )
    if "operand.preference" in metrics:
        called = metrics.get("operand.heads", {})
        words = ", ".join(
            (
                f"{name} looks at position {position} (preference "
                f"{metrics['operand.preference'][name]:+.2f})"
            )
            for name, position in called.items()
        )
        parts.append(
            f"From the answer {words}." if called else "No head prefers one operand on average."
        )
        widest = max(metrics["operand.swing"], key=lambda name: metrics["operand.swing"][name])
        parts.append(
            f"From input to input {widest}'s preference swings most, by "
            f"±{metrics['operand.swing'][widest]:.2f}."
        )
    if "target.mass" in metrics:
        best = max(metrics["target.mass"], key=lambda name: metrics["target.mass"][name])
        verdict = "follows" if best in metrics["target.heads"] else "does not follow"
        held, share = metrics["target.mass"][best], metrics["target.argmax"][best]
        parts.append(
            f"{best} {verdict} the stated target: {held:.2f} of its attention, the largest "
            f"weight for {share:.0%} of queries."
        )
    return " ".join(parts)
