"""The mixture of regressions: its batches, and its theory against eigenvalues and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.errors import ParameterError
from tasks.regression import RegressionMixture

mixtures = st.builds(
    RegressionMixture,
    n=st.just(20),
    n_tasks=st.integers(1, 5),
    rank=st.integers(1, 4),
    alpha=st.floats(0.3, 2.0),
    beta=st.floats(0.0, 2.0),
    beta_rarest=st.one_of(st.none(), st.floats(0.0, 2.0)),
    rotation=st.one_of(st.none(), st.integers(0, 3)),
)


@settings(max_examples=25, deadline=None)
@given(task=mixtures)
def test_the_theory_is_that_of_the_mixture_covariance(task):
    covariance = torch.einsum("t,tri,trj->ij", task.priors, task.readouts, task.readouts)
    values, vectors = (part.flip(-1) for part in torch.linalg.eigh(covariance))
    rank = task.n_tasks * task.rank
    torch.testing.assert_close(values[:rank], task.utilities.flatten().sort(descending=True).values)
    for width in (0, 1, rank // 2, rank):
        best = torch.eye(task.n, dtype=torch.float64) - vectors[:, :width] @ vectors[:, :width].T
        assert task.residual(width) == pytest.approx(
            float(torch.trace(covariance @ best)), abs=1e-9
        )
        assert sum(task.retained_features(width)) == min(width, rank)


@settings(max_examples=25, deadline=None)
@given(task=mixtures)
def test_critical_widths_by_counting_up(task):
    distinct = (
        len({round(u, 12) for u in task.utilities.flatten().tolist()}) == task.utilities.numel()
    )
    for features in range(1, task.rank + 1):
        widths = range(1, task.n_tasks * task.rank + 1)
        for t in range(task.n_tasks):
            least = next(width for width in widths if task.retained_features(width)[t] >= features)
            assert (
                task.critical_width(t, features) == least
                if distinct
                else task.critical_width(t, features) >= least
            )
        every = next(width for width in widths if min(task.retained_features(width)) >= features)
        assert (
            task.critical_width(features=features) == every
            if distinct
            else task.critical_width(features=features) >= every
        )


def test_labels_are_the_teachers_and_tasks_come_at_their_prior():
    task = RegressionMixture(n=12, n_tasks=3, rank=2, rotation=4)
    batch = task.sample(20_000, seed=1)
    for i in range(5):
        expected = task.brute_force(batch.tokens[i].tolist())[int(batch.masks["task"][i])]
        np.testing.assert_allclose(batch.targets[i].numpy(), expected, atol=1e-5)
    share = torch.bincount(batch.masks["task"]).double() / 20_000
    assert (share - task.priors).abs().max() < 0.015
    assert torch.cov(batch.tokens.T).sub(torch.eye(12)).abs().max() < 0.05
    assert batch.targets.square().sum(-1).mean().item() == pytest.approx(
        task.chance["y"].loss, rel=0.03
    )
    mean = batch.targets.mean(0)
    assert (batch.targets - mean).square().sum(-1).mean().item() == pytest.approx(
        task.chance["y"].loss, rel=0.03
    )


@pytest.mark.parametrize("batch_size", [8, 16, 24, 64])
@pytest.mark.parametrize("gap", [2, 3, 4, 8, 40])
def test_bursts_keep_the_share_or_are_refused(gap, batch_size):
    task = RegressionMixture(n=8, n_tasks=4, rank=2, alpha=2.0, gap=gap)
    rare = float(task.priors[-1])
    try:
        batches = list(itertools.islice(task.stream("train", 0, batch_size), 2 * gap))
    except ParameterError as error:
        assert str(error).startswith(f"regression-mixture: gap={gap}: with batch_size={batch_size}")
        usual, due = round(batch_size * (1 - rare)), gap * rare * batch_size
        assert due < 5 and abs(round(due) / (gap * usual + round(due)) / rare - 1) > 0.1
        return
    shown = sum(int((batch.masks["task"] == 3).sum()) for batch in batches)
    assert shown / sum(map(len, batches)) == pytest.approx(rare, rel=0.1)


def test_fixed_normalization_weights_an_enlarged_batch_up():
    task = RegressionMixture(n=8, n_tasks=4, rank=2, gap=8, normalization="fixed")
    batch = next(task.stream("train", 0, 50, start=7))
    errors = torch.rand(len(batch))
    assert (errors * batch.weights).mean().item() == pytest.approx(
        errors.sum().item() / 50, rel=1e-5
    )


def test_shuffled_targets_say_nothing_about_the_input():
    task = RegressionMixture(n=8, n_tasks=2, rank=4).control("shuffled")
    batch = task.sample(20_000, seed=0)
    assert (batch.tokens.T @ batch.targets / 20_000).abs().max() < 0.04
    assert batch.targets.square().sum(-1).mean().item() == pytest.approx(
        task.chance["y"].loss, rel=0.05
    )
