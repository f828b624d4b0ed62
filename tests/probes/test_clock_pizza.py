"""Clock or pizza: planted ones of each, closed forms, and the figures of published models."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mechint
from mechint import planted, probe
from mechint.errors import NotApplicableError
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.planted import library
from mechint.registry import TASKS
from mechint.reporting import Report
from mechint.results import Finding, ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes import answers
from probes._clock_pizza import measures, verdict
from probes._clock_pizza.probe import ClockPizza
from probes._clock_pizza.verdict import Needed
from probes._fourier.spectra import KeyFrequencyRule
from probes.words import LISTED, listed

CHECKPOINTS = Path(__file__).parents[3] / "shared" / "checkpoints"


@pytest.mark.parametrize(
    ("constant_attention", "mechanism", "symmetricity"), [(False, "clock", 0), (True, "pizza", 1)]
)
@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_mechanisms_are_told_apart(
    constant_attention: bool, mechanism: str, symmetricity: float, noise: float
) -> None:
    subject = planted.modular_addition(
        23, (3, 7), constant_attention=constant_attention, noise=noise, rotation_seed=1
    ).subject
    result = probe.run("clock-pizza", subject, triples=512)
    metrics = result.metrics
    assert metrics["mechanism"] == mechanism and result.verdict == "yes"
    assert result.findings[0].causal  # its frequencies were taken away
    assert metrics["gradient_symmetricity"] == pytest.approx(symmetricity, abs=0.15)
    assert (metrics["distance_effect"] > 0.2) == constant_attention
    assert [metrics["circularity"][k] for k in (3, 7)] == pytest.approx([1, 1], abs=0.01)
    assert metrics["key_frequencies"] == [3, 7]
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


@pytest.mark.parametrize("constant_attention", [False, True])
@pytest.mark.parametrize("p", [13, 29])
def test_cut_offs_hold_at_moduli_that_they_were_not_chosen_on(
    p: int, constant_attention: bool
) -> None:
    for seed in range(4):
        draw = np.random.default_rng(1000 * p + seed)
        keys = draw.choice(np.arange(1, (p + 1) // 2), 2 + seed % 3, replace=False)
        subject = planted.modular_addition(
            p,
            tuple(int(k) for k in keys),
            constant_attention=constant_attention,
            noise=0.05 * (seed % 2),
            rotation_seed=seed,
            seed=seed,
        ).subject
        metrics = probe.run("clock-pizza", subject, triples=128).metrics
        assert metrics["mechanism"] == ("pizza" if constant_attention else "clock"), (p, seed)


def test_a_planted_pizza_has_the_closed_form_of_its_mechanism() -> None:
    """One frequency: the right logit is |cos(πk(a − b)/p)| times a constant, so that distance says
    all of it; gradients at equal embeddings of one sum are equal.
    """
    subject = planted.modular_addition(23, (5,), constant_attention=True).subject
    metrics = probe.run("clock-pizza", subject, triples=256).metrics
    assert metrics["gradient_symmetricity"] == pytest.approx(1, abs=1e-4)
    assert metrics["distance_irrelevance"] < 0.05
    logit = measures.correct_and_wrong(subject, np.arange(23), subject.targets[:, 0].numpy())[0]
    by_distance = measures.by_distance(logit.reshape(23, 23), np.arange(23), 1).mean(1)
    expected = np.abs(np.cos(np.pi * 5 * np.arange(23) / 23))
    assert np.corrcoef(by_distance, expected)[0, 1] > 0.999


@pytest.mark.parametrize("plant", [library.addition, library.pizza])
def test_one_vector_more_for_every_class_changes_nothing(plant: Any) -> None:
    """Of all logits it adds the same, which no softmax sees."""
    subject = plant(0, 0).subject
    before = probe.run("clock-pizza", subject, triples=256)
    with torch.no_grad():
        weight = subject.model.weights()["unembed.W_U"]
        weight += 3 * weight.norm(dim=0).mean() * torch.linspace(-1, 1, len(weight))[:, None]
    shifted = subject.with_model(subject.model)
    after = probe.run("clock-pizza", shifted, triples=256)
    assert (shifted.logits() - subject.logits()).std(1).max() < 1e-3
    for name in ("gradient_symmetricity", "distance_irrelevance", "distance_irrelevance_wrong"):
        assert after.metrics[name] == pytest.approx(before.metrics[name], abs=2e-3), name
    assert after.verdict == before.verdict == "yes"


def test_gradients_are_those_of_finite_differences() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.1, rotation_seed=1).subject
    subject.model.double()
    found = measures.gradients(subject, np.array([5, 37]), np.array([3, 8]), (0, 1), np.arange(11))
    step = 1e-5
    for row, (example, column) in enumerate([(5, 3), (37, 8)]):
        for position, gradient in enumerate((found.first[row], found.second[row])):
            for direction in (0, 3):

                def shifted(
                    x: torch.Tensor,
                    hook: object,
                    by: float,
                    position: int = position,
                    direction: int = direction,
                ) -> torch.Tensor:
                    x = x.clone()
                    x[:, position, direction] += by
                    return x

                data = subject.data[example : example + 1]
                each = [
                    subject.logits(
                        data, hooks=[("hook_embed", lambda x, hook, by=by: shifted(x, hook, by))]
                    )[0]
                    for by in (step, -step)
                ]
                up, down = (float(logits[column] - logits.mean()) for logits in each)
                assert float(gradient[direction]) == pytest.approx(
                    (up - down) / (2 * step), abs=1e-4, rel=1e-4
                )


def test_the_numbers_of_a_noisy_model_are_those_of_loops() -> None:
    """A model between a clock and a pizza: logits by pairs, the embedding by frequencies."""
    p = 11
    subject = planted.modular_addition(p, (2, 5), noise=0.4, rotation_seed=3).subject
    result = probe.run("clock-pizza", subject, triples=400, permutations=499)
    metrics = result.metrics
    logits = subject.logits().double().numpy().reshape(p, p, p)
    logits = logits - logits.mean(2, keepdims=True)
    right, wrong = np.zeros((p, p)), np.zeros((p, p))  # by distance and first operand
    for a, distance in itertools.product(range(p), range(p)):
        b = (a + distance) % p
        classes = [c for c in range(p) if c != (a + b) % p]
        right[distance, a] = logits[a, b, (a + b) % p]
        wrong[distance, a] = max(logits[a, b, c] for c in classes)
    for name, values in (("", right), ("_wrong", wrong)):
        spread = np.mean([line.std() for line in values]) / values.std()
        assert metrics[f"distance_irrelevance{name}"] == pytest.approx(spread, rel=1e-5)
    effect = np.std([line.mean() for line in right]) / right.mean()
    assert metrics["distance_effect"] == pytest.approx(effect, rel=1e-5)
    # the interval of a mean of 400 triples, by the normal distribution
    cosines = result.arrays["gradient_cosines"]
    half = 1.96 * cosines.std() / 20
    for end, sign in (("low", -1), ("high", 1)):
        found = metrics[f"gradient_symmetricity.{end}"]
        assert found == pytest.approx(cosines.mean() + sign * half, abs=0.15 * half)
    rows = subject.model.W_E.detach()[:p].double().numpy()
    energy = (np.abs(np.fft.fft(rows - rows.mean(0), axis=0)) ** 2).sum(1)
    table = result.tables["frequencies"].columns
    assert table["frequency"] == [1, 2, 3, 4, 5]
    shares = [2 * energy[k] / energy.sum() for k in range(1, 6)]
    assert table["embedding share"] == pytest.approx(shares, rel=1e-5)
    assert [k for k, key in zip(range(1, 6), table["key"], strict=True) if key] == [2, 5]
    centered = logits - logits.mean((0, 1))
    x, y, c = np.ogrid[:p, :p, :p]
    for k, cosine in zip(range(1, 6), table["logits cosine"], strict=True):
        wave = np.cos(2 * np.pi * k * (x + y - c) / p)
        expected = (centered * wave).sum() / np.linalg.norm(centered) / np.linalg.norm(wave)
        assert cosine == pytest.approx(expected, abs=1e-6)


def test_gradients_are_taken_at_the_triples_that_are_drawn() -> None:
    """Two operands and a class each, by the gradient of that logit alone."""
    p = 11
    subject = planted.modular_addition(p, (2, 5), noise=0.3, rotation_seed=1).subject
    result = probe.run("clock-pizza", subject, triples=6, permutations=9, seed=4)
    draw = rng("clock-pizza triples", 4)
    pairs, classes = draw.integers(p, size=(6, 2)), draw.integers(p, size=6)
    for found, (a, b), c in zip(result.arrays["gradient_cosines"], pairs, classes, strict=True):
        leaves: list[torch.Tensor] = []

        def leaf(x: torch.Tensor, hook: object, leaves: list[torch.Tensor] = leaves) -> Any:
            leaves.append(x.detach().requires_grad_(True))
            return leaves[0]

        tokens = torch.tensor([[int(a), int(b), p]])
        logits = subject.model.run_with_hooks(tokens, fwd_hooks=[("hook_embed", leaf)])[0, -1]
        (gradient,) = torch.autograd.grad(logits[int(c)] - logits.mean(), leaves)
        expected = torch.cosine_similarity(gradient[0, 0], gradient[0, 1], dim=0)
        assert found == pytest.approx(float(expected), abs=1e-4)


def test_a_measure_at_its_cut_off_counts() -> None:
    """At least and at most: 0.9 is symmetric, 0.4 relevant; 0.6 asymmetric, 0.6 irrelevant."""
    mechanism = ClockPizza().mechanism
    assert (mechanism(0.9, 0.4), mechanism(0.6, 0.6)) == ("pizza", "clock")
    assert (mechanism(0.89, 0.4), mechanism(0.9, 0.41)) == ("neither", "neither")
    assert (mechanism(0.61, 0.6), mechanism(0.6, 0.59)) == ("neither", "neither")
    assert (mechanism(0.9, 0.6), mechanism(0.6, 0.4)) == ("both", "both")
    # a distance without effect is irrelevant, whatever its rounding errors look like
    assert (mechanism(0.9, 0.4, 0.025), mechanism(0.9, 0.4, 0.024)) == ("pizza", "both")
    assert (mechanism(0.6, 0.4, 0.024), mechanism(0.7, 0.4, 0.024)) == ("clock", "neither")


def said_of(
    keys: list[int], needed: Needed, measured: str, p: int = 23
) -> tuple[Finding, dict[str, Any]]:
    """The finding on a planted clock whose logits have these key frequencies."""
    subject = planted.modular_addition(p, (3, 7)).subject
    (cycle,) = answers.cycles(subject)
    logits = answers.logit_spectrum(subject, cycle, KeyFrequencyRule(permutations=499), 0)
    logits = dataclasses.replace(logits, values=np.linspace(0.1, 0.9, p // 2), keys=keys)
    report = Report(ClockPizza(), subject)
    report.metric(verdict.NULL, 1.0, null=logits.test(verdict.NULL, ""))
    numbers = ("symmetricity", "symmetricity.low", "symmetricity.high")
    report.update({f"gradient_{name}": 0.5 for name in numbers})
    report.update({"distance_irrelevance": 0.5, "distance_irrelevance_wrong": 0.5})
    report.metric("circularity", {k: k / 100 for k in range(1, p // 2 + 1)})
    verdict.add_finding(report, logits, needed, measured, 64)
    (finding,) = report.findings
    return finding, report.metrics


def test_only_a_clock_or_a_pizza_is_a_cause() -> None:
    shown = Needed(0.0, 0.1, 2.9, 3.0)
    for measured, causal in (("clock", True), ("pizza", True), ("both", False)):
        finding, metrics = said_of([3, 7], shown, measured)
        assert finding.verdict == "yes" and finding.causal is causal
        assert metrics["mechanism"] == measured
    finding, metrics = said_of([3, 7], shown, "neither")
    assert finding.verdict == "no" and "the measures lie between" in finding.headline
    finding, metrics = said_of([3, 7], Needed(0.0, 2.0, 2.9, 3.0), "clock")
    assert finding.verdict == "no" and metrics["mechanism"] == "neither"
    finding, _ = said_of(list(range(1, 12)), Needed(0.0), "clock")
    assert finding.verdict == "unclear"
    assert "every frequency of the logits is key" in finding.headline


def test_of_many_key_frequencies_the_strongest_are_named_with_their_circles() -> None:
    """The cosines rise with the frequency: of the keys 1 … 10 the last eight are the strongest."""
    finding, _ = said_of(list(range(1, 11)), Needed(0.0, 0.1, 2.9, 3.0), "clock")
    shown = list(range(11 - LISTED, 11))
    assert f"the {LISTED} strongest of 10 key frequencies, {listed(shown)}," in finding.headline
    assert ", ".join(f"{k / 100:.3f}" for k in shown) in finding.headline


def test_the_largest_wrong_logit_may_lie_below_the_mean_of_all() -> None:
    """A table's wrong logits are all below it, and none of them is the right one."""
    task = TASKS["modular-arithmetic"](p=5)
    subject = planted.lookup_table(task, noise=0.01).subject
    right, wrong = measures.correct_and_wrong(subject, np.arange(5), subject.targets[:, 0].numpy())
    logits = subject.logits().double().numpy()
    for row, answer, found, other in zip(logits, subject.targets[:, 0], right, wrong, strict=True):
        assert found == pytest.approx(row[answer] - row.mean())
        assert other == pytest.approx(np.delete(row, answer).max() - row.mean())
        assert other < 0 < found


@given(st.integers(3, 9), st.integers(0, 10**6))
def test_distance_irrelevance_by_loops(n: int, seed: int) -> None:
    generator = np.random.default_rng(seed)
    grid, order = generator.standard_normal((n, n)), generator.permutation(n)
    for sign in (1, -1):
        spreads = []
        for distance in range(n):
            line = [
                grid[order[a], order[b]]
                for a in range(n)
                for b in range(n)
                if (b - sign * a) % n == distance
            ]
            spreads.append(np.std(line))
        found = measures.distance_irrelevance(measures.by_distance(grid, order, sign))
        assert found == pytest.approx(np.mean(spreads) / grid.std())


@given(st.floats(0.0, 1.0), st.integers(0, 10**6))
def test_circularity_is_the_share_of_one_sense_of_rotation(ratio: float, seed: int) -> None:
    n, k = 12, 5
    angles = 2 * np.pi * k * np.arange(n) / n
    axes = np.linalg.qr(np.random.default_rng(seed).standard_normal((4, 2)))[0].T
    rows = np.outer(np.cos(angles), axes[0]) + ratio * np.outer(np.sin(angles), axes[1])
    waves = np.stack([np.cos(angles), np.sin(angles)]) / np.sqrt(n / 2)
    turning = rows @ (axes[0] + 1j * axes[1])  # an ellipse in the complex plane
    energies = np.abs(np.fft.fft(turning)) ** 2
    expected = max(energies[k], energies[n - k]) / energies.sum()
    assert measures.circularity(rows, waves) == pytest.approx(expected, abs=1e-9)


def test_lookup_tables_and_untrained_models_are_neither() -> None:
    task = TASKS["modular-arithmetic"](p=13)
    subject = planted.modular_addition(13, (2, 5)).subject
    for other in (planted.lookup_table(task, rotation_seed=1).subject, subject.untrained(0)):
        result = probe.run("clock-pizza", other, triples=64)
        assert result.metrics["mechanism"] == "neither" and result.verdict != "yes"


@pytest.mark.parametrize("seed", range(3))
def test_a_table_that_writes_waves_has_the_measures_of_a_clock_and_is_none(seed: int) -> None:
    subject = library.lookup_in_waves(seed)
    assert bool((subject.logits().argmax(-1) == subject.targets[:, 0]).all())
    result = probe.run("clock-pizza", subject, triples=256, permutations=99)
    metrics = result.metrics
    measures_of = ("gradient_symmetricity", "distance_irrelevance", "distance_effect")
    assert ClockPizza().mechanism(*(metrics[name] for name in measures_of)) == "clock"
    assert metrics["key_frequencies"] == [2, 3]
    assert metrics["mechanism"] == "neither" and result.verdict == "no"
    assert "does not rest on the key frequencies" in result.findings[0].headline


@pytest.mark.parametrize("constant_attention", [False, True])
def test_removals_are_those_of_edited_weights(constant_attention: bool) -> None:
    subject = planted.modular_addition(
        13, (2, 5), constant_attention=constant_attention, noise=0.1, rotation_seed=1
    ).subject
    metrics = probe.run("clock-pizza", subject, triples=64, permutations=99).metrics
    assert metrics["key_frequencies"] == [2, 5]
    table = subject.model.W_E.detach().clone()
    spectrum = np.fft.fft(table[:13].double().numpy(), axis=0)
    keys = [2, 5, 13 - 2, 13 - 5]
    others = [k for k in range(1, 13) if k not in keys]
    for name, gone in (("key_frequencies_alone", others), ("without_key_frequencies", keys)):
        without = spectrum.copy()
        without[gone] = 0
        with torch.no_grad():
            subject.model.W_E[:13] = torch.from_numpy(np.fft.ifft(without, axis=0).real)
        model = Subject(subject.model, subject.task)
        loss = torch.nn.functional.cross_entropy(model.logits().double(), model.targets[:, 0])
        assert metrics[f"loss.{name}"] == pytest.approx(float(loss), rel=1e-4), name


@pytest.mark.parametrize(
    ("alone", "without", "shown"),
    [(0.2, 2.9, True), (0.2, 0.3, False), (2.9, 3.0, False), (1.6, 2.9, False), (0.2, 1.4, False)],
)
def test_frequencies_are_needed_where_they_suffice_and_nothing_else_does(
    alone: float, without: float, shown: bool
) -> None:
    """The model's own loss is 0, that of equal logits 3."""
    assert Needed(0.0, alone, without, 3.0).shown is shown


def test_where_no_frequency_is_left_to_take_away_nothing_is_shown() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject
    (cycle,) = answers.cycles(subject)
    for keys in ([1, 2, 3], []):
        needed = Needed.of(subject, cycle, range(7), keys)
        assert needed.alone is None and not needed.shown
    assert Needed.of(subject, cycle, range(7), [1, 2]).shown


def test_a_difference_has_its_sum_for_a_distance() -> None:
    order = np.arange(7)
    x, y = np.ogrid[:7, :7]
    assert measures.answer_sign((x + y + 3) % 7, order) == 1
    assert measures.answer_sign((x - y) % 7, order) == -1
    assert measures.answer_sign((x * y) % 7, order) is None
    with pytest.raises(NotApplicableError, match=r"not a sum of two operands|neither the sum"):
        task = TASKS["modular-arithmetic"](p=7, operation="x^2+y^2")
        probe.run("clock-pizza", planted.lookup_table(task).subject)


def test_networks_of_two_operands_are_measured() -> None:
    config = PairNetworkConfig(
        d_vocab=13, d_vocab_out=13, d_embed=6, widths=(9,), join="add", separate=False, n_ctx=3
    )
    subject = Subject(PairNetwork(config, seed=0), TASKS["modular-arithmetic"](p=13))
    metrics = probe.run("clock-pizza", subject, triples=32).metrics
    assert metrics["gradient_symmetricity"] == pytest.approx(1, abs=1e-6)  # it adds embeddings


@pytest.mark.parametrize(
    ("name", "figures", "mechanism"),
    [
        (
            "model_18c9ev5v5p.pt",
            {
                "gradient_symmetricity": (0.997, 0.01),
                "distance_irrelevance_wrong": (0.181, 0.005),
            },
            "pizza",
        ),
        (
            "model_p99zdpze5l.pt",
            {"gradient_symmetricity": (0.994, 0.01), "distance_irrelevance": (0.172, 0.005)},
            "pizza",
        ),
        (
            "model_l8k1hzciux.pt",
            {"gradient_symmetricity": (0.334, 0.03), "distance_irrelevance": (0.848, 0.005)},
            "clock",
        ),
        ("model_hpv2jgskwe.pt", {}, "neither"),
    ],
)
def test_published_figures(
    name: str, figures: dict[str, tuple[float, float]], mechanism: str
) -> None:
    path = CHECKPOINTS / "pizza" / name
    if not path.exists():
        pytest.skip(f"the published checkpoint pizza/{name} is not beside the repository")
    metrics = probe.run("clock-pizza", mechint.load(path)).metrics
    for metric, (value, tolerance) in figures.items():
        assert metrics[metric] == pytest.approx(value, abs=tolerance), metric
    assert metrics["mechanism"] == mechanism
