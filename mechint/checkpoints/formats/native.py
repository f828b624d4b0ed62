"""mechint's own checkpoint: tensors and plain values only, in a ``.pt`` or a ``.safetensors`` file.

    {"format": "mechint", "version": 1, "kind": "transformer", "config": {…}, "task": {"name",
    "parameters"} | None,
     "step": 1200, "metrics": {…}, "train": {…} | None, "seed": 0, "versions": {…}, "state": {name:
         tensor}}

The safetensors twin holds ``state`` as its tensors and the rest as JSON under the metadata key
"mechint". The bytes are a function of the contents and the versions alone.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import mechint
from mechint.checkpoints.reader import Found, SafeTensors, settings, state_dict
from mechint.config import Settings
from mechint.errors import CheckpointError
from mechint.files import write_bytes
from mechint.models import config_class, kind_of
from mechint.task import Task

FORMAT, VERSION = "mechint", 1


def save_checkpoint(
    path: str | Path,
    *,
    config: Settings,
    weights: Mapping[str, Tensor],
    task: Task | None,
    step: int | None,
    metrics: Mapping[str, Any],
    train: Settings | Mapping[str, Any] | None = None,
    seed: int = 0,
) -> None:
    """Write a checkpoint; a name that ends in ``.safetensors`` makes a safetensors file.

    Args:
        config: of the architecture; weights: its parameters by name.
        task: what it was trained on, with its parameters.
        metrics: name → number, text or nested lists and mappings of such.
        train: the training configuration; seed: of the train/test split.

    Raises:
        RunError: the file cannot be written, or the disk is full.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "kind": kind_of(config),
        "config": config.to_dict(),
        "task": None if task is None else {"name": task.name, "parameters": task.to_dict()},
        "step": step,
        "metrics": dict(metrics),
        "train": train.to_dict() if isinstance(train, Settings) else train,
        "seed": seed,
        "versions": {"mechint": mechint.__version__, "torch": str(torch.__version__)},
    }
    # through JSON: plain values whatever numpy or torch scalars the caller gave
    header = json.loads(json.dumps(header, default=lambda value: value.tolist()))
    # a copy each: a view would drag its whole storage into the file
    state = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in weights.items()
    }
    if Path(path).suffix == ".safetensors":
        from safetensors.torch import save

        write_bytes(path, save(state, {FORMAT: json.dumps(header)}))
        return
    buffer = io.BytesIO()  # torch.save to a name would write that name into the file
    torch.save({**header, "state": state}, buffer)
    write_bytes(path, buffer.getvalue())


def read(path: Path, content: Any) -> Found | None:
    """mechint's ckpt.pt."""
    if (
        not isinstance(content, Mapping)
        or content.get("format") != FORMAT
        or isinstance(content, SafeTensors)
    ):
        return None
    return _found(path, content, state_dict(content.get("state")))


def read_safetensors(path: Path, content: Any) -> Found | None:
    """mechint's checkpoint as a safetensors file."""
    if not isinstance(content, SafeTensors) or FORMAT not in content.metadata:
        return None
    try:
        header = json.loads(content.metadata[FORMAT])
    except ValueError as error:
        raise CheckpointError(f"{path}: its header is damaged: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(
            f"{path}: its header is damaged: got {type(header).__name__}, expected a mapping"
        )
    return _found(path, header, dict(content))


def _found(path: Path, header: Mapping[str, Any], state: dict[str, Tensor] | None) -> Found:
    version = header.get("version")
    if version != VERSION:
        raise CheckpointError(
            f"{path}: mechint checkpoint of version {version!r}, expected {VERSION}; a newer "
            "mechint may read it"
        )
    task, metrics = header.get("task"), header.get("metrics")
    told = task is None or (isinstance(task, Mapping) and {"name", "parameters"} <= set(task))
    if (
        state is None
        or not isinstance(header.get("config"), Mapping)
        or not isinstance(metrics, Mapping)
        or not told
    ):
        raise CheckpointError(
            f"{path}: a mechint checkpoint whose state, config, task or metrics is damaged"
        )
    return Found(
        config=settings(config_class(str(header.get("kind"))), header["config"], path),
        weights=state,
        task=task["name"] if task else None,
        parameters=task["parameters"] if task else {},
        step=header.get("step"),
        metrics=metrics,
        seed=header.get("seed", 0),
        train=header.get("train"),
        extra={"versions": header.get("versions", {})},
    )
