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
