"""Every size of every study can be planned, long before somebody waits a night for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mechint.registry import STUDIES
from mechint.training.plan import partition
from studies.rows import read_rows
from studies.study import FRESH, SIZES


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_size_can_be_planned(name: str, size: str) -> None:
    planned = STUDIES[name].plan(size)
    posed_anew = any(claim.fresh for claim in STUDIES[name].claims)
    assert bool(planned) == (size != "fresh" or posed_anew)
    assert len({one.name for one in planned}) == len(planned)
    assert all({"arm", "seed"} <= set(one.labels) for one in planned)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_run_of_a_laptop_is_in_one_ensemble(name: str) -> None:
    planned = STUDIES[name].plan("laptop")
    parts = partition([one.spec for one in planned])
    assert sorted(i for part in parts for i in part.members) == list(range(len(planned)))


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_claims_have_names_of_their_own_and_costs_every_size(name: str) -> None:
    study = STUDIES[name]
    ids = [claim.id for claim in study.claims]
    assert len(set(ids)) == len(ids)
    said = [one for one in study.sentences if not one.own]
    assert 0 < len(said) <= 6 and {id for one in study.sentences for id in one.ids} <= set(ids)
    fresh = {"fresh"} if any(claim.fresh for claim in study.claims) else set[str]()
    assert set(study.costs) == {"laptop", "overnight"} | fresh


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_fresh_runs_are_of_seeds_that_no_smaller_size_has_trained(name: str) -> None:
    study = STUDIES[name]
    fresh = {one.labels["seed"] for one in study.plan("fresh")}
    kept = Path("results") / name / "laptop" / "rows.jsonl.gz"
    seen = {row["seed"] for row in read_rows(kept)}
    assert all(seed >= FRESH for seed in fresh)
    assert not fresh & (seen | {one.labels["seed"] for one in study.plan("laptop")})


def test_languages_and_orders_of_capacity_are_the_seeds_own() -> None:
    planned = [one for one in STUDIES["capacity"].plan("laptop") if one.labels["arm"] == "language"]
    drawn = {
        one.labels["seed"]: (one.spec.task.inject_seed, one.spec.task.language_seed)  # type: ignore[attr-defined]
        for one in planned
    }
    assert all(own == (seed, seed) for seed, own in drawn.items()) and len(drawn) == 8
