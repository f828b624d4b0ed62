"""No forgery stands."""

from __future__ import annotations

import pytest

from tests.explanation.forged import FORGERIES, OF_THE_AUTHOR, Forged

FULL = OF_THE_AUTHOR.keys() | {
    "a clock that takes six numbers for one another",
    "the same, of a task that states the sum, unasked",
}
"""Those that take more than a second."""


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, id=one.what, marks=[pytest.mark.full] * (one.what in FULL))
        for one in FORGERIES
    ],
)
def test_a_forgery_does_not_stand(one: Forged) -> None:
    assert not one.said
