"""Marks of single parameters."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def full_where(slow: Collection[Any], parameters: Iterable[Any]) -> list[Any]:
    """`parameters`, of which those in `slow` run in `make test-all` alone."""
    return [pytest.param(one, marks=pytest.mark.full) if one in slow else one for one in parameters]
