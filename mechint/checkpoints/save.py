"""Writing mechint's own checkpoint, as a ``.pt`` or a ``.safetensors`` file.

`mechint.checkpoints.formats.native` documents what is in it and reads it. The bytes are a function
of the contents and the versions alone.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import mechint
from mechint.checkpoints.reader import Assumption, StateDict
from mechint.config import Settings
from mechint.models import kind_of
from mechint.system.files import write_bytes
from mechint.task import Task

FORMAT, VERSION = "mechint", 1
DIGEST = "sha256"
"""Key of the digest in the header of a safetensors file, which has no checksums of its own."""


def digest_of(header: Mapping[str, Any], state: StateDict) -> str:
    """The SHA-256 digest of a header and of names, types, shapes and bytes of tensors, as hex."""
    digest = hashlib.sha256(json.dumps(header).encode())
    for name, value in sorted(state.items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save_checkpoint(
    path: str | Path,
    *,
    config: Settings,
    weights: StateDict,
    task: Task | None,
    step: int | None,
    metrics: Mapping[str, Any],
    train: Settings | Mapping[str, Any] | None = None,
    seed: int | None = 0,
    assumed: Mapping[str, Assumption] | None = None,
    split: Mapping[str, Any] | None = None,
    durable: bool = True,
) -> None:
    """Write a checkpoint; a name that ends in ``.safetensors`` makes a safetensors file.

    Args:
        config: of the architecture; weights: its parameters by name.
        task: what it was trained on, with its parameters.
        metrics: name → number, text or nested lists and mappings of such.
        train: the training configuration; seed: of the train/test split.
        assumed: what the file that the model came from did not state.
        split: rule, seed and fraction of a split that is not mechint's own.
        durable: wait until the disk has the file (see `mechint.system.files.replacing`).

    Raises:
        RunError: the file cannot be written, or the disk has no room for it.
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
    if assumed:
        header["assumed"] = {name: item.to_dict() for name, item in assumed.items()}
    if split:
        header["split"] = dict(split)
    # through JSON: plain values whatever numpy or torch scalars the caller gave
    header = json.loads(json.dumps(header, default=lambda value: value.tolist()))
    # a copy each: a view would drag its whole storage into the file
    state = {
        name: value.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, value in weights.items()
    }
    if Path(path).suffix == ".safetensors":
        from safetensors.torch import save

        header[DIGEST] = digest_of(
            header, state
        )  # one key alone: safetensors orders them at random
        write_bytes(path, save(state, {FORMAT: json.dumps(header)}), durable)
        return
    buffer = io.BytesIO()  # torch.save to a name would write that name into the file
    torch.save({**header, "state": state}, buffer)
    write_bytes(path, buffer.getvalue(), durable)
