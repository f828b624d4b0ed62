"""Damaged run directories: repaired where nothing is lost, refused in one line otherwise."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mechint.errors import RunError
from mechint.training.plan import identifier
from tests.training.conftest import files_of, stopped_at, tiny, tiny_specs


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
            with out.open(name, "w", force_zip64=True) as member:
                for _ in range(size >> 20 if "/data/" in name else 0):
                    member.write(bytes(1 << 20))
                if "/data/" not in name:
                    member.write(plain.read(name))
    return whole.getvalue()


OF_A_RUN: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "config truncated": ("config.json", half),
    "config not UTF-8": ("config.json", lambda data: b"\xff\xfe\x00"),
    "config a list": ("config.json", lambda data: b"[1, 2]"),
    "config without a task": ("config.json", lambda data: b'{"model": {}, "train": {}}'),
    "config nested deep": ("config.json", lambda data: b"[" * 100_000),
    "metrics with another digit": ("metrics.jsonl", with_another_digit),
    "metrics truncated": ("metrics.jsonl", half),
    "metrics not UTF-8": ("metrics.jsonl", lambda data: b"\xff" * len(data)),
}
FINISHED = OF_A_RUN | {
    "status truncated": ("status.json", half),
    "status of a wrong type": ("status.json", lambda data: b'{"status": 3}'),
}
INTERRUPTED = OF_A_RUN | {
    "state truncated": ("state.pt", half),
    "state not a state": ("state.pt", lambda data: b"\xff\xfe\x00 hello"),
    "state a list": ("state.pt", lambda data: saved([1, 2])),
    "state without a step": ("state.pt", lambda data: saved({"status": "running"})),
    "state of a wrong type": ("state.pt", lambda data: saved({**load(data), "step": "three"})),
    "state without its runs": ("state.pt", lambda data: saved({**load(data), "runs": [3]})),
    "state with a flipped bit": ("state.pt", with_a_flipped_bit),
    "state of other tensors": (
        "state.pt",
        lambda data: saved({**load(data), "values": torch.zeros(1, 3)}),
    ),
    "state deflated from more than memory holds": ("state.pt", lambda data: deflated(1 << 26)),
    "state with pickled code": ("state.pt", lambda data: saved({**load(data), "step": len})),
    "state with a wrong generator": (
        "state.pt",
        lambda data: saved({**load(data), "generators": [torch.zeros(3)]}),
    ),
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished") / "run"
    tiny(place)
    return place


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped at its evaluation at step 15."""
    place = tmp_path_factory.mktemp("interrupted") / "run"
    stopped_at(15, tiny_specs(place))
    return place


@pytest.mark.parametrize("name", FINISHED)
def test_refused_when_finished(finished: Path, tmp_path: Path, name: str) -> None:
    refused(finished, tmp_path, *FINISHED[name])


@pytest.mark.parametrize("name", INTERRUPTED)
def test_refused_when_interrupted(interrupted: Path, tmp_path: Path, name: str) -> None:
    refused(interrupted, tmp_path, *INTERRUPTED[name])


def refused(whole: Path, tmp_path: Path, file: str, damage: Callable[[bytes], bytes]) -> None:
    out = Path(shutil.copytree(whole, tmp_path / "run"))
    (out / file).write_bytes(damage((out / file).read_bytes()))
    before = files_of(out)
    with pytest.raises(RunError) as error:
        tiny(out, resume=True)
    text = str(error.value)
    assert text.startswith(f"{out / file}: ") and ("damaged" in text or "cannot be read" in text)
    assert "\n" not in text and len(text) < 500 and "PyTorch 2.6" not in text
    assert files_of(out) == before, "nothing was changed"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("ckpt.pt", Path.unlink),
        ("ckpt.pt", lambda file: file.write_bytes(half(file.read_bytes()))),
        ("status.json", Path.unlink),
    ],
)
def test_a_run_without_its_end_is_trained_again(
    finished: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    damage(out / name)
    (run,) = tiny(out, resume=True)
    assert run.status == "finished"
    assert files_of(out) == files_of(finished)


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("manifest.json", Path.unlink),
        ("manifest.json", lambda file: file.write_text("{")),
        ("metrics.jsonl", lambda file: file.open("a").write('{"step": 20, "tr') and None),
        (".ckpt.pt.1a.part", lambda file: file.write_bytes(b"x")),
        ("ckpt.pt", Path.unlink),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_an_interrupted_run_is_put_in_order(
    finished: Path, interrupted: Path, tmp_path: Path, name: str, damage: Callable[[Path], object]
) -> None:
    out = Path(shutil.copytree(interrupted, tmp_path / "run"))
    damage(out / name)
    tiny(out, resume=True)
    assert files_of(out) == files_of(finished)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda config: config["model"].pop("d_mlp"), "model.d_mlp is 32 there, 8 here"),
        (lambda config: config["model"].update(later=None), "model.later is None there, not set"),
        (lambda config: config["train"].update(lr="fast"), "train.lr is 'fast' there, 0.001 here"),
        (lambda config: config["task"].update(name="none"), "task.name is 'none' there"),
    ],
)
def test_another_run_is_distinguished_by_its_first_difference(
    finished: Path, tmp_path: Path, change: Callable, text: str
) -> None:
    out = Path(shutil.copytree(finished, tmp_path / "run"))
    config = json.loads((out / "config.json").read_text())
    change(config)
    (out / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=re.escape(f"{out}: holds another run ({text}")):
        tiny(out, resume=True)


def test_a_run_from_before_a_setting_goes_on_with_its_default(tmp_path: Path) -> None:
    """Also where several train together, whose common name is made of their settings."""
    out, seeds = tmp_path / "runs", (1, 2)
    stopped_at(15, tiny_specs(out, seeds))
    configs = [out / f"seed-{seed:04d}" / "config.json" for seed in seeds]
    older = [json.loads(file.read_text()) for file in configs]
    for file, config in zip(configs, older, strict=True):
        config["model"].pop("positional_embedding_type")
        config["train"].pop("grokfast_start")
        file.write_text(json.dumps(config))
    state = load((out / "seed-0001" / "state.pt").read_bytes())
    torch.save(state | {"ensemble": identifier(older)}, out / "seed-0001" / "state.pt")
    for file in out.glob("*/manifest.json"):
        file.write_text(file.read_text().replace(state["ensemble"], identifier(older)))
    (run, _) = tiny(out, seeds, resume=True)
    (whole, _) = tiny(tmp_path / "whole", seeds)
    assert run.status == "finished" and run.final == whole.final
    for name, tensor in whole.subject().model.state_dict().items():
        assert torch.equal(run.subject().model.state_dict()[name], tensor)


@pytest.mark.parametrize("name", ["config.json", "metrics.jsonl", "state.pt", ".lock"])
def test_pipes_are_not_waited_for(interrupted: Path, tmp_path: Path, name: str) -> None:
    out = Path(shutil.copytree(interrupted, tmp_path / "run"))
    (out / name).unlink(missing_ok=True)
    os.mkfifo(out / name)
    with pytest.raises(RunError, match=rf"{name}: it is .*, expected a "):
        tiny(out, resume=True)


@pytest.mark.parametrize("name", ["manifest.json", "metrics.jsonl", "ckpt.pt", "checkpoints"])
def test_nothing_is_written_through_a_link(interrupted: Path, tmp_path: Path, name: str) -> None:
    out = Path(shutil.copytree(interrupted, tmp_path / "run"))
    target = tmp_path / "theirs"
    (out / name).rename(target)
    if name == "manifest.json":
        target.write_text("mine")
    before = files_of(target) if target.is_dir() else target.read_bytes()
    (out / name).symlink_to(target)
    with pytest.raises(RunError, match=f"{name}: is a link; expected a file or directory of"):
        tiny(out, resume=True)
    assert (files_of(target) if target.is_dir() else target.read_bytes()) == before


def test_a_run_stays_on_its_kind_of_device(interrupted: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(interrupted, tmp_path / "run"))
    state = load((out / "state.pt").read_bytes())
    torch.save(state | {"device": "cuda"}, out / "state.pt")
    with pytest.raises(RunError) as error:
        tiny(out, resume=True)
    assert str(error.value) == (
        f"{out}: trained on cuda; resume with --device cuda, or choose another --out"
    )


def test_runs_that_train_together_go_on_together(tmp_path: Path) -> None:
    stopped_at(15, tiny_specs(tmp_path, (1, 2)))
    for seeds in ((2,), (1,), (1, 2, 3)):
        place = tmp_path / f"seed-{seeds[0]:04d}" if len(seeds) == 1 else tmp_path
        with pytest.raises(RunError, match="one of 2 runs that train together; resume all of them"):
            tiny(place, seeds, resume=True)
    tiny(tmp_path, (1, 2), resume=True)
    tiny(tmp_path, (1, 2, 3), resume=True)  # the first two are done
    tiny(tmp_path / "seed-0002", (2,), resume=True)
