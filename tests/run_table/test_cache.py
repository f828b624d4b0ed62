"""Kept numbers are shown only where all that they depend on is as it was."""

from __future__ import annotations

import json
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mechint
import tasks
from mechint.registry import PROBES, TASKS
from mechint.registry.plugins import PLUGINS, load_plugin
from mechint.run_table import Entry, cache
from mechint.run_table.measuring import Measurement
from mechint.run_table.page import page_of_table
from mechint.system.kept import MARK, UNVERIFIED, code_of

SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
BRIEF = {"steps": 4, "evaluate_every": 2, "checkpoints": "last"}
PROBE = """
from dataclasses import dataclass
from mechint import Probe, Report

@dataclass(frozen=True)
class Widths(Probe):
    name = "widths"
    question = "How wide is it?"
    source = "here"
    def measure(self, subject, seed):
        report = Report(self, subject)
        report.metric("d_model", float(subject.model.config.d_model) + VALUE)
        report.metric("sizes", [1, 2])
        report.metric("kind", "narrow")
        report.unclear("Whether it is wide is unclear.", reason="nothing decides it")
        return report.result()
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    mechint.train(tasks.make("modular-arithmetic", p=7), SMALL, BRIEF, out=out)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Path]]:
    """The models that are opened."""
    seen: list[Path] = []
    subject = Entry.subject

    def count(entry: Entry) -> Any:
        seen.append(entry.path)
        return subject(entry)

    monkeypatch.setattr(Entry, "subject", count)
    yield seen


def kept(run: Path) -> Path:
    (file,) = run.glob("probes/table/*.json")
    return file


def edit_config(run: Path) -> None:
    config = json.loads((run / "config.json").read_text())
    config["train"]["lr"] = 0.5
    (run / "config.json").write_text(json.dumps(config))


CHANGES: dict[str, Callable[[Path], object]] = {
    "nothing": lambda run: None,
    "the configuration": edit_config,
    "a number that is no cell": lambda run: edit(run, lambda one: one["columns"].update(x=[{}])),
    "columns of another probe": lambda run: edit(
        run, lambda one: one["columns"].update({"test.accuracy": 1.0, "path": "/etc"})
    ),
    "another key": lambda run: edit(run, lambda one: one["key"].update(seed=9)),
    "a list": lambda run: kept(run).write_text("[3]"),
    "half of it": lambda run: kept(run).write_bytes(kept(run).read_bytes()[:40]),
    "figures that are none": lambda run: edit(run, lambda one: one.update(figures={"a": 3})),
    "another number": lambda run: edit(
        run, lambda one: one["columns"].update({"embedding.verdict": "forged"})
    ),
    "nothing that proves who wrote it": lambda run: edit(run, lambda one: one.pop(MARK)),
    "another user": lambda run: edit(run, lambda one: one.update({MARK: "0" * 64})),
    "a link": lambda run: [kept(run).rename(run / "x"), kept_link(run)],
}


def kept_link(run: Path) -> None:
    (run / "probes" / "table" / f"{(run / 'x').stem}.json").symlink_to(run / "x")


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(kept(run).read_text())
    change(data)
    kept(run).write_text(json.dumps(data))


@pytest.mark.parametrize("name", CHANGES)
def test_a_kept_file_that_says_something_else_is_measured_again(
    run: Path, opened: list[Path], name: str
) -> None:
    table = mechint.runs(run).probe("embedding")
    first = {key: value for key, value in table.rows()[0].items() if key.startswith("embedding.")}
    CHANGES[name](run)
    row = table.rows()[0]
    assert len(opened) == (1 if name == "nothing" else 2)
    assert {key: value for key, value in row.items() if key.startswith("embedding.")} == first
    assert row["path"] == str(run)


def test_what_another_user_kept_is_shown_where_it_is_trusted_and_says_so(
    run: Path, opened: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mechint.runs(run).probe("embedding")
    first = table.rows()[0]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    (run / ".lock").unlink()  # the run is somebody else's
    assert mechint.runs(run).kept().rows()[0].get("embedding.verdict") is None
    assert table.trusting().rows()[0] == first | {"embedding.kept": UNVERIFIED}
    assert len(opened) == 1
    assert table.rows()[0] == first and len(opened) == 2
    page = page_of_table(table.trusting().rows(), "one run")
    assert page.caveat == "" and "embedding.kept" not in table.trusting().rows()[0]  # ours by now


def test_a_kept_file_is_of_its_own_weights_alone(run: Path, opened: list[Path]) -> None:
    """Renamed to where other weights would look, even what this user kept is measured again."""
    table = mechint.runs(run).probe("embedding")
    table.rows()
    entry, measurement = table.entries[0], table.measurements[0]
    place = kept(run).rename(run / "kept")
    data = (run / "ckpt.pt").read_bytes()
    (run / "ckpt.pt").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    there = cache.place_of(entry, measurement.key)
    assert there is not None
    place.rename(there)
    assert cache.read(entry, measurement) is None


def test_a_cheap_measurement_gives_no_verdict_unasked(run: Path) -> None:
    mechint.runs(run).probe("embedding", permutations=19).rows()
    (row,) = mechint.runs(run).kept().rows()
    assert "embedding.verdict" not in row and any(one.startswith("embedding.") for one in row)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for a probe and a task of one's own."""
    monkeypatch.setenv(PLUGINS, "[]")
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for registry, name in ((PROBES, "widths"), (TASKS, "own-corpus")):
        if name in registry:
            registry.remove(name)
    for name in ("own_widths",):
        sys.modules.pop(name, None)


def test_another_source_of_the_probe_is_another_measurement(run: Path, own: Path) -> None:
    file = own / "own_widths.py"
    found = []
    for value in ("0", "1"):
        file.write_text(PROBE.replace("VALUE", value))
        sys.modules.pop("own_widths", None)
        if "widths" in PROBES:
            PROBES.remove("widths")
        load_plugin(f"{file}:Widths")
        code_of.cache_clear()
        (row,) = mechint.runs(run).probe("widths").rows()
        found.append(row["widths.d_model"])
    assert found == [16.0, 17.0]
    assert row["widths.sizes"] == [1, 2] and row["widths.kind"] == "narrow"
    assert "1, 2" in mechint.runs(run).probe("widths").csv(own / "t.csv").read_text()


def test_a_file_that_the_task_reads_is_a_part_of_the_measurement(tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "run"
    text.write_text("abab cdcd")
    out.mkdir()
    task = {"name": "corpus", "parameters": {"path": str(text)}}
    (out / "config.json").write_text(json.dumps({"task": task, "model": {}, "train": {}}))
    entry, probe = Entry(out, "run"), type(Measurement.of("embedding").probe)
    before = cache.stamp_of(entry, probe)
    assert before == cache.stamp_of(entry, probe)
    text.write_text("dcdc baba longer")
    assert cache.stamp_of(entry, probe) not in (None, before)


def test_a_run_of_somebody_else_is_read_and_not_written_to(run: Path, opened: list[Path]) -> None:
    (run / ".lock").unlink()
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    table = mechint.runs(run).probe("embedding")
    assert table.rows() == table.rows() and len(opened) == 1, "kept in the user's own cache"
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before
    assert len(list((run.parent / "cache" / "mechint" / "tables").iterdir())) == 1


@pytest.mark.parametrize("place", ["probes", "probes/table"])
def test_nothing_is_written_through_a_link(run: Path, tmp_path: Path, place: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (run / place).parent.mkdir(exist_ok=True)
    (run / place).symlink_to(theirs)
    cache._warned = False
    with pytest.warns(UserWarning, match="are not kept beside the runs: .* is a link"):
        (row,) = mechint.runs(run).probe("embedding").rows()
    assert row["embedding.verdict"] and not list(theirs.iterdir())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mechint.runs(run).probe("embedding").rows()  # it was said


def test_what_is_kept_of_other_code_is_left_out(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mechint.runs(run).probe("embedding")
    (row,) = table.rows()
    (shown,) = mechint.runs(run).kept().rows()
    assert shown == row
    monkeypatch.setattr(cache, "code_of", lambda package: f"another {package}")
    (shown,) = mechint.runs(run).kept().rows()
    assert not any(name.startswith("embedding.") for name in shown)
    assert mechint.runs(run).probe("embedding").rows() == [row]
