"""Read a checkpoint file without running what is in it.

Files are read by ``torch.load(weights_only=True)`` or safetensors. Before that a PyTorch archive is
checked: a regular file, a bounded number of members, none compressed, checksums right, a pickle
that builds no more than its size says (`mechint.checkpoints.inert`). A pickled module
(TransformerLens's HookedTransformer before version 4) is reduced to its state dict and
configuration; any other file that needs its classes or functions is refused by name.
"""

from __future__ import annotations

import copy
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.inert import (
    InertUnpickler,
    Plain,
    check_opcodes,
    holds_module,
    numpy_globals,
)
from mechint.checkpoints.reader import SafeTensors
from mechint.errors import CheckpointError, first_line
from mechint.system.files import regular_file

MAX_PICKLE = 64 << 20
"""Bytes of the pickle in a PyTorch file, without its tensors."""

MAX_MEMBERS = 100_000
"""Members of a PyTorch file, one per tensor and a few more."""

DAMAGED = "the file is truncated or damaged, or not a PyTorch checkpoint"


def read_content(path: Path) -> Any:
    """Return the content of the file, on the CPU: the object that was saved, or `SafeTensors`.

    Raises:
        CheckpointError: the file is missing, empty, truncated, damaged, not a checkpoint, asks for
            more memory than it fills, or would need pickled code to run.
    """
    regular_file(path, CheckpointError)
    if any("\ud800" <= letter <= "\udfff" for letter in str(path)):  # bytes that are no UTF-8
        raise CheckpointError(f"{str(path)!a}: a file name that is not UTF-8; rename it")
    try:
        with path.open("rb") as file:
            head = file.read(32)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if not head:
        raise CheckpointError(f"{path}: the file is empty")
    # a safetensors file begins with the length of its header, which is JSON
    headed = head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size
    if path.suffix == ".safetensors" or headed:
        content: Any = _safetensors(path)
    elif head.startswith(b"version https://git"):
        raise CheckpointError(f"{path}: a Git LFS pointer, not the file itself; run git lfs pull")
    else:
        content = _torch(path)
    check_dense(path, content)
    return content


def read_plain(path: Path) -> dict[str, Any]:
    """Numbers, texts, lists and mappings of a PyTorch file, without its tensors.

    Raises:
        CheckpointError: the file is missing, damaged, holds no mapping, or would run pickled code.
    """
    regular_file(path, CheckpointError)
    check_file(path)
    content = _load(path)
    if not isinstance(content, Mapping):
        raise CheckpointError(f"{path}: holds a {type(content).__name__}, expected a mapping")
    return {name: value for name, value in content.items() if not isinstance(value, Tensor)}


def check_dense(path: Path, content: Any) -> None:
    """Raise CheckpointError if a tensor in `content` is not dense or exceeds its storage."""
    for name, value in _tensors(content):
        kind = str(value.layout).removeprefix("torch.")
        if value.layout is not torch.strided or value.is_quantized or value.device.type != "cpu":
            got = "quantized" if value.is_quantized else kind
            got = value.device.type if value.device.type != "cpu" else got
            raise CheckpointError(f"{path}: {name} is a {got} tensor, expected a dense one")
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():
            raise CheckpointError(
                f"{path}: {name} of shape {tuple(value.shape)} is larger than the "
                f"{value.untyped_storage().nbytes():,} bytes that hold it"
            )


def _tensors(content: Any) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of every tensor in `content`."""
    pending = [("", content)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, Mapping):
            pending += [(str(key), part) for key, part in value.items()]
        elif isinstance(value, list | tuple):
            inner = (Mapping, list, tuple, Tensor)
            pending += [(name, part) for part in value if isinstance(part, inner)]
        elif isinstance(value, Tensor):
            yield name, value


# --- safetensors ----------------------------------------------------------------------------------
def _safetensors(path: Path) -> SafeTensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = file.keys()
            return SafeTensors(
                {name: file.get_tensor(name) for name in names}, file.metadata() or {}
            )
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError) as error:
        said = first_line(error, 160)
        raise CheckpointError(f"{path}: not a whole safetensors file: {said}") from error


# --- PyTorch --------------------------------------------------------------------------------------
def _torch(path: Path) -> Any:
    check_file(path)
    try:
        content = _load(path)
    except CheckpointError as refused:
        rescued = _rescue(path) if isinstance(refused.__cause__, pickle.UnpicklingError) else None
        if rescued is None:
            raise
        return rescued
    _check_storages(path, content)
    # _load mapped the tensors from the file; copy them, so that the file may change afterwards
    return copy.deepcopy(content)


def _load(path: Path) -> Any:
    """The object in `path`; tensors of an archive are mapped from the file, not read."""
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(numpy_globals()):
            warnings.simplefilter("ignore")  # advice on pickle protocols; errors come as errors
            content = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except pickle.UnpicklingError as error:
        wanted = re.search(r"GLOBAL ([\w.]+)", str(error))
        if wanted or "Unsupported" in str(error):
            raise CheckpointError(
                f"{path}: refused: {'it' if wanted else 'it is damaged, or'} would run pickled code"
                f"{f' ({wanted[1]})' if wanted else ''}; mechint reads tensors and plain values "
                "only, so save the state_dict alone"
            ) from error
        raise CheckpointError(f"{path}: {DAMAGED}: {first_line(error, 160)}") from error
    except (MemoryError, KeyboardInterrupt):
        raise
    # a damaged file breaks torch's reader in many ways (EOFError, KeyError, struct.error, …)
    except Exception as error:
        raise CheckpointError(f"{path}: {DAMAGED}: {first_line(error, 160)}") from error
    return Plain().copy(content)


def _check_storages(path: Path, content: Any) -> None:
    """CheckpointError where tensors have more bytes than the members of the archive that hold
    them: torch would read on, into the next member.
    """
    storages = {
        value.untyped_storage().data_ptr(): value.untyped_storage().nbytes()
        for _, value in _tensors(content)
        if value.layout is torch.strided and value.is_cpu
    }
    with zipfile.ZipFile(path) as archive:
        members = [item for item in archive.infolist() if "/data/" in item.filename]
        there = sum(item.file_size for item in members)
    if (asked := sum(storages.values())) > there:
        raise CheckpointError(
            f"{path}: {DAMAGED}: its storages should have {asked:,} bytes, have {there:,}"
        )


def _rescue(path: Path) -> dict[str, Any] | None:
    """State dict and configuration of a pickled module; None where the file holds none."""
    try:
        with zipfile.ZipFile(path) as archive:
            value = InertUnpickler(archive).load()
        return Plain().copy(value) if holds_module(value) else None
    # a hostile pickle breaks the unpickler in many ways; the first refusal then stands
    except Exception:
        return None


def check_file(path: Path) -> None:
    """CheckpointError where a PyTorch file is damaged or asks for more memory than it fills;
    nothing of it is loaded.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
        if head.startswith(b"\x80"):
            raise CheckpointError(
                f"{path}: refused: a bare pickle, or of PyTorch before version 1.6; write it again "
                "with torch.save of a newer PyTorch"
            )
        if not head.startswith(b"PK\x03\x04"):
            raise CheckpointError(
                f"{path}: not a checkpoint: neither a PyTorch nor a safetensors file"
            )
        with zipfile.ZipFile(path) as archive:
            _check_archive(path, archive)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    except Exception as error:  # a damaged archive breaks its reader in many ways
        raise CheckpointError(f"{path}: {DAMAGED}: {first_line(error, 160)}") from error


def _check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Check that the archive is whole, not compressed, and agrees with its checksums."""
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise CheckpointError(f"{path}: {len(members):,} members, at most {MAX_MEMBERS:,}")
    if sum(member.file_size for member in members) > path.stat().st_size:
        raise CheckpointError(f"{path}: {DAMAGED}: its members are larger than the file")
    if len({member.filename for member in members}) != len(members):
        raise CheckpointError(f"{path}: {DAMAGED}: two of its members have one name")
    for member in members:
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise CheckpointError(
                f"{path}: member {member.filename} is compressed or encrypted; PyTorch writes "
                "neither, so save the file again with torch.save"
            )
    pickles = [member for member in members if member.filename.endswith("/data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > MAX_PICKLE:
        raise CheckpointError(
            f"{path}: a zip file, but not PyTorch's: expected one data.pkl of at most "
            f"{MAX_PICKLE:,} bytes"
        )
    if (wrong := archive.testzip()) is not None:
        raise CheckpointError(f"{path}: {DAMAGED}: the checksum of {wrong} is wrong")
    check_opcodes(archive.read(pickles[0]))
