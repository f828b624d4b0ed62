"""No forgery stands."""

from __future__ import annotations

import pytest

from tests.explanation.forged import FORGERIES, OF_THE_AUTHOR, Forged

FULL = {"the same, of a task that states the sum, unasked"} | OF_THE_AUTHOR.keys()
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
