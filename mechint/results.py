"""What a probe returns: numbers beside their null, findings, tables, arrays and figures, as data.

The terminal table, the notebook view, the HTML report and the DataFrame are views of a ProbeResult.
"""

# pandas and plotly are untyped, and a value to show is of any type
# pyright: reportMissingTypeStubs=false
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from mechint.claim import Claim
from mechint.figures.figure import Figure
from mechint.jsonable import (
    decode_array,
    encode_array,
    integer_keyed,
    to_jsonable,
    with_integer_keys,
)
from mechint.notebook import as_html, short
from mechint.null import Null

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 2
"""Version of the JSON form. 1 had neither `status`, `findings` nor `units`."""

Status = Literal["found", "not found", "abstains"]
STATUSES: tuple[Status, ...] = get_args(Status)


def rank(status: str | None) -> int:
    """Where what has that status stands in a list of findings: what was found first.

    >>> sorted(["abstains", "not found", "found"], key=rank)
    ['found', 'not found', 'abstains']
    """
    return STATUSES.index(status) if status in STATUSES else len(STATUSES)


@dataclass(frozen=True)
class Finding:
    """One sentence of a result, with what decided it.

    status: "found" where the claim stands, "not found" where it was tested and does not, "abstains"
    where this model, these data or this null cannot tell. tested: the metrics whose nulls had to
    reach `alpha`. effect: the size the claim is about, which had to exceed `least`. n: examples or
    pairs behind it. causal: made by intervening. accuracy, chance: of the model, where the claim is
    about its answers.
    """

    sentence: str
    status: Status
    alpha: float | None = None
    tested: tuple[str, ...] = ()
    effect: float | None = None
    least: float = 0.0
    n: int | None = None
    causal: bool = False
    accuracy: float | None = None
    chance: float | None = None

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Finding:
        """From its fields as JSON values."""
        fields: dict[str, Any] = {**data, "tested": tuple(data.get("tested", ()))}
        for name in ("alpha", "effect", "accuracy", "chance"):
            if fields.get(name) is not None:
                fields[name] = float(fields[name])
        return cls(**fields)


SHOWN = 20
"""Rows of a table, and figures of a result, that a notebook shows."""


@dataclass(frozen=True, repr=False)
class Table:
    """Columns of equal length; `caption` says what a row is, `units` column → unit."""

    columns: Mapping[str, Sequence[Any]]
    caption: str = ""
    units: Mapping[str, str] = field(default_factory=dict[str, str])

    def to_dict(self) -> dict[str, Any]:
        """Columns, caption and units as JSON values."""
        return {
            "columns": to_jsonable(self.columns),
            "caption": self.caption,
            "units": dict(self.units),
        }

    def to_frame(self) -> pd.DataFrame:
        """One column per column."""
        import pandas as pd

        return pd.DataFrame(dict(self.columns))

    def __len__(self) -> int:
        """How many rows there are."""
        return max(map(len, self.columns.values()), default=0)

    def __repr__(self) -> str:
        return f"Table({len(self)} rows: {', '.join(map(str, self.columns))})"

    def _repr_html_(self) -> str:
        """The first rows, with units, and the caption above them."""
        names = [
            f"{name} ({self.units[name]})" if name in self.units else str(name)
            for name in self.columns
        ]
        rows = list(zip(*(column[:SHOWN] for column in self.columns.values()), strict=False))
        more = len(self) - len(rows)
        rest = f"<p>… and {more} more rows; to_frame() has all</p>" if more > 0 else ""
        return f"<p>{html.escape(self.caption)}</p>{as_html(names, rows)}{rest}"


@dataclass(frozen=True, repr=False)
class ProbeResult:
    """The outcome of one probe on one subject.

    metrics: flat, "group.name" → number, text, list or dictionary of numbers; units: metric → unit,
    where it has one. null: metric → Null. finding: the sentences of `findings` in one text. status:
    "found", "not found" or "abstains"; None in results written before there was one. arrays: large
    numbers, kept beside the tables. provenance: checkpoint, task, probe settings, seed, versions.
    """

    probe: str
    question: str
    metrics: Mapping[str, Any]
    finding: str
    null: Mapping[str, Null]
    tables: Mapping[str, Table] = field(default_factory=dict[str, Table])
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])
    figures: Mapping[str, Figure] = field(default_factory=dict[str, Figure])
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    status: Status | None = None
    findings: tuple[Finding, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict[str, str])

    def __eq__(self, other: object) -> bool:
        """Whether `to_dict` is the same, arrays bit for bit and figures too."""
        if not isinstance(other, ProbeResult):
            return NotImplemented
        return self.to_dict() == other.to_dict()

    def to_dict(self, arrays: bool = True, figures: bool = True) -> dict[str, Any]:
        """JSON values; without `arrays` and `figures` what ``--json`` prints."""
        result: dict[str, Any] = {
            "schema": SCHEMA,
            "probe": self.probe,
            "question": self.question,
            "status": self.status,
            "finding": self.finding,
            "findings": [to_jsonable(asdict(finding)) for finding in self.findings],
            "metrics": to_jsonable(self.metrics),
            "integer_keys": integer_keyed(self.metrics),
            "units": dict(self.units),
            "null": {name: null.to_dict() for name, null in self.null.items()},
            "tables": {name: table.to_dict() for name, table in self.tables.items()},
            "provenance": to_jsonable(self.provenance),
        }
        if arrays:
            result["arrays"] = {name: encode_array(array) for name, array in self.arrays.items()}
        if figures:
            result["figures"] = {name: figure.to_dict() for name, figure in self.figures.items()}
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ProbeResult:
        """From the values of `to_dict`, of this version or an earlier one."""
        return cls(
            probe=data["probe"],
            question=data["question"],
            metrics=with_integer_keys(data["metrics"], data.get("integer_keys", [])),
            finding=data["finding"],
            null={name: Null.from_dict(null) for name, null in data["null"].items()},
            tables={name: Table(**table) for name, table in data["tables"].items()},
            arrays={name: decode_array(array) for name, array in data.get("arrays", {}).items()},
            figures={name: Figure(**figure) for name, figure in data.get("figures", {}).items()},
            provenance=data["provenance"],
            status=data.get("status"),
            findings=tuple(map(Finding.from_dict, data.get("findings", ()))),
            units=data.get("units", {}),
        )

    def to_json(self) -> str:
        """Everything, arrays and figures too; `from_json` gives an equal result, keys as here."""
        return json.dumps(self.to_dict(), allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> ProbeResult:
        """The result that `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def to_frame(self) -> pd.DataFrame:
        """One row per metric: value, unit, null mean, z, p-value."""
        import pandas as pd

        rows = [
            {
                "metric": name,
                "value": value,
                "unit": self.units.get(name, ""),
                "null_mean": null and null.mean,
                "z": null and null.z,
                "p_value": null and null.p_value,
            }
            for name, value in self.metrics.items()
            for null in [self.null.get(name)]
        ]
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        held = (
            f"{len(self.metrics)} metrics, {len(self.tables)} tables, {len(self.figures)} figures"
        )
        return f"<ProbeResult {self.probe}: {self.status or 'no status'}: {self.finding} ({held})>"

    def _repr_html_(self) -> str:
        """The status and the finding, every metric beside its null, and the figures as drawings;
        ``result.figures[name]`` alone is interactive.
        """
        rows = [self._cells(name, value) for name, value in self.metrics.items()]
        status = f" <i>{html.escape(self.status)}</i>" if self.status else ""
        head = f"<b>{html.escape(self.probe)}</b>{status}<p>{html.escape(self.finding)}</p>"
        drawings = [
            figure.drawing_html(name) for name, figure in list(self.figures.items())[:SHOWN]
        ]
        table = as_html(("metric", "value", "null", "z", "p"), rows)
        return "".join([head, table, *drawings])

    def _cells(self, name: str, value: Any) -> list[str]:
        """Metric, value with its unit, mean ± std of the null, z and p, as they are shown."""
        shown = short(value) + (f" {self.units[name]}" if name in self.units else "")
        null = self.null.get(name)
        if null is None:
            return [name, shown, "", "", ""]
        spread = f"{short(null.mean)} ± {short(null.std)}"
        return [name, shown, spread, null.z_text, null.p_text.removeprefix("p ").lstrip("= ")]


__all__ = [
    "SCHEMA",
    "STATUSES",
    "Claim",
    "Figure",
    "Finding",
    "Null",
    "ProbeResult",
    "Status",
    "Table",
    "rank",
    "short",
    "to_jsonable",
]
