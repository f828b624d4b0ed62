"""Runs that are damaged, killed, out of disk, stopped or moved: each goes on as if nothing had
happened, byte for byte, or is refused in one line with nothing changed.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import threading
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock

import tasks
from mechint.errors import ParameterError, RunError
from mechint.system.locks import BusyError, is_locked, locked
from mechint.training import Progress, train, train_many
from mechint.training.plan import identifier
from tests.training.conftest import (
    KILLED,
    at_every_write,
    files_of,
    in_child,
    start_child,
    stopped_at,
    tiny,
    tiny_specs,
)


# --- damages --------------------------------------------------------------------------------------
def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def load(data: bytes) -> dict:
    return torch.load(io.BytesIO(data), weights_only=True)


def with_a_flipped_bit(data: bytes) -> bytes:
    """An exponent bit of one weight, which torch reads without a word."""
    place = data.index(load(data)["values"].numpy().tobytes()) + 4 * 5 + 3
    flipped = data[:place] + bytes([data[place] ^ 0x40]) + data[place + 1 :]
    assert not torch.equal(load(flipped)["values"], load(data)["values"])
    return flipped


def with_another_digit(data: bytes) -> bytes:
    """The first digit of the first loss."""
    place = data.index(b'loss": ') + 7
    return data[:place] + (b"2" if data[place:][:1] == b"1" else b"1") + data[place + 1 :]


def deflated(size: int) -> bytes:
    """An archive of PyTorch's whose one tensor is zeros, compressed a thousandfold."""
    whole, small = io.BytesIO(), io.BytesIO(saved({"values": torch.zeros(4)}))
    with zipfile.ZipFile(small) as plain, zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as out:
        for name in plain.namelist():
            data = bytes(size) if "/data/" in name else plain.read(name)
            out.writestr(name, data)
    return whole.getvalue()


def put(data: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(data)


def edit(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(change(file.read_bytes()))


def state(**changes: Any) -> Callable[[Path], object]:
    """Other entries of a saved state."""
    return edit(lambda data: saved(load(data) | changes))


def setting(part: str, **changes: Any) -> Callable[[Path], object]:
    """Other settings in a configuration; None leaves one out."""

    def change(data: bytes) -> bytes:
        config = json.loads(data)
        config[part] = {k: v for k, v in (config[part] | changes).items() if v is not None}
        return json.dumps(config).encode()

    return edit(change)


def pipe(file: Path) -> None:
    file.unlink(missing_ok=True)
    os.mkfifo(file)


def link(file: Path) -> None:
    target = file.rename(file.parent.parent / "theirs")
    file.symlink_to(target)


BAD, NO_FILE = "damaged|cannot be read", "it is .*, expected a "
LINKED, ANOTHER = "is a link; expected a file or directory of", "holds another run "
Faults = Mapping[str, tuple[str, Callable[[Path], object], str]]
EVER: Faults = {
    "config truncated": ("config.json", edit(half), BAD),
    "config not UTF-8": ("config.json", put(b"\xff\xfe\x00"), BAD),
    "config a list": ("config.json", put(b"[1, 2]"), BAD),
    "config without a task": ("config.json", put(b'{"model": {}, "train": {}}'), BAD),
    "config nested deep": ("config.json", put(b"[" * 100_000), BAD),
    "config a pipe": ("config.json", pipe, NO_FILE),
    "metrics with another digit": ("metrics.jsonl", edit(with_another_digit), BAD),
    "metrics truncated": ("metrics.jsonl", edit(half), BAD),
    "metrics not UTF-8": ("metrics.jsonl", edit(lambda data: b"\xff" * len(data)), BAD),
    "a setting left out": ("config.json", setting("model", d_mlp=None), ANOTHER),
    "another setting": ("config.json", setting("train", lr="fast"), r".*train\.lr is 'fast'"),
    "checkpoint gone": ("ckpt.pt", lambda file: file.unlink(), ""),
}
FAULTS: Mapping[str, Faults] = {
    "finished": {
        **EVER,
        "status truncated": ("status.json", edit(half), BAD),
        "status of a wrong type": ("status.json", put(b'{"status": 3}'), BAD),
        "status gone": ("status.json", Path.unlink, ""),
        "checkpoint truncated": ("ckpt.pt", edit(half), ""),
    },
    "interrupted": {
        **EVER,
        "state truncated": ("state.pt", edit(half), BAD),
        "state not a state": ("state.pt", put(b"\xff\xfe\x00 hello"), BAD),
        "state a list": ("state.pt", put(saved([1, 2])), BAD),
        "state without a step": ("state.pt", put(saved({"status": "running"})), BAD),
        "state of a wrong type": ("state.pt", state(step="three"), BAD),
        "state without its runs": ("state.pt", state(runs=[3]), BAD),
        "state with a flipped bit": ("state.pt", edit(with_a_flipped_bit), BAD),
        "state of other tensors": ("state.pt", state(values=torch.zeros(1, 3)), BAD),
        "state deflated a thousandfold": ("state.pt", put(deflated(1 << 26)), BAD),
        "state with pickled code": ("state.pt", state(step=len), BAD),
        "state of another generator": ("state.pt", state(generators=[torch.zeros(3)]), BAD),
        "state a pipe": ("state.pt", pipe, NO_FILE),
        "state of another device": ("state.pt", state(device="cuda"), "resume with --device cuda"),
        "lock a pipe": (".lock", pipe, NO_FILE),
        "metrics a pipe": ("metrics.jsonl", pipe, NO_FILE),
        "manifest a link": ("manifest.json", link, LINKED),
        "metrics a link": ("metrics.jsonl", link, LINKED),
        "checkpoint a link": ("ckpt.pt", link, LINKED),
        "checkpoints a link": ("checkpoints", link, LINKED),
        "manifest gone": ("manifest.json", Path.unlink, ""),
        "manifest truncated": ("manifest.json", put(b"{"), ""),
        "metrics cut short": ("metrics.jsonl", edit(lambda data: data + b'{"step": 20, "tr'), ""),
        "a file half written": (".ckpt.pt.1a.part", put(b"x"), ""),
    },
}
"""State of a run → fault → its file, what is done to it, and what is said; "" where the run goes
on.
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run that is finished, and the same stopped at its evaluation at step 15."""
    place = tmp_path_factory.mktemp("whole")
    tiny(place / "finished")
    stopped_at(15, tiny_specs(place / "interrupted"))
    return {name: place / name for name in FAULTS}


def contents(place: Path) -> dict[Path, bytes]:
    files = [path for path in (place, *place.rglob("*")) if path.is_file()]
    return {path: path.read_bytes() for path in files if path.name != ".lock"}


PAIRS = [(name, fault) for name, faults in FAULTS.items() for fault in faults]


@pytest.mark.parametrize(("name", "fault"), PAIRS)
def test_a_fault_is_refused_in_one_line_or_made_good(
    whole: dict[str, Path], tmp_path: Path, name: str, fault: str
) -> None:
    file, act, said = FAULTS[name][fault]
    out = Path(shutil.copytree(whole[name], tmp_path / "run"))
    act(out / file)
    if not said:
        tiny(out, resume=True)
        assert files_of(out) == files_of(whole["finished"])
        return
    kept = tmp_path / "theirs" if said == LINKED else tmp_path
    before = contents(kept)
    with pytest.raises(RunError, match=said) as error:
        tiny(out, resume=True)
    text = str(error.value)
    assert text.startswith(str(out)) and "\n" not in text and len(text) < 500
    assert said not in (BAD, NO_FILE, LINKED) or text.startswith(f"{out / file}: ")
    assert contents(kept) == before


def test_a_run_from_before_a_setting_goes_on_with_its_default(tmp_path: Path) -> None:
    """Also where several train together, whose common name is made of their settings."""
    out, seeds = tmp_path / "runs", (1, 2)
    stopped_at(15, tiny_specs(out, seeds))
    configs = sorted(out.glob("*/config.json"))
    for file in configs:
        setting("model", positional_embedding_type=None)(file)
        setting("train", grokfast_start=None)(file)
    before = load((out / "seed-0001" / "state.pt").read_bytes())["ensemble"]
    name = identifier([json.loads(file.read_text()) for file in configs])
    state(ensemble=name)(out / "seed-0001" / "state.pt")
    for file in out.glob("*/manifest.json"):
        file.write_text(file.read_text().replace(before, name))
    (run, _), (same, _) = tiny(out, seeds, resume=True), tiny(tmp_path / "whole", seeds)
    assert run.status == "finished" and run.final == same.final
    for name, tensor in same.subject().model.state_dict().items():
        assert torch.equal(run.subject().model.state_dict()[name], tensor)


def test_runs_that_train_together_go_on_together(tmp_path: Path) -> None:
    stopped_at(15, tiny_specs(tmp_path, (1, 2)))
    for seeds in ((2,), (1,), (1, 2, 3)):
        place = tmp_path / f"seed-{seeds[0]:04d}" if len(seeds) == 1 else tmp_path
        with pytest.raises(RunError, match="one of 2 runs that train together; resume all of them"):
            tiny(place, seeds, resume=True)
    tiny(tmp_path, (1, 2), resume=True)
    tiny(tmp_path, (1, 2, 3), resume=True)  # the first two are done
    tiny(tmp_path / "seed-0002", (2,), resume=True)


# --- kills and full disks -------------------------------------------------------------------------
def killed_at(number: int) -> Callable[[str], None]:
    """The end of this process before the `number`-th write."""
    seen = itertools.count(1)
    return lambda _: os._exit(KILLED) if next(seen) == number else None


def full_from(number: int) -> Callable[[str], None]:
    """A disk without room from the `number`-th write on."""
    seen = itertools.count(1)

    def act(event: str) -> None:
        if next(seen) >= number and not event.startswith(("os.remove", "os.truncate")):
            raise OSError(28, "No space left on device")

    return act


GOAL = {"stop_accuracy": 0.3, "evaluate_every": 5, "steps": 60, "lr": 1e-2}
"""Models that stop early, each at another step."""
CASES = {
    "killed": (killed_at, (4,), {}, [(n,) for n in range(1, 50)]),
    "killed, and killed again": (killed_at, (4, 5), {}, [(20, 6, 3), (59, 19, 3)]),
    "killed beside models that stop": (killed_at, (0, 1, 2), GOAL, [(n,) for n in (30, 64, 98)]),
    "a full disk": (full_from, (4, 5), {}, [(n,) for n in range(1, 100, 9)]),
}


@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_ends_at_any_write_goes_on(tmp_path: Path, eager: None, case: str) -> None:
    fault, seeds, training, numbers = CASES[case]
    ends = [(run.status, run.step) for run in tiny(tmp_path / "whole", seeds, **training)]
    assert (len({step for _, step in ends}) > 1) == (training is GOAL)
    ended = []
    for some in numbers:
        out = tmp_path / str(some[0])
        for number in some:

            def work(number: int = number, out: Path = out) -> None:
                at_every_write(out, fault(number))
                try:
                    tiny(out, seeds, resume=out.exists(), **training)
                except RunError as error:
                    assert "cannot be written: the disk is full" in str(error)
                    os._exit(KILLED)

            ended.append(in_child(work))
        runs = tiny(out, seeds, resume=True, **training)
        assert [(run.status, run.step) for run in runs] == ends
        assert files_of(out) == files_of(tmp_path / "whole"), some
    assert set(ended) <= {0, KILLED} and KILLED in ended


def test_a_full_disk_takes_nothing_that_was_there(whole: dict[str, Path], tmp_path: Path) -> None:
    """A finished run that begins anew, as a refusal of its status advises."""
    out = Path(shutil.copytree(whole["finished"], tmp_path / "run"))
    (out / "status.json").unlink()

    def work() -> None:
        at_every_write(out / "checkpoints", full_from(1))
        with pytest.raises(RunError, match="the disk is full"):
            tiny(out, resume=True)

    assert in_child(work) == 0
    kept, before = files_of(out), files_of(whole["finished"])
    names = [name for name in before if name.startswith(("config", "ckpt", "checkpoints"))]
    assert len(names) > 3 and all(kept[name] == before[name] for name in names)
    tiny(out, resume=True)
    assert files_of(out) == before


def test_a_run_refused_before_its_first_step_leaves_nothing(tmp_path: Path) -> None:
    task = tasks.make("regression-mixture", n=4, n_tasks=2, rank=1)
    refused = {"steps": 2, "batch_size": None, "loss": "stablemax"}
    with pytest.raises(ParameterError, match="expected softmax"):
        train(task, {"width": 2}, refused, out=tmp_path / "run")
    assert files_of(tmp_path) == {}


# --- locks ----------------------------------------------------------------------------------------
def holding(directory: Path) -> int:
    """A child that holds the lock of `directory` until it is killed."""
    ready, tell = os.pipe()

    def work() -> None:
        with locked(directory):
            os.write(tell, b"x")
            signal.pause()

    child = start_child(work)
    assert os.read(ready, 1) == b"x"
    return child


@pytest.mark.parametrize(("seeds", "place"), [((4,), "run"), ((4, 5), "run/seed-0005")])
def test_a_directory_has_one_writer_until_it_dies(
    tmp_path: Path, seeds: tuple[int, ...], place: str
) -> None:
    child = holding(tmp_path / place)
    try:
        for resume in (False, True):
            with pytest.raises(RunError, match=rf"{place}: process {child} on .* is writing there"):
                tiny(tmp_path / "run", seeds, resume=resume)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert {run.status for run in tiny(tmp_path / "run", seeds)} == {"finished"}


def test_who_waits_has_the_lock_when_the_other_has_ended(tmp_path: Path) -> None:
    child = holding(tmp_path)
    threading.Timer(0.02, os.kill, (child, signal.SIGKILL)).start()
    with locked(tmp_path, wait=True):
        assert os.waitpid(child, 0)[1] == signal.SIGKILL


def test_looking_does_not_keep_a_writer_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_locked(tmp_path) and not (tmp_path / ".lock").exists()
    with locked(tmp_path):
        assert is_locked(tmp_path)
        with pytest.raises(BusyError, match="is writing there"), locked(tmp_path):
            pytest.fail("there were two writers")
    monkeypatch.setattr("mechint.system.locks.PATIENCE", 60)
    looking = FileLock(tmp_path / ".lock", thread_local=False)
    looking.acquire()
    threading.Timer(0.02, looking.release).start()
    with locked(tmp_path):
        pass
    assert not is_locked(tmp_path)


@pytest.mark.parametrize("every", [0.0, 1e9])
@pytest.mark.parametrize("replaced", [True, False])
def test_a_run_that_is_moved_or_replaced_writes_nowhere_else(
    whole: dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    every: float,
    replaced: bool,
) -> None:
    """With a commit after every step, and with none; the moved one goes on where it is."""
    (spec,), out, moved = tiny_specs(tmp_path / "b"), tmp_path / "b", tmp_path / "moved"
    monkeypatch.setattr("mechint.training.trainer.STATE_SECONDS", every)

    def move(now: Progress) -> None:
        if now.step == 15 and not moved.exists():
            out.rename(moved)
            if replaced:
                shutil.copytree(whole["finished"], out)

    with pytest.raises(RunError, match=r"b: was moved, removed or replaced while this process"):
        train_many([spec], progress=move)
    assert files_of(out) == (files_of(whole["finished"]) if replaced else {})
    tiny(moved, resume=True)
    assert files_of(moved) == files_of(whole["finished"])


@pytest.mark.parametrize("seeds", [(4,), (4, 5)])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_after_the_step_and_resume_goes_on(
    tmp_path: Path, number: int, seeds: tuple[int, ...]
) -> None:
    tiny(tmp_path / "whole", seeds)
    handler = signal.getsignal(number)
    for cut in stopped_at(15, tiny_specs(tmp_path / "cut", seeds), number):
        assert cut.step == 15
    assert signal.getsignal(number) is handler
    tiny(tmp_path / "cut", seeds, resume=True)
    assert files_of(tmp_path / "cut") == files_of(tmp_path / "whole")
