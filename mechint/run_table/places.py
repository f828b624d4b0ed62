"""Which models are under a path, and names that tell them apart."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import CheckpointError
from mechint.files import parse_json, read_bytes
from mechint.run_table.entries import CONFIG, Entry


def natural(text: str) -> list[Any]:
    """A key under which "seed=10" comes after "seed=9".

    >>> sorted(["seed=10", "seed=9"], key=natural)
    ['seed=9', 'seed=10']
    """
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", text)
    ]


def find_entries(path: Path) -> list[Entry]:
    """The models under `path`: the file, the run, or all runs in the folder in natural order, or
    where there are none, all models of Hugging Face's.

    Raises:
        CheckpointError: nothing there is a model, or a config.json cannot be read: it may be that
            of a run, which would be missing.
    """
    try:
        if not path.exists():
            raise CheckpointError(f"{path}: there is no such file or directory")
        if path.is_file() or (path / CONFIG).is_file():
            return [Entry(path, path.name)]
        found = sorted(path.rglob(CONFIG), key=lambda file: natural(str(file)))
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror or error}") from error
    names = {file.parent: _names(file) for file in found}
    for mark in ("task", "model_type"):  # of a run, else of a model of Hugging Face's
        if models := [place for place, there in names.items() if mark in there]:
            return [Entry(model, str(model.relative_to(path))) for model in models]
    if any((path / name).exists() for name in ("model.pt", "ckpt.safetensors")) or found:
        return [Entry(path, path.name)]
    raise CheckpointError(f"{path}: holds neither a run nor a checkpoint; expected config.json")


def _names(config: Path) -> Collection[str]:
    """What a config.json states values of."""
    said = parse_json(read_bytes(config, error=CheckpointError), config, CheckpointError)
    return said if isinstance(said, dict) else ()


def told_apart(entries: Sequence[Entry]) -> list[Entry]:
    """`entries` with names that differ: where several models have one name, the shortest ends of
    their paths that tell them apart.

    >>> files = [Entry(Path("a/model.pt"), "model.pt"), Entry(Path("b/model.pt"), "model.pt")]
    >>> [one.name for one in told_apart(files)]
    ['a/model.pt', 'b/model.pt']
    """
    places: dict[str, set[tuple[str, ...]]] = {}
    for one in entries:
        places.setdefault(one.name, set()).add(one.path.absolute().parts)
    named = [_end(one, places[one.name]) for one in entries]
    return named if named == list(entries) else told_apart(named)  # may be another's name now


def _end(entry: Entry, places: Collection[tuple[str, ...]]) -> Entry:
    """`entry` named by that end of its path which no other of `places` has; as it is when alone."""
    if len(places) == 1:
        return entry
    length = 1
    while len({place[-length:] for place in places}) < len(places):
        length += 1
    return dataclasses.replace(entry, name=str(Path(*entry.path.absolute().parts[-length:])))
