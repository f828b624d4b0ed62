"""mechint's own checkpoint: tensors and plain values only, in a ``.pt`` or a ``.safetensors`` file.

    {"format": "mechint", "version": 1, "kind": "transformer", "config": {…},
     "task": {"name", "parameters"} | None, "step": 1200, "metrics": {…}, "train": {…} | None,
     "seed": 0, "versions": {…}, "state": {name: tensor}}

"assumed" and "split" stand there too where the model came from a file that did not state something,
or was trained on a split that is not mechint's. The safetensors twin holds ``state`` as its tensors
and the rest as JSON under the metadata key "mechint". `mechint.checkpoints.save` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mechint.checkpoints.reader import (
    PERMUTATIONS,
    Assumption,
    ParsedCheckpoint,
    SafeTensors,
    SplitRule,
    checked_seed,
    settings,
    state_dict,
)
from mechint.checkpoints.save import DIGEST, FORMAT, VERSION, digest_of
from mechint.errors import CheckpointError, UnknownNameError
from mechint.models import config_class
from mechint.system.files import parse_json


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """mechint's ckpt.pt."""
    if (
        not isinstance(content, Mapping)
        or content.get("format") != FORMAT
        or isinstance(content, SafeTensors)
    ):
        return None
    return _parsed(path, content, state_dict(content.get("state")))


def read_safetensors(path: Path, content: Any) -> ParsedCheckpoint | None:
    """mechint's checkpoint as a safetensors file."""
    if not isinstance(content, SafeTensors) or FORMAT not in content.metadata:
        return None
    header = parse_json(content.metadata[FORMAT], path, CheckpointError)
    if not isinstance(header, dict):
        raise CheckpointError(
            f"{path}: its header is damaged: got {type(header).__name__}, expected a mapping"
        )
    stated = header.pop(DIGEST, None)  # files of earlier versions have none
    if stated is not None and stated != digest_of(header, content):
        raise CheckpointError(
            f"{path}: the file is damaged: its tensors are not those whose digest it holds"
        )
    return _parsed(path, header, dict(content))


def _parsed(
    path: Path, header: Mapping[str, Any], state: dict[str, Tensor] | None
) -> ParsedCheckpoint:
    version = header.get("version")
    if version != VERSION:
        raise CheckpointError(
            f"{path}: mechint checkpoint of version {version!r}, expected {VERSION}; a newer "
            "mechint may read it"
        )
    _check_header(path, header, state)
    task, seed = header.get("task"), header.get("seed", 0)
    try:
        kind = config_class(str(header.get("kind")))
    except UnknownNameError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return ParsedCheckpoint(
        config=settings(kind, header["config"], path),
        weights=state or {},
        task=task["name"] if task else None,
        parameters=task["parameters"] if task else {},
        step=header.get("step"),
        metrics=header["metrics"],
        seed=seed,
        split=_split(header.get("split"), seed),
        train=header.get("train"),
        extra={"versions": header.get("versions") or {}},
        assumed={
            name: Assumption(item.get("value"), str(item.get("why")))
            for name, item in (header.get("assumed") or {}).items()
            if isinstance(item, Mapping)
        },
    )


def _check_header(path: Path, header: Mapping[str, Any], state: dict[str, Tensor] | None) -> None:
    """CheckpointError where an entry is missing or of another type than mechint writes."""
    task, step = header.get("task"), header.get("step")
    seed, mappings = header.get("seed", 0), ("train", "versions", "assumed", "split")
    fits = {
        "state": state is not None,
        "config": isinstance(header.get("config"), Mapping),
        "metrics": isinstance(header.get("metrics"), Mapping),
        "task": task is None
        or (
            isinstance(task, Mapping)
            and isinstance(task.get("name"), str)
            and isinstance(task.get("parameters"), Mapping)
            and _is_json(task["parameters"])
        ),
        "step": step is None or checked_seed(step) is not None,
        "seed": seed is None or checked_seed(seed) is not None,
        **{name: isinstance(header.get(name), Mapping | None) for name in mappings},
    }
    for name in ("metrics", "train", "versions", "assumed"):
        fits[name] = fits[name] and _is_json(header.get(name))
    if wrong := [name for name, right in fits.items() if not right]:
        are = "is" if len(wrong) == 1 else "are"
        raise CheckpointError(
            f"{path}: a mechint checkpoint whose {', '.join(wrong)} {are} damaged"
        )


def _is_json(value: Any) -> bool:
    """Return whether `value` could be written as JSON: text as keys, plain values within."""
    if isinstance(value, Mapping):
        return all(isinstance(name, str) and _is_json(part) for name, part in value.items())
    if isinstance(value, list | tuple):
        return all(_is_json(part) for part in value)
    return value is None or isinstance(value, bool | int | float | str)


def _split(given: Any, seed: int | None) -> SplitRule | None:
    """The recorded rule; mechint's own where none is, and none where no seed is."""
    if isinstance(given, Mapping):
        fraction = given.get("fraction")
        known = given.get("rule") in PERMUTATIONS and isinstance(fraction, float)
        usable = checked_seed(given.get("seed"))
        return SplitRule(given["rule"], usable, fraction) if known and usable is not None else None
    return None if seed is None else SplitRule("mechint", seed)
