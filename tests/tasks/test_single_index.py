"""The single-index sum: its targets, its moments and its predictions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks._single_index import SingleIndex


@settings(max_examples=20, deadline=None)
@given(
    hermite=st.lists(st.floats(0.1, 1), min_size=2, max_size=6).map(tuple),
    rotation=st.one_of(st.none(), st.integers(0, 5)),
)
def test_targets_are_those_of_explicit_polynomials(hermite, rotation):
    task = SingleIndex(d=6, n_directions=3, hermite=hermite, rotation=rotation)
    batch = task.sample(4, seed=0)
    expected = [task.brute_force(row.tolist())[0][0] for row in batch.tokens]
    np.testing.assert_allclose(batch.targets[:, 0].numpy(), expected, rtol=1e-4, atol=1e-4)


def test_directions_are_orthonormal_and_amplitudes_a_power_law():
    task = SingleIndex(d=12, n_directions=5, beta=1.5, rotation=3)
    torch.testing.assert_close(
        task.directions @ task.directions.T, torch.eye(5, dtype=torch.float64)
    )
    torch.testing.assert_close(
        task.amplitudes / task.amplitudes[0], torch.arange(1, 6, dtype=torch.float64) ** -1.5
    )
    assert task.amplitudes.square().sum().item() == pytest.approx(1)


@pytest.mark.parametrize(
    ("hermite", "variance"), [((0.0, 0.0, 1.0), 1.0), ((0.6, 0.0, 0.0, 0.8), 0.64)]
)
def test_chance_is_the_variance(hermite, variance):
    task = SingleIndex(hermite=hermite)
    assert task.chance["y"].loss == pytest.approx(variance)
    assert task.sample(100_000, seed=0).targets.var().item() == pytest.approx(variance, rel=0.1)


def test_predictions_are_power_laws():
    task = SingleIndex(d=256, n_directions=192, beta=1.0)
    times = task.emergence_times(lr=0.05, init_norm=1e-3, width=576)
    exponent = np.polyfit(np.log(np.arange(1, 193)), times.log().numpy(), 1)[0]
    assert exponent == pytest.approx(task.beta, abs=0.1)  # up to logarithms
    window = torch.linspace(float(times[3]), float(times[60]), 50, dtype=torch.float64)
    loss = task.predicted_loss(window, times) + task.tail
    assert np.polyfit(window.log().numpy(), loss.log().numpy(), 1)[0] == pytest.approx(
        (1 - 2 * task.beta) / task.beta, abs=0.1
    )
    longer = SingleIndex(d=4096, n_directions=4000, beta=1.0)
    scale = float(task.amplitudes[0] / longer.amplitudes[0]) ** 2
    left = float(longer.amplitudes[192:].square().sum())
    assert task.tail == pytest.approx((left + longer.tail) * scale, rel=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3, 4])
def test_the_information_exponent_sets_the_search(degree):
    link = (0.0,) * degree + (1.0,)
    small, large = (SingleIndex(d=d, n_directions=2, hermite=link) for d in (64, 6400))
    assert small.information_exponent == degree
    ratio = large.emergence_times(0.01, 0.5, 1000) / small.emergence_times(0.01, 0.5, 1000)
    assert (ratio > 0).all()
    if degree > 2:  # the search, d^(k/2 - 1), dominates
        np.testing.assert_allclose(ratio.numpy(), 100 ** (degree / 2 - 1), rtol=0.3)


def test_shuffled_targets_say_nothing_about_the_input():
    task = SingleIndex(d=4, n_directions=2, hermite=(0.0, 1.0)).control("shuffled")
    batch = task.sample(20_000, seed=0)
    assert (batch.tokens.T @ batch.targets / 20_000).abs().max() < 0.04


def test_a_task_and_its_inputs_come_back_from_their_texts():
    task = SingleIndex(d=8, n_directions=3, hermite=(0.0, 1.0))
    assert SingleIndex.from_dict(task.to_dict()) == task
    row = task.sample(1, seed=3).tokens[0]
    assert torch.equal(torch.tensor(task.tokens_of(task.text(row))), row)
