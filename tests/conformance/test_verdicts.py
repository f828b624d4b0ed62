"""Verdicts of the probes on models of which the truth is known: planted, untrained, memorized."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from mechint import planted
from mechint.errors import MechintError
from mechint.planted.trained import loss_without
from mechint.probe.results import ProbeResult
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject

P = 13


def looked_up(labels: str) -> Subject:
    task: Any = TASKS["modular-arithmetic"].from_dict({"p": P, "labels": labels})
    return planted.lookup_table(task, noise=0.02).subject


MODELS: dict[str, Callable[[], Subject]] = {
    "right": lambda: planted.modular_addition(P, (2, 5), noise=0.02).subject,
    "untrained": lambda: planted.modular_addition(P, (2, 5)).subject.untrained(3),
    "memorized": lambda: looked_up("shuffled"),
    "another mechanism": lambda: looked_up("true"),
}
ENOUGH: dict[str, dict[str, Any]] = {"fourier": {"permutations": 499, "removal_samples": 9}}
"""Null samples with which a probe can decide, where its settings for tests have fewer."""


MAX_WORDS = 15
DENIAL = re.compile(
    r"\b(no|not|cannot|none|nor|neither|nothing|fewer|within|without|as)\b", re.IGNORECASE
)
"""Words by which a sentence says that something is not there, or as it is without a mechanism."""


@cache
def result_of(name: str, model: str) -> ProbeResult | None:
    """The result; None where the probe refuses."""
    settings = {**PROBES[name].calibration().test_settings, **ENOUGH.get(name, {})}
    try:
        return PROBES[name].from_dict(settings).run(MODELS[model](), seed=1)
    except MechintError:
        return None


@pytest.mark.full
@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_finds_the_plants_that_it_names(name: str) -> None:
    """By seeds that nobody tuned, with the error that it states."""
    trials = PROBES[name].calibration().trials
    assert trials, f"{name} names no plant that it has to find"
    for trial in trials:
        probe = PROBES[name].from_dict(dict(trial.settings))
        plant = trial.plant(0.0, 12345)
        result = probe.run(plant.subject, seed=12345)
        found = trial.detects(result) if trial.detects else probe.detects(result)
        assert found, f"{trial.mechanism}: {result.finding}"
        assert trial.error(result, plant) <= trial.tolerance, result.finding
        for one in result.findings:
            assert set(one.tested) <= set(result.null)
        assert trial.detects or result.verdict == "yes"
        read_right(result)


def read_right(result: ProbeResult) -> None:
    """Headlines are short sentences, subject first; what was not found is not said to be there."""
    for one in result.findings:
        assert len(one.headline.split()) <= MAX_WORDS, one.headline
        assert not one.headline[0].islower(), one.headline
        assert one.headline.endswith((".", "?")) and "(" not in one.headline, one.headline
        if one.verdict == "unclear":
            assert one.reason and one.p_value is None
        if one.verdict == "no":
            assert DENIAL.search(one.headline), one.headline
    if result.lead:
        assert result.verdict == "yes" and len(result.lead.split()) <= MAX_WORDS, result.lead


@pytest.mark.parametrize("model", ["untrained", "memorized", "another mechanism"])
@pytest.mark.parametrize("name", ["fourier", "progress"])
def test_no_frequency_where_there_is_none(name: str, model: str) -> None:
    result = result_of(name, model)
    assert result is None or result.verdict != "yes", result.finding


def test_a_frequency_that_fourier_names_is_needed() -> None:
    subject, result = MODELS["right"](), result_of("fourier", "right")
    assert result is not None
    before = loss_without(subject, 0, P)
    assert before == pytest.approx(subject.loss()["answer"], rel=1e-4)
    assert set(result.metrics["logits.key_frequencies"]) == {2, 5}
    for frequency in (2, 5):
        assert loss_without(subject, frequency, P) > before + 1e-3, frequency


@pytest.mark.parametrize("name", ["fourier", "ablation", "lens"])
def test_the_right_model_is_not_met_with_silence(name: str) -> None:
    result = result_of(name, "right")
    assert result is not None and result.verdict == "yes", result
