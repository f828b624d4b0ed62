"""What a reader of a checkpoint format hands over, and the small checks that readers share.

A format is one function ``read(path, content) -> Found | None``, registered by name
(``mechint.checkpoint_formats``):

- `path`: the file, or the directory that was named. A reader may look at plain files beside it (a
  JSON configuration); it never unpickles and never evaluates what it finds.
- `content`: what the file holds, read once and safely: the object of
  ``torch.load(weights_only=True)``, a `SafeTensors`, or None for a directory.
- It returns None when the content is not its own, `Found` when it is, and raises CheckpointError
  when it is its own but damaged or of a kind it does not serve.

Third parties are asked first, then the built-in formats in the order of ``mechint/registry.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from mechint.config import Settings
from mechint.errors import CheckpointError


class SafeTensors(dict[str, Tensor]):
    """The tensors of a safetensors file by name; `metadata` is its header's text → text."""

    def __init__(self, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = dict(metadata)


@dataclass(frozen=True)
class Found:
    """The contents of one checkpoint in mechint's terms.

    config: of the architecture (ModelConfig or a student's); weights: in the names and shapes of
    that architecture; task, parameters: name and fields of the task where the file tells them;
    step: optimiser steps taken; metrics: name → number as recorded; seed: of the train/test split;
    train: the training configuration as JSON values; extra: whatever else is worth showing, as JSON
    values ("assumed": what the file does not say and the reader took for granted); series: step →
    function that gives the weights at that step, for a file that holds several; model: a finished
    module in place of weights, for a model that is none of mechint's architectures.
    """

    config: Any
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    task: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    train: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    series: Mapping[int, Callable[[], Mapping[str, Tensor]]] = field(default_factory=dict)
    model: Any = None


def state_dict(content: Any) -> dict[str, Tensor] | None:
    """`content` as a state dict, name → tensor, or None when it is none."""
    if not isinstance(content, Mapping) or not content:
        return None
    if not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        return None
    return dict(content)


def settings(cls: type[Settings], values: Any, path: Path) -> Any:
    """A configuration from the values a file gives; CheckpointError when they are not fit."""
    try:
        return cls.from_dict(values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: its configuration is not usable: {error}") from error


def json_beside(path: Path) -> Any:
    """The JSON in `path`, or None when there is no such file; CheckpointError when it is
    damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON: {error}") from error


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a foreign configuration that are JSON values, for showing."""
    return {
        str(name): value
        for name, value in values.items()
        if value is None or isinstance(value, bool | int | float | str)
    }


def record(content: Mapping[str, Any]) -> tuple[int | None, dict[str, float]]:
    """Step and last losses of a training file that keeps them under the field's usual names."""
    step = next(
        (
            number
            for name in ("step", "epoch", "iter_num", "iteration")
            if (number := _number(content.get(name))) is not None
        ),
        None,
    )
    metrics = {}
    for name in ("train_loss", "test_loss", "val_loss", "best_val_loss"):
        history = content.get(name.replace("loss", "losses"))
        number = _number(
            content.get(name, history[-1] if isinstance(history, list) and history else None)
        )
        if number is not None:
            metrics[name] = number
    return None if step is None else int(step), metrics


def history(content: Any) -> dict[int, dict[str, Tensor]]:
    """Step → state dict, ascending, of a training file that keeps several in one list and their
    steps in another.
    """
    if not isinstance(content, Mapping):
        return {}
    for states, steps in (("state_dicts", "epochs"), ("checkpoints", "checkpoint_epochs")):
        pairs = zip(content.get(steps) or (), content.get(states) or (), strict=False)
        found = {
            int(step): state for step, value in pairs if (state := state_dict(value)) is not None
        }
        if found:
            return dict(sorted(found.items()))
    return {}


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
