"""Registries: names without imports, broken and colliding plug-ins, packages that hide ours."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint, distribution
from pathlib import Path
from typing import Any

import pytest

from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.registry import CHECKPOINT_FORMATS, PROBES, STUDIES, TASKS, Registry
from mechint.registry import registry as module

ROOT = Path(__file__).parents[1]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that offers entry points (name, value) in the group ``mechint.tests``, where
    mechint itself has "ours"; ``mechint.theirs`` has them alone.
    """

    def offer(*points: tuple[str, str]) -> None:
        made = [EntryPoint(name, value, "mechint.tests") for name, value in points]
        monkeypatch.setattr(
            module,
            "entry_points",
            lambda group: made if group in ("mechint.tests", "mechint.theirs") else [],
        )
        own = {"mechint.tests": {"ours": "json:JSONDecoder"}}
        monkeypatch.setattr(module, "_own_entry_points", lambda: own)

    return offer


@pytest.mark.parametrize(
    "registry", [TASKS, PROBES, CHECKPOINT_FORMATS, STUDIES], ids=lambda registry: registry.kind
)
def test_every_built_in_can_be_loaded(registry: Registry) -> None:
    assert registry.builtins
    for name in registry.builtins:
        assert callable(registry[name]), name


def test_installed_metadata_and_checkout_agree() -> None:
    """A wheel reads what a checkout reads from ``pyproject.toml``."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["project"]["entry-points"]
    installed = {(p.group, p.name, p.value) for p in distribution("mechint").entry_points}
    missing = {
        (group, name, value) for group, own in groups.items() for name, value in own.items()
    } - installed
    assert not missing, "install mechint again: its entry points have changed"


@pytest.mark.parametrize("registry", [TASKS, PROBES], ids=lambda registry: registry.kind)
def test_every_built_in_has_its_name_a_summary_and_a_source(registry: Registry) -> None:
    for name in registry.builtins:
        kind = registry[name]
        assert kind.name == name
        assert kind.source
        line = registry.describe(name)
        assert line and " ".join(kind.__doc__.split()).startswith(line)


def test_a_wrong_name_gets_the_nearest_one() -> None:
    with pytest.raises(
        UnknownNameError, match=r"^unknown probe 'furier'; did you mean 'fourier'\? \(probes: "
    ):
        PROBES["furier"]


@pytest.mark.parametrize("name", [["fourier", "lens"], 3, None])
def test_what_is_no_name_is_said_to_be_none(name: Any) -> None:
    with pytest.raises(ParameterError, match="expected the name of one probe"):
        PROBES[name]
    assert name not in PROBES


def test_listing_imports_nothing(offered: Callable[..., None]) -> None:
    offered(("theirs", "no_such_package.module:Thing"))
    registry = Registry("task", "mechint.tests")
    assert registry.names() == ["ours", "theirs"]
    with pytest.raises(
        MechintError, match=r"task 'theirs' of .* cannot be loaded: No module named"
    ):
        registry["theirs"]
    with pytest.warns(UserWarning, match=r"task 'theirs' of .* cannot be read"):
        assert registry.describe("theirs") == ""
    assert registry["ours"].__name__ == "JSONDecoder"


def test_a_malformed_entry_point_warns(offered: Callable[..., None]) -> None:
    offered(("odd", "no colon; at all"))
    with pytest.warns(UserWarning, match="an unknown distribution offers the task 'odd'"):
        assert Registry("task", "mechint.tests").names() == ["ours"]


def test_a_collision_is_an_error(offered: Callable[..., None]) -> None:
    offered(("ours", "theirs:Thing"))
    with pytest.raises(
        MechintError, match=r"two tasks are named 'ours': mechint's and an unknown distribution's"
    ):
        Registry("task", "mechint.tests").names()


THEIRS = """
from dataclasses import dataclass
from typing import ClassVar
from mechint import Need, Probe, ProbeResult, setting


@dataclass(frozen=True)
class Their(Probe):
    \"\"\"Is it theirs?\"\"\"
    name: ClassVar[str] = "their"
    needs: ClassVar = (Need.TASK,)
    quick: ClassVar[bool] = True
    size: int = setting(3, "size", low=1, high=9)

    def measure(self, subject, seed) -> ProbeResult:
        raise NotImplementedError
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from dataclasses", "from dataclasses import (", "cannot be loaded: SyntaxError"),
        ("size: int = setting", "size: int = seting", "cannot be loaded: NameError: name 'seting'"),
        ("(Need.TASK,)", '("task",)', "cannot be loaded: TypeError: probe Their: needs has 'task'"),
        ("@dataclass(frozen=True)", "", "Their declares size and is no dataclass of its own"),
        ("def measure", "def measures", "Their does not define measure"),
        ('"their"', '"theirs"', "its class attribute `name` is 'theirs'; register it under that"),
        ("class Their(Probe)", "class Their", "it is not a subclass of Probe"),
    ],
)
def test_a_broken_plug_in_stops_nobody(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    offered: Callable[..., None],
    old: str,
    new: str,
    said: str,
) -> None:
    """`mechint analyze` without --probe asks every probe whether it is quick."""
    from mechint.probe import probe

    (tmp_path / "their_module.py").write_text(THEIRS.replace(old, new))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_module", raising=False)
    offered(("their", "their_module:Their"))
    registry = Registry("probe", "mechint.theirs", "mechint.probe:Probe")
    monkeypatch.setattr(probe, "PROBES", registry)
    with pytest.warns(UserWarning, match=said):
        assert probe.quick_probes() == []


def test_a_whole_plug_in_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: Callable[..., None]
) -> None:
    from mechint.probe import probe

    (tmp_path / "their_module.py").write_text(THEIRS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "their_module", raising=False)
    offered(("their", "their_module:Their"))
    registry = Registry("probe", "mechint.theirs", "mechint.probe:Probe")
    monkeypatch.setattr(probe, "PROBES", registry)
    assert probe.quick_probes() == ["their"]


def test_add_and_remove() -> None:
    registry = Registry("task", "mechint.nothing")
    registry.add("mine", "json:JSONEncoder")
    assert registry["mine"].__name__ == "JSONEncoder"
    with pytest.raises(MechintError, match="a task named 'mine' exists already"):
        registry.add("mine", "json:JSONDecoder")
    registry.remove("mine")
    assert list(registry) == []


def test_a_package_that_hides_ours_is_named(tmp_path: Path) -> None:
    (tmp_path / "tasks.py").write_text("raise RuntimeError('must not be imported')")

    def imported_in(place: Path) -> str:
        environment = {"PYTHONPATH": f"{place}:{ROOT}"}
        return subprocess.run(
            [sys.executable, "-c", "import mechint"],
            cwd=place,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stderr

    assert (
        f"package 'tasks' is taken from {tmp_path / 'tasks.py'}, which hides mechint's own in "
        f"{ROOT / 'tasks'}"
    ) in imported_in(tmp_path)
    assert not imported_in(ROOT)
