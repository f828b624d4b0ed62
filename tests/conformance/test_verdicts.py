"""Verdicts of the probes on models of which the truth is known: planted, untrained, memorized."""

from __future__ import annotations

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


@cache
def result_of(name: str, model: str) -> ProbeResult | None:
    """The result; None where the probe refuses."""
    settings = {**PROBES[name].calibration().test_settings, **ENOUGH.get(name, {})}
    try:
        return PROBES[name].from_dict(settings).run(MODELS[model](), seed=1)
    except MechintError:
        return None


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
