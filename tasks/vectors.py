"""Parts that tasks over real vectors share: no vocabulary, one output vector, targets of a control
drawn from other inputs.

Their batches hold `tokens` (batch, n) float32, the input vectors, and `targets` (batch, n_out)
float32. Accuracy has no meaning for them: it is 0.0 in `chance`, and the loss is the mean squared
error, summed over outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint.errors import DataError
from mechint.task import Control, GeneratedTask, Vocabulary, rng

SHUFFLED = Control(
    "shuffled", "every target belongs to another input, drawn independently", {"labels": "shuffled"}
)


class RegressionTask(GeneratedTask):
    """A generated task whose inputs are vectors of standard normal numbers."""

    vocabulary: ClassVar[Vocabulary] = Vocabulary(())

    @property
    def controls(self) -> tuple[Control, ...]:
        return (*super().controls, SHUFFLED)

    def text(self, tokens: Sequence[float] | Float[Tensor, " pos"]) -> str:
        """The numbers with nine significant digits, which give the float32 back."""
        return " ".join(f"{float(value):.9g}" for value in tokens)

    def tokens_of(self, text: str) -> list[float]:  # type: ignore[override]
        try:
            return [float(word) for word in text.split()]
        except ValueError as error:
            raise DataError(f"text {text[:60]!r}: expected numbers ({error})") from error


def orthonormal(count: int, n: int, seed: int | None) -> Float[np.ndarray, "count n"]:
    """`count` orthonormal rows of length n, (count, n) float64: the first coordinate axes, or
    rotated by `seed`.
    """
    if seed is None:
        return np.eye(count, n)
    q, r = np.linalg.qr(rng("orthonormal", seed).standard_normal((n, n)))
    return (q * np.sign(np.diagonal(r))).T[:count]
