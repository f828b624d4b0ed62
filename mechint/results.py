"""What a probe returns, and what a study claims: data that round-trips through JSON.

The terminal table, the notebook view, the HTML report and the DataFrame are views of a ProbeResult.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd


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
        if self.std > 0:
            return (self.observed - self.mean) / self.std
        return (
            math.copysign(math.inf, self.observed - self.mean)
            if self.observed != self.mean
            else 0.0
        )

    @classmethod
    def sampled(
        cls, metric: str, observed: float, null: Sequence[float] | np.ndarray, how: str
    ) -> Null:
        """From null samples; larger is more surprising."""
        values = np.asarray(null, dtype=np.float64)
        p_value = (1 + int((values >= observed).sum())) / (1 + len(values))
        return cls(
            metric,
            float(observed),
            float(values.mean()),
            float(values.std(ddof=1)) if len(values) > 1 else 0.0,
            p_value,
            how,
            len(values),
        )

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Null:
        """From its fields as JSON values, in which what is not finite is text; `z` is left out."""
        fields: dict[str, Any] = {name: value for name, value in data.items() if name != "z"}
        fields |= {name: float(fields[name]) for name in ("observed", "mean", "std", "p_value")}
        return cls(**fields)


@dataclass(frozen=True)
class Table:
    """Columns of equal length; `caption` says what a row is, `units` column → unit."""

    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    units: Mapping[str, str] = field(default_factory=dict)

    def to_frame(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(dict(self.columns))


@dataclass(frozen=True)
class Figure:
    """A Plotly figure as its JSON dictionary; `caption` says what to see in it."""

    spec: Mapping[str, Any]
    caption: str

    def show(self) -> Any:
        """The plotly Figure, for notebooks."""
        import plotly.graph_objects as go

        return go.Figure(self.spec)


@dataclass(frozen=True)
class ProbeResult:
    """The outcome of one probe on one subject.

    metrics: flat, "group.name" → number, text, list or dictionary of numbers; names carry units
    where they have any. null: metric → Null. arrays: large numbers, kept beside the tables.
    provenance: checkpoint, task, probe settings, seed, versions.
    """

    probe: str
    question: str
    metrics: Mapping[str, Any]
    finding: str
    null: Mapping[str, Null]
    tables: Mapping[str, Table] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self, arrays: bool = True, figures: bool = True) -> dict[str, Any]:
        """Plain JSON values; without `arrays` and `figures` what ``--json`` prints."""
        result = {
            "probe": self.probe,
            "question": self.question,
            "metrics": plain(self.metrics),
            "finding": self.finding,
            "null": {
                name: plain({**asdict(null), "z": null.z}) for name, null in self.null.items()
            },
            "tables": {
                name: {
                    "columns": plain(table.columns),
                    "caption": table.caption,
                    "units": dict(table.units),
                }
                for name, table in self.tables.items()
            },
            "provenance": plain(self.provenance),
        }
        if arrays:
            result["arrays"] = {name: _encode(array) for name, array in self.arrays.items()}
        if figures:
            result["figures"] = {
                name: {"spec": plain(figure.spec), "caption": figure.caption}
                for name, figure in self.figures.items()
            }
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProbeResult:
        return cls(
            probe=data["probe"],
            question=data["question"],
            metrics=data["metrics"],
            finding=data["finding"],
            null={name: Null.from_dict(null) for name, null in data["null"].items()},
            tables={name: Table(**table) for name, table in data["tables"].items()},
            arrays={name: _decode(array) for name, array in data.get("arrays", {}).items()},
            figures={name: Figure(**figure) for name, figure in data.get("figures", {}).items()},
            provenance=data["provenance"],
        )

    def to_json(self) -> str:
        """Everything, arrays and figures too; `from_json` gives an equal result."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ProbeResult:
        return cls.from_dict(json.loads(text))

    def to_frame(self) -> pd.DataFrame:
        """One row a scalar metric: value, null mean, z, p-value."""
        import pandas as pd

        rows = []
        for name, value in self.metrics.items():
            null = self.null.get(name)
            rows.append(
                {
                    "metric": name,
                    "value": value,
                    "null_mean": null and null.mean,
                    "z": null and null.z,
                    "p_value": null and null.p_value,
                }
            )
        return pd.DataFrame(rows)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(str(name))}</td><td>{html.escape(str(plain(value)))}</td></tr>"
            for name, value in self.metrics.items()
        )
        return f"<b>{html.escape(self.probe)}</b>: {html.escape(self.finding)}<table>{rows}</table>"


@dataclass(frozen=True)
class Claim:
    """One statement of a paper held against our runs.

    verdict: "reproduced", "not reproduced" or "not tested". `criterion` was fixed before the runs,
    `reason` says why it is fair; `ours` is in words, `values` holds the numbers behind it (with
    spread over seeds); `note` holds what a reader must know (sensitivity, the size that would test
    it, the error of a failed run).
    """

    study: str
    letter: str
    statement: str
    paper: str
    ours: str
    criterion: str
    reason: str
    verdict: str
    values: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return plain(asdict(self))


def plain(value: Any) -> Any:
    """`value` as JSON values: tensors and arrays as lists, tuples as lists, keys as text,
    non-finite as text.
    """
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def _encode(array: np.ndarray) -> dict[str, Any]:
    array = np.asarray(array)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "base64": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }


def _decode(data: Mapping[str, Any]) -> np.ndarray:
    return (
        np.frombuffer(base64.b64decode(data["base64"]), dtype=np.dtype(data["dtype"]))
        .reshape(data["shape"])
        .copy()
    )
