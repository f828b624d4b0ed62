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


KEPT = sorted(file.parent for file in (ROOT / "results").glob("*/*/claims.json"))


def test_every_study_is_kept_at_size_laptop() -> None:
    assert {place.parent.name for place in KEPT if place.name == "laptop"} == set(STUDIES)


@pytest.mark.parametrize("place", KEPT, ids=lambda place: "-".join(place.parts[-2:]))
def test_every_verdict_was_given_by_the_criterion_that_stands_beside_it(place: Path) -> None:
    kept = json.loads((place / "claims.json").read_text(encoding="utf-8"))
    specs = find_study(place.parent.name).claims
    assert [claim["letter"] for claim in kept] == [spec.letter for spec in specs]
    page = json.loads((place / "page.json").read_text(encoding="utf-8"))
    assert page["facts"]["size"] == place.name
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
