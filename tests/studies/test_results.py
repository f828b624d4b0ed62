"""The results kept in the repository say what the studies' present criteria say, and no more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mechint.registry import STUDIES
from mechint.studies import VERDICTS, find_study
from mechint.studies.core.claims import NOT_RUN, NOT_TESTED
from mechint.studies.core.record import BEGIN, END, summary, table

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_verdict_was_given_by_the_criterion_that_stands_beside_it(name: str) -> None:
    kept = json.loads((ROOT / "results" / name / "claims.json").read_text(encoding="utf-8"))
    specs = find_study(name).claims
    assert [claim["letter"] for claim in kept] == [spec.letter for spec in specs]
    page = json.loads((ROOT / "results" / name / "page.json").read_text(encoding="utf-8"))
    assert page["sections"][0]["claims"] == kept
    for claim, spec in zip(kept, specs, strict=True):
        assert claim["criterion"] == str(spec.criterion)
        assert claim["verdict"] in VERDICTS
        assert [one["verdict"] for one in claim["replaced"]] == [
            one.verdict for one in spec.replaced
        ]
        if claim["verdict"] not in (NOT_TESTED, NOT_RUN):
            assert claim["parts"] and claim["n"] == min(part["n"] for part in claim["parts"])


def test_the_tables_are_made_from_what_is_kept() -> None:
    results = ROOT / "results"
    assert (results / "README.md").read_text(encoding="utf-8") == table(results)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert readme.partition(BEGIN)[2].partition(END)[0] == f"\n{summary(results)}\n"
