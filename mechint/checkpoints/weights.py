"""The weights of a parsed checkpoint: whether they are what its configuration says, and numbers.

Everything is compared before a model is built, so that a file of a few kilobytes cannot ask for one
of a few gigabytes.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from mechint.checkpoints.reader import ParsedCheckpoint, StateDict
from mechint.config import ModelConfig, Settings
from mechint.errors import CheckpointError, ParameterError
from mechint.models import build, parameter_shapes

NUMBERS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
NEVER = -100.0
"""Bias of a class that the file does not have; nats."""

MAX_DEPTH = 4096
"""Blocks passed through, repeated ones counted."""


def build_model(path: Path, parsed: ParsedCheckpoint) -> Any:
    """A model of the parsed configuration with the parsed weights, in float64 where they are.

    Raises:
        CheckpointError: a weight is missing, of another shape or type, or not finite.
    """
    check_weights(path, parsed.config, parsed.weights)
    model = build(parsed.config, seed=None if isinstance(parsed.config, ModelConfig) else 0)
    numbers = (value for value in parsed.weights.values() if value.is_floating_point())
    if {value.dtype for value in numbers} == {torch.float64}:
        model = model.double()
    try:
        model.load_weights(parsed.weights)
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    return model


def check_weights(path: Path, config: Settings, weights: StateDict) -> None:
    """CheckpointError where `weights` are not the parameters of a model of `config`, of
    floating-point type, and finite.
    """
    if isinstance(config, ModelConfig) and (
        config.n_layers > len(weights) or config.depth > MAX_DEPTH
    ):
        raise CheckpointError(
            f"{path}: its configuration speaks of {config.depth:,} blocks, its {len(weights):,} "
            f"tensors of fewer (at most {MAX_DEPTH:,} are served)"
        )
    check_shapes(
        path,
        parameter_shapes(config),
        weights,
        holder="state dict ",
        advice="; the model diverged, so open an earlier checkpoint",
    )


def check_shapes(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    tensors: Mapping[str, Tensor],
    holder: str = "",
    advice: str = "",
) -> None:
    """CheckpointError where one of `shapes` is not among `tensors`, or not of that shape, of
    floating-point type, and finite.

    holder: what lacks a tensor, in words; advice: what to do about values that are not finite.
    """
    for name, shape in shapes.items():
        value = tensors.get(name)
        if value is None:
            raise CheckpointError(f"{path}: {holder}lacks {name}, shape {shape}")
        if tuple(value.shape) != tuple(shape):
            raise CheckpointError(
                f"{path}: {name}: got shape {tuple(value.shape)}, expected {shape}"
            )
        if value.dtype not in NUMBERS:
            kind = str(value.dtype).removeprefix("torch.")
            raise CheckpointError(
                f"{path}: {name} holds {kind} numbers, expected floating-point ones"
            )
        least, most = torch.aminmax(value) if value.numel() else (value, value)
        if not bool(torch.isfinite(least).all() and torch.isfinite(most).all()):
            wrong = int((~torch.isfinite(value)).sum())
            raise CheckpointError(
                f"{path}: {name} holds {wrong:,} of {value.numel():,} values that are not "
                f"finite{advice}"
            )


def fill_zeros(config: ModelConfig, weights: dict[str, Tensor]) -> list[str]:
    """Add zeros for positions and biases that `weights` lack; the names of what was added."""
    shapes = parameter_shapes(config)
    missing = [
        name
        for name in shapes
        if name not in weights and re.search(r"\.b(_\w+)?$|^pos_embed\.W_pos$", name)
    ]
    for name in missing:
        weights[name] = weights["embed.W_E"].new_zeros(shapes[name])
    return missing


def override(path: Path, parsed: ParsedCheckpoint, changes: Mapping[str, Any]) -> ParsedCheckpoint:
    """`parsed` with `changes` to its model's configuration, which are then assumed no longer.

    Raises:
        CheckpointError: a model that brings its own configuration.
        UnknownNameError: no such field of the model; ParameterError: a value out of range.
    """
    if not changes:
        return parsed
    if not isinstance(parsed.config, Settings):
        raise CheckpointError(
            f"{path}: brings its own configuration, so {', '.join(changes)} cannot be set"
        )
    values = parsed.config.to_dict() | dict(changes)
    if "n_heads" in changes and "d_head" not in changes and isinstance(parsed.config, ModelConfig):
        width, n_heads = parsed.config.n_heads * (parsed.config.d_head or 0), changes["n_heads"]
        if not isinstance(n_heads, int) or n_heads < 1 or width % n_heads:
            raise ParameterError(f"model: n_heads={n_heads!r}: expected a divisor of {width}")
        values["d_head"] = width // n_heads
    if "d_vocab_out" in changes:
        values["output_sizes"] = None
    config = type(parsed.config).from_dict(values)
    weights = parsed.reshape(config) if parsed.reshape is not None else parsed.weights
    return dataclasses.replace(
        parsed,
        config=config,
        weights=_with_classes(weights, config) if "d_vocab_out" in changes else weights,
        assumed={name: item for name, item in parsed.assumed.items() if name not in changes},
        extra={**parsed.extra, "set": dict(changes)},
    )


def _with_classes(weights: StateDict, config: Settings) -> dict[str, Tensor]:
    """`weights` with the classes of `config`: those past the file's are never answered, since their
    bias is `NEVER`; those past the configuration's are left out.
    """
    classes, unembed = getattr(config, "d_vocab_out", 0), weights.get("unembed.W_U")
    if unembed is None or unembed.dim() != 2:
        return dict(weights)
    changed = dict(weights)
    bias = weights.get("unembed.b_U", unembed.new_zeros(unembed.shape[1]))
    more = classes - unembed.shape[1]  # below zero F.pad cuts off
    changed["unembed.W_U"] = F.pad(unembed, (0, more))
    changed["unembed.b_U"] = F.pad(bias, (0, more), value=NEVER)
    return changed
