"""Mapping files: a YAML table of another project's names for the weights of a model.

    format: my-lab                               # its name
    config: {n_heads: 4, act_fn: gelu}           # what the tensors do not show
    weights:
      embed.W_E: tok.weight
      blocks.{layer}.attn.W_O:
        {from: "layers.{layer}.out.weight", pattern: d (head d_head) -> head d_head d}
      ln_final.b: {zeros: 64}
    task: {name: max-of-list, n: 10}

`docs/checkpoint-formats.md` explains every key. A file computes nothing, so that one from a
stranger can be used.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    find_state,
    state_dict,
    unwrapped,
)
from mechint.checkpoints.renaming import NameTable, pair_config, transformer_config
from mechint.errors import CheckpointError
from mechint.system.files import read_yaml

KEYS: Mapping[str, type] = {
    **dict.fromkeys(("format", "about", "architecture", "state"), str),
    **dict.fromkeys(("config", "weights", "task"), Mapping),
    "ignore": list,
}
EXPECTED = {str: "a text", Mapping: "name: value, …", list: "a list"}
ARCHITECTURES = {"transformer": transformer_config, "pair-network": pair_config}
MAX_CONSTANT = 1 << 20
"""Entries of a tensor that a mapping writes."""

LITERALS: Mapping[str, Callable[[Sequence[int]], Tensor]] = {
    "zeros": torch.zeros,
    "ones": torch.ones,
    "identity": lambda shape: torch.eye(shape[0], shape[-1]),
}
GONE = {
    "rearrange": "name it pattern",
    "take": "end our name in W_QKV or b_QKV for three along the first axis",
    "scale": "multiply the tensor before it is saved",
    "constant": "write {zeros: shape}, {ones: shape} or {identity: n}",
    "optional": "leave out what the file does not hold",
    "strip": "write the names as they stand in the file",
    "match": "give the mapping with --mapping, or a reader in Python for all files of its kind",
    **dict.fromkeys(("beside", "split", "seed", "step", "metrics"), "write a reader in Python"),
}
"""Keys of earlier versions → their replacement."""


@dataclass(frozen=True)
class Mapped:
    """A mapping: the table that it gives, and the rest of what it says as it stands there."""

    source: str
    layout: NameTable
    given: Mapping[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return str(self.given.get("format", "mapping"))

    def read(self, path: Path, content: Any) -> ParsedCheckpoint:
        """`content` under this mapping.

        Raises:
            CheckpointError: a tensor is missing, of another shape, or has no place.
        """
        state = find_state(content)
        if "state" in self.given:
            part = content.get(self.given["state"]) if isinstance(content, Mapping) else None
            state = None if (named := state_dict(part)) is None else unwrapped(named)
        if state is None:
            _refuse(self.source, f"{path} holds no state dict; name its place as state: …")
        parsed = self.layout.parsed(path, content, state, self.given.get("config", {}))
        task = dict(self.given.get("task", {}))
        norms = [
            name
            for name, entry in self.layout.table.items()
            if "ln" in name and isinstance(entry, Tensor)
        ]
        why = f"the mapping writes {', '.join(norms)}; the file has no such norm"
        return dataclasses.replace(
            parsed,
            format=self.name,
            task=task.pop("name", None),
            parameters=task,
            assumed={"norms": Assumption("made up", why)} if norms else {},
        )


def load_mapping(given: Any, place: str | Path | None = None) -> Mapped:
    """The mapping in a YAML file, or one given as a mapping, which was read at `place`.

    Raises:
        CheckpointError: the file is missing or damaged, or holds a key or entry that no mapping
            has.
    """
    source = str(place or ("the mapping" if isinstance(given, Mapping) else given))
    if isinstance(given, str | Path):
        given = read_yaml(given, CheckpointError)
    if not isinstance(given, Mapping):
        got = "there is no such file" if given is None else f"holds a {type(given).__name__}"
        _refuse(source, f"{got}, expected a mapping file")
    for key, value in given.items():
        if key not in KEYS:
            advice = GONE.get(str(key), f"expected some of {', '.join(KEYS)}")
            _refuse(source, f"a mapping has no {str(key)!r}; {advice}")
        if not value or not isinstance(value, KEYS[key]):
            _refuse(source, f"{key}: got {value!r}, expected {EXPECTED[KEYS[key]]}")
    for part in ("config", "task"):
        for name, value in given.get(part, {}).items():
            if not isinstance(name, str) or isinstance(value, Mapping):
                _refuse(source, f"{part}: {name}: got {value!r}; expected the value itself")
    if not isinstance(given.get("task", {"name": ""}).get("name"), str):
        _refuse(source, f"task: got {given['task']!r}, expected {{name: …}}")
    kind = given.get("architecture", "transformer")
    if kind not in ARCHITECTURES or "weights" not in given:
        wanted = f"architecture: {' or '.join(ARCHITECTURES)}, weights: our name → their name"
        _refuse(source, f"expected {wanted}")
    table = {str(name): _entry(source, name, entry) for name, entry in given["weights"].items()}
    ignore = [str(name) for name in given.get("ignore", ())]
    return Mapped(source, NameTable(table, ARCHITECTURES[kind], ignore, all_required=True), given)


def _entry(source: str, name: Any, given: Any) -> str | tuple[str, str] | Tensor:
    parts = dict(given) if isinstance(given, Mapping) else {"from": given}
    if old := next((key for key in parts if key in GONE), None):
        _refuse(source, f"weights: {name} has no {old!r}; {GONE[old]}")
    if "[" in str(name):
        _refuse(source, f"weights: {name}: brackets are not expanded; name each tensor")
    theirs, pattern = parts.pop("from", None), parts.pop("pattern", "")
    if isinstance(theirs, str) and isinstance(pattern, str) and not parts:
        return (theirs, pattern) if pattern else theirs
    kind, shape = next(iter(parts.items()), (None, None))
    sizes: list[Any] = shape if isinstance(shape, list) else [shape]
    literal = theirs is None and len(parts) == 1 and kind in LITERALS and bool(sizes)
    literal = literal and all(type(n) is int and n > 0 for n in sizes)
    if literal and math.prod(sizes) <= MAX_CONSTANT:
        return LITERALS[str(kind)](sizes)
    literals = ", ".join(f"{{{kind}: shape}}" for kind in LITERALS)
    return _refuse(
        source,
        f"weights: {name}: got {given!r}; expected a name of theirs, {{from: name, pattern: "
        f"einops}} or one of {literals}",
    )


def _refuse(source: str, said: str) -> NoReturn:
    raise CheckpointError(f"{source}: {said[:400]}")
