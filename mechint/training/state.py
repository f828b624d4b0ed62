"""The saved state of a run, read with care: a damaged file is refused in one line."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import torch

from mechint.errors import RunError

State = dict[str, Any]
"""step, commit (the step of the ensemble when it was written), status, error, ensemble (its
identifier), threads, device (its kind), metrics_bytes, metrics_sha256 (of those bytes; both None in
files of earlier versions), values, optimizer, generator, stale_evaluations."""

CUDA_GENERATOR = 16
"""Bytes of the state of a random generator on a GPU; one on the CPU has thousands."""


def read_state(file: Path) -> State:
    """The state in `file`, whole and of the right types, with the name of its file."""
    remedy = "delete it and --resume starts this run anew"
    if not file.is_file():
        raise RunError(f"{file}: it is not a regular file, expected a saved state; {remedy}")
    try:
        with zipfile.ZipFile(file) as archive:  # torch reads past the checksums
            wrong = archive.testzip()
        if wrong is not None:
            raise zipfile.BadZipFile(f"the checksum of {wrong} does not fit")
        state = torch.load(file, weights_only=True)
    except Exception as error:  # torch and pickle raise nearly anything on a damaged file
        raise RunError(f"{file}: damaged ({brief(error)}); {remedy}") from error
    if not isinstance(state, dict):
        raise RunError(f"{file}: damaged: got {type(state).__name__}, expected a state; {remedy}")
    made = {
        "step": state.get("step"),
        "commit": state.get("commit", state.get("step")),
        "status": state.get("status"),
        "error": state.get("error", ""),
        "ensemble": state.get("ensemble", ""),
        "threads": state.get("threads"),
        "device": state.get("device", _device_of(state.get("generator"))),
        "metrics_bytes": state.get("metrics_bytes"),
        "metrics_sha256": state.get("metrics_sha256"),
        "values": state.get("values"),
        "optimizer": state.get("optimizer", state.get("optimiser")),
        "generator": state.get("generator"),
        "stale_evaluations": state.get("stale_evaluations", state.get("still", 0)),
        "file": file.name,
    }
    kinds: dict[str, type | tuple[type, ...]] = {
        "step": int,
        "commit": int,
        "status": str,
        "error": str,
        "ensemble": str,
        "threads": (int, type(None)),
        "device": str,
        "metrics_bytes": (int, type(None)),
        "metrics_sha256": (str, type(None)),
        "values": torch.Tensor,
        "optimizer": dict,
        "generator": torch.Tensor,
        "stale_evaluations": int,
    }
    for name, kind in kinds.items():
        if not isinstance(made[name], kind):
            raise RunError(f"{file}: damaged: {name} is missing or of a wrong type; {remedy}")
    return made


def _device_of(generator: Any) -> str:
    """The kind of device of a generator's state, for files that do not say it."""
    on_gpu = isinstance(generator, torch.Tensor) and generator.numel() == CUDA_GENERATOR
    return "cuda" if on_gpu else "cpu"


def brief(error: BaseException) -> str:
    """The first line of an error's text, in at most 120 characters."""
    text = (str(error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= 120 else text[:117] + "…"
