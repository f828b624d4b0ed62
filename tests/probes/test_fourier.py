"""The Fourier probe: planted frequencies, and silence without a mechanism."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.pair_network import PairNetwork, PairNetworkConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes import spectra
from probes._fourier.probe import largest_z
from probes.spectra import KeyRule, Spectrum

QUICK = {"removal_samples": 9, "removal_examples": 64}


@pytest.mark.parametrize(("p", "frequencies"), [(23, (3, 7)), (31, (1, 2, 3, 14)), (24, (5, 7))])
def test_planted_frequencies_are_recovered_exactly(p: int, frequencies: tuple[int, ...]) -> None:
    plant = planted.modular_addition(p, frequencies, noise=0.1, rotation_seed=1)
    result = probe.run("fourier", plant.subject, removal_samples=99, removal_examples=32)
    metrics = result.metrics
    assert metrics["embedding.key_frequencies"] == list(frequencies)
    assert metrics["logits.key_frequencies"] == list(frequencies)
    assert metrics["frequencies"] == " ".join(map(str, frequencies))
    logits, embedding, needed = result.findings[:3]
    assert (logits.verdict, embedding.verdict, needed.verdict) == ("yes",) * 3
    assert logits.p_value == 0.002 and logits.effect is not None and not logits.causal
    assert logits.effect.value == pytest.approx(metrics["logits.largest_cosine"])
    assert needed.causal and needed.effect is not None
    others = needed.effect.baseline  # of a noisy plant's other frequencies, which do no good
    assert others is not None and others < 0.1 and abs(others) < needed.effect.value / 20
    assert result.hero == "spectra" and result.lead


def test_even_moduli_with_few_arrangements_are_unclear() -> None:
    """A Nyquist frequency of 12 classes depends on parity alone, which 1 order in 462 keeps."""
    subject = planted.lookup_table(TASKS["modular-arithmetic"](p=12)).subject
    steps = torch.arange(12)[:, None] - torch.arange(12)
    waves = sum(torch.cos(2 * torch.pi * k * steps / 12) for k in (1, 6))
    with torch.no_grad():  # logits of one answer become the two waves
        subject.model.W_U.copy_(subject.model.W_U @ waves)
    for name, first in (("fourier", 0), ("progress", 0)):
        finding = probe.run(name, subject, **(QUICK if name == "fourier" else {})).findings[first]
        assert finding.verdict == "unclear", (name, finding)
    found = probe.run("fourier", planted.modular_addition(12, (1, 5)).subject, **QUICK)
    assert found.metrics["logits.key_frequencies"] == [1, 5] and found.verdict == "yes"


def test_multiplication_is_read_in_logarithms() -> None:
    task = TASKS["modular-arithmetic"](p=23, operation="multiply")
    plant = planted.modular_addition(22, (3, 5)).subject.model
    order = np.argsort(task.symmetry.group.logarithms)  # exponent → element
    sizes = {"d_vocab": 24, "d_vocab_out": 23, "output_sizes": (23,)}
    config = ModelConfig(**{**plant.config.to_dict(), **sizes})
    model = HookedTransformer(config, seed=0)
    state = {name: value.detach().clone() for name, value in plant.weights().items()}
    tokens = torch.tensor([task.symmetry.tokens[i] for i in order])
    embedding = torch.zeros(24, state["embed.W_E"].shape[1])
    embedding[tokens], embedding[23] = state["embed.W_E"][:22], state["embed.W_E"][22]
    unembedding = torch.zeros(state["unembed.W_U"].shape[0], 23)
    unembedding[:, tokens] = state["unembed.W_U"]
    model.load_weights({**state, "embed.W_E": embedding, "unembed.W_U": unembedding})
    metrics = probe.run("fourier", Subject(model, task), **QUICK).metrics
    assert metrics["logits.key_frequencies"] == metrics["embedding.key_frequencies"] == [3, 5]


def test_every_output_has_its_own_modulus() -> None:
    subject = planted.lookup_table(TASKS["remainders"](p=13)).subject
    result = probe.run("fourier", subject, **QUICK)
    assert set(result.metrics["logits.cosine"]) == {f"mod {q}" for q in (2, 3, 5, 7, 11)}
    assert "logits.largest_cosine" not in result.null
    assert result.verdict != "yes"


def test_outputs_compare_by_how_far_they_stand_out_of_their_null() -> None:
    draw = np.random.default_rng(0)

    def one(largest: float) -> Spectrum:
        values, null = np.array([largest, 0.0]), draw.uniform(0.1, 0.2, 99)
        return Spectrum([1, 2], values, [1], values, null, largest)

    z, null = largest_z({"far": one(0.9), "within": one(0.15)})
    assert z["far"] > null.max() > z["within"] and null.shape == (99,)


@pytest.mark.parametrize("join", ["concat", "add"])
def test_networks_of_two_operands_are_analyzed_with_both_their_embeddings(join: str) -> None:
    p, k = 13, 2
    config = PairNetworkConfig(
        d_vocab=p, d_vocab_out=p, d_embed=6, widths=(40,), join=join, n_ctx=3
    )
    model = PairNetwork(config, seed=3)
    angles = 2 * np.pi * np.arange(p) / p
    waves = np.stack([np.cos(k * angles), np.sin(k * angles)]) * np.sqrt(2 / p)
    onto = torch.from_numpy(waves.T @ waves).float()
    edited = copy.deepcopy(model)
    with torch.no_grad():
        for table in (model.embed.W_E, model.embed_y.W_E):
            table.mul_(0.1).add_(torch.from_numpy(waves.T @ np.eye(2, 6)).float())
        edited.load_state_dict(model.state_dict())
        for table in (edited.embed.W_E, edited.embed_y.W_E):
            table.sub_(onto @ table)
    subject = Subject(model, TASKS["modular-arithmetic"](p=p))
    metrics = probe.run("fourier", subject, **QUICK).metrics
    assert metrics["embedding.key_frequencies"] == [k]
    loss = Subject(edited, subject.task).loss()["answer"]
    assert metrics["loss"] + metrics["embedding.removal"][k] == pytest.approx(loss, rel=1e-5)


def test_a_removal_is_not_denied_on_a_sample_that_lacks_a_token() -> None:
    """32 inputs cannot hold all 29 values of both operands: directions are of all tokens still."""
    subject = planted.modular_addition(29, (3, 7), noise=0.05, rotation_seed=2).subject
    result = probe.run("fourier", subject, removal_samples=99, removal_examples=32)
    null = result.null["embedding.removal_named"]
    needed = next(one for one in result.findings if one.causal)
    assert needed.verdict == "yes" and null.observed > 1 > 100 * null.mean


@pytest.mark.parametrize(
    ("keys", "together"), [((2, 5, 9, 11, 13), True), ((2, 5, 9), True), ((2, 5), False)]
)
def test_needed_is_said_of_each_where_each_was_left_out_else_together(keys, together) -> None:
    """Rises of the loss by hand, with one frequency after the other projected out of the rows of
    W_E; every frequency that a sentence names has its column.
    """
    subject = planted.modular_addition(29, keys).subject
    result = probe.run("fourier", subject)
    angles = 2 * np.pi / 29 * np.arange(29)

    def rise(some: Sequence[int]) -> float:
        waves = [wave(k * angles) for k in some for wave in (np.cos, np.sin)]
        onto = torch.from_numpy(sum(np.outer(one, one) for one in waves) * 2 / 29).float()
        model = copy.deepcopy(subject.model)
        with torch.no_grad():
            model.W_E[:29].sub_(onto @ model.W_E[:29])
        return Subject(model, subject.task).loss()["answer"] - subject.loss()["answer"]

    unnamed = max(rise([k]) for k in range(1, 15) if k not in keys)
    each = [k for k in keys if rise([k]) > max(unnamed, 1e-3)]
    if each and rise(each) < rise(keys) / 2:
        each = []
    needed = next(one for one in result.findings if one.causal)
    assert needed.verdict == "yes" and needed.scope.together == together == (not each)
    assert needed.headline.endswith(": " + ", ".join(map(str, each or keys)) + ".")
    assert {*map(str, keys)} <= {*result.tables["summary"].columns["frequency"]}


@pytest.mark.parametrize(("noise", "leads"), [(1.0, True), (2.0, False)])
def test_frequencies_of_less_than_half_of_the_logits_do_not_lead(noise: float, leads: bool) -> None:
    """Noise on W_U; the share by hand, of the logits with cos 2πk/29 (answer − class)."""
    subject = planted.modular_addition(29, (3, 7, 12)).subject
    model, generator = copy.deepcopy(subject.model), torch.Generator().manual_seed(0)
    drawn = torch.randn(model.W_U.shape, generator=generator)
    with torch.no_grad():
        model.W_U.add_(noise * model.W_U.square().mean().sqrt() * drawn)
    noisy = Subject(model, subject.task)
    logits = noisy.logits().double()
    logits = logits - logits.mean(1, keepdim=True) - logits.mean(0) + logits.mean()
    turns = 2 * np.pi / 29 * (noisy.targets - torch.arange(29)).double()
    waves = torch.stack([(k * turns).cos().flatten() for k in (3, 7, 12)])
    share = float(((waves @ logits.flatten()) ** 2 / waves.square().sum(1)).sum())
    share /= float(logits.square().sum())
    result = probe.run("fourier", noisy, **QUICK)
    assert f" {share:.0%} of their variance: 3, 7, 12." in result.findings[0].headline
    assert bool(result.lead) == leads == (share >= 0.5)


def test_a_key_frequency_that_does_next_to_nothing_is_not_named() -> None:
    """A frequency at a fiftieth of the amplitude of another: 0.04% of the variance, by hand."""
    subject = planted.modular_addition(29, (3, 7)).subject
    found = spectra.cycle_spectrum(subject, spectra.cycles(subject)[0], KeyRule(), 0)
    faint = replace(found, values=np.where(found.values > 0.1, found.values, 0.0))
    faint.values[6] = faint.values[2] / 50
    assert faint.keys == [3, 7] and faint.named_keys == [3] and 0.02**2 < 0.01
    assert found.named_keys == found.keys
