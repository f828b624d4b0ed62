"""Comparing two models: against itself, a rotated copy, an untrained one; CKA by brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.intervals import paired_difference
from mechint.models import build
from mechint.run_table._compare import compare
from mechint.similarity import against_shuffled, linear_cka
from mechint.subject import Subject


def gram_cka(a: np.ndarray, b: np.ndarray) -> float:
    """CKA as a correlation of centered Gram matrices."""
    n = len(a)
    center = np.eye(n) - 1 / n
    k, m = center @ a @ a.T @ center, center @ b @ b.T @ center
    return float((k * m).sum() / np.sqrt((k * k).sum() * (m * m).sum()))


def test_cka_is_the_correlation_of_gram_matrices_and_blind_to_rotation() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(30, 5, generator=generator)
    b = torch.randn(30, 7, generator=generator) + a @ torch.randn(5, 7, generator=generator)
    assert linear_cka(a, b) == pytest.approx(gram_cka(a.numpy(), b.numpy()), rel=1e-5)
    rotation = torch.linalg.qr(torch.randn(5, 5, generator=generator)).Q
    assert linear_cka(a, 3 * a @ rotation + 2) == pytest.approx(1.0)
    assert np.isnan(linear_cka(a, torch.zeros(30, 2)))
    assert against_shuffled(linear_cka, "cka", a, b).p_value <= 0.02


@pytest.mark.parametrize("value", [0.1, 0.3, 1.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rounding_of_a_mean_is_no_variation(value: float, dtype: torch.dtype) -> None:
    constant = torch.full((100, 3), value, dtype=dtype)
    varied = torch.randn(100, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    for other in (constant, constant + 1, varied):
        assert np.isnan(linear_cka(constant, other)) and np.isnan(linear_cka(other, constant))
    little = constant.double() + 1e-6 * varied[:, :3].double()
    assert linear_cka(little, varied[:, :3]) == pytest.approx(1, abs=1e-6)


@pytest.fixture(scope="module")
def subject() -> Subject:
    return planted.modular_addition(p=11, frequencies=(2, 3), seed=0).subject


def test_a_model_is_itself(subject: Subject) -> None:
    found = compare(subject, subject)
    assert found.accuracy[0] == found.accuracy[1]
    gap, low, high = found.difference
    assert gap == 0 and found.p_value == 1.0
    assert high == -low == pytest.approx(1 - 0.025 ** (1 / 121)), "what 121 equal answers allow"
    assert "121 answers, those of training among them" in found.sentence()
    assert np.isnan(found.cka[0, 0]), "the embedding of = is the same in every example"
    assert np.allclose(np.diag(found.cka)[1:], 1.0)
    assert found.null.p_value == pytest.approx(0.01)
    assert found.figure().spec["data"][0]["z"][1][1] == pytest.approx(1.0)


def test_an_untrained_model_differs_and_the_interval_says_so(subject: Subject) -> None:
    other = subject.untrained(seed=1)
    found = compare(subject, other)
    right = [one.correct().all(-1).double().mean().item() for one in (subject, other)]
    assert found.accuracy == pytest.approx(tuple(right))
    assert found.difference[1] <= right[0] - right[1] <= found.difference[2]
    assert found.difference[1] > 0 and found.p_value < 1e-6
    assert found.to_dict()["right.only_first"] == found.only_first


def test_an_answer_of_several_outputs_is_right_where_all_are() -> None:
    task = tasks.make("remainders", p=5)
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": 5, "output_sizes": (2, 3), "n_ctx": 3}
    models = [build(ModelConfig(n_layers=1, d_model=8, n_heads=1, **sizes), seed=i) for i in (0, 1)]
    first, second = (Subject(model, task) for model in models)
    by_hand = []
    for subject in (first, second):
        parts = subject.logits().split((2, 3), dim=1)
        said = np.stack([part.argmax(1).numpy() for part in parts], 1)
        by_hand.append([(a == b).all() for a, b in zip(said, subject.targets.numpy(), strict=True)])
    found = compare(first, second, samples=9)
    assert found.accuracy == tuple(np.mean(by_hand, axis=1))
    assert found.only_first == sum(a and not b for a, b in zip(*by_hand, strict=True))


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        ((0.1, -0.05, 0.25), "The two answer equally well as far as can be told"),
        ((-0.1, -0.25, 0.05), "The two answer equally well as far as can be told"),
        ((0.1, 0.02, 0.25), "The first model answers better"),
        ((-0.1, -0.25, -0.02), "The second model answers better"),
    ],
)
def test_a_difference_is_said_where_its_interval_leaves_zero_out(
    subject: Subject, difference: tuple[float, float, float], said: str
) -> None:
    found = replace(compare(subject, subject, samples=9), difference=difference)
    assert found.sentence().startswith(said)


@given(st.integers(0, 12), st.integers(0, 12), st.integers(24, 200))
def test_the_interval_and_the_test_say_the_same(first: int, second: int, n: int) -> None:
    low, high = paired_difference(first, second, n)
    gap = (first - second) / n
    assert low <= gap <= high
    assert (-high, -low) == pytest.approx(paired_difference(second, first, n), abs=1e-12)
    p_value = binomtest(first, first + second, 0.5).pvalue if first + second else 1.0
    assert (low > 0 or high < 0) == (p_value < 0.05)


def test_the_interval_holds_the_difference_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    for shares in ((0.05, 0.01), (0.02, 0.02), (0.3, 0.1)):
        drawn = generator.multinomial(100, [*shares, 1 - sum(shares)], size=400)
        ends = [paired_difference(int(a), int(b), 100) for a, b, _ in drawn]
        assert np.mean([low <= shares[0] - shares[1] <= high for low, high in ends]) >= 0.95


def test_models_of_other_tasks_are_refused(subject: Subject) -> None:
    task = tasks.make("modular-arithmetic", p=7)
    assert subject.task is not None
    other = Subject(build(subject.model.config, seed=0), task)
    with pytest.raises(DataError, match=r"p=11\) and modular-arithmetic \(p=7\)"):
        compare(subject, other)
