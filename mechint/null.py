"""The null of a metric: what the same measurement gives where the mechanism is absent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from mechint.jsonable import to_jsonable


def family_wise(
    observed: Num[np.ndarray, " test"], largest: Num[np.ndarray, " sample"]
) -> Float[np.ndarray, " test"]:
    """(test,) p-values of several tests at once, each held against the largest of all tests in each
    sample of the null.

    >>> family_wise(np.array([3.0, 1.0]), np.array([0.0, 1.0, 2.0]))
    array([0.25, 0.75])
    """
    return (1 + (largest[:, None] >= observed).sum(0)) / (1 + len(largest))


@dataclass(frozen=True)
class Null:
    """How surprising one metric is: what the same measurement gives where the mechanism is absent.

    `how` says in words what was done to remove the mechanism; `z` = (observed - mean) / std;
    `p_value` is one-sided, (1 + #null ≥ observed) / (1 + samples) where it was sampled; `samples`
    is 0 for a closed form.
    """

    metric: str
    observed: float
    mean: float
    std: float
    p_value: float
    how: str
    samples: int = 0

    @property
    def z(self) -> float:
        """(observed - mean) / std; infinite where the null has no spread."""
        if self.std > 0:
            return (self.observed - self.mean) / self.std
        return (
            math.copysign(math.inf, self.observed - self.mean)
            if self.observed != self.mean
            else 0.0
        )

    @property
    def floor(self) -> float:
        """The smallest p-value that the null can give: 1 / (1 + samples), 0 for a closed form."""
        return 1 / (1 + self.samples) if self.samples else 0.0

    @property
    def p_text(self) -> str:
        """The p-value as it is printed: a bound where no null sample reaches what was observed.

        >>> Null.sampled("share", 0.9, [0.1] * 199, "shuffled").p_text
        'p ≤ 0.005'
        >>> Null.sampled("share", 0.1, [0.1] * 199, "shuffled").p_text
        'p = 1'
        >>> Null("accuracy", 1.0, 0.1, 0.01, 0.0, "binomial").p_text
        'p < 1e-300'
        """
        if not self.p_value:  # smaller than a float holds
            return "p < 1e-300"
        sign = "≤" if self.samples and self.p_value <= self.floor * (1 + 1e-9) else "="
        return f"p {sign} {self.p_value:.2g}"

    @classmethod
    def sampled(
        cls,
        metric: str,
        observed: float,
        null: Sequence[float] | Num[np.ndarray, " sample"],
        how: str,
    ) -> Null:
        """From null samples (samples,); larger is more surprising."""
        values = np.asarray(null, dtype=np.float64)
        p_value = (1 + int((values >= observed).sum())) / (1 + len(values))
        spread = float(values.std(ddof=1)) if len(values) > 1 else 0.0
        mean = float(values.mean())
        return cls(metric, float(observed), mean, spread, p_value, how, len(values))

    def to_dict(self) -> dict[str, Any]:
        """The fields and `z` as JSON values."""
        return to_jsonable({**asdict(self), "z": self.z})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Null:
        """From its fields as JSON values, in which what is not finite is text; `z` is left out."""
        fields: dict[str, Any] = {name: value for name, value in data.items() if name != "z"}
        fields |= {name: float(fields[name]) for name in ("observed", "mean", "std", "p_value")}
        return cls(**fields)
