"""Numbers that are kept beside a run are those of the code that is asked: which files count, and
what a table does with numbers of other code.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import mechint
import tasks
from mechint.registry import PROBES
from mechint.run_table.entries import Entry
from mechint.run_table.page import page_of_table
from mechint.run_table.source import _beneath, _import_statements, source_digest

PACKAGE = {
    "__init__.py": "",
    "first/__init__.py": "",
    "first/probe.py": (
        "import json\nfrom ..shared import helper\nfrom . import drawing\n\n\n"
        "class First:\n    def late(self):\n        import room_probes.late\n"
    ),
    "first/drawing.py": "LINES = 1\n",
    "shared.py": "from room_probes.deep import DEEP\n\n\ndef helper():\n    return DEEP\n",
    "deep.py": "DEEP = 1\n",
    "late.py": "",
    "other.py": "OTHER = 1\n",
}
ALONE = {
    "room_alone.py": "import room_near\n\n\nclass Alone:\n    pass\n",
    "room_near.py": "X = 1\n",
}


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """Digests are kept for a process; what is changed here is not another process's."""
    yield
    forget()


def forget() -> None:
    source_digest.cache_clear()
    _beneath.cache_clear()
    _import_statements.cache_clear()


def digest_after(kind: type, file: Path, text: str) -> str | None:
    before = file.read_text()
    file.write_text(text)
    forget()
    found = source_digest(kind)
    file.write_text(before)
    forget()
    return found


def test_what_a_probe_imports_from_its_own_package_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in PACKAGE.items():
        file = tmp_path / "room_probes" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name, text in ALONE.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    first = importlib.import_module("room_probes.first.probe").First
    alone = importlib.import_module("room_alone").Alone
    digest = source_digest(first)
    assert digest is not None and digest == source_digest(first)
    for name, counts in (
        ("first/probe.py", True),
        ("first/drawing.py", True),
        ("shared.py", True),
        ("deep.py", True),
        ("late.py", True),
        ("other.py", False),
    ):
        changed = digest_after(first, tmp_path / "room_probes" / name, f"{PACKAGE[name]}# edited\n")
        assert (changed != digest) == counts, name
    own = source_digest(alone)
    assert own != digest and own is not None
    for name, text in ALONE.items():
        assert digest_after(alone, tmp_path / name, f"{text}# edited\n") != own
    broken = digest_after(alone, tmp_path / "room_near.py", "def (:\n")
    assert broken not in (own, None), "a module that cannot be parsed counts as it stands"
    monkeypatch.setattr(mechint, "__version__", "0.0.0")
    forget()
    assert source_digest(first) != digest and source_digest(alone) != own
    for name in [name for name in sys.modules if name.startswith("room_")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("mechint/null.py", True),
        ("mechint/interventions/activations.py", True),
        ("mechint/new.py", True),
        ("tasks/_listops/task.py", True),
        ("mechint/cli/show.py", False),
        ("mechint/cli/train.py", False),
    ],
)
def test_what_every_probe_computes_with_counts(
    name: str, counts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a clone, where the version stays the same from one edit to the next."""
    for package in (mechint, tasks):
        place = Path(str(package.__file__)).parent
        shutil.copytree(place, tmp_path / place.name, ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(mechint, "__file__", str(tmp_path / "mechint" / "__init__.py"))
    found = types.SimpleNamespace(submodule_search_locations=[str(tmp_path / "tasks")])
    monkeypatch.setattr("mechint.run_table.source.find_spec", lambda name: found)
    forget()
    before = source_digest(PROBES["norms"])
    with (tmp_path / name).open("a") as file:
        file.write("# edited\n")
    forget()
    assert (source_digest(PROBES["norms"]) != before) == counts


def test_every_probe_has_a_digest_of_its_own() -> None:
    digests = {name: source_digest(PROBES[name]) for name in PROBES.builtins}
    assert None not in digests.values() and len(set(digests.values())) == len(digests)
    namespace: dict[str, type] = {}
    exec("class Typed: pass", {"__name__": "room_notebook"}, namespace)
    assert source_digest(namespace["Typed"]) is None


def test_numbers_of_other_code_are_not_shown_as_those_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = tasks.make("modular-arithmetic", p=7)
    model = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
    mechint.train(task, model, {"steps": 4}, seeds=(0, 1), out=tmp_path)
    table = mechint.runs(tmp_path).probe("norms").with_figures()
    first = table.rows()
    kept = sorted(tmp_path.rglob("probes/table/norms-*.json"))
    assert len(kept) == 2
    for file in kept:  # one that other code gave, one from before code was kept
        text = json.loads(file.read_text())
        text["columns"] = dict.fromkeys(text["columns"], -1.0)
        text["code"] = "other"
        if file == kept[0]:
            del text["code"]
        file.write_text(json.dumps(text))
    with monkeypatch.context() as patch:
        patch.setattr(Entry, "subject", lambda entry: pytest.fail("opened again"))
        shown = mechint.runs(tmp_path).kept().rows()
        assert [row["norms.verdict"] for row in shown] == ["outdated"] * 2
        assert "--probe norms measures it again" in shown[0]["norms.error"]
        assert not any(-1.0 in row.values() for row in shown)
        (section,) = [one for one in page_of_table(shown, "t").sections if one.title == "norms"]
        assert section.lead == "Of 2 models: outdated in 2."
        with pytest.raises(pytest.fail.Exception, match="opened again"):
            table.rows()
    plain = mechint.runs(tmp_path).probe("norms")
    assert plain.rows() == first
    assert sorted(tmp_path.rglob("probes/table/norms-*.json")) == kept, "in the place of the old"
    assert plain.figures_of("norms") == [{}, {}], "figures of other code went with its numbers"
    assert table.rows() == first and all(table.figures_of("norms"))
    monkeypatch.setattr(Entry, "subject", lambda entry: pytest.fail("opened again"))
    assert table.rows() == first and mechint.runs(tmp_path).kept().rows() == first
