"""Every size of every study can be planned, long before somebody waits a night for it."""

from __future__ import annotations

import pytest

from mechint.registry import STUDIES
from mechint.studies.core.study import SIZES
from mechint.training.plan import partition


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(STUDIES))
def test_every_size_can_be_planned(name: str, size: str) -> None:
    planned = STUDIES[name]().runs(size)
    assert planned and len({one.name for one in planned}) == len(planned)
    parts = partition([one.spec for one in planned])
    assert sorted(i for part in parts for i in part.members) == list(range(len(planned)))


def test_a_night_of_capacity_has_every_width_before_more_seeds_of_any() -> None:
    planned = [one for one in STUDIES["capacity"]().runs("overnight") if one.stage]
    first = [one for one in planned if one.stage == 1]
    conditions = {
        tuple(one.labels[name] for name in ("frequency", "gap", "width")) for one in planned
    }
    seeds = {one.labels["seed"] for one in first}
    assert len(seeds) == 3 and len(first) == 3 * len(conditions)
    assert {one.labels["width"] for one in first} == {8, 16, 32, 64}


@pytest.mark.parametrize(("size", "seeds"), [("overnight", 1), ("full", 5)])
def test_orders_languages_and_splits_of_capacity(size: str, seeds: int) -> None:
    """One for all seeds where the page says so, at full one each."""
    planned = [one for one in STUDIES["capacity"]().runs(size) if one.labels["arm"] == "language"]
    drawn = {
        (task.inject_seed, task.language_seed, tuple(task.injected_task.ranks.tolist()))
        for task in (one.spec.task for one in planned)
    }
    assert len(drawn) == seeds and len({one.labels["seed"] for one in planned}) == 5
    assert len({order for _, _, order in drawn}) == seeds


def test_a_night_of_composition_leaves_what_stays_at_chance_to_the_end() -> None:
    planned = STUDIES["composition"]().runs("overnight")
    steps = {
        stage: {one.spec.train.steps for one in planned if one.stage == stage} for stage in range(3)
    }
    assert max(steps[0]) < min(steps[1])
    assert {one.labels["arm"] for one in planned if one.stage == 2} == {"direct"}
    assert {one.stage for one in STUDIES["composition"]().runs("laptop")} == {0}
