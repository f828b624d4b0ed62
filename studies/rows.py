"""The rows of a study's runs: one row of plain numbers a run, from which every claim is judged.

A changed criterion costs no training: rows are kept in the repository, runs are not.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError
from mechint.training.run import Metrics

Row = Mapping[str, Any]


class NoRunsError(MechintError):
    """No run says anything of what was asked."""


class Rows(Sequence[Row]):
    """Rows of runs: "run" (its name), "arm", "seed", "date", further labels, and measures; a row is
    a mapping, which raises UnknownNameError for what it has not.

    arms: of the rows that were asked for by `where`, here and in what it gave.

    >>> rows = Rows([{"arm": "a", "seed": 1, "x": 0.5}, {"arm": "b", "seed": 1, "x": 0.7}])
    >>> rows.where(arm="b").column("x"), rows.values_of("arm")
    ([0.7], ['a', 'b'])
    """

    def __init__(self, rows: Sequence[Row] = (), asked: Rows | None = None) -> None:
        self._rows = [row if isinstance(row, Metrics) else Metrics(row) for row in rows]
        self.arms: set[str] = set() if asked is None else asked.arms

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def where(self, **labels: Any) -> Rows:
        """The rows with all these labels.

        Raises:
            NoRunsError: there is none.
        """
        found = [row for row in self if all(row.get(k) == v for k, v in labels.items())]
        if not found:
            named = ", ".join(f"{key} {value}" for key, value in labels.items())
            raise NoRunsError(f"no run with {named}")
        self.arms.update(row["arm"] for row in found if "arm" in row)
        return Rows(found, self)

    def having(self, name: str) -> Rows:
        """The rows that have a measure; "end.rank" is the "rank" of the measure "end".

        Raises:
            NoRunsError: none has.
        """
        found = [row for row in self if _get(row, name) is not None]
        if not found:
            raise NoRunsError(f"no run has {name!r} measured")
        return Rows(found, self)

    def column(self, name: str) -> list[Any]:
        """The values of a measure, row by row; NoRunsError where a row lacks it.

        >>> Rows([{"end": {"rank": 3}}]).column("end.rank")
        [3]
        """
        if len(self.having(name)) < len(self):
            raise NoRunsError(f"{name!r} was not measured of every run")
        return [_get(row, name) for row in self]

    def values_of(self, label: str) -> list[Any]:
        """The different values of a label, in the order of the rows."""
        return list(dict.fromkeys(row[label] for row in self if label in row))

    def by(self, label: str) -> dict[Any, Rows]:
        """Value of a label → its rows."""
        return {value: self.where(**{label: value}) for value in self.values_of(label)}


def _get(row: Row, name: str) -> Any:
    """A measure of a row by its dotted name; None where it has none."""
    value: Any = row
    for key in name.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def read_rows(path: Path) -> Rows:
    """The rows of a ``rows.jsonl.gz``; none where there is no file."""
    if not path.exists():
        return Rows()
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return Rows([json.loads(line) for line in lines])


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write rows, numbers at five significant digits; the same rows give the same bytes."""
    text = "".join(json.dumps(_rounded(row), ensure_ascii=False) + "\n" for row in rows)
    with path.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(text.encode())


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(one) for one in value]
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.5g}")
    return value
