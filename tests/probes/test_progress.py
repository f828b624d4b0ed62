"""Progress measures against projections by least squares, and plants."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from mechint import planted, probe
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject
from probes._progress.probe import gini


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12))
def test_gini_is_the_mean_absolute_difference_over_twice_the_mean(values: list[float]) -> None:
    x = np.array(values)
    assert gini(x) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()), abs=1e-9)


@pytest.mark.parametrize(("p", "keys"), [(11, (2, 5)), (12, (1, 6))])
def test_losses_equal_a_projection_by_least_squares(p: int, keys: tuple[int, ...]) -> None:
    subject = planted.modular_addition(p, (1, 5), noise=0.3).subject
    metrics = probe.run("progress", subject, keys=keys).metrics
    logits, answers = subject.logits().double().numpy(), subject.targets[:, 0].numpy()
    centered = logits - logits.mean(0)

    def projected(some: tuple[int, ...]) -> np.ndarray:
        waves = [f(2 * np.pi * k * answers / p) for k in some for f in (np.cos, np.sin)]
        design = np.stack(waves, 1)
        return design @ np.linalg.lstsq(design, centered, rcond=None)[0]

    within = projected(keys)
    expected = {
        "loss": logits,
        "excluded_loss": logits - within,
        "restricted_loss": within + logits.mean(0),
    }

    def loss(values: np.ndarray, rows: torch.Tensor) -> float:
        return float(F.cross_entropy(torch.from_numpy(values)[rows], subject.targets[rows, 0]))

    split = {**subject.task.split(subject.split_seed), "all": torch.arange(p * p)}
    for name, values in expected.items():
        for part in ("train", "test", "all"):
            assert metrics[f"{name}.{part}"] == pytest.approx(loss(values, split[part]), rel=1e-6)
    bare = metrics["restricted_loss_without_mean.all"]
    assert bare == pytest.approx(loss(within, split["all"]), rel=1e-6)
    for k in keys:
        own = loss(logits - projected((k,)), split["all"])
        assert metrics["excluded_loss.each.all"][k] == pytest.approx(own, rel=1e-6)


def test_a_frequency_that_is_not_key_is_denied_where_it_is_asked_for() -> None:
    subject = planted.modular_addition(23, (3, 7)).subject
    result = probe.run("progress", subject, keys=(3, 5))
    assert result.verdict == "no" and result.metrics["key_frequencies"] == [3, 5]


def test_a_checkpoint_of_a_run_is_measured_by_the_last_checkpoints_keys() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject
    end = {name: value.clone() for name, value in subject.model.state_dict().items()}
    start = HookedTransformer(subject.model.config, seed=1).state_dict()
    series = {0: lambda: start, 100: lambda: end}
    run = Subject(subject.model, subject.task, series=series, provenance={"step": 100})
    first = probe.run("progress", run.at_step(0)).metrics
    assert first["key_frequencies"] == [2, 5]
    assert first["restricted_loss.all"] > 1 > first["trigonometric_share"]
    assert probe.run("progress", run).metrics["restricted_loss.all"] < 0.01
