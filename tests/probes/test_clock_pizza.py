"""Clock or pizza: plants, closed forms, and loops over pairs."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import mechint
from mechint import planted, probe
from mechint.planted import library
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._clock_pizza.probe import ClockPizza, answer_sign, circularity, gradient_cosines

QUICK = {"triples": 64, "permutations": 499}


@pytest.mark.parametrize(("constant", "mechanism"), [(False, "clock"), (True, "pizza")])
@pytest.mark.parametrize(("p", "noise"), [(23, 0.0), (13, 0.05)])
def test_planted_mechanisms_are_named(constant: bool, mechanism: str, p: int, noise: float) -> None:
    subject = planted.modular_addition(
        p, (2, 5), constant_attention=constant, noise=noise, rotation_seed=1
    ).subject
    result = probe.run("clock-pizza", subject, triples=256)
    metrics, (finding,) = result.metrics, result.findings
    assert metrics["mechanism"] == mechanism and finding.verdict == "yes" and finding.causal
    assert metrics["gradient_symmetricity"] == pytest.approx(float(constant), abs=0.2)
    assert (metrics["distance_effect"] > 0.2) == constant
    assert [metrics["circularity"][k] for k in (2, 5)] == pytest.approx([1, 1], abs=0.02)
    assert finding.effect is not None and mechanism in finding.effect.baseline_label
    assert mechanism in result.lead
    assert result.hero == "symmetricity"


def test_a_planted_pizza_has_the_closed_form_of_its_mechanism() -> None:
    """One frequency: the right logit is |cos(πk(a − b)/p)| times a constant, so that distance says
    all of it; gradients at equal embeddings of one sum are equal.
    """
    subject = planted.modular_addition(23, (5,), constant_attention=True).subject
    result = probe.run("clock-pizza", subject, triples=256)
    assert result.metrics["gradient_symmetricity"] == pytest.approx(1, abs=1e-4)
    assert result.metrics["distance_irrelevance"] < 0.05
    logits = subject.logits().double().numpy()
    right = logits[np.arange(529), subject.targets[:, 0]] - logits.mean(1)
    pairs = right.reshape(23, 23)
    means = [np.mean([pairs[a, (a + d) % 23] for a in range(23)]) for d in range(23)]
    expected = np.abs(np.cos(np.pi * 5 * np.arange(23) / 23))
    assert np.corrcoef(means, expected)[0, 1] > 0.999


def test_the_published_statistics_are_of_the_logits_as_they_stand() -> None:
    """One vector more in every class's column is seen by no softmax, but by the raw logits."""
    subject = library.addition(0, 0).subject
    before = probe.run("clock-pizza", subject, triples=256).metrics
    with torch.no_grad():
        weight = subject.model.weights()["unembed.W_U"]
        weight += 3 * weight.norm(dim=0).mean() * torch.linspace(-1, 1, len(weight))[:, None]
    after = probe.run("clock-pizza", subject.with_model(subject.model), triples=256).metrics
    for name in ("gradient_symmetricity", "distance_irrelevance", "distance_irrelevance_wrong"):
        ours = f"{name}.centered"
        assert after[ours] == pytest.approx(before[ours], abs=2e-3), name
        assert after[name] != pytest.approx(before[name], abs=0.05), name
    assert after["mechanism"] == before["mechanism"] == "clock"


def test_gradients_are_those_of_finite_differences() -> None:
    subject = planted.modular_addition(11, (2, 5), noise=0.1, rotation_seed=1).subject
    subject.model.double()
    examples, classes = np.array([5, 37]), np.array([3, 8])
    raw, centered = gradient_cosines(subject, examples, classes[None], list(range(11)))
    width, step = subject.model.W_E.shape[1], 1e-5
    for row, (example, column) in enumerate(zip(examples, classes, strict=True)):
        found = []
        for position in (0, 1):

            def shift(x: torch.Tensor, hook: object, position: int = position) -> torch.Tensor:
                x = x.clone()
                x[:width, position] += step * torch.eye(width)
                x[width:, position] -= step * torch.eye(width)
                return x

            data = subject.data[torch.full((2 * width,), int(example))]
            logits = subject.logits(data, hooks=[("hook_embed", shift)])
            slopes = (logits[:width] - logits[width:]) / (2 * step)
            found.append((slopes[:, column], slopes[:, column] - slopes.mean(1)))
        for expected, pair in zip((raw[row], centered[row]), zip(*found, strict=True), strict=True):
            cosine = torch.cosine_similarity(*pair, dim=0)
            assert expected == pytest.approx(float(cosine), abs=1e-4)


def test_irrelevance_by_loops_over_pairs() -> None:
    p = 11
    subject = planted.modular_addition(p, (2, 5), noise=0.4, rotation_seed=3).subject
    metrics = probe.run("clock-pizza", subject, **QUICK).metrics
    raw = subject.logits().double().numpy().reshape(p, p, p)
    for ending, logits in (("", raw), (".centered", raw - raw.mean(2, keepdims=True))):
        right, wrong = np.zeros((p, p)), np.zeros((p, p))  # by distance and first operand
        for a, distance in itertools.product(range(p), range(p)):
            b = (a + distance) % p
            answer = (a + b) % p
            right[distance, a] = logits[a, b, answer]
            wrong[distance, a] = max(logits[a, b, c] for c in range(p) if c != answer)
        for name, values in (("", right), ("_wrong", wrong)):
            spread = np.mean([line.std() for line in values]) / values.std()
            assert metrics[f"distance_irrelevance{name}{ending}"] == pytest.approx(spread, rel=1e-5)


@given(ratio=st.floats(0, 1), seed=st.integers(0, 1000))
def test_circularity_is_the_share_of_one_sense_of_rotation(ratio: float, seed: int) -> None:
    angles = 2 * np.pi * 3 * np.arange(17) / 17
    waves = np.stack([np.cos(angles), np.sin(angles)]) * np.sqrt(2 / 17)
    axes = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 2)))[0].T
    rows = waves.T @ (np.array([[1.0], [ratio]]) * axes)
    expected = (1 + ratio) ** 2 / (2 * (1 + ratio**2))
    assert circularity(rows, waves) == pytest.approx(expected)


# --- deciding -------------------------------------------------------------------------------------
def test_a_measure_at_its_cut_off_counts() -> None:
    settings = ClockPizza()
    assert settings.mechanism(0.9, 0.4) == "pizza" and settings.mechanism(0.6, 0.6) == "clock"
    assert settings.mechanism(0.95, 0.9) == "both" and settings.mechanism(0.7, 0.5) == "neither"
    assert settings.mechanism(0.3, 0.1, effect=0.01) == "clock"
    assert settings.mechanism(-1.0, 0.9) == "neither"  # opposed gradients are no clock's


def test_a_bar_within_the_interval_is_neither_passed_nor_missed() -> None:
    subject = planted.modular_addition(37, (1, 2), noise=0.02, rotation_seed=1).subject
    many = {**QUICK, "triples": 4096}
    metrics = probe.run("clock-pizza", subject, **many).metrics
    low, middle = (metrics[f"gradient_symmetricity.{name}"] for name in ("low", "centered"))
    assert 0 < low < middle
    for bar, verdict in (((low + middle) / 2, "unclear"), (low / 2, "no")):
        (finding,) = probe.run("clock-pizza", subject, asymmetric=bar, **many).findings
        assert finding.verdict == verdict
        assert ("interval" in finding.reason) == (verdict == "unclear")


def test_all_triples_are_taken_where_they_are_few() -> None:
    """By the whole Jacobian of every pair; there is no sample, so the seed changes nothing."""
    p = 7
    subject = planted.modular_addition(p, (1, 2), noise=0.1, rotation_seed=1).subject
    subject.model.double()
    total = []
    for row in range(p * p):
        data = subject.data[torch.tensor([row])]

        def logits(embedded: torch.Tensor, data=data) -> torch.Tensor:
            hooks = [("hook_embed", lambda activation, hook: embedded)]
            with torch.enable_grad():
                return subject.model.run_with_hooks(data.tokens, fwd_hooks=hooks)[0, -1, :p]

        embedded = subject.model.W_E[data.tokens].detach()
        slopes = torch.autograd.functional.jacobian(logits, embedded)[:, 0]
        slopes = slopes - slopes.mean(0)
        total += torch.cosine_similarity(slopes[:, 0], slopes[:, 1], dim=-1).tolist()
    for seed in (0, 1):
        result = probe.run("clock-pizza", subject, seed=seed)
        value = result.metrics["gradient_symmetricity.centered"]
        assert value == pytest.approx(np.mean(total), abs=1e-6)
        assert "gradient_symmetricity.low" not in result.metrics


@pytest.mark.parametrize(
    ("operation", "verb"), [("add", "adds"), ("subtract", "subtracts"), ("multiply", "computes")]
)
def test_the_verb_is_that_of_the_task(operation: str, verb: str) -> None:
    task = TASKS["modular-arithmetic"](p=13, operation=operation, zero=verb != "computes")
    (finding,) = probe.run("clock-pizza", planted.lookup_table(task).subject).findings
    assert f" {verb} " in finding.headline


class Reads(nn.Module):
    """A network that reads E[x] + E[y], or E[x] + E[-y], which a linear map makes of E[y]."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Embedding(8, 16), nn.Linear(16, 7)
        rows = self.embed.weight[:7].detach()
        inverse = torch.linalg.pinv(rows) @ rows[[0, 6, 5, 4, 3, 2, 1]]
        self.turn = torch.eye(16) if operation == "add" else inverse

    def forward(self, tokens: Tensor) -> Tensor:
        x, y, *_ = self.embed(tokens).unbind(1)
        return self.out((x + y @ self.turn).relu())


def test_gradients_of_a_difference_are_compared_at_the_inverse() -> None:
    task, found = TASKS["modular-arithmetic"], []
    for operation in ("add", "subtract"):
        weights = {"W_E": "embed.weight"}
        model = mechint.wrap(Reads(operation), {"hook_embed": "embed"}, weights=weights)
        result = probe.run("clock-pizza", Subject(model, task(p=7, operation=operation)))
        found.append(result.metrics["gradient_symmetricity.centered"])
    assert found == pytest.approx([1.0, 1.0], abs=1e-5)


def test_necessary_is_not_sufficient() -> None:
    """A table of all pairs that writes two frequencies has a clock's measures. Its loss rests on
    these frequencies of the embedding, and on all others.
    """
    subject = library.lookup_in_waves(0)
    result = probe.run("clock-pizza", subject, triples=256, permutations=499)
    metrics, (finding,) = result.metrics, result.findings
    names = ("gradient_symmetricity.centered", "distance_irrelevance.centered", "distance_effect")
    assert ClockPizza().mechanism(*(metrics[name] for name in names)) == "clock"
    assert metrics["mechanism"] != "clock" and finding.verdict != "yes" and result.lead == ""
    half = (metrics["loss"] + np.log(11)) / 2
    alone, without = (
        metrics[f"loss.{name}"] for name in ("key_frequencies_alone", "without_key_frequencies")
    )
    assert alone > half
    assert ("necessary, not sufficient" in finding.reason) == (without > half)


@pytest.mark.parametrize("constant", [False, True])
def test_removals_are_those_of_edited_weights(constant: bool) -> None:
    subject = planted.modular_addition(
        13, (2, 5), constant_attention=constant, noise=0.1, rotation_seed=1
    ).subject
    metrics = probe.run("clock-pizza", subject, **QUICK).metrics
    spectrum = np.fft.fft(subject.model.W_E.detach()[:13].double().numpy(), axis=0)
    keys = [2, 5, 13 - 2, 13 - 5]
    others = [k for k in range(1, 13) if k not in keys]
    for name, gone in (("key_frequencies_alone", others), ("without_key_frequencies", keys)):
        without = spectrum.copy()
        without[gone] = 0
        with torch.no_grad():
            subject.model.W_E[:13] = torch.from_numpy(np.fft.ifft(without, axis=0).real)
        loss = Subject(subject.model, subject.task).loss()["answer"]
        assert metrics[f"loss.{name}"] == pytest.approx(loss, rel=1e-4), name


def test_a_difference_has_its_sum_for_a_distance() -> None:
    order, (x, y) = list(range(7)), np.ogrid[:7, :7]
    assert answer_sign((x + y + 3) % 7, order) == 1 and answer_sign((x - y) % 7, order) == -1
    assert answer_sign((x * y) % 7, order) is None
