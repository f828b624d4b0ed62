"""What a reader of a checkpoint format hands over, and the small checks that readers share.

A format is one function ``read(path, content) -> ParsedCheckpoint | None``, registered by name
(``mechint.checkpoint_formats``):

- `path`: the file, or the directory that was named. A reader may look at plain files beside it (a
  JSON or YAML configuration); it never unpickles and never evaluates what it finds.
- `content`: what the file holds, read once and safely: the object of
  ``torch.load(weights_only=True)``, a `SafeTensors`, or None for a directory.
- It returns None when the content is not its own, a `ParsedCheckpoint` when it is, and raises
  CheckpointError when it is its own but damaged or of a kind it does not serve.

Third parties are asked first, then the built-in formats in the order of ``mechint/registry.py``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.checkpoints.splits import SplitRule
from mechint.config import Settings
from mechint.errors import CheckpointError
from mechint.files import read_json, read_yaml

StateDict = Mapping[str, Tensor]

MAX_WRAPPERS = 8
"""Prefixes that are taken off a name; a hostile file may repeat one a million times."""


class SafeTensors(dict[str, Tensor]):
    """The tensors of a safetensors file by name; `metadata` is its header's text → text."""

    def __init__(self, tensors: StateDict, metadata: Mapping[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = dict(metadata)


class Assumption(NamedTuple):
    """A value that the file does not state, and why it was taken."""

    value: Any
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What a file says of a model besides its weights; the one list of these fields.

    step: optimizer steps taken; metrics: name → number as recorded; seed: of the train/test split,
    None where the file does not tell it; split: how the model's examples were divided, None where
    that is not known; train: the training configuration as JSON values; extra: whatever else is
    worth showing, as JSON values; assumed: name → what the file does not state and was taken for
    granted; series: step → function that reads the weights at that step, ascending.
    """

    step: int | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    split: SplitRule | None = None
    train: Mapping[str, Any] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    assumed: Mapping[str, Assumption] = field(default_factory=dict)
    series: Mapping[int, Callable[[], StateDict]] = field(default_factory=dict)

    def recorded(self) -> dict[str, Any]:
        """These fields by name, to hand on."""
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(Recorded)}


@dataclass(frozen=True, kw_only=True)
class ParsedCheckpoint(Recorded):
    """The contents of one checkpoint in mechint's terms.

    config: of the architecture (ModelConfig or a student's); weights: in the names and shapes of
    that architecture; task, parameters: name and fields of the task where the file tells them;
    reshape: the weights under another configuration, for a file whose tensors can be cut in
    several ways (how many heads); model: a finished module in place of weights, for a model that
    is not one of mechint's architectures.
    """

    config: Any
    weights: StateDict = field(default_factory=dict)
    task: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    reshape: Callable[[Any], StateDict] | None = None
    model: Any = None


def state_dict(content: Any) -> dict[str, Tensor] | None:
    """`content` as a state dict, name → tensor, or None when it is not one."""
    if not isinstance(content, Mapping) or not content:
        return None
    if not all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()
    ):
        return None
    return dict(content)


def unwrapped(state: StateDict, prefixes: Sequence[str]) -> dict[str, Tensor]:
    """`state` without what wrappers put before every name, in whatever order they did."""
    for _ in range(MAX_WRAPPERS):
        prefix = next((found for found in prefixes if all(n.startswith(found) for n in state)), "")
        if not prefix:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


class AskedFor(dict[str, Tensor]):
    """A state dict that remembers which of its tensors a reader took."""

    def __init__(self, tensors: StateDict) -> None:
        super().__init__(tensors)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def refuse_the_rest(self, path: Path) -> None:
        """CheckpointError where a tensor was left that would change the function: any but biases of
        zero, and the causal mask that a file keeps as ``attn.bias``.
        """
        for name, value in self.items():
            zero = name.endswith("bias") and not bool(value.any())
            if name not in self.asked and not zero and not _causal_mask(name, value):
                raise CheckpointError(
                    f"{path}: state dict has {name}, which mechint's HookedTransformer has no "
                    "place for"
                )


def _causal_mask(name: str, value: Tensor) -> bool:
    """Whether the tensor is the mask of machines without flash attention, or its lowest score."""
    if name.endswith("attn.masked_bias"):
        return value.numel() == 1
    causal = value.dim() == 4 and torch.equal(value.bool(), torch.ones_like(value).tril().bool())
    return name.endswith("attn.bias") and causal


def matrix(state: StateDict, name: str) -> Float[Tensor, "row column"]:
    """The tensor `name` of two dimensions; KeyError where it lacks, ValueError where it is not."""
    value = state[name]
    if value.dim() != 2:
        raise ValueError(f"{name} has shape {tuple(value.shape)}, expected a matrix")
    return value


def layer_count(state: StateDict, prefix: str = "blocks.") -> int:
    """How many layers the names ``blocks.0.… blocks.1.…`` speak of."""
    depth = prefix.count(".")
    return len({name.split(".")[depth] for name in state if name.startswith(prefix)})


def settings(cls: type[Settings], values: Any, path: Path) -> Any:
    """A configuration from the values a file gives; CheckpointError when they are not fit."""
    try:
        return cls.from_dict(values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: its configuration is not usable: {error}") from error


def read_sibling_json(path: Path) -> Any:
    """The JSON in `path`, or None when there is no such file; CheckpointError when it is
    damaged.
    """
    return read_json(path, error=CheckpointError)


def read_sibling_config(path: Path, *names: str) -> Mapping[str, Any] | None:
    """The first mapping in the JSON or YAML files `names` beside `path`, None where none is."""
    for name in names:
        place = path.with_name(name)
        read = read_json if place.suffix == ".json" else read_yaml
        given = read(place, error=CheckpointError)
        if isinstance(given, Mapping):
            return given
    return None


def plain_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a foreign configuration that are JSON values, for showing."""
    return {
        str(name): value
        for name, value in values.items()
        if value is None or isinstance(value, bool | int | float | str)
    }


def checked_seed(value: Any) -> int | None:
    """`value` as the seed of a split, None where it cannot be one."""
    usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63
    return value if usable else None


def training_metadata(content: Mapping[str, Any]) -> tuple[int | None, dict[str, float]]:
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


def saved_states(content: Any) -> dict[int, dict[str, Tensor]]:
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
