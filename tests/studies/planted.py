"""Rows with outcomes written by hand, and the verdicts that studies give them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from mechint.probe.results import PaperClaim
from mechint.registry import STUDIES
from studies.rows import Rows

Knobs = Mapping[str, Any]
Cases = Mapping[str, tuple[Knobs, Knobs | None]]
"""Claim → what refutes it, and what its positive control must fail on (None: it has no other)."""


def held(study: str, id: str, rows: Rows) -> PaperClaim:
    """The claim `id` of a study as these rows leave it."""
    (test,) = [claim for claim in STUDIES[study].claims if claim.id == id]
    return test.hold(study, rows, "fresh" if test.fresh else "laptop")


def verdicts(study: str, plant: Callable[..., Rows], cases: Cases) -> Any:
    """A test of the verdict of each claim of a study that some size trains."""
    ids = [claim.id for claim in STUDIES[study].claims if claim.samples]

    @pytest.mark.parametrize("id", ids)
    def test_verdicts(id: str) -> None:
        check(study, id, plant, cases)

    return test_verdicts


def check(study: str, id: str, plant: Callable[..., Rows], cases: Cases) -> None:
    """The claim is supported by what the paper says, refuted by its opposite, inconclusive where
    the runs are too few or the control fails, and not run without any.
    """
    against, broken = cases[id]
    found = held(study, id, plant())
    assert found.verdict == "supported" and found.control.startswith("met"), found
    assert found.interval is not None and found.value is not None
    assert found.interval[0] <= found.value <= found.interval[1]
    refuted = held(study, id, plant(**against))
    assert refuted.verdict == "refuted", refuted
    few = held(study, id, plant(n=1))
    assert few.verdict in ("inconclusive", "not run"), few
    if broken is not None:
        failed = held(study, id, plant(**broken))
        assert failed.verdict == "inconclusive" and failed.control.startswith("failed"), failed
    assert held(study, id, Rows()).verdict == "not run"
