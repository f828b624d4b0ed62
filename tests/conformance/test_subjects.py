"""Every probe on every kind of subject that is asked about: it measures, or refuses in one line."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch

from mechint import planted
from mechint.errors import MechintError
from mechint.probe import Need
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.task import IGNORE
from mechint.testing.probes import CAUSAL
from tests.conformance import test_architectures
from tests.conformance.models_table import SETTINGS, subject_of


def addition() -> Subject:
    return planted.modular_addition(7, (2,)).subject


def zeros() -> Subject:
    model = copy.deepcopy(addition().model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    return addition().with_model(model)


def some(order: Callable[[int], Any]) -> Callable[[], Subject]:
    """Examples of the task's inputs that are not all of them, in their order."""
    return lambda: addition().with_data(addition().data[order(49)])


def hops() -> Subject:
    """A transformer that follows pointers by doubling, with one answer per node."""
    subject = planted.composition(n=3, k=4, hops=(2,)).subject
    return subject.with_data(subject.data[:64]).with_answer("all")


KINDS: dict[str, tuple[Callable[[], Subject], set[str]]] = {
    "weights of zero": (zeros, {"llc", "das", "weights", "attention"}),
    "no task": (lambda: Subject(addition().model, None), {*PROBES} - {"weights"}),
    "all answers": (hops, {"llc", "das", "weights", "circuits", "gradients"}),
    "examples in another order": (some(lambda n: torch.arange(n).flip(0)), {*PROBES}),
    "examples that come again": (some(lambda n: torch.arange(n) % 7), {*PROBES}),
    "few examples": (some(lambda n: slice(20)), {"das", "llc", "circuits"}),
    "blocks of Llama": (lambda: subject_of("blocks of Llama"), {*PROBES}),
    "latent attention": (lambda: test_architectures.opened("deepseek_v3")[0], {*PROBES}),
    "blocks without attention": (lambda: test_architectures.opened("qwen3_next")[0], {*PROBES}),
}
"""Kind → how it is made, and the probes that are asked about it in `make test-all` alone."""
made = cache(lambda kind: KINDS[kind][0]())
SAMPLED = {"latent attention", "blocks without attention"}
"""Kinds of which sampling would take minutes."""
PAIRS = [
    pytest.param(name, kind, marks=[pytest.mark.full] if name in full else [])
    for kind, (_, full) in KINDS.items()
    for name in PROBES.names()
    if (name, kind in SAMPLED) != ("llc", True)
]


@pytest.mark.parametrize(("name", "kind"), PAIRS)
def test_a_probe_measures_or_refuses(name: str, kind: str) -> None:
    """Nothing is found in weights of zero, no number of a sentence is none, and what needs every
    input of the task in its order refuses others.
    """
    calibration, subject = PROBES[name].calibration(), made(kind)
    suited = calibration.suited.get("composition", {}) if kind == "all answers" else {}
    random = SETTINGS.get(name, {}) if kind == "blocks of Llama" else {}
    probe = PROBES[name].from_dict({**calibration.test_settings, **suited, **random})
    try:
        result = probe.run(subject, seed=0)
    except MechintError as refused:
        assert "\n" not in str(refused)
        needed = PROBES[name]().applicable(subject_of("transformer")) is None
        assert not (kind == "blocks of Llama" and needed and name != "norms")
        return
    assert not re.search(r"\bnan\b|\binf\b", result.finding), result.finding
    assert result.provenance["probe"]["answer"] == subject.answer
    if name == "lens" and subject.task is not None:  # of all answers each is counted
        right = subject.correct()[subject.targets != IGNORE].double().mean()
        assert result.metrics["lens.final_accuracy"] == pytest.approx(float(right), nan_ok=True)
    assert "examples" not in kind or Need.GRID not in PROBES[name].needs
    found = [one.headline for one in result.findings if one.verdict == "yes"]
    assert kind != "weights of zero" or not any(map(CAUSAL.search, found)), found
    # its sublayers write nothing, as none does at first
    assert kind != "weights of zero" or name == "norms" or not found, found
