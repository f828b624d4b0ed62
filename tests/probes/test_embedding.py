"""The embedding's geometry: closed forms, planted order and parity, averages over widths, silence
on random rows.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._embedding import measures, residues, values


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
    assert np.allclose(measures.similarity(rows), np.corrcoef(rows))
    singular = np.linalg.svd(rows - rows.mean(0), compute_uv=False)
    for share in (0.5, 0.9):
        r = measures.rank(singular, share)
        total = (singular**2).sum()
        assert (singular[:r] ** 2).sum() >= share * total * (1 - 1e-9)
        assert (singular[: r - 1] ** 2).sum() < share * total


def test_separation_is_the_r_squared_of_class_means() -> None:
    generator = np.random.default_rng(0)
    scores, classes = generator.standard_normal((20, 3)), generator.integers(0, 3, 20)
    design = np.eye(3)[classes]
    for i in range(3):
        fitted = design @ np.linalg.lstsq(design, scores[:, i], rcond=None)[0]
        expected = (
            1
            - ((scores[:, i] - fitted) ** 2).sum()
            / ((scores[:, i] - scores[:, i].mean()) ** 2).sum()
        )
        assert residues.separation(scores, classes)[i] == pytest.approx(expected)


def test_whittaker_shannon_is_the_overlap_of_sampled_pulses() -> None:
    n, width = 10, 5
    sample = np.arange(width)

    def pulse(shift: float) -> np.ndarray:
        u = sample - shift * width / n
        k = np.arange(-(width // 2), width // 2 + 1)
        return np.cos(2 * np.pi * u[:, None] * k / width).mean(1)

    pulses = np.array([pulse(x) for x in range(n)])
    assert np.allclose(pulses @ pulses.T, measures.whittaker_shannon(n, width))


def test_the_best_cyclic_pattern_is_found_by_exhaustive_correlation() -> None:
    n = 11
    similar = measures.similarity(np.random.default_rng(1).standard_normal((n, 6)))
    metrics, _ = measures.layout(similar, permutations=1)
    off = ~np.eye(n, dtype=bool)
    every = [
        np.corrcoef(similar[off], measures.whittaker_shannon(n, width, order)[off])[0, 1]
        for width in (3, 5, 7, 9)
        for order in range(1, 6)
    ]
    assert metrics["cyclic.correlation"] == pytest.approx(max(every))


def test_the_null_of_the_cyclic_order_by_brute_force() -> None:
    """Tokens in random order, rows and columns alike: the best of all patterns by correlation, and
    what is left of the variance when every diagonal is replaced by its mean.
    """
    n = 11
    similar = measures.similarity(np.random.default_rng(2).standard_normal((n, 4)))
    metrics, nulls = measures.layout(similar, permutations=15, seed=6)
    off = ~np.eye(n, dtype=bool)
    every = [
        measures.whittaker_shannon(n, width, order)[off]
        for width in (3, 5, 7, 9)
        for order in range(1, 6)
    ]

    def by_hand(matrix: np.ndarray) -> tuple[float, float]:
        diagonals = np.zeros((n, n))
        for a, b in itertools.permutations(range(n), 2):
            offset = [matrix[c, (c + b - a) % n] for c in range(n)]
            diagonals[a, b] = np.mean(offset)
        largest = max(np.corrcoef(matrix[off], one)[0, 1] for one in every)
        return largest, diagonals[off].var() / matrix[off].var()

    draw = rng("layout null", 6)
    orders = [draw.permutation(n) for _ in range(15)]
    drawn = np.array([by_hand(similar[np.ix_(order, order)]) for order in orders])
    names = ("cyclic.correlation", "cyclic.share")
    for name, observed, samples in zip(names, by_hand(similar), drawn.T, strict=True):
        assert nulls[name].observed == metrics[name] == pytest.approx(observed)
        assert nulls[name].mean == pytest.approx(samples.mean())
        assert nulls[name].std == pytest.approx(samples.std(ddof=1))
        assert nulls[name].p_value == pytest.approx((1 + (samples >= observed).sum()) / 16)
        # circles: 11! orders, 11 of one begun elsewhere, 10 of it walked in other steps
        assert nulls[name].arrangements == pytest.approx(math.factorial(11) / 110)


def test_a_planted_circle_is_cyclic_and_not_split_by_parity() -> None:
    result = probe.run("embedding", planted.modular_addition(23, (3,), rotation_seed=2).subject)
    metrics = result.metrics
    assert (metrics["svd.rank_50"], metrics["svd.rank_90"]) == (1, 2)
    assert (metrics["cyclic.width"], metrics["cyclic.order"]) == (3, 3)
    assert metrics["cyclic.share"] > 0.95 and result.null["cyclic.correlation"].p_value == 0.002
    assert result.null["parity.separation"].p_value > 0.05
    assert "The tokens lie on a circle of frequency 3" in result.finding
    assert metrics["cyclic.frequencies"] == [3]
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


def test_planted_parity_and_residues_are_separated() -> None:
    generator = np.random.default_rng(0)
    values = np.arange(20)
    parity = 3.0 * np.where(values % 2, 1.0, -1.0)[:, None] * generator.standard_normal(
        32
    ) + generator.standard_normal((20, 32))
    result = probe.run("embedding", subject_with(parity, 20))
    assert result.metrics["parity.separation"] > 0.9 and result.metrics["parity.component"] == 1
    assert (
        result.null["parity.separation"].p_value == 0.002
        and "similarities separate parity" in result.finding
    )


@pytest.mark.parametrize("n", [10, 20])
def test_parity_alone_does_not_separate_residues_mod_4(n: int) -> None:
    """Even and odd digits differ and nothing else: parity holds all between residues mod 4."""
    odd, generator = np.arange(n) % 2, np.random.default_rng(0)
    rows = np.where(odd, 1.0, -1.0)[:, None] * generator.standard_normal(32)
    _, nulls = measures.layout(measures.similarity(rows), permutations=199)
    assert nulls["parity.separation"].p_value < 0.05
    assert nulls["mod_4.separation"].p_value == 1
    noisy = measures.similarity(rows + 0.3 * generator.standard_normal(rows.shape))
    _, nulls = measures.layout(noisy, permutations=199)
    assert nulls["parity.separation"].p_value < 0.05 < nulls["mod_4.separation"].p_value


def test_residues_mod_4_are_found_beside_parity_and_behind_it() -> None:
    generator, values = np.random.default_rng(0), np.arange(20)
    parity, half = (np.where(values // step % 2, 1.0, -1.0)[:, None] for step in (1, 2))
    first, second = generator.standard_normal((2, 32))
    rows = 3 * parity * first + half * second + 0.3 * generator.standard_normal((20, 32))
    result = probe.run("embedding", subject_with(rows, 20))
    # by the book: of the residuals of even and of odd, the share between their classes mod 4
    scores = measures.components_of(measures.similarity(rows))
    column = scores[:, result.metrics["mod_4.component"] - 1].copy()
    for odd in (0, 1):
        column[odd::2] -= column[odd::2].mean()
    between = sum(5 * column[values % 4 == r].mean() ** 2 for r in range(4))
    assert result.metrics["mod_4.separation"] == pytest.approx(between / (column**2).sum())
    assert "similarities separate parity" in result.finding
    assert "similarities separate mod 4" in result.finding


def test_random_rows_and_a_lookup_table_are_silent() -> None:
    task = TASKS["modular-arithmetic"](p=14)
    for subject in [
        subject_with(np.random.default_rng(seed).standard_normal((14, 24)), 14) for seed in range(3)
    ] + [planted.lookup_table(task).subject]:
        finding = probe.run("embedding", subject).finding
        assert "do not separate parity" in finding and "do not separate mod 4" in finding
        assert "circle" not in finding and "no cyclic order" in finding


def test_equal_positions_correlate_and_opposite_ones_do_the_other_way() -> None:
    subject = subject_with(np.random.default_rng(0).standard_normal((11, 40)), 11)
    for sign in (1, -1):
        with torch.no_grad():
            subject.model.W_pos[1] = sign * subject.model.W_pos[0]
        result = probe.run("embedding", subject)
        assert result.metrics["position.correlation"] == pytest.approx(sign, abs=1e-6)
        assert result.null["position.correlation"].p_value == 0.002


def test_similarity_is_averaged_over_models_of_any_width() -> None:
    generator = np.random.default_rng(0)
    rows = [generator.standard_normal((11, d)) for d in (8, 16, 24)]
    expected = np.mean([np.corrcoef(r.astype(np.float32)) for r in rows], axis=0)
    assert np.allclose(
        measures.average_similarity(subject_with(r, 11) for r in rows), expected, atol=1e-5
    )
    with pytest.raises(DataError, match="models of one task"):
        measures.average_similarity(
            [subject_with(rows[0], 11), subject_with(generator.standard_normal((13, 8)), 13)]
        )


def test_several_circles_are_counted_and_positions_are_named() -> None:
    subject = planted.modular_addition(31, (3, 8, 12), rotation_seed=2).subject
    result = probe.run("embedding", subject, positions=(0, 2))
    assert result.metrics["cyclic.frequencies"] == [3, 8, 12]
    assert "on 3 circles at once, of frequencies 3, 8, 12" in result.finding
    assert "positions 0 and 2 of 3" in result.finding
    shares = fourier_shares(subject)
    assert result.metrics["cyclic.frequency_share"] == pytest.approx(shares)
    assert f"frequencies 3, 8, 12 ({sum(shares.values()):.0%} of the" in result.finding
    assert "on a circle" not in result.finding and "two positions" not in result.finding


def fourier_shares(subject: Subject) -> dict[int, float]:
    rows = subject.model.W_E.detach()[:31].double().numpy()
    energy = (np.abs(np.fft.fft(rows - rows.mean(0), axis=0)) ** 2).sum(1)
    return {k: (energy[k] + energy[-k]) / energy.sum() for k in (3, 8, 12)}


def test_elements_that_are_merely_listed_have_no_parity_and_no_circle() -> None:
    """A plant in one representation of A5 has energy at some frequencies of the list's order."""
    plant = planted.group_product("A5", ("3a",), noise=0.02, seed=1)
    result = probe.run("embedding", plant.subject)
    assert "fewer than Gaussian rows" in result.finding
    for word in ("circle", "cyclic", "parity", "mod 4"):
        assert word not in result.finding
    assert not [name for name in result.metrics if name.startswith(("cyclic", "parity", "mod"))]
    assert set(result.figures) == {"singular_values", "similarity"}


def test_numbers_are_in_order_and_signs_are_no_numbers() -> None:
    for name, parameters, n in (
        ("digit-sum", {}, 10),  # + and = follow
        ("max-of-list", {}, 64),
        ("running-sign", {}, 11),  # −5 … 5
        ("first-unique", {}, 0),  # letters
        ("modular-arithmetic", {"p": 8, "operation": "multiply"}, 8),  # no group, but numbers
    ):
        task = TASKS[name](**parameters)
        model = HookedTransformer(ModelConfig(n_heads=1, d_vocab=task.d_vocab, d_vocab_out=2))
        subject = Subject(model, task)
        assert values.in_order(subject) == (n > 0), name
        assert values.value_tokens(subject) == list(range(n or task.d_vocab)), name
    unknown = Subject(model, None)
    assert not values.in_order(unknown)
    assert len(values.value_tokens(unknown, 4)) == 4


def test_the_null_of_the_ranks_is_uniform_on_random_rows() -> None:
    p_values = []
    for seed in range(60):
        rows = np.random.default_rng(seed).standard_normal((17, 12))
        p_values.append(measures.rank_nulls(rows, 99, seed)["svd.rank_50"].p_value)
    assert 0.25 < np.mean(p_values) < 0.75 and 0.15 < np.std(p_values)
    assert np.mean(np.array(p_values) <= 0.2) < 0.45


@given(st.integers(0, 10**6))
def test_fractional_ranks_lie_below_the_whole_ones(seed: int) -> None:
    singular = np.sort(np.random.default_rng(seed).random(7) + 0.1)[::-1]
    for share in (0.5, 0.9):
        whole = measures.rank(singular, share)
        assert whole - 1 - 1e-9 <= measures.fractional_rank(singular, share) <= whole + 1e-9


def test_what_part_of_a_large_vocabulary_was_looked_at_is_said() -> None:
    config = ModelConfig(d_model=8, n_heads=2, d_vocab=1500, d_vocab_out=1500)
    subject = Subject(HookedTransformer(config, seed=0), None)
    result = probe.run("embedding", subject, tokens=64, permutations=499)
    assert "Half of the variance of the first 64 of 1,500 token embeddings" in result.finding
    few = probe.run("embedding", subject, tokens=1500, permutations=499)
    assert "Half of the variance of 1500 token embeddings" in few.finding
