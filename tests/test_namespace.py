"""``probes.fourier(...)``, ``tasks.listops(...)``: what is listed, called and loaded."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import probes
import tasks
from mechint import planted
from mechint.errors import ParameterError, UnknownNameError
from mechint.namespace import attribute
from mechint.registry import PROBES, TASKS
from mechint.stubs import PACKAGES, stub

ROOT = Path(__file__).parents[1]


def test_the_registry_is_listed() -> None:
    assert probes.names() == PROBES.names()
    assert {attribute(name) for name in PROBES} < set(dir(probes))
    assert tasks.names() == TASKS.names()
    assert {attribute(name) for name in TASKS} < set(dir(tasks))


def test_listing_loads_nothing() -> None:
    script = (
        "import sys, probes, tasks\n"
        "dir(probes), dir(tasks), probes.names(), tasks.names()\n"
        "heavy = {'torch', 'numpy', 'transformer_lens'} & set(sys.modules)\n"
        "own = {n for n in sys.modules if n.startswith(('probes.', 'tasks.'))}\n"
        "sys.exit(f'loaded {heavy | own}' if heavy | own else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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


def test_modules_stay_modules() -> None:
    import probes.norms.probe
    from probes.fourier import neurons

    module = sys.modules["probes.norms"]
    assert inspect.ismodule(module) and inspect.ismodule(neurons)
    assert module is probes.norms and probes.norms.probe.Norms is PROBES["norms"]


def test_a_wrong_name_is_an_attribute_error() -> None:
    said = "module 'probes' has no attribute 'furier'; did you mean 'fourier'"
    with pytest.raises(AttributeError, match=said):
        probes.furier  # type: ignore[attr-defined]  # noqa: B018


def called(name: str, monkeypatch: pytest.MonkeyPatch) -> type:
    """Give the process a task of that name, and call it."""
    kind = type("Theirs", (TASKS["modular-arithmetic"],), {"name": name})
    monkeypatch.setitem(sys.modules, "theirs", SimpleNamespace(Theirs=kind))  # type: ignore[arg-type]
    TASKS.add(name, "theirs:Theirs")
    try:
        made = getattr(tasks, attribute(name))(p=7)
    finally:
        TASKS.remove(name)
    assert made.p == 7
    return type(made)


def test_a_plug_in_is_called_too(monkeypatch: pytest.MonkeyPatch) -> None:
    assert called("their-task", monkeypatch).__name__ == "Theirs"
    assert "their_task" not in dir(tasks)


def test_a_plug_in_may_be_named_as_a_file_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether or not the file was imported before."""
    assert TASKS["regression-mixture"].__module__ == "tasks.regression"
    for name in ("regression", "single-index-copy", "two-operands"):
        assert called(name, monkeypatch).__name__ == "Theirs"
    assert inspect.ismodule(tasks.regression)  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="is a module of helpers"):
        tasks.regression()  # type: ignore[attr-defined]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_stubs_are_up_to_date(package: str) -> None:
    """Editors read the settings from them: run ``python -m mechint.stubs`` after changing one."""
    written = (ROOT / package / "__init__.pyi").read_text(encoding="utf-8")
    assert written == stub(package), "run python -m mechint.stubs"
