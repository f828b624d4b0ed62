"""Writing an opened checkpoint in another format."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.open import load_checkpoint
from mechint.checkpoints.save import save_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, RunError
from mechint.system.files import replacing

ENDINGS = {
    ".pt": ("mechint", "transformer-lens"),
    ".pth": ("mechint", "transformer-lens"),
    ".safetensors": ("safetensors",),
}
"""Ending of a file → what may be written to it, the first where nothing is asked for."""


def convert(
    source: str | Path,
    target: str | Path,
    format: str | None = None,
    task: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    model: Mapping[str, Any] | None = None,
    mapping: str | Path | Mapping[str, Any] | None = None,
    force: bool = False,
) -> str:
    """Write the checkpoint at `source` in another format; returns the name of the format written.

    Args:
        target: ends in .safetensors for "safetensors", in .pt or .pth for "mechint", or for
            "transformer-lens" where `format` says so: the bare state dict that TransformerLens's
            HookedTransformer loads (without its buffers). It has no place for the activation
            function, the direction and scale of attention, and epsilon; a warning lists them.
        task, parameters, model, mapping: as for `load_checkpoint`; the new file states them.
        force: replace a file that is there. `source` is never replaced.

    Raises:
        CheckpointError: `source` cannot be read, or the format cannot express the model.
        RunError: `target` is there already, or cannot be written.
    """
    target = Path(target)
    served = ENDINGS.get(target.suffix, ())
    format = format or next(iter(served), "")
    if format not in served:
        wanted = f" as {format}" if format else ""
        raise CheckpointError(
            f"{target}: cannot be written{wanted}; expected mechint (.pt), safetensors "
            "(.safetensors) or transformer-lens (.pt)"
        )
    check_target(Path(source), target, force)
    opened = load_checkpoint(source, task=task, parameters=parameters, model=model, mapping=mapping)
    if not hasattr(opened.model, "weights"):
        raise CheckpointError(
            f"{opened.path}: a {opened.format} model is not one of mechint's architectures and "
            "stays in its own format"
        )
    if format == "transformer-lens":
        _save_transformer_lens(target, opened)
        return format
    split = opened.split
    save_checkpoint(
        target,
        config=opened.config,
        weights=opened.model.weights(),
        task=opened.task,
        step=opened.step,
        metrics=opened.metrics,
        train=opened.train,
        seed=opened.seed,
        assumed=opened.assumed,
        split=None if split is None or split.rule == "mechint" else split.to_dict(),
    )
    return format


def check_target(source: Path, target: Path, force: bool) -> None:
    """RunError where writing `target` would replace `source`, or a file that is there and `force`
    does not say so.
    """
    try:
        if not target.exists():
            return
        same = source.exists() and target.samefile(source)
    except (OSError, ValueError):  # writing will say what is wrong
        return
    if same:
        raise RunError(f"{target}: is the file that is read; choose another name")
    if not force and target.is_file():
        raise RunError(
            f"{target}: is there already; choose another name, or replace it with --force"
        )


def _save_transformer_lens(target: Path, opened: Checkpoint) -> None:
    config = opened.config
    if not isinstance(config, ModelConfig):
        raise CheckpointError(
            f"{opened.path}: {config.label()} is not a transformer; TransformerLens has "
            "no such model"
        )
    used = {
        "n_loops": config.n_loops > 1,
        "attention_rate": config.attention_rate < 1,
        "read_layers": config.read_layers is not None,
    }
    if beyond := [name for name, is_used in used.items() if is_used]:
        raise CheckpointError(
            f"{opened.path}: uses {', '.join(beyond)}, which TransformerLens's HookedTransformer "
            "cannot express"
        )
    said: dict[str, Any] = {} if config.attn_only else {"act_fn": config.act_fn}
    said |= {"attention_dir": config.attention_dir, "attn_scale": config.scale}
    if config.normalization_type != "LN":  # whose weights show it
        said["normalization_type"] = config.normalization_type
    if config.normalization_type is not None:
        said["eps"] = config.eps
    if not config.embeds_positions:
        said |= {"positional_embedding_type": "rotary", "rotary_base": config.rotary_base}
    warnings.warn(
        f"{target}: a bare state dict does not hold "
        f"{', '.join(f'{name}={value}' for name, value in said.items())}; state them where it is "
        "opened",
        stacklevel=3,
    )
    with replacing(target) as beside, beside.open("wb") as file:
        torch.save(opened.model.transformer_lens_state(), file)
