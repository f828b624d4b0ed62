"""The embedding's geometry: closed forms, planted order, silence on random
rows.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._embedding import probe as embedding


def subject_with(rows: np.ndarray, p: int) -> Subject:
    model = HookedTransformer(
        ModelConfig(d_model=rows.shape[1], n_heads=1, d_mlp=4, d_vocab=p + 1, d_vocab_out=p)
    )
    with torch.no_grad():
        model.W_E[:p] = torch.from_numpy(rows)
    return Subject(model, TASKS["modular-arithmetic"](p=p))


@given(st.integers(0, 10**6), st.integers(4, 12), st.integers(2, 9))
def test_similarity_and_rank_by_the_book(seed: int, n: int, d: int) -> None:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    assert np.allclose(embedding.similarity(rows), np.corrcoef(rows))
    singular = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    for share in (0.5, 0.9):
        rank, squares = embedding.fractional_rank(singular, share), singular**2
        whole = int(rank)
        held = squares[:whole].sum() + (rank - whole) * squares[whole : whole + 1].sum()
        assert held == pytest.approx(share * squares.sum())
        assert embedding.fractional_rank(1e-20 * singular, share) == pytest.approx(rank)


@pytest.mark.parametrize("frequencies", [(3,), (3, 8)])
def test_planted_circles_are_counted(frequencies: tuple[int, ...]) -> None:
    subject = planted.modular_addition(23, frequencies, rotation_seed=2).subject
    result = probe.run("embedding", subject)
    metrics = result.metrics
    assert metrics["svd.rank_90"] == 2 * len(frequencies)
    assert metrics["cyclic.frequencies"] == list(frequencies)
    rows = subject.model.W_E.detach()[:23].double().numpy()
    energy = (np.abs(np.fft.fft(rows - rows.mean(0), axis=0)) ** 2).sum(1)
    shares = {k: (energy[k] + energy[-k]) / energy.sum() for k in frequencies}
    assert metrics["cyclic.frequency_share"] == pytest.approx(shares)
    circles, rank, layout = result.findings
    assert {one.verdict for one in (rank, circles, layout)} == {"yes"}
    assert metrics["layout"] == "cyclic" and metrics["layout.cyclic"] > 0.95
    assert circles.effect is not None
    assert circles.effect.value == pytest.approx(sum(shares.values()))
    assert rank.effect is not None and rank.effect.baseline > rank.effect.value  # type: ignore[operator]
    assert result.hero == "circle" and result.lead


def test_numbers_on_a_line_are_not_on_a_circle() -> None:
    rows = np.random.default_rng(0).normal(0, 0.1, (31, 8))
    rows[:, 0] += np.arange(31) - 15
    result = probe.run("embedding", subject_with(rows, 31))
    order = result.findings[1]
    assert order.verdict == "yes" and "circle" not in order.headline
    assert result.metrics["layout"] == "line" and "circle" not in result.figures
    assert result.metrics["cyclic.circularity"][1] < 0.8 and result.lead == ""
    # of more noise it stands out still, and holds less than what is called a layout or a key
    rows = np.random.default_rng(4).standard_normal((31, 30))
    rows[:, 0] += (np.arange(31) - 15) / 6
    result = probe.run("embedding", subject_with(rows, 31))
    assert 0.01 < result.null["cyclic.largest_share"].p_value <= 0.1
    assert result.null["layout.standardized"].p_value < 0.01
    assert [one.verdict for one in result.findings[1:]] == ["no", "no"]
    assert "20%" in result.findings[2].headline


@pytest.mark.parametrize("closed", [False, True])
def test_a_bent_line_is_no_circle(closed: bool) -> None:
    """Tokens as similar as they are near, along a line or around a circle, in noise of twice their
    energy: a line has the low frequencies of a circle, too, each of them round.
    """
    apart = np.abs(np.subtract.outer(np.arange(60), np.arange(60)))
    apart = np.minimum(apart, 60 - apart) if closed else apart
    draw = np.random.default_rng(2)
    kernel = np.linalg.cholesky(np.exp(-apart / 10) + 1e-6 * np.eye(60))
    rows = kernel @ draw.standard_normal((60, 64)) + 1.4 * draw.standard_normal((60, 64))
    result = probe.run("embedding", subject_with(rows, 60))
    said = " ".join(one.headline for one in result.findings if one.verdict == "yes")
    assert ("circles, of frequency" in said) == ("laid out on circles" in said) == closed
    assert ("ends are far apart" in said) != closed and result.metrics["cyclic.frequencies"]
    share = sum(result.metrics["cyclic.frequency_share"].values())
    assert f"{share:.0%} of" in said and share < 0.5 and result.lead == ""


def test_elements_that_are_merely_listed_are_not_asked_for_circles() -> None:
    """A plant in one representation of A5 has energy at some frequencies of the list's order."""
    plant = planted.group_product("A5", ("3a",), noise=0.02, seed=1)
    result = probe.run("embedding", plant.subject)
    assert len(result.findings) == 1 and result.verdict == "yes"
    assert [question for question, _ in result.not_asked] == ["circles"]
    assert set(result.figures) == {"similarity"}


def test_numbers_are_in_order_and_signs_are_no_numbers() -> None:
    for name, parameters, n in (
        ("digit-sum", {}, 10),  # + and = follow
        ("running-sign", {}, 11),  # −5 … 5
        ("first-unique", {}, 0),  # letters
        ("modular-arithmetic", {"p": 8, "operation": "multiply"}, 8),  # no group, but numbers
    ):
        task = TASKS[name](**parameters)
        model = HookedTransformer(ModelConfig(n_heads=1, d_vocab=task.d_vocab, d_vocab_out=2))
        subject = Subject(model, task)
        assert embedding.in_order(subject) == (n > 0), name
        assert embedding.value_tokens(subject) == list(range(n or task.d_vocab)), name
    assert len(embedding.value_tokens(Subject(model, None), 4)) == 4
