"""Spectra on groups by brute force, the rule of key components, and the loss without some."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mechint
from mechint import planted
from mechint.errors import DataError
from mechint.groups.finite import cyclic, parse
from mechint.groups.representations import representations
from mechint.groups.spectrum import Harmonics, element_orders
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.planted import trained
from mechint.registry import TASKS
from mechint.subject import Subject
from probes import spectra
from probes.removal import EmbeddingRemoval
from probes.spectra import KeyRule, LogitSums

GROUPS = ("C7", "C12", "S3", "A4", "D5", "S4")


@pytest.mark.parametrize("name", GROUPS)
def test_energies_and_correlations_by_brute_force(name: str) -> None:
    group, draw = parse(name), np.random.default_rng(0)
    harmonics, n = Harmonics(group), group.order
    x, matrix = draw.standard_normal((n, 3)), draw.standard_normal((n, n))
    energies = harmonics.energies(x)
    assert energies.sum() == pytest.approx(((x - x.mean(0)) ** 2).sum())
    for row, irrep in enumerate(representations(group).irreps[1:]):
        elements = representations(group).matrices(irrep.name).reshape(n, -1)
        fitted = elements @ np.linalg.lstsq(elements, x, rcond=None)[0]
        assert energies[row] == pytest.approx((fitted**2).sum())
        character = representations(group).matrices(irrep.name).trace(axis1=1, axis2=2)
        quotient = group.table[:, group.inverses]  # [a, c] = a c⁻¹
        expected = (matrix * character[quotient]).sum()
        assert harmonics.correlate(matrix)[row] == pytest.approx(expected)
    order = draw.permutation(n)
    for standing in (matrix, matrix.T):  # read along rows and along columns
        found = harmonics.correlate(standing, order[None])[0]
        assert found == pytest.approx(harmonics.correlate(standing[:, order]))
        found = harmonics.correlate_permuted(standing, order)
        assert found == pytest.approx(harmonics.correlate(standing[order][:, order]))
    found = harmonics.permuted_energies(x @ x.T, order)
    assert found == pytest.approx(harmonics.energies(x[order]))
    label = harmonics.labels[0]
    assert harmonics.energies(harmonics.without(x, [label]))[0] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("name", ["C6", "S3"])
def test_grid_energies_are_projections_on_products_of_matrix_elements(name: str) -> None:
    group = parse(name)
    n, x = group.order, np.random.default_rng(0).standard_normal((group.order, group.order, 2))
    blocks, total = Harmonics(group).grid_energies(x)
    centered = (x - x.mean((0, 1))).reshape(n * n, 2)
    assert total == pytest.approx((centered**2).sum(0))
    for row, irrep in enumerate(representations(group).irreps[1:]):
        elements = representations(group).matrices(irrep.name).reshape(n, -1)
        functions = np.concatenate([np.ones((n, 1)), elements], 1)
        design = np.einsum("xi,yj->xyij", functions, functions).reshape(n * n, -1)
        design = design - design.mean(0)
        fitted = design @ np.linalg.lstsq(design, centered, rcond=None)[0]
        assert blocks[row] == pytest.approx((fitted**2).sum(0))


@pytest.mark.parametrize("name", ["C5", "C6", "S3"])
def test_arrangements_by_enumeration(name: str) -> None:
    """All orders of the elements; different where the energies of a component, and of all, are."""
    from itertools import permutations

    group = parse(name)
    harmonics = Harmonics(group)
    gram = np.random.default_rng(0).standard_normal((group.order, 3))
    gram = gram @ gram.T
    every = np.array(
        [harmonics.permuted_energies(gram, np.array(o)) for o in permutations(range(group.order))]
    )
    for i, label in enumerate(harmonics.labels):
        distinct = len(np.unique(every[:, i].round(9)))
        assert harmonics.arrangements(label) <= distinct * (1 + 1e-9) or distinct > 100
    assert element_orders(group) <= math.factorial(group.order)


# --- the rule -------------------------------------------------------------------------------------
@pytest.mark.parametrize(("samples", "alpha"), [(199, 0.05), (499, 0.002), (999, 0.01)])
def test_what_exceeds_the_upper_quantile_has_p_values_of_at_most_alpha(
    samples: int, alpha: float
) -> None:
    null = np.random.default_rng(0).permutation(samples).astype(float)
    level = spectra.upper_quantile(null, alpha)
    above, at = ((1 + (null >= x).sum()) / (1 + samples) for x in (level + 0.5, level))
    assert above == pytest.approx(alpha) and at == pytest.approx(alpha + 1 / (1 + samples))


def test_the_null_of_shares_is_the_largest_of_each_order() -> None:
    x = np.random.default_rng(0).standard_normal((9, 4))
    found = spectra.share_spectrum(Harmonics(cyclic(9)), x, KeyRule(permutations=20), 3)
    orders = spectra.permuted(mechint.task.rng("share null", 3), 20, 9)
    centered = x - x.mean(0)
    power = [(np.abs(np.fft.rfft(centered[o], axis=0)[1:]) ** 2).sum(1) for o in orders]
    largest = [2 * one.max() / 9 / (centered**2).sum() for one in power]
    null = found.test("m", "", 2 / 8)
    assert null.mean == pytest.approx(np.mean(largest)) and null.observed == found.values.max()
    # beside one key what is left stands in four components, and permuted not in five
    wave, rule = np.cos(2 * np.pi * np.arange(11) / 11), KeyRule(0.0, alpha=0.05, permutations=99)
    tables = np.random.default_rng(0).standard_normal((60, 11, 9)) + 2 * wave[:, None]
    keys = [spectra.share_spectrum(Harmonics(cyclic(11)), one, rule, 0).keys for one in tables]
    assert all(1 in one for one in keys) and sum(one != [1] for one in keys) <= 6


@pytest.mark.parametrize("name", ["C7", "S3"])
def test_cosines_are_those_of_whole_tensors(name: str) -> None:
    group = parse(name)
    n = group.order
    logits = np.random.default_rng(0).standard_normal((n, n, n))
    logits -= logits.mean(2, keepdims=True)
    logits -= logits.mean((0, 1))
    sums = np.zeros((n, n))
    for a in range(n):
        for b in range(n):
            sums[group.table[a, b]] += logits[a, b]
    given_sums = LogitSums(sums, n * n, float((logits**2).sum()))
    found = spectra.cosine_spectrum(Harmonics(group), given_sums, KeyRule(permutations=9), 0)
    quotients = group.table[group.table[:, :, None], group.inverses[None, None]]  # x y z⁻¹
    for value, character in zip(found.values, representations(group).characters[1:], strict=True):
        wave = character[quotients]
        expected = (logits * wave).sum() / np.linalg.norm(logits) / np.linalg.norm(wave)
        assert value == pytest.approx(expected)


def test_a_table_of_answers_has_no_key_and_is_its_own_null() -> None:
    table = np.eye(13) - 1 / 13
    sums = LogitSums(table, 13, float((table**2).sum()))
    found = spectra.cosine_spectrum(Harmonics(cyclic(13)), sums, KeyRule(permutations=99), 0)
    assert found.keys == [] and found.null == pytest.approx(found.values.max())
    assert found.test("m", "").p_value == 1


def test_a_ripple_on_a_table_of_answers_is_no_key() -> None:
    """It exceeds every order of the classes, and not what the frequencies of noise reach."""
    n, angle = 29, 2 * np.pi / 29 * (np.arange(29)[:, None] - np.arange(29))
    table = np.eye(n) - 1 / n + 0.01 * np.cos(5 * angle)
    sums = LogitSums(table, n, float((table**2).sum()))
    found = spectra.cosine_spectrum(Harmonics(cyclic(n)), sums, KeyRule(), 0)
    assert found.values.argmax() == 4 and found.test("m", "").p_value <= 0.002
    assert found.keys == []


def test_frequencies_above_noise_that_permutations_hide_are_not_left_out() -> None:
    """Four waves in noise: two exceed permuted classes, the others what noise has alone. Of one
    wave in the same noise nothing else is in doubt.
    """
    angle = 2 * np.pi / 17 * (np.arange(17)[:, None] - np.arange(17))
    noise = 4 * np.random.default_rng(0).standard_normal((17, 17))

    def found(*waves: tuple[int, float]) -> spectra.Spectrum:
        table = noise + sum(size * np.cos(k * angle) for k, size in waves)
        table -= table.mean(1, keepdims=True)
        table -= table.mean(0)
        sums = LogitSums(table, 17, float((table**2).sum()))
        return spectra.cosine_spectrum(Harmonics(cyclic(17)), sums, KeyRule(), 0)

    many, one = found((3, 7), (8, 2.2), (1, 1.8), (4, 1.4)), found((3, 7))
    assert many.keys == [3, 8] and many.unnamed_keys == [1, 4]
    assert one.keys == [3] and one.unnamed_keys == []


def test_a_later_round_never_raises_the_threshold() -> None:
    nulls = iter([np.array([2.0] * 499), np.array([5.0] * 499), np.array([0.5] * 499)])
    values = np.array([3.0, 1.0, 0.0])
    found = spectra.step_down(
        Harmonics(cyclic(7)), values, np.zeros(3), 0.002, lambda keys: next(nulls)
    )
    assert found.keys == [1]


def test_a_key_of_memorized_inputs_alone_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """All inputs together have frequency 3, and those that were not memorized noise alone."""
    n, angle = 13, 2 * np.pi / 13 * (np.arange(13)[:, None] - np.arange(13))
    wave = np.cos(3 * angle)
    noise = np.random.default_rng(0).standard_normal((n, n))
    noise -= noise.mean(1, keepdims=True)
    tables = iter([[wave, noise], [wave, wave]])

    def sums(*_: object) -> list[LogitSums]:
        return [LogitSums(table, n, float((table**2).sum())) for table in next(tables)]

    monkeypatch.setattr(spectra, "sum_logits", sums)
    rest = ("held-out inputs", torch.ones(1, dtype=torch.bool))
    arguments = (None, Harmonics(cyclic(n)), torch.zeros(1).long(), range(n), KeyRule(), 0, rest)
    assert spectra.logit_spectrum(*arguments).keys == []  # type: ignore[arg-type]
    assert spectra.logit_spectrum(*arguments).keys == [3]  # type: ignore[arg-type]


@given(n=st.integers(5, 60), seed=st.integers(0, 10**6))
def test_the_flat_level_stands_above_noise(n: int, seed: int) -> None:
    noise = np.abs(np.random.default_rng(seed).standard_normal((200, n, 2)) @ [1, 1j])
    above = [one.max() > spectra.flat_level(one, 0.002) for one in noise]
    assert np.mean(above) < 0.25  # the quartile of few amplitudes is itself uncertain


@pytest.mark.parametrize("known", [True, False])
def test_inputs_that_cannot_be_memorized_are_summed_apart(known: bool) -> None:
    subject = trained.sums_by_heart(0)
    if not known:
        subject = Subject(subject.model, subject.task, split=None)
    (cycle,) = spectra.cycles(subject)
    where, rows = spectra.unmemorized(subject, 0)  # type: ignore[misc]
    assert where == ("held-out inputs" if known else "inputs answered wrong")
    train = trained.sums_by_heart(0).split["train"]  # type: ignore[index]
    expected = torch.ones(121, dtype=torch.bool)
    expected[train] = False
    wrong = subject.logits().argmax(1) != subject.targets[:, 0]
    assert torch.equal(rows, expected if known else wrong)
    exponents = cycle.exponents(subject)
    both = [exponents, exponents.where(rows, -1)]
    whole, found = spectra.sum_logits(subject, both, cycle.columns(subject))
    assert whole is not None and whole.rows == 121
    values = subject.logits().double().numpy()[rows.numpy()]
    values = values - values.mean(1, keepdims=True)
    values = values - values.mean(0)
    assert found is not None and found.squares == pytest.approx((values**2).sum())
    answers = exponents[rows].numpy()
    for a in range(11):
        assert found.sums[a] == pytest.approx(values[answers == a].sum(0), abs=1e-9)


@pytest.mark.parametrize("p", [11, 13])
def test_memorized_sums_have_no_key_frequencies(p: int) -> None:
    for seed in range(3):
        subject = trained.sums_by_heart(seed, p)
        (cycle,) = spectra.cycles(subject)
        assert spectra.cycle_spectrum(subject, cycle, KeyRule(), seed).keys == []


# --- removals -------------------------------------------------------------------------------------
def edited_loss(subject: Subject, projector: np.ndarray) -> float:
    """The loss with a projector taken out of the numbers' rows of W_E by hand."""
    model = copy.deepcopy(subject.model)
    onto = torch.from_numpy(projector).float()
    with torch.no_grad():
        for name in ("embed", "embed_y"):
            if hasattr(model, name):
                rows = getattr(model, name).W_E[: len(onto)]
                rows.sub_(onto @ rows)
    return Subject(model, subject.task, data=subject.data).loss()["answer"]


def test_a_removal_is_the_loss_of_a_model_with_edited_weights() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.05, rotation_seed=1).subject
    rows = Harmonics(cyclic(11)).rows([2])
    edited = EmbeddingRemoval.of(subject, range(11))
    assert edited is not None
    assert edited.loss(rows) == pytest.approx(edited_loss(subject, rows.T @ rows), rel=1e-4)
    small = EmbeddingRemoval.of(subject.with_limits(chunk=7), range(11))
    other = Harmonics(cyclic(11)).rows([5])
    each = small.losses(np.stack([rows, other]))  # type: ignore[union-attr]
    assert each == pytest.approx([edited.loss(rows), edited.loss(other)], rel=1e-5)


def test_a_removal_changes_the_model_on_any_examples() -> None:
    """Networks with two tables, on examples that lack some tokens at either position."""
    config = PairNetworkConfig(d_vocab=13, d_vocab_out=13, d_embed=6, widths=(20,), n_ctx=3)
    whole = Subject(PairNetwork(config, seed=3), TASKS["modular-arithmetic"](p=13))
    rows = Harmonics(cyclic(13)).rows([1, 2, 3])
    for chosen in ([0, 1, 2], [40, 60, 80, 81], list(range(0, 169, 2))):
        few = whole.with_data(whole.data[torch.tensor(chosen)])
        edited = EmbeddingRemoval.of(few, range(13))
        assert edited is not None
        expected = edited_loss(few, rows.T @ rows)
        assert edited.loss(rows) == pytest.approx(expected, rel=1e-5)
        assert abs(expected - few.loss()["answer"]) > 1e-4


def test_a_removal_that_would_remove_nothing_is_refused() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject
    edited = EmbeddingRemoval.of(subject.with_data(subject.data[:5]), [9, 10])
    with pytest.raises(DataError, match="nothing to remove"):
        edited.loss(np.eye(2)[:1])  # type: ignore[union-attr]


def test_an_embedding_of_more_than_its_token_is_refused() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject

    def shifted(x: torch.Tensor, hook: object) -> torch.Tensor:
        return x + torch.arange(len(x), dtype=x.dtype)[:, None, None]

    model = copy.deepcopy(subject.model)
    model.add_hook("hook_embed", shifted)
    edited = EmbeddingRemoval.of(Subject(model, subject.task), range(11))
    with pytest.raises(DataError, match="more than token and position"):
        edited.loss(np.eye(11)[:1])  # type: ignore[union-attr]
