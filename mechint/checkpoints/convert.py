"""Writing an opened checkpoint in another format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.formats.native import save_checkpoint
from mechint.checkpoints.open import load_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.files import replacing


def convert(
    source: str | Path,
    target: str | Path,
    format: str | None = None,
    task: str | None = None,
    parameters: Mapping[str, Any] | None = None,
) -> str:
    """Write the checkpoint at `source` in another format; returns the name of the format written.

    Args:
        target: ends in .safetensors for "safetensors", else "mechint" unless `format` says
            "transformer-lens": the bare state dict that TransformerLens's HookedTransformer loads
            (without its buffers).
        task, parameters: as for `load_checkpoint`; the file written then names the task.

    Raises:
        CheckpointError: `source` cannot be read, or the format cannot express the model.
        RunError: `target` cannot be written.
    """
    target = Path(target)
    natural = "safetensors" if target.suffix == ".safetensors" else "mechint"
    format = format or natural
    if format not in ("mechint", "safetensors", "transformer-lens") or (
        format != "transformer-lens" and format != natural
    ):
        raise CheckpointError(
            f"{target}: cannot be written as {format}; expected mechint (.pt), safetensors "
            "(.safetensors) or transformer-lens (.pt)"
        )
    opened = load_checkpoint(source, task=task, parameters=parameters)
    if not hasattr(opened.model, "weights"):
        raise CheckpointError(
            f"{opened.path}: a {opened.format} model is none of mechint's architectures and "
            "stays in its own format"
        )
    if format == "transformer-lens":
        _save_transformer_lens(target, opened)
    else:
        known = {
            "task": opened.task,
            "step": opened.step,
            "metrics": opened.metrics,
            "train": opened.train,
            "seed": opened.seed,
        }
        save_checkpoint(target, config=opened.config, weights=opened.model.weights(), **known)
    return format


def _save_transformer_lens(target: Path, opened: Checkpoint) -> None:
    config = opened.config
    if not isinstance(config, ModelConfig):
        raise CheckpointError(
            f"{opened.path}: {config.label()} is no transformer; TransformerLens has no such model"
        )
    beyond = {
        "n_loops": config.n_loops > 1,
        "attention_rate": config.attention_rate < 1,
        "read_layers": config.read_layers is not None,
    }
    if any(beyond.values()):
        names = ", ".join(name for name, used in beyond.items() if used)
        raise CheckpointError(
            f"{opened.path}: uses {names}, which TransformerLens's HookedTransformer cannot express"
        )
    with replacing(target) as beside, beside.open("wb") as file:
        torch.save(opened.model.transformer_lens_state(), file)
