"""Small models of every published family, made here; the real files are optional."""

from __future__ import annotations

from pathlib import Path

import pytest

PUBLISHED = Path(__file__).parents[3] / "shared" / "checkpoints"


@pytest.fixture
def published() -> Path:
    """The folder of published checkpoints beside the repository."""
    if not PUBLISHED.is_dir():
        pytest.skip(
            "the published checkpoints are not beside the repository (../shared/checkpoints)"
        )
    return PUBLISHED
