"""What a study says about one statement of a paper, as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from mechint.jsonable import to_jsonable


@dataclass(frozen=True)
class Claim:
    """One statement of a paper held against our runs.

    verdict: "reproduced", "not reproduced", "underpowered", "not tested at this size", or "not run
    yet".
    `criterion` was fixed before the runs, `reason` says why it is fair; `ours` is in words,
    `values` holds the numbers behind it (with spread over seeds); `note` holds what a reader must
    know (sensitivity, the size that would test it, the error of a failed run). n: independent runs
    behind the weakest part; parts: what the criterion asks for, each with outcome, interval or
    exact test, and n; control: the positive control, likewise; replaced: earlier criteria with
    their verdicts (one, or size → verdict) and why they went.
    """

    study: str
    letter: str
    statement: str
    paper: str
    ours: str
    criterion: str
    reason: str
    verdict: str
    values: Mapping[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""
    n: int = 0
    parts: Sequence[Mapping[str, Any]] = ()
    control: Mapping[str, Any] | None = None
    replaced: Sequence[Mapping[str, Any]] = ()

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return to_jsonable(asdict(self))
