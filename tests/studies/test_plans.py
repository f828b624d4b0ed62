"""Every size of every study can be planned, long before somebody waits a night for it."""

from __future__ import annotations

import pytest

from mechint.registry import STUDIES
from mechint.training.plan import partition
from studies.study import SIZES
from tests.marks import full_where


@pytest.mark.parametrize("size", full_where({"full"}, SIZES))
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_size_can_be_planned(name: str, size: str) -> None:
    planned = STUDIES[name]().plan(size)
    assert planned and len({one.name for one in planned}) == len(planned)
    assert all({"arm", "seed"} <= set(one.labels) for one in planned)


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_run_of_a_laptop_is_in_one_ensemble(name: str) -> None:
    planned = STUDIES[name]().plan("laptop")
    parts = partition([one.spec for one in planned])
    assert sorted(i for part in parts for i in part.members) == list(range(len(planned)))


@pytest.mark.parametrize("name", sorted(STUDIES))
def test_claims_have_names_of_their_own_and_costs_every_size(name: str) -> None:
    study = STUDIES[name]
    ids = [claim.id for claim in study.claims]
    assert len(set(ids)) == len(ids)
    assert set(study.costs) == {"laptop", "overnight", "full"}


def test_languages_and_orders_of_capacity_are_the_seeds_own() -> None:
    planned = [
        one for one in STUDIES["capacity"]().plan("laptop") if one.labels["arm"] == "language"
    ]
    drawn = {
        one.labels["seed"]: (one.spec.task.inject_seed, one.spec.task.language_seed)  # type: ignore[attr-defined]
        for one in planned
    }
    assert all(own == (seed, seed) for seed, own in drawn.items()) and len(drawn) == 8
