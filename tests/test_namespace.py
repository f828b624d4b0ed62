"""``probes.fourier(...)``, ``tasks.listops(...)``: what is listed, called and loaded."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import pytest

import probes
import tasks
from mechint import planted
from mechint.errors import ParameterError, UnknownNameError
from mechint.registry import PROBES, TASKS
from mechint.registry.registry import attribute


def test_the_registry_is_listed() -> None:
    assert probes.names() == PROBES.names()
    assert {attribute(name) for name in PROBES} < set(dir(probes))
    assert tasks.names() == TASKS.names()
    assert {attribute(name) for name in TASKS} < set(dir(tasks))


def test_a_probe_is_called_with_its_settings() -> None:
    subject = planted.bottleneck(width=4, n=12, n_tasks=3, rank=4).subject
    result = probes.subspace(subject, seed=3, samples=199)
    assert result.to_json() == probes.run("subspace", subject, seed=3, samples=199).to_json()
    with pytest.raises(UnknownNameError, match="did you mean 'samples'"):
        probes.subspace(subject, sample=199)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", PROBES.names())
def test_every_probe_shows_its_settings(name: str) -> None:
    call = getattr(probes, attribute(name))
    shown = inspect.signature(call).parameters
    rows = {row["name"] for row in PROBES[name].describe()}
    assert list(shown)[:3] == ["subject", "seed", "answer"] and set(list(shown)[3:]) == rows
    assert call.__doc__


def test_a_task_is_called_with_its_parameters() -> None:
    assert tasks.listops(n=7) == tasks.make("listops", n=7)
    assert tasks.modular_arithmetic(p=5).p == 5
    with pytest.raises(ParameterError, match="modular-arithmetic: p=1"):
        tasks.modular_arithmetic(p=1)


def test_a_wrong_name_is_an_attribute_error() -> None:
    said = "module 'mechint.probes' has no attribute 'furier'; did you mean 'fourier'"
    with pytest.raises(AttributeError, match=said):
        probes.furier  # type: ignore[attr-defined]  # noqa: B018


def test_a_plug_in_is_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type("Theirs", (TASKS["modular-arithmetic"],), {"name": "their-task"})
    monkeypatch.setitem(sys.modules, "theirs", SimpleNamespace(Theirs=kind))  # type: ignore[arg-type]
    TASKS.add("their-task", "theirs:Theirs")
    try:
        assert type(tasks.their_task(p=7)) is kind
    finally:
        TASKS.remove("their-task")
    assert "their_task" not in dir(tasks)
