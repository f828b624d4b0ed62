"""Damaged and hostile checkpoints: each is opened or refused in one line, in bounded memory."""

from __future__ import annotations

import random
import shutil
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.content import read_content
from mechint.errors import MechintError
from tests.checkpoints.bases import BASES
from tests.checkpoints.bombs import cyclic, deep, members_of, shared, write_members

ROOT = Path(__file__).parents[2]
PACKAGES = ("mechint", "tasks", "probes", "benchmarks", "examples")
MEMORY = 1 << 30
"""Bytes by which a mutant may raise the process's peak of mapped memory."""
NUMBERS = (0, -1, 10**7, 2**63, -(2**70), 10**400, 0.5, float("nan"), float("inf"))
TEXTS = ("", "x" * 5000, "\x1b[31mred", "a\nb", "\u202eevil", "\x00", "../../etc/passwd", "[bold]")


def hostile(chance: random.Random) -> Any:
    """A value of a kind, or a tensor of a type or shape, that no reader expects."""
    shape = tuple(chance.choice((0, 1, 2, 3, 7)) for _ in range(chance.randrange(4)))
    makers = (
        *(lambda: chance.choice(NUMBERS), lambda: chance.choice(TEXTS), lambda: None, lambda: True),
        *(lambda: deep(chance.choice((3, 70, 300))), cyclic, shared),
        *(lambda: {"a": 1, 2: "b"}, lambda: [], lambda: b"bytes"),
        lambda: torch.ones(shape, dtype=chance.choice((torch.complex64, torch.int32, torch.half))),
        lambda: torch.full(shape, chance.choice((1.0, float("nan")))),
        *(lambda: torch.eye(3).to_sparse(), lambda: torch.ones(1).expand(10**6, 10**6)),
        lambda: torch.empty(10**9, device="meta"),
    )
    return chance.choice(makers)()


# --- mutations of the file, or of what lies beside it ---------------------------------------------
def flip_bytes(path: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(path.parent.iterdir()))
    path.write_bytes(_flipped(path.read_bytes(), chance, (1, 1, 3, 20)))


def _flipped(data: bytes, chance: random.Random, counts: tuple[int, ...]) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice(counts)):
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def cut_or_join(path: Path, chance: random.Random) -> None:
    path = chance.choice(sorted(path.parent.iterdir()))
    data = path.read_bytes()
    a, b = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    path.write_bytes(chance.choice((data[:a], data[a:], data[:a] + data[b:], data + data[a:b])))


def edit_pickle(path: Path, chance: random.Random) -> None:
    """Bytes of the pickle inside, under checksums that are right."""
    members = members_of(path)
    for name in [name for name in members if name.endswith("data.pkl")]:
        write_members(path, members | {name: _flipped(members[name], chance, (1, 2, 5))})


def edit_members(path: Path, chance: random.Random) -> None:
    """A member left out, emptied, or compressed to a bomb."""
    members = members_of(path)
    if not members:
        return cut_or_join(path, chance)
    name, kind = chance.choice(list(members)), chance.randrange(3)
    members[name] = bytes((0, 0, 20 << 20)[kind])
    if kind == 0:
        members.pop(name)
    write_members(path, members, zipfile.ZIP_DEFLATED if kind == 2 else zipfile.ZIP_STORED)


def edit_values(path: Path, chance: random.Random) -> None:
    """Values of the object inside replaced by hostile ones, saved whole."""
    if path.suffix == ".safetensors":
        return flip_bytes(path, chance)
    content = read_content(path)
    target, key = content, chance.choice(list(content))
    while isinstance(target[key], dict) and target[key] and chance.random() > 0.3:
        target = target[key]
        key = chance.choice(list(target))
    if chance.random() < 0.1:
        target.pop(key)
    else:
        target[chance.choice((key, key, key, *TEXTS[:2], 7, None))] = hostile(chance)
    try:
        torch.save(content, path)
    except (RecursionError, NotImplementedError, RuntimeError):  # what torch itself cannot write
        path.write_bytes(b"\x80\x02N.")


MUTATIONS = (flip_bytes, cut_or_join, edit_pickle, edit_members, edit_values, edit_values)


def peak() -> int:
    """The process's peak of mapped memory, bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmPeak"))


@pytest.mark.full
@pytest.mark.parametrize("base", BASES)
def test_mutants_are_opened_or_refused_in_one_line(tmp_path: Path, base: str) -> None:
    (tmp_path / "whole").mkdir()
    name = BASES[base](tmp_path / "whole").name
    load_checkpoint(tmp_path / "whole" / name)
    before = peak()
    for seed in range(25):
        chance, place = random.Random(f"{base} {seed}"), tmp_path / str(seed)
        shutil.copytree(tmp_path / "whole", place)
        chance.choice(MUTATIONS)(place / name, chance)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a damaged file is refused, not warned about
            try:
                load_checkpoint(place / name)
            except MechintError as error:
                assert len(str(error)) <= 500 and str(error).isprintable(), seed
    assert peak() - before < MEMORY


def test_nothing_in_the_library_asks_to_load_unsafely():
    """Calls that run what a file holds are ruff's to find; these are arguments."""
    files = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    assert len(files) > 100
    for argument in ("weights_only=False", "allow_pickle=True", "trust_remote_code=True"):
        assert [file for file in files if argument in file.read_text(encoding="utf-8")] == []
