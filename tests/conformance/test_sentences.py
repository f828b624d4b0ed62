"""Every probe says only what is true, on models of which the truth is known.

The models: initial weights, shuffled answers memorized, addition half learned, another mechanism
(true answers by one neuron each), and the mechanism that the probe looks for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import mechint
from mechint import planted
from mechint.errors import MechintError
from mechint.planted import library
from mechint.planted.trained import loss_without
from mechint.registry import PROBES, TASKS
from mechint.reporting import CHANCE_LEVEL, best_output, performance
from mechint.results import ProbeResult
from mechint.subject import Subject
from mechint.testing.probes import CAUSAL

P = 13


@cache
def untrained() -> Subject:
    return planted.modular_addition(P, (2, 5)).subject.untrained(3)


@cache
def memorized() -> Subject:
    task: Any = TASKS["modular-arithmetic"].from_dict({"p": P, "labels": "shuffled"})
    return planted.lookup_table(task, noise=0.02).subject


@cache
def half_trained() -> Subject:
    task = TASKS["modular-arithmetic"].from_dict({"p": P})
    train = {"steps": 80, "lr": 3e-3}
    return mechint.train(task, {"d_model": 32, "d_mlp": 64}, train, seeds=[3])[0].subject()


@cache
def another() -> Subject:
    task: Any = TASKS["modular-arithmetic"].from_dict({"p": P})
    return planted.lookup_table(task, noise=0.02).subject


@cache
def right() -> Subject:
    return planted.modular_addition(P, (2, 5), noise=0.02).subject


MODELS: dict[str, Callable[[], Subject]] = {
    "untrained": untrained,
    "memorized": memorized,
    "half-trained": half_trained,
    "another mechanism": another,
    "right": right,
}


ENOUGH: dict[str, dict[str, Any]] = {
    "das": {"null_samples": 99, "pairs": 128, "held_out": 64, "steps": 30},
    "embedding": {"permutations": 499},
    "fourier": {"permutations": 499, "removal_samples": 99},
    "interference": {"null_samples": 99},
    "irreps": {"permutations": 499},
    "linear": {"permutations": 199},
    "norms": {"null_models": 199},
}
"""Null samples with which a probe can decide, where its settings for tests have fewer."""


@cache
def result_of(name: str, model: str) -> ProbeResult | None:
    """The result; None where the probe does not apply or refuses."""
    settings = {**PROBES[name].calibration().test_settings, **ENOUGH.get(name, {})}
    probe = PROBES[name].from_dict(settings)
    try:
        return probe.run(MODELS[model](), seed=1)
    except MechintError:
        return None


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_says_nothing_past_the_gate(name: str) -> None:
    """Its text is its gated sentences, each tested or an abstention; on its own plants, with enough
    samples to decide, the gate lets a tested sentence through.
    """
    trials = PROBES[name].calibration().trials
    assert trials, f"{name} names no plant that it has to find"
    for trial in trials:
        enough = ENOUGH.get(name, {})
        settings = {**trial.settings}
        settings |= {key: max(value, settings.get(key, value)) for key, value in enough.items()}
        result = PROBES[name].from_dict(settings).run(trial.plant(0.0, 12345).subject, seed=12345)
        assert result.findings, f"{name}: {result.finding!r} passed no gate"
        assert result.finding == " ".join(one.headline for one in result.findings)
        tested = [one for one in result.findings if one.alpha is not None]
        assert all(one.tested and set(one.tested) <= set(result.null) for one in tested)
        assert all(one.verdict == "unclear" for one in result.findings if one not in tested)
        if trial.detects is None:  # else the trial asks for a number, whatever is said of it
            assert any(one.verdict == "yes" for one in tested), f"{trial}: {result.finding}"
            assert result.verdict == "yes"


CASES = [(name, model) for name in PROBES.names() for model in MODELS]


@pytest.mark.parametrize(("name", "model"), CASES)
def test_what_is_found_was_shown(name: str, model: str) -> None:
    """A found sentence beat its nulls at its level, has an effect of the claimed sign, and names a
    cause only where the probe intervened; it shows the bound where p is at the floor.
    """
    result = result_of(name, model)
    if result is None:
        return
    for finding in result.findings:
        if finding.verdict != "yes":
            continue
        assert finding.alpha is not None and finding.tested, finding
        for metric in finding.tested:
            null = result.null[metric]
            assert null.p_value <= finding.alpha * (1 + 1e-9), (metric, null)
            assert null.floor <= finding.alpha * (1 + 1e-9)
        assert finding.effect is None or finding.effect > finding.least, finding
        assert finding.causal or not CAUSAL.search(finding.headline), finding.headline
        if any(result.null[one].p_text.startswith("p ≤") for one in finding.tested):
            worst = max((result.null[one] for one in finding.tested), key=lambda one: one.p_value)
            assert worst.p_text in finding.headline, finding.headline


@pytest.mark.parametrize(("name", "model"), CASES)
def test_a_gain_is_not_called_harm(name: str, model: str) -> None:
    """No signed number behind a sign that is there already, and no superlative for a fall in loss
    under a removal.
    """
    result = result_of(name, model)
    if result is not None:
        assert "+-" not in result.finding, result.finding
        assert not re.search(r"(harm|costs?|rises? by|loses?) -\d", result.finding), result.finding


@pytest.mark.parametrize("name", PROBES.names())
def test_nothing_is_said_about_answers_at_chance(name: str) -> None:
    """What is found in initial weights is a statement about the weights: it looked at no answer."""
    best = best_output(performance(untrained()))
    assert best is not None and best.p_value > CHANCE_LEVEL
    result = result_of(name, "untrained")
    if result is not None:
        assert [one for one in result.findings if one.accuracy is not None] == [
            one for one in result.findings if one.verdict == "unclear" and one.accuracy is not None
        ]


@pytest.mark.parametrize("name", PROBES.names())
def test_the_right_mechanism_is_found_and_initial_weights_are_not(name: str) -> None:
    """On the plants and controls that the probe itself names, by seeds that nobody tuned."""
    for trial in PROBES[name].calibration().trials:
        probe = PROBES[name].from_dict(dict(trial.settings))
        plant = trial.plant(0.0, 12345)
        result = probe.run(plant.subject, seed=12345)
        found = trial.detects(result) if trial.detects else probe.detects(result)
        assert found, f"{trial.mechanism}: {result.finding}"
        assert trial.error(result, plant) <= trial.tolerance, result.finding


@pytest.mark.parametrize("model", ["untrained", "memorized", "another mechanism"])
@pytest.mark.parametrize("name", ["fourier", "progress", "irreps"])
def test_no_frequency_where_there_is_none(name: str, model: str) -> None:
    result = result_of(name, model)
    assert result is None or result.verdict != "yes", result.finding


@pytest.mark.parametrize("model", ["half-trained", "right"])
def test_a_frequency_that_fourier_names_is_needed(model: str) -> None:
    subject, result = MODELS[model](), result_of("fourier", model)
    assert result is not None
    before = loss_without(subject, 0, P)
    assert before == pytest.approx(subject.loss()["answer"], rel=1e-4)
    for frequency in result.metrics["logits.key_frequencies"]:
        assert loss_without(subject, frequency, P) > before + 1e-3, frequency
    if model == "right":
        assert set(result.metrics["logits.key_frequencies"]) == {2, 5}


@pytest.mark.parametrize("name", ["fourier", "irreps", "ablation", "lens", "attention"])
def test_the_right_model_is_spoken_of(name: str) -> None:
    """The tests above are not passed by silence: these probes find something in it."""
    result = result_of(name, "right")
    assert result is not None and result.verdict == "yes", result


def test_library_plants_differ_from_the_models_here() -> None:
    """The probe's own plants are of another modulus, so that the two tests are not one."""
    assert library.P != P
