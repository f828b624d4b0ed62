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
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, ParameterError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._progress.measures import gini

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


def without(logits: np.ndarray, answers: np.ndarray, p: int, keys: tuple[int, ...]) -> np.ndarray:
    """The logits less the waves of the keys in the answer, by least squares."""
    waves = np.stack([f(2 * np.pi * k * answers / p) for k in keys for f in (np.cos, np.sin)], 1)
    centered = logits - logits.mean(0)
    return logits - waves @ np.linalg.lstsq(waves, centered, rcond=None)[0]


def test_each_key_alone_and_as_many_others_are_taken_out_by_least_squares() -> None:
    """Of the others, drawn anew, the shares add up, and the loss is that without all of them."""
    p, keys = 13, (2, 5)
    subject = planted.modular_addition(p, keys, noise=0.3, rotation_seed=1).subject
    result = probe.run("progress", subject, keys=keys, samples=7, seed=3)
    metrics, split = result.metrics, subject.split
    logits, answers = subject.logits().double().numpy(), subject.targets[:, 0].numpy()

    def loss(values: np.ndarray, rows: torch.Tensor) -> float:
        return float(F.cross_entropy(torch.from_numpy(values)[rows], subject.targets[rows, 0]))

    centered = logits - logits.mean(1, keepdims=True)
    centered = centered - centered.mean(0)

    def share(k: int) -> float:
        wave = np.cos(2 * np.pi * k * (answers[:, None] - np.arange(p)) / p)
        return float((centered * wave).sum() ** 2 / (centered**2).sum() / (wave**2).sum())

    for name, rows in {"train": split["train"], "all": torch.arange(p * p)}.items():
        each = {k: loss(without(logits, answers, p, (k,)), rows) for k in keys}
        assert metrics[f"excluded_loss.each.{name}"] == pytest.approx(each, rel=1e-6)
    shares = [share(k) for k in keys]
    assert metrics["trigonometric_share"] == pytest.approx(sum(shares), rel=1e-6)
    assert min(shares) > 0.05
    draw = rng("progress null", 3)
    drawn = [draw.choice([1, 3, 4, 6], 2, replace=False).tolist() for _ in range(7)]
    samples = {
        "trigonometric_share": [sum(share(k) for k in some) for some in drawn],
        "excluded_loss.all": [
            loss(without(logits, answers, p, tuple(some)), torch.arange(p * p)) for some in drawn
        ],
    }
    for name, values in samples.items():
        null = result.null[name]
        assert null.observed == metrics[name]
        assert null.mean == pytest.approx(np.mean(values), rel=1e-4)
        assert null.std == pytest.approx(np.std(values, ddof=1), rel=1e-3)


def test_the_cosine_that_decides_is_the_largest_of_the_keys_that_are_asked_for() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.05).subject
    cosines = probe.run("fourier", subject, permutations=19, operand_permutations=3).metrics[
        "logits.cosine"
    ]
    for keys in ((3,), (1, 5), (4, 3)):
        result = probe.run("progress", subject, keys=keys, samples=1)
        largest = max(cosines[k] for k in keys)
        assert result.metrics["largest_cosine"] == pytest.approx(largest, abs=1e-6)
        assert result.null["largest_cosine"].observed == result.metrics["largest_cosine"]


def test_as_many_others_as_keys_are_enough_to_compare_with() -> None:
    """Of four frequencies two: the others are the one set there is. Of three, one is too few."""
    four = planted.modular_addition(9, (1, 2)).subject
    assert probe.run("progress", four, keys=(1, 2), samples=3).null["trigonometric_share"].std == 0
    three = planted.modular_addition(7, (1, 2)).subject
    result = probe.run("progress", three, keys=(1, 2), samples=3)
    assert set(result.null) == {"largest_cosine"}


def test_of_several_outputs_the_one_with_most_classes_is_looked_at() -> None:
    task = TASKS["remainders"](p=11)
    config = ModelConfig(
        d_model=16,
        n_heads=2,
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
        output_sizes=(2, 3, 5, 7),
    )
    subject = Subject(HookedTransformer(config), task)
    metrics = probe.run("progress", subject, keys=(3,), samples=1).metrics
    part = task.output_slices["mod 7"]
    loss = F.cross_entropy(subject.logits()[:, part].double(), subject.targets[:, 3])
    assert metrics["loss.all"] == pytest.approx(float(loss), rel=1e-6)


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
    assert result.verdict == "no"


def test_a_frequency_that_is_not_key_is_not_found_where_it_is_asked_for() -> None:
    """A table's peak holds every frequency, so that its waves beat classes in random order."""
    task = TASKS["modular-arithmetic"](p=11)
    for subject, ruled in [
        (planted.lookup_table(task).subject, "none"),
        (planted.modular_addition(11, (2, 5), noise=0.02).subject, "2, 5"),
    ]:
        result = probe.run("progress", subject, keys=(2, 3))
        assert result.verdict == "no" and f"fourier: {ruled};" in result.finding


def test_the_sentence_is_decided_by_classes_and_answers_in_random_order() -> None:
    """The null's largest cosines are those of waves over relabeled answers and classes, by brute
    force: with two of five frequencies these reach further than classes alone.
    """
    p = 11
    subject = planted.modular_addition(p, (2, 5), noise=0.02).subject
    result = probe.run("progress", subject)
    null, (finding,) = result.null["largest_cosine"], result.findings
    assert finding.tested == ("largest_cosine",) and finding.n == p * p
    assert result.verdict == "yes" and null.p_text == "p ≤ 0.002"
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
    for row, state in enumerate((start, trained)):
        squares = sum(float((value.double() ** 2).sum()) for value in state.values())
        assert columns["weights.sum_of_squares"][row] == pytest.approx(squares)
        amplitudes = np.abs(np.fft.rfft(state["embed.W_E"][:11].double().numpy(), axis=0))[1:]
        spread = gini(np.sqrt((amplitudes**2).sum(1)))
        assert columns["embedding.gini"][row] == pytest.approx(spread, abs=1e-6)


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
