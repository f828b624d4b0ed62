"""Linear estimators in closed form, float64, the choice of their penalty by validation, and which
values none of them can learn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Num

from mechint.subject import Subject
from mechint.task import Variable

PENALTIES = (1e-6, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Penalties tried, relative to the mean variance of the coordinates. None is smaller: what rounding
tells apart, or a billionth of the variance, is no feature of a model.
"""
LEAST_PENALTY = 1e-150
"""Added where all coordinates are constant: the reciprocal of a denormal is infinite."""
DEFAULT_RIDGE = 1e-3
"""The penalty where there are too few inputs to choose it."""


class Discriminant:
    """The linear discriminant of fixed inputs x (example, features), for any labeling of them."""

    def __init__(self, x: np.ndarray, penalty: float) -> None:
        self.mean = x.mean(0)
        self.x = x - self.mean
        self.gram = self.x.T @ self.x / len(x)
        self.penalty = _penalty(self.gram, penalty)

    def score(
        self,
        labels: Num[np.ndarray, " fitted"],
        x: Float[np.ndarray, "example feature"],
        held_out: Num[np.ndarray, " example"],
    ) -> float:
        """Share of `held_out`, labels of new inputs x, that is predicted from the inputs' own
        `labels`; NaN where nothing is held out.
        """
        if not len(held_out):
            return math.nan
        classes, index, counts = np.unique(labels, return_inverse=True, return_counts=True)
        means = np.zeros((len(classes), self.x.shape[1]))
        np.add.at(means, index, self.x)
        means /= counts[:, None]
        within = self.gram - (means.T * (counts / len(labels))) @ means + self.penalty
        directions = _solve(within, means.T)  # (features, classes)
        said = (x - self.mean) @ directions - 0.5 * (means.T * directions).sum(0)
        return float((classes[said.argmax(1)] == held_out).mean())


class Ridge:
    """Ridge regression of numbers on fixed inputs x (example, features), for any targets.

    The weights are (XᵀX/n + λI)⁻¹Xᵀy/n of the n centered inputs and targets, λ = `penalty` times
    the mean variance of the coordinates.

    >>> fitted = Ridge(np.array([[0.0], [1.0], [2.0]]), penalty=0.0)
    >>> (fitted.weights(np.array([1, 3, 5])).round(12).tolist(),
    ...     fitted.score(np.array([1, 3, 5]), np.array([[7.0]]), np.array([15])))
    ([2.0], 1.0)
    """

    def __init__(self, x: np.ndarray, penalty: float) -> None:
        self.mean = x.mean(0)
        centered = x - self.mean
        gram = centered.T @ centered
        self.solve = _solve(gram + _penalty(gram, penalty), centered.T)

    def weights(self, labels: Num[np.ndarray, " fitted"]) -> Float[np.ndarray, " feature"]:
        """(features,) of the targets `labels`."""
        return self.solve @ (labels - labels.mean())

    def score(
        self,
        labels: Num[np.ndarray, " fitted"],
        x: Float[np.ndarray, "example feature"],
        held_out: Num[np.ndarray, " example"],
    ) -> float:
        """R² of the prediction of `held_out` at new inputs x, about the mean of `labels`; below 0
        when worse than that mean, NaN where `held_out` is empty or nothing but that mean.
        """
        away = held_out - labels.mean()
        error = away - (x - self.mean) @ self.weights(labels)
        variation = float((away**2).sum())
        return 1 - float((error**2).sum()) / variation if variation else math.nan


def _penalty(gram: np.ndarray, relative: float) -> np.ndarray:
    return max(relative * np.trace(gram) / len(gram), LEAST_PENALTY) * np.eye(len(gram))


def _solve(matrix: np.ndarray, right: np.ndarray) -> np.ndarray:
    """matrix⁺ right; the pseudo-inverse where the matrix is singular, as with fewer inputs than
    coordinates.
    """
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.linalg.pinv(matrix, hermitian=True) @ right


def choose_penalty(
    kind: type[Discriminant] | type[Ridge],
    x: Float[np.ndarray, "example feature"],
    labels: Num[np.ndarray, " example"],
    fit: Bool[np.ndarray, " example"],
    penalties: Sequence[float] = PENALTIES,
) -> float:
    """The penalty with the best score on the inputs that `fit` (example,) bool leaves out; the
    largest among equals, DEFAULT_RIDGE where none has a score.

    x (example, features), labels (example,).
    """
    scores = {
        penalty: kind(x[fit], penalty).score(labels[fit], x[~fit], labels[~fit])
        for penalty in penalties
    }
    # NaN where nothing but the mean of the fitted labels is left out
    best = max((score for score in scores.values() if not math.isnan(score)), default=math.nan)
    equal = (penalty for penalty, score in scores.items() if score >= best - 1e-12)
    return max(equal, default=DEFAULT_RIDGE)


def varies(subject: Subject, variable: Variable) -> bool:
    """Return whether the variable has two values or more in the subject's examples."""
    return len(variable.value_of(subject.data.tokens).unique()) > 1


def unlearnable(subject: Subject, variables: Sequence[Variable], classes: bool) -> str | None:
    """The reason, in words, that nothing can be learned where every variable has one value, or, as
    classes, another in each of the subject's different examples; None elsewhere.
    """
    names = [repr(variable.name) for variable in variables]
    if not any(varies(subject, variable) for variable in variables):
        return f"{' and '.join(names)} has one value in all examples"
    if not classes:
        return None
    tokens = subject.data.tokens.unique(dim=0)
    values = [variable.value_of(tokens) for variable in variables]
    if any(len(each.unique()) < len(each) for each in values):
        return None
    which = " or ".join(names)
    return f"every value of {which} is there once, so none can be learned from other examples"
