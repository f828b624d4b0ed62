"""One statement of a paper held against runs, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from mechint.jsonable import to_jsonable


@dataclass(frozen=True)
class Claim:
    """A statement with its verdict: "supported", "refuted", "inconclusive" or "not run".

    id: letter and number within the study; theirs, ours: the paper's number and the one measured
    here with its 95% interval, as text; value, interval, n: ours as numbers, from n independent
    runs; criterion: fixed before the runs; power: probability that the planned runs decide for the
    statement if it holds; control: outcome of the positive control; size: of the study; note: one
    sentence; fixed: the commit that fixed the criterion before the runs; date: of the runs.
    """

    study: str
    id: str
    statement: str
    theirs: str = ""
    ours: str = ""
    verdict: str = "not run"
    value: float | None = None
    interval: tuple[float, float] | None = None
    n: int = 0
    criterion: str = ""
    power: float | None = None
    control: str = ""
    note: str = ""
    size: str = ""
    fixed: str = ""
    date: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return to_jsonable(asdict(self))
