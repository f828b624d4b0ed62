"""Subspace alignment against the student's own mathematics, closed forms of random subspaces, and
planted encoders.
"""

from __future__ import annotations

import numpy as np
import pytest

from mechint import planted
from mechint.errors import ParameterError
from probes._subspace import Subspace, column_space, held_share

TASK = {"n": 24, "n_tasks": 4, "rank": 6, "alpha": 1.0, "beta": 0.7}


def test_the_table_is_that_of_the_planted_features() -> None:
    """An encoder of 9 columns in 24 inputs: of six features that a task has, k are held."""
    features = (5, 0, 3, 1)
    plant = planted.bottleneck(features, rotation_seed=2, **TASK)
    result, task = Subspace().run(plant.subject), plant.subject.task
    columns = result.tables["tasks"].columns
    assert columns["task"] == [0, 1, 2, 3]
    assert columns["features held"] == pytest.approx(features, abs=1e-5)
    predicted = list(task.retained_features(9))
    assert columns["predicted"] == predicted != list(features)
    assert columns["alignment"] == pytest.approx([k / 6 for k in features], abs=1e-6)
    at_random = 9 / 24
    corrected = [(k / 6 - at_random) / (1 - at_random) for k in features]
    assert columns["corrected"] == pytest.approx(corrected, abs=1e-6)
    agreeing = sum(k == other for k, other in zip(features, predicted, strict=True)) / 4
    assert result.metrics["subspace.agreement"] == agreeing
    assert "3 of 4 tasks" in result.headline


def test_the_signal_of_the_frequent_tasks_by_hand_and_that_of_a_random_encoder() -> None:
    """Kept of tasks 0 … i, the fewest with three quarters of the prior, by their utilities; a
    random subspace of 9 in 24 keeps 9/24 of anything on average.
    """
    features = (2, 0, 1, 6)
    result = Subspace(samples=2000).run(planted.bottleneck(features, **TASK).subject)
    task = planted.bottleneck(features, **TASK).subject.task
    utilities, metrics = task.utilities.double().numpy(), result.metrics
    frequent = list(task.common(0.75))
    assert 1 < len(frequent) < 4
    kept = sum(utilities[t, : features[t]].sum() for t in frequent)
    total = utilities[frequent].sum()
    assert metrics["subspace.frequent_signal"] == pytest.approx(kept / total, abs=1e-6)
    for name in ("subspace.signal", "subspace.frequent_signal"):
        assert result.null[name].mean == pytest.approx(9 / 24, abs=0.01)


def test_random_subspaces_hold_their_share() -> None:
    """E‖P b‖² = m / n for any unit vector."""
    draw = np.random.default_rng(0)
    bases = np.linalg.qr(draw.normal(size=(12, 12)))[0][:6].reshape(2, 3, 12)
    mean = np.mean(
        [held_share(column_space(draw.normal(size=(12, 4))), bases) for _ in range(4000)], 0
    )
    assert mean == pytest.approx(np.full((2, 3), 4 / 12), abs=0.02)


def test_what_cannot_be_served_is_said() -> None:
    with pytest.raises(ParameterError, match="4 numbers from 0 to rank=6"):
        planted.bottleneck((7, 0, 0, 0), **TASK)
