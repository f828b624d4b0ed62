"""Damaged run directories: repaired where nothing is lost, refused in one line otherwise."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tasks
from mechint.errors import RunError
from mechint.training import train
from mechint.training.state import read_state
from tests.training.conftest import files_of, tiny


def saved(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def half(data: bytes) -> bytes:
    return data[: len(data) // 2]


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


REFUSED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "config truncated": ("config.json", half),
    "config empty": ("config.json", lambda data: b""),
    "config not UTF-8": ("config.json", lambda data: b"\xff\xfe\x00"),
    "config a list": ("config.json", lambda data: b"[1, 2]"),
    "config without a task": ("config.json", lambda data: b'{"model": {}, "train": {}}'),
    "config with a wrong part": (
        "config.json",
        lambda data: b'{"task": 3, "model": {}, "train": {}}',
    ),
    "config nested deep": ("config.json", lambda data: b"[" * 100_000),
    "state truncated": ("state.pt", half),
    "state empty": ("state.pt", lambda data: b""),
    "state not a state": ("state.pt", lambda data: b"\xff\xfe\x00 hello"),
    "state a list": ("state.pt", lambda data: saved([1, 2])),
    "state without a step": ("state.pt", lambda data: saved({"status": "running"})),
    "state with a device of a wrong type": (
        "state.pt",
        lambda data: saved({**load(data), "device": 3}),
    ),
    "state of a wrong type": ("state.pt", lambda data: saved({**load(data), "step": "three"})),
    "state with a flipped bit": ("state.pt", with_a_flipped_bit),
    "metrics with another digit": ("metrics.jsonl", with_another_digit),
    "metrics truncated": ("metrics.jsonl", half),
    "metrics empty": ("metrics.jsonl", lambda data: b""),
    "metrics not UTF-8": ("metrics.jsonl", lambda data: b"\xff" * len(data)),
    "metrics of a wrong type": ("metrics.jsonl", lambda data: b"[1]" + data[3:]),
}


def is_equal(one: object, other: object) -> bool:
    """Bit for bit, in states."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_equal(one[k], other[k]) for k in one)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    return one == other


def load(data: bytes) -> dict:
    return torch.load(io.BytesIO(data), weights_only=True)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished") / "run"
    tiny(place)
    return place


@pytest.mark.parametrize("name", REFUSED)
def test_refused(finished: Path, tmp_path: Path, name: str) -> None:
    file, damage = REFUSED[name]
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    (out / file).write_bytes(damage((out / file).read_bytes()))
    before = files_of(out)
    with pytest.raises(RunError) as error:
        tiny(out, resume=True)
    text = str(error.value)
    assert text.startswith(f"{out / file}: ") and "damaged" in text
    assert "delete" in text or "choose another --out" in text
    assert "\n" not in text and len(text) < 500
    assert files_of(out) == before, "nothing was changed"


def test_no_flipped_bit_gives_another_state(finished: Path, tmp_path: Path) -> None:
    """Wherever it is: the state is refused, or it is the one that was written."""
    data, file = (finished / "state.pt").read_bytes(), tmp_path / "state.pt"
    whole, chosen, refused = read_state(finished / "state.pt"), random.Random(0), 0
    for _ in range(100):
        place, bit = chosen.randrange(len(data)), chosen.randrange(8)
        file.write_bytes(data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :])
        try:
            state = read_state(file)
        except RunError:
            refused += 1
        else:
            assert is_equal({**state, "file": ""}, {**whole, "file": ""})
    assert refused > 90


def test_what_the_message_advises_helps(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    (out / "metrics.jsonl").write_bytes(b"")
    (out / "state.pt").unlink()
    tiny(out, resume=True)
    assert files_of(out) == files_of(finished)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("manifest.json", lambda file: file.write_bytes(b"{")),
        ("manifest.json", lambda file: file.unlink()),
        ("ckpt.pt", lambda file: file.write_bytes(half(file.read_bytes()))),
        ("ckpt.pt", lambda file: file.unlink()),
        ("metrics.jsonl", lambda file: file.write_bytes(file.read_bytes() + b'{"step": 45, "tr')),
        ("metrics.jsonl", lambda file: file.write_bytes(file.read_bytes() + b"\xff\x00")),
        (".ckpt.pt.123.part", lambda file: file.write_bytes(b"left by a killed process")),
        ("state.next.pt", lambda file: file.write_bytes(b"half a state")),
        ("checkpoints/.step-00000030.pt.7.part", lambda file: file.write_bytes(b"x")),
    ],
)
def test_repaired(finished: Path, tmp_path: Path, name: str, damage: Callable) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    damage(out / name)
    (run,) = tiny(out, resume=True)
    assert run.status == "finished"
    assert files_of(out) == files_of(finished)


def test_states_of_an_earlier_version_go_on(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    state = load((out / "state.pt").read_bytes())
    old = {
        "step": state["step"],
        "status": state["status"],
        "values": state["values"],
        "optimiser": state["optimizer"],
        "generator": state["generator"],
        "still": state["stale_evaluations"],
    }
    torch.save(old, out / "state.pt")
    config = json.loads((out / "config.json").read_text())
    (out / "config.json").write_text(json.dumps(config))
    with (out / "metrics.jsonl").open("a") as file:
        file.write('{"step": 45, "train.loss": 1.0}\n{"st')
    (run,) = tiny(out, resume=True)
    assert run.status == "finished"
    assert (out / "metrics.jsonl").read_bytes() == (finished / "metrics.jsonl").read_bytes()


def test_a_state_from_before_the_digest_of_the_metrics_goes_on(
    finished: Path, tmp_path: Path
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    state = load((out / "state.pt").read_bytes())
    del state["metrics_sha256"]
    torch.save({**state, "status": "interrupted"}, out / "state.pt")
    (run,) = tiny(out, resume=True)
    assert run.status == "finished"
    assert load((out / "state.pt").read_bytes())["metrics_sha256"] == (
        hashlib.sha256((finished / "metrics.jsonl").read_bytes()).hexdigest()
    )


def edited(run: Path, change: Callable[[dict], object]) -> None:
    """Write config.json as another version would have."""
    config = json.loads((run / "config.json").read_text())
    change(config)
    (run / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "change",
    [
        lambda config: config["model"].pop("read_layers"),
        lambda config: config["model"].pop("n_loops"),
        lambda config: config["task"]["parameters"].pop("table"),
        lambda config: config["task"]["parameters"].pop("label_seed"),
        lambda config: config["train"].pop("grokfast_start"),
    ],
)
def test_a_configuration_from_before_a_field_is_the_same_run(
    finished: Path, tmp_path: Path, change: Callable
) -> None:
    """Every one of these fields has its default in the run."""
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    edited(out, change)
    (run,) = tiny(out, resume=True)
    assert run.status == "finished"


def test_a_configuration_with_a_former_name_is_the_same_run(tmp_path: Path) -> None:
    task = tasks.make("regression-mixture", n=4, n_tasks=2, rank=1)
    brief = {"steps": 2, "batch_size": None}
    train(task, {"width": 2}, brief, out=tmp_path)
    renamed = next(f for f in dataclasses.fields(task) if f.metadata.get("was"))

    def former(config: dict) -> None:
        given = config["task"]["parameters"]
        given[renamed.metadata["was"]] = given.pop(renamed.name)

    edited(tmp_path, former)
    (run,) = train(task, {"width": 2}, brief, out=tmp_path, resume=True)
    assert run.status == "finished"
    edited(tmp_path, lambda config: config["task"]["parameters"].update(n=5))
    with pytest.raises(RunError, match=r"holds another run \(task\.n is 5 there, 4 here\)"):
        train(task, {"width": 2}, brief, out=tmp_path, resume=True)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda config: config["model"].pop("d_mlp"), "model.d_mlp is 32 there, 8 here"),
        (lambda config: config["model"].update(later=None), "model.later is None there, not set"),
        (lambda config: config["train"].update(lr="fast"), "train.lr is 'fast' there, 0.001 here"),
        (lambda config: config["task"].update(name="none"), "task.name is 'none' there"),
    ],
)
def test_another_run_is_told_by_its_first_difference(
    finished: Path, tmp_path: Path, change: Callable, text: str
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    edited(out, change)
    with pytest.raises(RunError, match=re.escape(f"{out}: holds another run ({text}")):
        tiny(out, resume=True)


def test_a_state_that_is_no_file(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    (out / "state.pt").unlink()
    os.mkfifo(out / "state.pt")  # reading it would wait for ever
    with pytest.raises(RunError, match=r"state\.pt: it is not a regular file"):
        tiny(out, resume=True)


@pytest.mark.parametrize(
    ("name", "outcome"),
    [("config.json", "refused"), ("metrics.jsonl", "refused"), ("manifest.json", "repaired")],
)
def test_pipes_are_not_waited_for(finished: Path, tmp_path: Path, name: str, outcome: str) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    (out / name).unlink()
    os.mkfifo(out / name)
    if outcome == "refused":
        with pytest.raises(RunError, match=rf"{name}: it is a pipe, expected a regular file; "):
            tiny(out, resume=True)
    else:
        tiny(out, resume=True)
        assert files_of(out) == files_of(finished)


def test_links_in_a_circle_are_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(RunError, match=r"loop/run.*: cannot be written: .* go in a circle"):
        tiny(tmp_path / "loop" / "run")


def test_tensors_of_another_shape(finished: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    state = load((out / "state.pt").read_bytes())
    torch.save({**state, "status": "running", "values": torch.zeros(3)}, out / "state.pt")
    with pytest.raises(RunError, match=r"state\.pt: damaged: its tensors do not fit the run"):
        tiny(out, resume=True)


@pytest.mark.parametrize("says", [True, False], ids=["says its device", "of an earlier version"])
def test_a_run_stays_on_its_kind_of_device(finished: Path, tmp_path: Path, says: bool) -> None:
    """A state as a GPU writes it: its generator has 16 bytes, a seed and an offset."""
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    state = load((out / "state.pt").read_bytes())
    assert state.pop("device") == "cpu"
    on_gpu = {"status": "running", "generator": torch.zeros(16, dtype=torch.uint8)}
    torch.save(state | on_gpu | ({"device": "cuda"} if says else {}), out / "state.pt")
    with pytest.raises(RunError) as error:
        tiny(out, resume=True)
    assert str(error.value) == (
        f"{out}: trained on cuda; resume with --device cuda, or choose another --out"
    )
    torch.save(state | {"status": "running"}, out / "state.pt")
    (run,) = tiny(out, resume=True)
    assert run.status == "finished", "a state of the CPU that does not say so goes on"
