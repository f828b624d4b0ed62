"""The Fourier probe: brute-force transforms, planted frequencies, silence without a mechanism,
published checkpoints.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kstest

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.models.transformer import HookedTransformer
from mechint.planted import trained
from mechint.registry import TASKS
from mechint.reporting import Report
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes import answers, neuron_removal, removal
from probes._fourier import cosines, neurons, outputs, reporting, spectra
from probes._fourier.probe import Fourier
from probes._fourier.removals import RemovalNull, removals
from probes.answers import Cycle

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "checkpoints"


def published(name: str) -> Path:
    if not (CHECKPOINTS / name).exists():
        pytest.skip(f"the published checkpoint {name} is not beside the repository")
    return CHECKPOINTS / name


def brute_energies(x: np.ndarray) -> np.ndarray:
    """Energy per frequency by summing e^(-2πi kt/n) x(t) term by term, both signs added."""
    n = len(x)
    sums = np.zeros(n // 2)
    for k in range(1, n):
        coefficient = sum(x[t] * np.exp(-2j * np.pi * k * t / n) for t in range(n))
        sums[min(k, n - k) - 1] += (np.abs(coefficient) ** 2).sum() / n
    return sums


@pytest.mark.parametrize(("samples", "alpha"), [(199, 0.05), (499, 0.002), (999, 0.01)])
def test_what_exceeds_the_upper_quantile_has_p_values_of_at_most_alpha(
    samples: int, alpha: float
) -> None:
    null = np.random.default_rng(0).permutation(samples).astype(float)
    level = spectra.upper_quantile(null, alpha)
    p_above, p_at = ((1 + (null >= x).sum()) / (1 + samples) for x in (level + 0.5, level))
    assert p_above == pytest.approx(alpha) and p_at == pytest.approx(alpha + 1 / (1 + samples))


@given(n=st.integers(2, 13), d=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_energies_are_the_transform_summed_by_hand_and_add_up(n: int, d: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((n, d))
    found = spectra.energies(x)
    assert np.allclose(found, brute_energies(x))
    assert np.isclose(found.sum(), ((x - x.mean(0)) ** 2).sum())
    gram = x @ x.T
    assert np.allclose(
        spectra.wave_sums(spectra.offset_profile(gram)) * spectra.signs(n) / n, found
    )


@given(n=st.integers(2, 9), seed=st.integers(0, 10**6))
def test_grid_energies_are_projections_on_products_of_waves(n: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((n, n, 2))
    blocks, total = neurons.grid_energies(x)
    centered = x - x.mean((0, 1))
    assert np.allclose(total, (centered**2).sum((0, 1)))
    for k in range(1, n // 2 + 1):
        waves = [
            np.ones(n),
            np.cos(2 * np.pi * k * np.arange(n) / n),
            np.sin(2 * np.pi * k * np.arange(n) / n),
        ]
        waves = [wave / np.linalg.norm(wave) for wave in waves if np.linalg.norm(wave) > 1e-6]
        expected = sum(
            np.einsum("i,j,ijm->m", a, b, centered) ** 2
            for i, a in enumerate(waves)
            for j, b in enumerate(waves)
            if i or j
        )
        assert np.allclose(blocks[k - 1], expected)


def test_cosines_of_logits_are_the_cosines_of_the_whole_tensors() -> None:
    p = 7
    logits = np.random.default_rng(0).standard_normal((p, p, p))
    logits -= logits.mean(2, keepdims=True)
    logits -= logits.mean((0, 1))
    x, y, c = np.ogrid[:p, :p, :p]
    sums = np.array([sum(logits[a, (answer - a) % p] for a in range(p)) for answer in range(p)])
    found = cosines.cosine_spectrum(
        sums,
        np.full(p, float(p)),
        float((logits**2).sum()),
        spectra.KeyFrequencyRule(permutations=9),
        0,
    )
    for k in range(1, 4):
        wave = np.cos(2 * np.pi * k * (x + y - c) / p)
        assert np.isclose(
            found.values[k - 1],
            (logits * wave).sum() / np.linalg.norm(logits) / np.linalg.norm(wave),
        )


@pytest.mark.parametrize(("p", "frequencies"), [(23, (3, 7)), (31, (1, 2, 3, 14)), (24, (5, 7))])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_planted_frequencies_are_recovered_exactly(
    p: int, frequencies: tuple[int, ...], noise: float
) -> None:
    subject = planted.modular_addition(
        p, frequencies, noise=noise, rotation_seed=1, decoy=0.2 if noise else None
    ).subject
    result = probe.run("fourier", subject)
    for part in ("embedding", "neurons", "logits"):
        assert result.metrics[f"{part}.key_frequencies"] == list(frequencies), part
    assert result.metrics["residual.modes"]["blocks.0.hook_resid_post"] == len(frequencies)
    assert result.null["logits.largest_cosine"].p_value <= 0.002


def test_the_null_of_shares_is_the_largest_of_each_order_by_brute_force() -> None:
    x = np.random.default_rng(3).standard_normal((9, 4))
    found = spectra.share_spectrum(x, spectra.KeyFrequencyRule(permutations=11), seed=5)
    draw, centered = rng("share null", 5), x - x.mean(0)
    largest = [
        brute_energies(centered[draw.permutation(9)]).max() / (centered**2).sum() for _ in range(11)
    ]
    assert found.keys == [] and found.null == pytest.approx(np.array(largest))


def test_planted_neurons_belong_to_their_frequency() -> None:
    plant = planted.modular_addition(23, (3, 7))
    metrics = probe.run("fourier", plant.subject).metrics
    assert metrics["neurons.clusters"] == {
        k: len(cluster) for k, cluster in plant.truth["clusters"].items()
    }
    assert metrics["logits.explained"] == pytest.approx(1, abs=0.01)
    assert metrics["embedding.share"][3] == pytest.approx(0.5, abs=1e-6)


def test_a_lookup_table_and_untrained_weights_are_silent() -> None:
    task = TASKS["modular-arithmetic"](p=13)
    untrained = [
        Subject(
            HookedTransformer(
                ModelConfig(d_model=16, n_heads=2, d_vocab=14, d_vocab_out=13), seed=seed
            ),
            task,
        )
        for seed in range(3)
    ]
    for subject in [
        planted.lookup_table(task, noise=noise, rotation_seed=1).subject for noise in (0.0, 0.2)
    ] + untrained:
        result = probe.run("fourier", subject)
        assert [
            result.metrics[f"{part}.key_frequencies"] for part in ("embedding", "neurons", "logits")
        ] == [[], [], []]
        assert set(result.metrics["residual.modes"].values()) == {0}
        assert result.verdict != "yes"
        assert "No frequency of the embedding is key" in result.finding
        assert result.metrics["embedding.removal"] == {}


def multiplication(p: int, frequencies: tuple[int, ...]) -> Subject:
    """Products modulo a prime by addition of logarithms."""
    task = TASKS["modular-arithmetic"](p=p, operation="multiply")
    plant = planted.modular_addition(p - 1, frequencies).subject.model
    powers = torch.tensor(task.symmetry.tokens)
    model = HookedTransformer(
        ModelConfig(
            **{**plant.config.to_dict(), "d_vocab": p + 1, "d_vocab_out": p, "output_sizes": None}
        )
    )
    state = {name: value.detach().clone() for name, value in plant.weights().items()}
    embedding, unembedding = (
        torch.zeros(p + 1, plant.config.d_model),
        torch.zeros(plant.config.d_model, p),
    )
    embedding[powers], embedding[p] = state["embed.W_E"][: p - 1], state["embed.W_E"][p - 1]
    unembedding[:, powers] = state["unembed.W_U"]
    model.load_weights({**state, "embed.W_E": embedding, "unembed.W_U": unembedding})
    return Subject(model, task)


def test_multiplication_is_read_in_logarithms() -> None:
    assert TASKS["modular-arithmetic"](p=12).symmetry.group.order == 12
    metrics = probe.run("fourier", multiplication(13, (1, 5))).metrics
    assert (
        metrics["embedding.key_frequencies"]
        == metrics["neurons.key_frequencies"]
        == metrics["logits.key_frequencies"]
        == [1, 5]
    )


@pytest.mark.parametrize("hooked", [False, True])
def test_neurons_of_a_product_lose_waves_of_its_logarithms(hooked: bool) -> None:
    """By least squares over the 100 products of 1 … 10; what a factor of zero gives stays."""
    p, k = 11, 3
    subject = multiplication(p, (1, k))
    if hooked:
        subject.model.register_forward_pre_hook(lambda *_: None)  # no short cut is taken
    powers = [pow(2, i, p) for i in range(p - 1)]
    angles = 2 * np.pi * k * np.arange(p - 1) / (p - 1)
    functions = [np.zeros(p) for _ in range(3)]
    for values, one in zip(
        (1 + 0 * angles, np.cos(angles), np.sin(angles)), functions, strict=True
    ):
        one[powers] = values
    design = np.stack([np.outer(a, b).ravel() for a in functions for b in functions], 1)
    inside, hook = design[:, 0] > 0, "blocks.0.mlp.hook_post"
    values = subject.activation(hook, at=2).double().numpy()
    weights = np.linalg.lstsq(design[inside], values[inside], rcond=None)[0]
    fitted = torch.from_numpy(design[:, 1:] @ weights[1:]).float()

    def without(x: torch.Tensor, hook: object) -> torch.Tensor:
        x = x.clone()
        x[:, 2] -= fitted
        return x

    loss = subject.loss(subject.logits(hooks=[(hook, without)]))["answer"]
    edited = neuron_removal.NeuronRemoval.of(subject)
    assert edited is not None
    found = edited.loss(spectra.waves(p - 1)[k - 1], np.array(powers))
    assert found == pytest.approx(loss, rel=1e-4) and found > subject.loss()["answer"] + 0.1


def test_every_output_has_its_own_modulus() -> None:
    task = TASKS["remainders"](p=11)
    model = HookedTransformer(
        ModelConfig(
            d_model=16,
            n_heads=2,
            d_vocab=task.d_vocab,
            d_vocab_out=task.d_vocab_out,
            output_sizes=(2, 3, 5, 7),
        )
    )
    metrics = probe.run("fourier", Subject(model, task)).metrics
    assert metrics["logits.key_frequencies"] == {"mod 2": [], "mod 3": [], "mod 5": [], "mod 7": []}
    assert [len(metrics["logits.cosine"][f"mod {q}"]) for q in (2, 3, 5, 7)] == [1, 1, 2, 3]


def periodic(n: int, keys: tuple[int, ...], noise: float, seed: int = 0) -> spectra.Spectrum:
    """The spectrum of logits Σ cos w(answer − class) over n classes, with noise."""
    offsets = np.subtract.outer(np.arange(n), np.arange(n))
    logits = np.random.default_rng([n, seed]).standard_normal((n, n)) * noise
    logits += np.cos(2 * np.pi * np.multiply.outer(keys, offsets) / n).sum(0)
    logits -= logits.mean(1, keepdims=True)
    logits -= logits.mean(0)
    squares = float((logits**2).sum())
    return cosines.cosine_spectrum(logits, np.ones(n), squares, spectra.KeyFrequencyRule(), seed)


def judged(logits: dict[int, spectra.Spectrum]) -> Report:
    """The report on outputs of these moduli, of a model that answers right."""
    report = Report(Fourier(), planted.modular_addition(11, (2, 5)).subject)
    cycles = [Cycle(f"mod {n}", i, tuple(range(n))) for i, n in enumerate(logits)]
    reporting.add_logits(report, cycles, {f"mod {n}": one for n, one in logits.items()})
    return report


def test_keys_of_one_output_are_not_denied_for_another_where_any_order_reaches_them() -> None:
    """Modulo 2 and 3 the cosine is 1, as it is with the classes in other orders."""
    perfect = {2: periodic(2, (1,), 0.0), 3: periodic(3, (1,), 0.0)}
    report = judged(perfect | {29: periodic(29, (3, 7), 0.1)})
    (finding,) = report.findings
    assert finding.verdict == "yes" and "(mod 29: 3, 7)" in finding.headline
    assert "mod 2 and mod 3 have too few classes" in finding.headline
    z = report.nulls["logits.largest_z"]
    assert z.observed == pytest.approx(report.metrics["logits.largest_z"]["mod 29"])

    (finding,) = judged(perfect | {29: periodic(29, (), 1.0)}).findings
    assert finding.verdict == "no"
    assert finding.headline.startswith("None of the 1 output that can be tested (mod 2 and mod 3")
    for few in (perfect, {5: periodic(5, (1,), 0.0)}):
        (finding,) = judged(few).findings
        assert finding.verdict == "unclear" and "too few" in finding.headline


def test_an_output_is_named_by_the_level_of_all_together() -> None:
    """Its own shuffles alone may call a chance frequency key: not among 25 outputs."""
    noise = {n: periodic(n, (), 1.0) for n in range(11, 35)}
    noise[11] = dataclasses.replace(noise[11], keys=[2])
    (finding,) = judged(noise).findings
    assert finding.verdict == "no" and "by chance (mod 11: 2)" in finding.headline
    (finding,) = judged(noise | {31: periodic(31, (4,), 0.5)}).findings
    assert finding.verdict == "yes"
    assert finding.headline.startswith("1 of the 24 outputs has key frequencies in its logits (mod")
    assert "(mod 31: 4)" in finding.headline


def test_p_values_of_several_outputs_are_uniform_without_keys() -> None:
    """And those of the smallest modulus no nearer to 0 than those of the largest."""
    p, first = [], []
    for seed in range(60):
        z, null = outputs.largest_z({str(n): periodic(n, (), 1.0, seed) for n in (7, 11, 23)})
        p.append((1 + (null >= max(z.values())).sum()) / (1 + len(null)))
        first.append(max(z, key=lambda name: z[name]))
    assert kstest(p, "uniform").pvalue > 1e-3
    assert min(first.count(name) for name in ("7", "11", "23")) > 8  # a third each, were z normal


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_few_classes_cannot_be_told_by_all_their_orders(n: int) -> None:
    """As many of the n! orders of classes and answers alike have the largest cosine of the right
    one as there are orders of one circle, which is more often than the probe's level allows.
    """
    logits = np.cos(2 * np.pi * np.subtract.outer(np.arange(n), np.arange(n)) / n)
    waves = spectra.wave_sums(np.eye(n))[np.subtract.outer(np.arange(n), np.arange(n)) % n]
    best = [
        np.einsum("acf,ac->f", waves, logits[np.ix_(order, order)])[: (n - 1) // 2].max()
        for order in itertools.permutations(range(n))
    ]
    share = np.mean(np.array(best) > best[0] - 1e-9)
    assert share == pytest.approx(1 / spectra.circular_orders(n)) and share > Fourier().alpha
    assert not outputs.enough_classes(n, Fourier().alpha, 1)


def test_a_table_of_the_answers_is_no_further_from_its_null_than_from_itself() -> None:
    """Right answers stay right when answers and classes are relabeled alike: the p-value is 1."""
    rule = dataclasses.replace(spectra.KeyFrequencyRule(), permutations=99)
    table = np.eye(13) - 1 / 13
    found = cosines.cosine_spectrum(table, np.ones(13), float((table**2).sum()), rule, 0)
    assert found.keys == [] and found.null == pytest.approx(found.values.max())
    assert found.test("m", "").p_value == 1


@pytest.mark.parametrize("known", [True, False])
def test_logits_on_inputs_that_cannot_be_known_by_heart_are_summed_apart(known: bool) -> None:
    subject = trained.sums_by_heart(0)
    if not known:
        subject = Subject(subject.model, subject.task, split=None)
    whole, rest = answers.logit_sums(subject, answers.cycles(subject)[0])
    logits = subject.logits().double().numpy()
    answer = subject.data.tokens[:, :2].sum(1).numpy() % 11
    held_out = torch.cat(
        [part for name, part in trained.sums_by_heart(0).split.items() if name != "train"]
    )
    rows = held_out.sort().values.numpy() if known else np.flatnonzero(logits.argmax(1) != answer)
    assert rest is not None and rest[0] == ("held-out inputs" if known else "inputs answered wrong")
    for sums, which in ((whole, slice(None)), (rest[1], rows)):
        values = logits[which] - logits[which].mean(1, keepdims=True)
        values -= values.mean(0)
        assert sums.squares == pytest.approx((values**2).sum())
        for a in range(11):
            assert sums.centered[a] == pytest.approx(values[answer[which] == a].sum(0), abs=1e-9)


@pytest.mark.parametrize("p", [11, 13])
def test_sums_known_by_heart_have_no_key_frequencies(p: int) -> None:
    """Of random weights that were taught sums some frequencies stand out; not on held-out sums."""
    for seed in range(8):
        subject = trained.sums_by_heart(seed, p)
        right = subject.correct()[:, 0].double()
        assert (
            right[subject.split["train"]].mean() > 0.95
            and right[subject.split["test"]].mean() < 0.4
        )
        for blind in (subject, Subject(subject.model, subject.task, split=None)):
            (cycle,) = answers.cycles(blind)
            assert answers.logit_spectrum(blind, cycle, spectra.KeyFrequencyRule(), seed).keys == []


def test_a_frequency_of_the_training_pairs_alone_is_not_key() -> None:
    """A clock on what it was trained on, nothing elsewhere: key over all inputs, not held out."""
    plant = planted.modular_addition(23, (3, 7))
    train = plant.subject.split["train"]  # type: ignore[index]

    subject = plant.subject
    (cycle,) = answers.cycles(subject)
    clock = subject.logits()
    logits = torch.randn(clock.shape, generator=torch.Generator().manual_seed(0)) * clock.std()
    logits[train] = clock[train]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subject, "stream", lambda *_, **__: [(slice(None), {answers.LOGITS: logits})])
        found = answers.logit_spectrum(subject, cycle, spectra.KeyFrequencyRule(), 0)
        whole, _ = answers.logit_sums(subject, cycle)
    over_all = cosines.cosine_spectrum(
        whole.centered, whole.counts, whole.squares, spectra.KeyFrequencyRule(), 0
    )
    assert over_all.keys == [3, 7] and found.keys == []
    assert found.unseen is not None and found.unseen.where == "held-out inputs"
    report = Report(Fourier(), subject)
    reporting.add_logits(report, [cycle], {cycle.output: found})
    (finding,) = report.findings
    assert finding.verdict == "no"
    assert "No frequency of the logits is key on held-out inputs as it is" in finding.headline
    assert report.metrics["logits.unseen_cosine"] == found.unseen.by_frequency


def test_the_same_seed_gives_the_same_result_in_either_precision_and_in_small_memory() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.1).subject
    once, twice = probe.run("fourier", subject, seed=3), probe.run("fourier", subject, seed=3)
    assert once.to_json() == twice.to_json() == ProbeResult.from_json(once.to_json()).to_json()
    small = Subject(subject.model, subject.task, memory=1000, chunk=7)
    assert probe.run("fourier", small, seed=3).metrics["logits.share"] == pytest.approx(
        once.metrics["logits.share"]
    )
    subject.model.double()
    double = probe.run("fourier", Subject(subject.model, subject.task), seed=3)
    assert double.metrics["embedding.share"] == pytest.approx(
        once.metrics["embedding.share"], abs=1e-6
    )


def test_a_series_counts_active_frequencies_over_steps() -> None:
    subject = planted.modular_addition(23, (3, 7)).subject
    trained = {name: value.clone() for name, value in subject.model.state_dict().items()}
    start = HookedTransformer(subject.model.config, seed=1).state_dict()
    series = {0: lambda: start, 100: lambda: trained}
    result = probe.run("fourier", Subject(subject.model, subject.task, series=series))
    table = result.tables["steps"].columns
    assert (
        table["step"] == [0, 100]
        and table["logit keys"] == [0, 2]
        and table["embedding keys"] == [0, 2]
    )
    assert "steps" in result.figures


def test_a_group_that_is_not_cyclic_is_sent_to_irreps() -> None:
    task = TASKS["groups"](group="S3")
    model = HookedTransformer(ModelConfig(d_model=8, n_heads=1, d_vocab=7, d_vocab_out=6))
    with pytest.raises(NotApplicableError, match="no cyclic group acts"):
        probe.run("fourier", Subject(model, task))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task", "keys", "shares"),
    [
        (
            "rep-theory/C113_T_seed1/model.pt",
            {"task": "modular-arithmetic", "p": 113},
            [16, 30, 56],
            {16: 0.348, 30: 0.314, 56: 0.239},
        ),
        (
            "progress-measures/wd_10-1_mod_addition_loss_curve.pth",
            {},
            [6, 23, 37, 39, 41],
            {23: 0.24, 6: 0.17, 37: 0.15, 41: 0.14, 39: 0.13},
        ),
        ("pizza/model_q9rsl94xlv.pt", {}, [4, 12, 19, 21], {12: 0.28, 4: 0.27, 21: 0.25, 19: 0.19}),
    ],
)
def test_published_checkpoints_have_their_published_frequencies(
    name: str, task: dict, keys: list[int], shares: dict[int, float]
) -> None:
    result = probe.run("fourier", mechint.load(published(name), **task), operand_permutations=19)
    assert result.metrics["logits.key_frequencies"] == keys
    assert {k: result.metrics["embedding.share"][k] for k in shares} == pytest.approx(
        shares, abs=0.005
    )


@pytest.mark.parametrize(
    ("name", "task", "rises", "harmonics", "rise"),
    [
        ("pizza/model_p99zdpze5l.pt", {}, {3: 7.142, 6: 0.0044, 25: 0.031}, [6, 25, 29], 0.105),
        (
            "progress-measures/low_precision_mod_addition.pth",
            {"task": "modular-arithmetic", "p": 113},
            {23: 9.24, 35: 0.0572},
            [12, 35, 46],
            0.0579,
        ),
    ],
)
def test_second_harmonics_that_no_logit_shows_are_needed_in_published_models(
    name: str, task: dict, rises: dict[int, float], harmonics: list[int], rise: float
) -> None:
    subject = mechint.load(published(name), **task)
    result = probe.run("fourier", subject, permutations=499, operand_permutations=3)
    metrics = result.metrics
    found = {k: metrics["embedding.removal"][k] for k in rises}
    assert found == pytest.approx(rises, rel=0.02)
    assert metrics["embedding.harmonics"] == harmonics
    assert metrics["embedding.removal_harmonics"] == pytest.approx(rise, rel=0.02)
    assert abs(metrics["embedding.removal_unnamed"]) < 0.1 * rise + 2e-3
    assert not set(harmonics) & set(metrics["logits.key_frequencies"])
    assert "do not use" not in result.finding
    said = [finding for finding in result.findings if "second harmonics" in finding.headline]
    assert [finding.verdict for finding in said] == ["yes"] and said[0].causal


def test_no_frequency_is_key_in_a_published_model_that_did_not_learn() -> None:
    subject = mechint.load(published("pizza/model_hpv2jgskwe.pt"))
    result = probe.run("fourier", subject, permutations=499, operand_permutations=3)
    assert result.metrics["logits.key_frequencies"] == []
    assert result.metrics["embedding.key_frequencies"] == []
    assert result.verdict == "no"


@given(n=st.integers(5, 60), seed=st.integers(0, 10**6))
def test_the_flat_level_stands_above_noise(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    above = [
        np.abs(noise).max() > cosines.flat_level(np.abs(noise), 0.002)
        for noise in generator.standard_normal((200, n, 2)) @ [1, 1j]
    ]
    assert np.mean(above) < 0.25  # the quartile of few amplitudes is itself uncertain
    assert cosines.flat_level(np.ones(n), 0.002) > 4


@pytest.mark.parametrize("constant_attention", [False, True])
def test_a_removal_is_the_loss_of_a_model_with_edited_weights(constant_attention: bool) -> None:
    subject = planted.modular_addition(
        11, (2, 5), noise=0.05, rotation_seed=1, constant_attention=constant_attention
    ).subject
    metrics = probe.run("fourier", subject).metrics
    angles = 2 * np.pi * np.arange(11) / 11
    for k in (2, 5):
        waves = np.stack([np.cos(k * angles), np.sin(k * angles)]) * np.sqrt(2 / 11)
        projector = torch.from_numpy(waves.T @ waves).float()
        for part in ("embedding", "unembedding"):
            model = copy.deepcopy(subject.model)
            with torch.no_grad():
                if part == "embedding":
                    model.W_E[:11].sub_(projector @ model.W_E[:11])
                else:
                    model.W_U.sub_(model.W_U @ projector)
            loss = Subject(model, subject.task).loss()["answer"]
            rise = metrics[f"{part}.removal"][k]
            assert metrics["loss"] + rise == pytest.approx(loss, rel=1e-4, abs=1e-6)
        # neurons: every function of the operands in the block of this frequency, by least squares
        hook = "blocks.0.mlp.hook_post"
        design = np.stack(
            [np.outer(a, b).ravel() for a in (np.ones(11), *waves) for b in (np.ones(11), *waves)][
                1:
            ],
            1,
        )
        values = subject.activation(hook, at=2).numpy()
        fitted = design @ np.linalg.lstsq(design, values, rcond=None)[0]

        def without(x: torch.Tensor, hook: object, fitted: np.ndarray = fitted) -> torch.Tensor:
            x[:, 2] -= torch.from_numpy(fitted).float()
            return x

        loss = subject.loss(subject.logits(hooks=[(hook, without)]))["answer"]
        assert metrics["loss"] + metrics["neurons.removal"][k] == pytest.approx(loss, rel=1e-3)


def edited_loss(subject: Subject, directions: np.ndarray, rows: slice = slice(None)) -> float:
    """The loss on some inputs with directions over the tokens projected out of W_E."""
    model = copy.deepcopy(subject.model).double()
    with torch.no_grad():
        table = model.W_E[: directions.shape[1]]
        basis = torch.from_numpy(np.linalg.qr(directions.T)[0])
        table.sub_(basis @ (basis.T @ table))
    data = subject.data[rows]
    edited = Subject(model, subject.task, data=data)
    return torch.nn.functional.cross_entropy(edited.logits(), edited.targets[:, 0]).item()


def waves_of(p: int, frequencies: list[int]) -> np.ndarray:
    """(direction, p) cosines and sines of the frequencies."""
    angles = 2 * np.pi * np.outer(frequencies, np.arange(p)) / p
    return np.concatenate([np.cos(angles), np.sin(angles)])


def random_rises(
    subject: Subject, directions: list[int], count: int, rows: torch.Tensor, samples: int
) -> list[float]:
    """The rises without `count` directions of the span, drawn as the probe draws them."""
    p = len(subject.task.vocabulary.tokens) - 1
    span = np.concatenate([spectra.waves(p)[k - 1] for k in directions])
    draw = rng("fourier removal null", 0)
    drawn = removal.random_directions(span, count, samples, draw)
    base = edited_loss(subject, np.zeros((0, p)), rows)
    return [edited_loss(subject, one, rows) - base for one in drawn]


def test_what_all_named_and_all_unnamed_frequencies_are_worth_by_edited_weights() -> None:
    """Together, and beside as many directions of the unnamed ones, on 40 of 121 inputs."""
    p, named, unnamed = 11, [2, 5], [1, 3, 4]
    subject = planted.modular_addition(p, (2, 5), noise=0.4, rotation_seed=1).subject
    with torch.no_grad():
        subject.model.W_U.mul_(0.3)  # so that its loss is not 0
    settings = {"removal_samples": 9, "removal_examples": 40, "operand_permutations": 3}
    result = probe.run("fourier", subject, permutations=499, **settings)
    metrics, null = result.metrics, result.null["embedding.removal_named"]
    assert list(metrics["embedding.removal"]) == named
    base = edited_loss(subject, np.zeros((0, p)))
    assert metrics["loss"] == pytest.approx(base, rel=1e-5) and base > 0.05
    together = edited_loss(subject, waves_of(p, named)) - base
    assert metrics["embedding.removal_named"] == pytest.approx(together, rel=1e-4)
    others = edited_loss(subject, waves_of(p, unnamed)) - base
    assert metrics["embedding.removal_unnamed"] == pytest.approx(others, rel=1e-3, abs=1e-6)
    chosen = torch.from_numpy(np.sort(rng("fourier removal examples", 0).permutation(p * p)[:40]))
    few = edited_loss(subject, waves_of(p, named), chosen)
    few -= edited_loss(subject, np.zeros((0, p)), chosen)
    assert null.observed == pytest.approx(few, rel=1e-4)
    expected = random_rises(subject, unnamed, 4, chosen, 9)
    assert null.mean == pytest.approx(np.mean(expected), rel=1e-3, abs=1e-6)
    assert null.std == pytest.approx(np.std(expected, ddof=1), rel=1e-3, abs=1e-6)


def test_second_harmonics_are_held_against_what_is_neither_named_nor_a_harmonic() -> None:
    """One key is double the other; its own double, 12 or -5, the embedding has beside them."""
    p, rest = 17, [1, 2, 4, 7, 8]
    subject = planted.modular_addition(p, (3, 6, 5), noise=0.1, rotation_seed=1).subject
    with torch.no_grad():
        subject.model.W_U.mul_(0.3)
    every = torch.arange(p * p)
    base = edited_loss(subject, np.zeros((0, p)))
    logits = {"answer": dataclasses.replace(periodic(p, (3, 6), 0.1), keys=[3, 6])}
    embedding = dataclasses.replace(logits["answer"], keys=[3])
    null = RemovalNull(9, 512, 0)
    cycles = answers.cycles(subject)
    found = removals(subject, cycles, [range(p)], embedding, logits, null)
    assert found is not None and found.harmonics == (5,)
    expected = edited_loss(subject, waves_of(p, [5])) - base
    assert found.without_harmonics == pytest.approx(expected, rel=1e-4) and expected > 0.1
    assert found.harmonics_test is not None and found.named_test is not None
    rise, samples = found.harmonics_test
    assert rise == pytest.approx(expected, rel=1e-4)
    assert samples == pytest.approx(random_rises(subject, rest, 2, every, 9), rel=1e-3, abs=1e-5)
    _, samples = found.named_test
    beside = random_rises(subject, [1, 2, 4, 5, 7, 8], 4, every, 9)
    assert samples == pytest.approx(beside, rel=1e-3, abs=1e-5)


def test_as_many_directions_as_are_left_are_not_compared() -> None:
    """Of four frequencies two are named: any four directions of the others are all of these."""
    subject = planted.modular_addition(9, (1, 2)).subject
    test = RemovalNull(9, 81, 0).against(subject, [range(9)])
    assert test([1, 2], [3, 4]) is None and test([], [3, 4]) is None and test([1], []) is None
    found = test([1], [3, 4])
    assert found is not None and len(found[1]) == 9


def test_removing_all_frequencies_leaves_a_model_at_chance() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject
    edited = removal.EmbeddingRemoval.of(subject, range(11))
    assert edited is not None
    nothing = edited.loss(np.concatenate([np.full((1, 11), 11**-0.5), *spectra.waves(11)]))
    assert nothing > math.log(11) - 1e-6
    assert edited.loss(spectra.waves(11)[:1, 0] * 0) == pytest.approx(subject.loss()["answer"])


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("chunk", [20, 300, 4096])
def test_several_removals_at_once_are_each_by_itself(chunk: int, hooked: bool) -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.1, rotation_seed=1).subject
    subject = subject.with_limits(chunk=chunk)  # a part of a forward, two forwards at once, all
    if hooked:
        subject.model.register_forward_pre_hook(lambda *_: None)  # no short cut is taken
    edited = removal.EmbeddingRemoval.of(subject, range(11))
    assert edited is not None
    basis = spectra.waves(11).reshape(-1, 11)[2:]
    drawn = removal.random_directions(basis, 3, 5, np.random.default_rng(1))
    for directions in drawn:
        assert directions @ directions.T == pytest.approx(np.eye(3), abs=1e-12)
        assert directions @ basis.T @ basis == pytest.approx(directions, abs=1e-12)
    one_by_one = [edited.loss(directions) for directions in drawn]
    assert edited.losses(drawn) == pytest.approx(one_by_one, rel=1e-5)
    null = removal.null_rises(edited, basis, 3, 5, np.random.default_rng(1))
    assert null == pytest.approx(one_by_one, rel=1e-5)


def test_removals_through_hooks_equal_those_through_weights() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.1, rotation_seed=1).subject
    rules = {"operand_permutations": 3}
    by_weights = probe.run("fourier", subject, **rules).metrics
    handle = subject.model.register_forward_pre_hook(lambda *_: None)  # no short cut is taken
    by_hooks = probe.run("fourier", subject.with_data(subject.data), **rules).metrics
    handle.remove()
    for name in ("embedding.removal", "neurons.removal", "unembedding.removal"):
        assert by_hooks[name] == pytest.approx(by_weights[name], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("join", ["concat", "add", "each"])
def test_networks_of_two_operands_are_analyzed_with_both_their_embeddings(join: str) -> None:
    p, k = 13, 2
    config = PairNetworkConfig(
        d_vocab=p, d_vocab_out=p, d_embed=6, widths=(40,), join=join, n_ctx=3
    )
    model = PairNetwork(config, seed=3)
    angles = 2 * np.pi * np.arange(p) / p
    waves = np.stack([np.cos(k * angles), np.sin(k * angles)]) * np.sqrt(2 / p)
    with torch.no_grad():
        for table in (model.embed.W_E, model.embed_y.W_E):
            table.mul_(0.1).add_(torch.from_numpy(waves.T @ np.eye(2, 6)).float())
    subject = Subject(model, TASKS["modular-arithmetic"](p=p))
    metrics = probe.run("fourier", subject, permutations=499, operand_permutations=3).metrics
    rows = torch.cat([model.embed.W_E, model.embed_y.W_E], 1).detach().numpy()
    shares = brute_energies(rows - rows.mean(0)) / ((rows - rows.mean(0)) ** 2).sum()
    assert list(metrics["embedding.share"].values()) == pytest.approx(shares.tolist(), abs=1e-6)
    assert metrics["embedding.key_frequencies"] == [k]
    edited = copy.deepcopy(model)
    projector = torch.from_numpy(waves.T @ waves).float()
    with torch.no_grad():
        for table in (edited.embed.W_E, edited.embed_y.W_E):
            table.sub_(projector @ table)
    loss = Subject(edited, subject.task).loss()["answer"]
    assert metrics["loss"] + metrics["embedding.removal"][k] == pytest.approx(loss, rel=1e-5)
