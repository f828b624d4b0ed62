"""Reading a checkpoint file without running what is in it or allocating what it merely asks for.

``torch.load(weights_only=True)`` alone, or safetensors. Before either, the file is checked for what
it reveals of itself: a regular file, whole, its own checksums right, no member compressed, every
storage as large as the pickle says. A file that would need more (pickled classes or functions) is
refused by name; a missing, empty, truncated or foreign file gets one line that says so.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from mechint.checkpoints.numpy_numbers import stand_ins
from mechint.checkpoints.pickle_scan import scan_pickle
from mechint.checkpoints.reader import SafeTensors
from mechint.errors import CheckpointError, first_line
from mechint.files import check_nesting, regular_file

MAX_PICKLE = 64 << 20
"""Bytes of the pickle in a PyTorch file; tensors stand beside it."""

MAX_MEMBERS = 100_000
"""Members of a PyTorch file, one per tensor and a few more."""

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
"""The first value of a file that PyTorch wrote before version 1.6."""


def read_content(path: Path) -> Any:
    """What the file holds, on the CPU: the object that was saved, or `SafeTensors`.

    Raises:
        CheckpointError: the file is missing, empty, truncated, damaged, not a checkpoint, asks for
            more memory than it fills, or would need pickled code to run.
    """
    regular_file(path, CheckpointError)
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
    check_nesting(content, path, CheckpointError)
    check_tensors(path, content)
    return content


def read_plain(path: Path) -> dict[str, Any]:
    """Numbers, texts, lists and mappings of what a PyTorch file holds, its tensors left unread:
    what a checkpoint says of itself in a few milliseconds, whatever its size. Truth values come
    as None.

    Raises:
        CheckpointError: the file is missing, damaged, holds no mapping, or would run pickled code.
    """
    regular_file(path, CheckpointError)
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(names) != 1 or archive.getinfo(names[0]).file_size > MAX_PICKLE:
                raise CheckpointError(f"{path}: a zip file, but not PyTorch's")
            with archive.open(names[0]) as stored:
                value = scan_pickle(stored, str(path)).value  # type: ignore[arg-type]
    except CheckpointError:
        raise
    # a damaged archive breaks zipfile in many ways
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, OSError) as error:
        said = first_line(error, 160)
        raise CheckpointError(f"{path}: the file is truncated or damaged: {said}") from error
    if not isinstance(value, dict):
        raise CheckpointError(f"{path}: holds a {type(value).__name__}, expected a mapping")
    return value


def check_tensors(path: Path, content: Any) -> None:
    """CheckpointError where a tensor in `content`, already checked for nesting, is not a dense one
    that fills its memory.
    """
    pending = [("", content)]
    while pending:
        name, value = pending.pop()
        if isinstance(value, dict):
            pending += [(str(key), part) for key, part in value.items()]
        elif isinstance(value, list | tuple):
            pending += [(name, part) for part in value if isinstance(part, dict | list | tuple)]
            pending += [(name, part) for part in value if isinstance(part, Tensor)]
        elif isinstance(value, Tensor):
            _check_tensor(path, name, value)


def _check_tensor(path: Path, name: str, value: Tensor) -> None:
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
def check_file(path: Path) -> None:
    """CheckpointError where a PyTorch file is damaged, would run code, or asks for more memory than
    it fills; nothing of it is loaded.
    """
    try:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0)
            if head.startswith(b"PK\x03\x04"):
                _check_zip(path)
            elif head.startswith(b"\x80"):
                _check_legacy(path, file)
            else:
                raise CheckpointError(
                    f"{path}: not a checkpoint: neither a PyTorch nor a safetensors file"
                )
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error


def _torch(path: Path) -> Any:
    check_file(path)
    try:
        with warnings.catch_warnings(), torch.serialization.safe_globals(stand_ins()):
            # torch muses about pickle protocols; what matters comes as an error
            warnings.simplefilter("ignore")
            return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path}: {_refusal(str(error))}") from error
    except (MemoryError, KeyboardInterrupt):
        raise
    # a damaged file breaks torch's reader in many ways (EOFError, KeyError, struct.error, …)
    except Exception as error:
        said = first_line(error, 160)
        raise CheckpointError(
            f"{path}: the file is truncated, damaged or not a PyTorch checkpoint: {said}"
        ) from error


def _check_zip(path: Path) -> None:
    """That the archive is whole, stands in one file, is not compressed, agrees with its checksums,
    and holds as much as its pickle asks for.
    """
    damaged = f"{path}: the file is truncated or damaged"
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as archive:
            _check_single_disk(path, file)
            members = archive.infolist()
            if len(members) > MAX_MEMBERS:
                raise CheckpointError(f"{path}: {len(members):,} members, at most {MAX_MEMBERS:,}")
            if sum(member.file_size for member in members) > path.stat().st_size:
                raise CheckpointError(f"{damaged}: its members are larger than the file")
            names = [member.filename for member in members]
            if len(set(names)) != len(names):
                raise CheckpointError(f"{damaged}: two of its members have one name")
            for member in members:
                if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
                    raise CheckpointError(
                        f"{path}: member {member.filename} is compressed or encrypted; PyTorch "
                        "writes neither, so save the file again with torch.save"
                    )
            _check_members(path, archive, members)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, ValueError, LookupError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(f"{damaged}: {first_line(error, 160)}") from error


def _check_members(path: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> None:
    pickles = [member for member in members if member.filename.endswith("/data.pkl")]
    if len(pickles) != 1 or pickles[0].file_size > MAX_PICKLE:
        raise CheckpointError(
            f"{path}: a zip file, but not PyTorch's: expected one data.pkl of at most "
            f"{MAX_PICKLE:,} bytes"
        )
    for member in members:  # reading to the end compares the checksum
        with archive.open(member) as stored:
            while stored.read(1 << 20):
                pass
    sizes = {member.filename: member.file_size for member in members}
    folder = pickles[0].filename.removesuffix("data.pkl")
    if sizes.get(f"{folder}byteorder", 6) > 6:
        raise CheckpointError(
            f"{path}: the file is truncated or damaged: its byte order is unknown"
        )
    with archive.open(pickles[0]) as stored:
        storages = scan_pickle(stored, str(path)).storages  # type: ignore[arg-type]
    for key, size in storages.items():
        there = sizes.get(f"{folder}data/{key}")
        if there != size:
            raise CheckpointError(
                f"{path}: the file is truncated or damaged: storage {key} should have {size:,} "
                f"bytes, has {'none' if there is None else f'{there:,}'}"
            )


def _check_single_disk(path: Path, file: BinaryIO) -> None:
    """That the archive's directory does not speak of other disks."""
    size = file.seek(0, 2)
    file.seek(max(0, size - (1 << 16) - 22))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    record = tail[at : at + 22]
    if at < 0 or len(record) < 22:
        raise CheckpointError(f"{path}: the file is truncated or damaged")
    disk, first, here, entries = struct.unpack("<4H", record[4:12])
    if disk not in (0, 0xFFFF) or first not in (0, 0xFFFF) or here != entries:
        raise CheckpointError(f"{path}: an archive that spans disks; join its parts first")


def _check_legacy(path: Path, file: BinaryIO) -> None:
    """That a file of the older format is one, and holds as much as its pickle asks for.

    It is five pickles one after the other (magic number, version, system, the object, the keys of
    its storages), then every storage with its number of items before it.
    """
    total = path.stat().st_size
    # in memory, where a length in the file that is a lie cannot reserve what it asks for
    start = io.BytesIO(file.read(MAX_PICKLE))
    if scan_pickle(start, str(path)).value != LEGACY_MAGIC:
        raise CheckpointError(
            f"{path}: refused: a pickle that PyTorch did not write, or one that is damaged, or "
            "would run pickled code"
        )
    for _ in range(2):
        scan_pickle(start, str(path))
    storages = scan_pickle(start, str(path)).storages
    scan_pickle(start, str(path))
    needed, there = sum(size + 8 for size in storages.values()), total - start.tell()
    if needed > there:
        raise CheckpointError(
            f"{path}: the file is truncated or damaged: its tensors need {needed:,} bytes, "
            f"{there:,} are there"
        )


def _refusal(message: str) -> str:
    """Why a weights-only load was refused, in one line."""
    wanted = re.search(r"GLOBAL ([\w.]+)", message)
    if wanted:
        return (
            f"refused: loading it would run pickled code ({wanted[1]}); mechint reads tensors and "
            "plain values only, so save the state_dict alone"
        )
    if "Unsupported" in message:
        return (
            "refused: it is damaged, or would run pickled code; mechint reads PyTorch files of "
            "tensors and plain values only"
        )
    return f"the file is truncated, damaged or not a PyTorch checkpoint: {first_line(message, 160)}"
