"""Two models side by side: what each answers, where they differ, and how alike their layers are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from mechint import figures
from mechint.activations import residual_hooks
from mechint.errors import DataError, counted
from mechint.figures import Figure
from mechint.intervals import paired_difference
from mechint.results import Null
from mechint.similarity import against_shuffled, linear_cka, similarity_matrix
from mechint.task import IGNORE, FiniteTask

if TYPE_CHECKING:
    from mechint.subject import Subject


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples.

    accuracy: (of the first, of the second), 0–1; difference: first minus second with its 95%
    interval (`paired_difference`); only_first, only_second: answers that one alone gets right,
    p_value of an exact McNemar test between them; examples: which they are, in words; cka: (layers
    of the first, layers of the second) linear CKA of the residual stream at the answer; null: its
    last layers against examples paired at random.
    """

    accuracy: tuple[float, float]
    difference: tuple[float, float, float]
    only_first: int
    only_second: int
    p_value: float
    examples: str
    layers: tuple[list[str], list[str]]
    cka: np.ndarray
    null: Null

    def to_dict(self) -> dict[str, Any]:
        """Flat JSON values, without the matrix."""
        low, high = self.difference[1:]
        return {
            "accuracy.first": self.accuracy[0],
            "accuracy.second": self.accuracy[1],
            "accuracy.difference": self.difference[0],
            "accuracy.difference.low": low,
            "accuracy.difference.high": high,
            "right.only_first": self.only_first,
            "right.only_second": self.only_second,
            "right.p": self.p_value,
            "cka.last_layer": self.null.observed,
            "cka.last_layer.null": self.null.mean,
            "cka.last_layer.p": self.null.p_value,
        }

    def sentence(self) -> str:
        """Say what differs, in a sentence that says no more than the interval and the test."""
        gap, low, high = self.difference
        a, b = self.accuracy
        which = "first" if gap > 0 else "second"
        differs = low > 0 or high < 0
        text = (
            f"The {which} model answers better: {a:.1%} against {b:.1%} of {self.examples} "
            f"(difference {gap:+.1%}, 95% interval {low:+.1%} to {high:+.1%})"
            if differs
            else f"The two answer equally well as far as can be told: {a:.1%} and {b:.1%} of "
            f"{self.examples} (95% interval of the difference {low:+.1%} to {high:+.1%})"
        )
        return f"{text}; linear CKA of their last layers {self.null.observed:.2f}."

    def figure(self) -> Figure:
        """The CKA of all pairs of layers."""
        first, second = self.layers
        return figures.heatmap(
            self.cka,
            x=second,
            y=first,
            title="How alike the layers are",
            x_title="layer of the second model",
            y_title="layer of the first model",
            z_title="linear CKA (0–1)",
            limits=(0.0, 1.0),
            caption="1: one is a rotation and scaling of the other, on the same examples at the "
            "answer.",
        )


def compare(first: Subject, second: Subject, *, samples: int = 99, seed: int = 0) -> Comparison:
    """Compare two models on the examples of the first.

    Args:
        samples: random pairings of the null.

    Raises:
        DataError: they are of different tasks, or there is nothing to compare on.
    """
    if first.task is None or second.task is None or first.task != second.task:
        raise DataError(
            "compare: expected two models of one task with equal parameters, got "
            f"{_task_beside(first, second)} and {_task_beside(second, first)}"
        )
    second = second.with_data(first.data)
    answered = (first.targets != IGNORE).any(-1).cpu().numpy()
    right = [
        (subject.correct() | (subject.targets == IGNORE)).all(-1).cpu().numpy()[answered]
        for subject in (first, second)
    ]
    if not len(right[0]):
        raise DataError("compare: no example has an answer")
    hooks = [residual_hooks(one.n_layers, one.model.hook_dict) for one in (first, second)]
    if not hooks[0] or not hooks[1]:
        raise DataError("compare: one of the models has no residual stream")
    found = [
        _activations(subject, names) for subject, names in zip((first, second), hooks, strict=True)
    ]
    layers = [list(values.values()) for values in found]
    return Comparison(
        accuracy=(float(right[0].mean()), float(right[1].mean())),
        **_paired(*right),
        examples=_examples(first, len(right[0])),
        layers=(list(hooks[0]), list(hooks[1])),
        cka=similarity_matrix(layers[0], layers[1]),
        null=against_shuffled(
            linear_cka, "cka.last_layer", layers[0][-1], layers[1][-1], samples, seed
        ),
    )


def _examples(subject: Subject, n: int) -> str:
    """The examples on which `subject` is compared, in words."""
    named = counted(n, "answer")
    if subject.answer != "all" and len(subject.answers) > 1:
        place = "the last" if subject.answer == -1 else f"number {subject.answer}"
        named = f"{named} ({place} of every example)"
    trained = isinstance(subject.task, FiniteTask) and subject.on_grid
    return f"{named}, those of training among them" if trained else named


def _task_beside(subject: Subject, other: Subject) -> str:
    """The task of `subject`, with the parameters in which the task of `other` differs."""
    if subject.task is None:
        return "no task"
    own = subject.task.to_dict()
    same = other.task is not None and other.task.name == subject.task.name
    others = other.task.to_dict() if same and other.task is not None else own
    shown = ", ".join(f"{name}={own[name]}" for name in own if own[name] != others.get(name))
    return f"{subject.task.name} ({shown})" if shown else subject.task.name


def _activations(subject: Subject, hooks: Mapping[str, str]) -> dict[str, Any]:
    """Name → residual stream (example, d_model) at the answer; one forward per chunk."""
    values = subject.activations(list(hooks.values()), at="answer")
    return {name: values[hook] for name, hook in hooks.items()}


def _paired(first: np.ndarray, second: np.ndarray) -> dict[str, Any]:
    """Difference of two accuracies on the same examples, and who is right alone."""
    from scipy.stats import binomtest

    alone = int((first & ~second).sum()), int((second & ~first).sum())
    p_value = float(binomtest(alone[0], sum(alone), 0.5).pvalue) if sum(alone) else 1.0
    return {
        "difference": ((alone[0] - alone[1]) / len(first), *paired_difference(*alone, len(first))),
        "only_first": alone[0],
        "only_second": alone[1],
        "p_value": p_value,
    }
