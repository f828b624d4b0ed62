"""Tensors of another project under mechint's names and in its shapes, by the entries of a mapping.

An entry says from which tensors (``{layer}`` and ``{head}`` stand for numbers), by which einops
pattern, which part of the first axis, and times which factor.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from einops import EinopsError, rearrange
from torch import Tensor

from mechint.checkpoints.reader import StateDict, TrackedStateDict
from mechint.errors import CheckpointError

MAX_CONSTANT = 1 << 26
"""Entries of a tensor that a mapping writes."""

CHOICE = re.compile(r"\[([^\]]+)\]")


def listed(value: Any) -> list[str]:
    """One text or several, as a list."""
    return [value] if isinstance(value, str) else [str(one) for one in value]


def expanded(ours: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """One name and entry for each choice in brackets, ``W_[QKV]`` or ``[weight|bias]``.

    >>> [(name, one["from"]) for name, one in expanded("b.[wb]", {"from": "n.[weight|bias]"})]
    [('b.w', ['n.weight']), ('b.b', ['n.bias'])]
    """
    first = CHOICE.search(ours)
    if first is None:
        yield ours, entry
        return
    take = entry.get("take")
    for index in range(len(_choices(first))):
        one = {**entry, "from": [_picked(name, index) for name in listed(entry.get("from", []))]}
        yield _picked(ours, index), {**one, "take": take[index]} if isinstance(take, list) else one


def _picked(name: str, index: int) -> str:
    """`name` with choice number `index` of each of its brackets."""
    return CHOICE.sub(lambda match: (_choices(match)[index:] or [""])[0], name)


def _choices(match: re.Match[str]) -> list[str]:
    return match[1].split("|") if "|" in match[1] else list(match[1])


def layers_of(entries: Iterable[Mapping[str, Any]], state: StateDict) -> list[int]:
    """Numbers of the layers that `state` has, in the order of the model."""
    names = [name for entry in entries for name in listed(entry.get("from", []))]
    return sorted({at for name in names if "{layer}" in name for at, _ in _places(name, state)})


def tensors_of(
    path: Path,
    state: TrackedStateDict,
    ours: str,
    entry: Mapping[str, Any],
    axes: Any,
    layers: Sequence[int],
) -> dict[str, Tensor]:
    """Our names and tensors that one entry of `weights` gives, one per layer where it has one;
    layers: of the whole model, so that a tensor stays in its own where another layer lacks it.
    """
    if "constant" in entry:
        return {ours: _constant(path, ours, entry["constant"], state)}
    names = listed(entry.get("from", []))
    name = next((one for one in names if _places(one, state)), None)
    if name is None:
        if not entry.get("optional"):
            raise CheckpointError(f"{path}: lacks {' or '.join(names)}, for {ours}")
        return {}
    places, found = _places(name, state), {}
    for layer in sorted({layer for layer, _ in places}):
        heads = [places[key] for key in sorted(places) if key[0] == layer]
        values = [state[name] for name in heads]
        given = values if "{head}" in name else values[0]
        shaped = _shaped(path, ours, heads[0], given, entry, axes)
        rank = layers.index(layer) if "{layer}" in name else 0
        found[ours.replace("{layer}", str(rank))] = shaped
    return found


def _places(name: str, state: StateDict) -> dict[tuple[int, int], str]:
    """(layer, head) → name in `state`, for a name with ``{layer}`` and ``{head}`` in it."""
    if "{" not in name:
        return {(0, 0): name} if name in state else {}
    pattern = re.escape(name)
    for what in ("layer", "head"):
        first, *rest = pattern.split(rf"\{{{what}\}}")
        pattern = first + "".join(
            (rf"(?P<{what}>\d{{1,6}})" if not index else rf"(?P={what})") + part
            for index, part in enumerate(rest)
        )
    found = {}
    for there in state:
        if match := re.fullmatch(pattern, there):
            known = match.groupdict()
            found[int(known.get("layer") or 0), int(known.get("head") or 0)] = there
    return found


def _shaped(
    path: Path,
    ours: str,
    theirs: str,
    value: Tensor | list[Tensor],
    entry: Mapping[str, Any],
    axes: Mapping[str, Any],
) -> Tensor:
    """One tensor rearranged, cut out and scaled as `entry` says; axes: sizes that are known."""
    try:
        if "rearrange" in entry:
            pattern = str(entry["rearrange"])
            named = re.findall(r"\w+", pattern.split("->")[0])
            known = {axis: n for axis, n in axes.items() if axis in named and isinstance(n, int)}
            value = rearrange(value, pattern, **known)
        elif isinstance(value, list):
            value = torch.stack(value)
        if "take" in entry:
            value = value[_index(entry["take"])]
    except (EinopsError, RuntimeError, ValueError, IndexError, TypeError) as error:
        shape = tuple(value.shape) if isinstance(value, Tensor) else tuple(value[0].shape)
        said = str(error).strip().splitlines()[-1][:120] if str(error).strip() else ""
        raise CheckpointError(
            f"{path}: {theirs} of shape {shape} cannot become {ours} by "
            f"{entry.get('rearrange', entry.get('take'))!r}: {said}"
        ) from error
    assert isinstance(value, Tensor)
    scale = entry.get("scale")
    return value if scale is None else value * float(scale)


def _index(take: Any) -> int | slice:
    """An index of the first axis, or ``"first:last"`` of it."""
    if isinstance(take, int):
        return take
    first, _, last = str(take).partition(":")
    return slice(int(first) if first else None, int(last) if last else None)


def _constant(path: Path, ours: str, given: Any, state: TrackedStateDict) -> Tensor:
    """``{identity: [n]}``, ``{zeros: [n, m]}``, ``{ones: …}`` or ``{sinusoidal: [pos, d_model]}``.

    A size may be an axis of a tensor in the file, ``NAME:0``.
    """
    kind, sizes = next(iter(given.items()), ("", [])) if isinstance(given, Mapping) else ("", [])
    sizes = sizes if isinstance(sizes, list) else [sizes]
    shape = [_size(path, ours, size, state) for size in sizes]
    if kind not in CONSTANTS or not shape or math.prod(shape) > MAX_CONSTANT:
        raise CheckpointError(
            f"{path}: {ours}: constant {given!r}: expected one of {', '.join(CONSTANTS)}"
        )
    return CONSTANTS[kind](shape)


def _size(path: Path, ours: str, given: Any, state: TrackedStateDict) -> int:
    if isinstance(given, int):
        return given
    name, _, axis = str(given).rpartition(":")
    if name not in state or not axis.isdigit() or int(axis) >= state[name].dim():
        raise CheckpointError(f"{path}: {ours}: size {given!r}: expected a number or NAME:AXIS")
    return state[name].shape[int(axis)]


def _sinusoidal(shape: list[int]) -> Tensor:
    """Sines and cosines of wavelengths 2π to 10,000 · 2π (Vaswani et al. 2017), interleaved."""
    n, d = shape
    angle = torch.arange(n)[:, None] / 10_000 ** (torch.arange(0, d, 2) / d)
    out = torch.zeros(n, d)
    out[:, 0::2], out[:, 1::2] = angle.sin(), angle.cos()[:, : d // 2]
    return out


CONSTANTS: Mapping[str, Callable[[list[int]], Tensor]] = {
    "zeros": lambda shape: torch.zeros(shape),
    "ones": lambda shape: torch.ones(shape),
    "identity": lambda shape: torch.eye(shape[0], shape[-1]),
    "sinusoidal": _sinusoidal,
}
