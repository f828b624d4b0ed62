"""Progress measures: projections by brute force, closed forms on plants, figures of published
checkpoints.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

import mechint
from mechint import planted, probe
from mechint.errors import NotApplicableError, ParameterError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes.progress.measures import gini

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "checkpoints"


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=12))
def test_gini_is_the_mean_absolute_difference_over_twice_the_mean(values: list[float]) -> None:
    x = np.array(values)
    assert gini(x) == pytest.approx(np.abs(x[:, None] - x).mean() / (2 * x.mean()), abs=1e-9)


@pytest.mark.parametrize(("p", "keys"), [(11, (2, 5)), (12, (1, 6))])
def test_losses_equal_a_projection_by_least_squares(p: int, keys: tuple[int, ...]) -> None:
    subject = planted.modular_addition(p, (1, 5), noise=0.3).subject
    metrics = probe.run("progress", subject, keys=keys).metrics
    logits = subject.logits().double().numpy()
    answers = subject.targets[:, 0].numpy()
    waves = np.stack([f(2 * np.pi * k * answers / p) for k in keys for f in (np.cos, np.sin)], 1)
    centered = logits - logits.mean(0)
    projected = waves @ np.linalg.lstsq(waves, centered, rcond=None)[0]
    expected = {
        "loss": logits,
        "excluded_loss": logits - projected,
        "restricted_loss": projected + logits.mean(0),
    }
    split = subject.task.split(subject.split_seed)
    for name, values in expected.items():
        for part, index in {
            "train": split["train"],
            "test": split["test"],
            "all": torch.arange(p * p),
        }.items():
            loss = F.cross_entropy(torch.from_numpy(values)[index], subject.targets[index, 0])
            assert metrics[f"{name}.{part}"] == pytest.approx(float(loss), rel=1e-6), (name, part)
    alone = projected - logits.mean(0) * 0
    without_bias = probe.run("progress", subject, keys=keys, keep_bias=False).metrics[
        "restricted_loss.all"
    ]
    assert without_bias == pytest.approx(
        float(F.cross_entropy(torch.from_numpy(alone), subject.targets[:, 0])), rel=1e-6
    )


def test_a_planted_circuit_lives_in_its_keys_alone() -> None:
    plant = planted.modular_addition(23, (3, 7))
    result = probe.run("progress", plant.subject)
    metrics = result.metrics
    assert metrics["key_frequencies"] == [3, 7]
    assert metrics["trigonometric_share"] == pytest.approx(1, abs=0.01)
    assert metrics["excluded_loss.all"] > math.log(23) - 1e-6
    assert metrics["restricted_loss.all"] < 1e-3
    assert metrics["embedding.gini"] == pytest.approx(1 - 2 / 11, abs=1e-6)
    assert metrics["weights.sum_of_squares"] == pytest.approx(
        sum(float((w.detach().double() ** 2).sum()) for w in plant.subject.model.parameters())
    )
    assert result.null["trigonometric_share"].p_value <= 0.02
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


def test_a_lookup_table_has_nothing_to_restrict_to() -> None:
    result = probe.run("progress", planted.lookup_table(TASKS["modular-arithmetic"](p=11)).subject)
    assert result.metrics["key_frequencies"] == [] and result.metrics["trigonometric_share"] == 0
    assert "trigonometric_share" not in result.null and "no key frequency" in result.finding
    assert result.status == "not found"


def test_a_frequency_that_is_not_key_is_not_found_where_it_is_asked_for() -> None:
    """A table's peak holds every frequency, so that its waves beat classes in random order."""
    task = TASKS["modular-arithmetic"](p=11)
    for subject, ruled in [
        (planted.lookup_table(task).subject, "none"),
        (planted.modular_addition(11, (2, 5), noise=0.02).subject, "2, 5"),
    ]:
        result = probe.run("progress", subject, keys=(2, 3))
        assert result.status == "not found" and f"fourier: {ruled};" in result.finding


def test_the_sentence_is_decided_by_classes_and_answers_in_random_order() -> None:
    """The null's largest cosines are those of waves over relabeled answers and classes, by brute
    force: with two of five frequencies these reach further than classes alone.
    """
    p = 11
    subject = planted.modular_addition(p, (2, 5), noise=0.02).subject
    result = probe.run("progress", subject)
    null, (finding,) = result.null["largest_cosine"], result.findings
    assert finding.tested == ("largest_cosine",) and finding.n == p * p
    assert result.status == "found" and null.p_text == "p ≤ 0.002"
    assert finding.effect == pytest.approx(
        result.metrics["excluded_loss.all"] - result.metrics["loss.all"]
    )
    logits = subject.logits().double().numpy()
    logits = logits - logits.mean(1, keepdims=True)
    logits = logits - logits.mean(0)
    answer = subject.targets[:, 0].numpy()

    def largest(answer_names: np.ndarray, class_names: np.ndarray) -> float:
        angles = 2 * np.pi / p * (answer_names[answer][:, None] - class_names)
        waves = np.stack([np.cos(k * angles) for k in range(1, 6)])  # (frequency, example, class)
        norms = np.linalg.norm(waves, axis=(1, 2)) * np.linalg.norm(logits)
        return float(((waves * logits).sum((1, 2)) / norms).max())

    names = np.arange(p)
    assert null.observed == pytest.approx(largest(names, names), rel=1e-4)
    generator = np.random.default_rng(0)
    orders = [generator.permutation(p) for _ in range(400)]
    drawn = [largest(order, order) for order in orders]
    assert np.mean(drawn) > np.mean([largest(names, order) for order in orders])
    assert null.mean == pytest.approx(np.mean(drawn), abs=4 * null.std / 400**0.5 * 2**0.5)


def test_a_frequency_named_twice_is_refused() -> None:
    """It counted twice: a found sentence said that it explains 199.9% of the logits' variance."""
    subject = planted.modular_addition(11, (3,)).subject
    with pytest.raises(ParameterError, match=r"progress: keys=.*3, 3.*: expected each frequency"):
        probe.run("progress", subject, keys=(3, 3))
    shares = [
        probe.run("progress", subject, keys=keys, samples=1).metrics["trigonometric_share"]
        for keys in ((3,), (1, 2, 3, 4, 5))
    ]
    assert 0.99 < shares[0] <= shares[1] <= 1 + 1e-9


def test_a_frequency_beyond_half_the_modulus_is_refused() -> None:
    with pytest.raises(NotApplicableError, match="frequency 6 is above n/2 = 5"):
        probe.run("progress", planted.modular_addition(11, (2, 5)).subject, keys=(6,))


def test_the_measures_over_steps_use_the_last_keys() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject
    trained, start = (
        {k: v.clone() for k, v in m.state_dict().items()}
        for m in (subject.model, HookedTransformer(subject.model.config, seed=1))
    )
    result = probe.run(
        "progress",
        Subject(subject.model, subject.task, series={0: lambda: start, 9: lambda: trained}),
    )
    columns = result.tables["steps"].columns
    assert (
        columns["step"] == [0, 9]
        and columns["trigonometric_share"][0] < 0.2 < 0.9 < columns["trigonometric_share"][1]
    )
    assert columns["loss.all"][1] == pytest.approx(result.metrics["loss.all"])


@pytest.mark.slow
def test_published_figures_of_addition_mod_113() -> None:
    folder = CHECKPOINTS / "rep-theory" / "C113_T_seed1"
    if not folder.exists():
        pytest.skip("the published checkpoint rep-theory/C113_T_seed1 is not beside the repository")
    theirs = json.loads((folder / "summary_metrics.json").read_text())
    metrics = probe.run(
        "progress", mechint.load(folder / "model.pt", task="modular-arithmetic", p=113)
    ).metrics
    assert metrics["loss.all"] == pytest.approx(theirs["all_loss"], rel=1e-5)
    # theirs leaves the classes' mean logits in the denominator, ours takes them out
    assert metrics["trigonometric_share"] == pytest.approx(
        theirs["percent_logits_explained"], abs=0.01
    )
