"""Reading a checkpoint file without running what is in it.

``torch.load(weights_only=True)`` alone, or safetensors. A file that would need more (pickled
classes or functions) is refused by name; a missing, empty, truncated or foreign file gets one line
that says so.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import torch

from mechint.checkpoints.reader import SafeTensors
from mechint.errors import CheckpointError


def read_content(path: Path) -> Any:
    """What the file holds, on the CPU: the object that was saved, or `SafeTensors`.

    Raises:
        CheckpointError: the file is missing, empty, truncated, no checkpoint, or would need pickled
            code to run.
    """
    try:
        with path.open("rb") as file:
            head = file.read(32)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: there is no such file") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from error
    if not head:
        raise CheckpointError(f"{path}: the file is empty")
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if head.startswith(b"version https://git"):
        raise CheckpointError(f"{path}: a Git LFS pointer, not the file itself; run git lfs pull")
    return _torch(path, head)


def _safetensors(path: Path) -> SafeTensors:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            names = file.keys()
            return SafeTensors(
                {name: file.get_tensor(name) for name in names}, file.metadata() or {}
            )
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path}: not a whole safetensors file: {_line(error)}") from error


def _torch(path: Path, head: bytes) -> Any:
    zipped, pickled = head.startswith(b"PK\x03\x04"), head.startswith(b"\x80")
    if not zipped and not pickled:
        raise CheckpointError(f"{path}: not a checkpoint: neither a PyTorch nor a safetensors file")
    if zipped and not zipfile.is_zipfile(path):
        raise CheckpointError(f"{path}: the file is truncated or damaged")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # torch muses about pickle protocols; what matters comes as an error
            return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        raise CheckpointError(f"{path}: {_refusal(str(error))}") from error
    except (MemoryError, KeyboardInterrupt):
        raise
    # a damaged file breaks torch's reader in many ways (EOFError, KeyError, struct.error, …)
    except Exception as error:
        raise CheckpointError(
            f"{path}: the file is truncated, damaged or no PyTorch checkpoint: {_line(error)}"
        ) from error


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
    return f"the file is truncated, damaged or no PyTorch checkpoint: {_line(message)}"


def _line(error: object) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)[:160]
