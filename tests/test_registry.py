"""Registries: names without imports, broken and colliding plug-ins, a user's files of our names."""

from __future__ import annotations

import importlib
import itertools
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.metadata import EntryPoint, EntryPoints, distribution
from pathlib import Path
from typing import Any

import pytest

from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.registry import CHECKPOINT_FORMATS, PROBES, STUDIES, TASKS, Registry
from mechint.registry import registry as module
from mechint.system.packages import BESIDE

ROOT = Path(__file__).parents[1]


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A function that offers entry points (name, value) in the group ``mechint.tests``, where
    mechint itself has "ours"; ``mechint.theirs`` has them alone.
    """

    def offer(*points: tuple[str, str]) -> None:
        groups = ("mechint.tests", "mechint.theirs")
        made = EntryPoints(EntryPoint(*point, group) for point in points for group in groups)
        monkeypatch.setattr(module, "installed_points", lambda: made)
        own = {"mechint.tests": {"ours": "json:JSONDecoder"}}
        monkeypatch.setattr(module, "_own_entry_points", lambda: own)

    return offer


@pytest.mark.parametrize(
    "registry", [TASKS, PROBES, CHECKPOINT_FORMATS, STUDIES], ids=lambda registry: registry.kind
)
def test_every_built_in_can_be_loaded(registry: Registry) -> None:
    assert registry.builtins
    for name in registry.builtins:
        assert callable(registry[name]) or registry is STUDIES, name


def test_installed_metadata_and_checkout_agree() -> None:
    """A wheel reads what a checkout reads from ``pyproject.toml``; an editable installation may be
    older than the last line there, which the registry reads all the same.
    """
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    groups = tomllib.loads(text)["project"]["entry-points"]
    assert set(groups["mechint.studies"]) == set(STUDIES.builtins)
    if not Path(str(distribution("mechint").locate_file("mechint"))).is_dir():
        return
    installed = {(point.group, point.name) for point in distribution("mechint").entry_points}
    missing = {(group, name) for group, own in groups.items() for name in own} - installed
    assert not missing, "install mechint again: its entry points have changed"


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


@pytest.fixture
def quick_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offered: Callable[..., None]
) -> Callable[[str], list[str]]:
    """The quick probes where a plug-in of this text is the only one."""
    from mechint.probe import probe

    def quick(text: str) -> list[str]:
        (tmp_path / "their_module.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(sys.modules, "their_module", raising=False)
        offered(("their", "their_module:Their"))
        registry = Registry("probe", "mechint.theirs", "mechint.probe:Probe")
        monkeypatch.setattr(probe, "PROBES", registry)
        return probe.quick_probes()

    return quick


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
    quick_of: Callable[[str], list[str]], old: str, new: str, said: str
) -> None:
    """`mechint analyze` without --probe asks every probe whether it is quick."""
    with pytest.warns(UserWarning, match=said):
        assert quick_of(THEIRS.replace(old, new)) == []


def test_a_whole_plug_in_is_taken(quick_of: Callable[[str], list[str]]) -> None:
    assert quick_of(THEIRS) == ["their"]


def test_add_and_remove() -> None:
    registry = Registry("task", "mechint.nothing")
    registry.add("mine", "json:JSONEncoder")
    assert registry["mine"].__name__ == "JSONEncoder"
    with pytest.raises(MechintError, match="a task named 'mine' exists already"):
        registry.add("mine", "json:JSONDecoder")
    registry.remove("mine")
    assert list(registry) == []


@pytest.mark.full
def test_files_of_the_users_with_our_names_break_nothing(tmp_path: Path) -> None:
    """In her folder ``import tasks`` gives her file, and mechint uses its own."""
    for name in BESIDE:
        (tmp_path / f"{name}.py").write_text("HERS = True\n", encoding="utf-8")
    script = (
        "import mechint, tasks, probes, studies\n"
        "from mechint.registry import PROBES, STUDIES, TASKS\n"
        "assert tasks.HERS and probes.HERS and studies.HERS\n"
        "assert [len(list(map(kind.__getitem__, kind))) > 3 for kind in (TASKS, PROBES, STUDIES)]\n"
        "assert mechint.tasks.listops().name == 'listops' and mechint.reproduce\n"
        "assert set(TASKS.topics()) > {'other'} or TASKS.describe('listops')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_short_names_are_the_same_module_objects() -> None:
    """In whichever order they are imported."""
    script = (
        "import importlib, sys\n"
        "one, other = sys.argv[1:]\n"
        "first, second = map(importlib.import_module, (one, other))\n"
        "assert first is second and first.__spec__.name.startswith('mechint.')\n"
        "import tasks, mechint\n"
        "assert tasks is mechint.tasks is sys.modules['mechint.tasks']\n"
    )
    for pair in itertools.permutations(["tasks.lists", "mechint.tasks.lists"]):
        command = [sys.executable, "-W", "error", "-c", script, *pair]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    for name in BESIDE:
        assert importlib.import_module(name) is importlib.import_module(f"mechint.{name}")
