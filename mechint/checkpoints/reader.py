"""The contract of a checkpoint reader, and the checks that readers share.

A format is one function ``read(path, content) -> ParsedCheckpoint | None``, registered by name
(entry points of the group ``mechint.checkpoint_formats``); one file with other names needs no code
but a table (`mechint.checkpoints.mapping`).

- `path`: the file, or the directory that was named. A reader may read plain files beside it (a
  JSON or YAML configuration); it never unpickles and never evaluates what it finds.
- `content`: the content of the file, read once and safely: the object of
  ``torch.load(weights_only=True)``, a `SafeTensors`, or None for a directory.
- It returns None when the content is of another format, a `ParsedCheckpoint` when it is its own,
  and raises CheckpointError when it is its own but damaged or of a kind it does not serve.

Readers of third parties are called first, then the built-in ones in their order.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import Settings
from mechint.errors import CheckpointError, ParameterError
from mechint.task import FiniteTask, Task

StateDict = Mapping[str, Tensor]

STATES = ("model", "state_dict", "model_state_dict", "model_state", "params", "ema", "state")
"""Names of the state dict in a training file."""

WRAPPERS = (
    "_orig_mod.",
    "module.",
    "_forward_module.",
    "model.",
    "net.",
    "network.",
    "transformer.",
)
MAX_WRAPPERS = 8
"""Prefixes that are taken off a name; a hostile file may repeat one a million times."""


class SafeTensors(dict[str, Tensor]):
    """The tensors of a safetensors file by name; `metadata` is its header's text → text."""

    def __init__(self, tensors: StateDict, metadata: Mapping[str, str]) -> None:
        super().__init__(tensors)
        self.metadata = dict(metadata)


# Other projects list the inputs in the order of the task's grid, permute the list, and train on
# its first part, int(fraction * n) examples; the generator of the permutation is what differs.
# Losses on the rebuilt parts agree with the published ones to all digits that float32 keeps.
def _python_shuffle(n: int, seed: int) -> Tensor:
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return torch.tensor(order, dtype=torch.int64)


def _torch_randperm(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


PERMUTATIONS: Mapping[str, Callable[[int, int], Tensor]] = {
    "python-shuffle": _python_shuffle,
    "torch-randperm": _torch_randperm,
    "torch-randperm-or-sorted": lambda n, seed: (
        _torch_randperm(n, seed) if seed else torch.arange(n)
    ),
}
"""Rule → permutation of n examples by a seed; the last leaves them in order for seed 0."""


@dataclass(frozen=True)
class SplitRule:
    """One way to divide a finite task's examples: `rule` is mechint's own or one of `PERMUTATIONS`.

    >>> SplitRule("torch-randperm", 0, 0.5).indices(6)["train"].tolist()
    [2, 3, 5]
    """

    rule: str
    seed: int
    fraction: float | None = None

    def indices(self, n: int) -> dict[str, Int[Tensor, " _index"]]:
        """Indices of train and test among `n` examples in grid order, ascending."""
        if self.rule not in PERMUTATIONS or self.fraction is None:
            raise ParameterError(f"split rule {self.rule!r}: expected one of {list(PERMUTATIONS)}")
        order = PERMUTATIONS[self.rule](n, self.seed)
        cut = int(self.fraction * n)
        return {"train": order[:cut].sort().values, "test": order[cut:].sort().values}

    def of(self, task: Task | None) -> dict[str, Int[Tensor, " _index"]] | None:
        """Split → indices into ``task.examples()``; None where the task is not a finite one."""
        if not isinstance(task, FiniteTask):
            return None
        if self.rule == "mechint":
            return task.split(self.seed)
        return self.indices(len(task.examples()))

    def to_dict(self) -> dict[str, Any]:
        return {"rule": self.rule, "seed": self.seed, "fraction": self.fraction}


def known_split(
    rule: SplitRule | None, name: str | None, parameters: Mapping[str, Any], task: Task | None
) -> SplitRule | None:
    """`rule`, where `task` has the examples of the task that the file names, in the same shares."""
    if rule is None or task is None or task.name != name or not isinstance(task, FiniteTask):
        return None
    of_file = type(task).from_dict(parameters)
    same = of_file.fractions == task.fractions and of_file.grid == task.grid
    return rule if same else None


class Assumption(NamedTuple):
    """A value that the file does not state, why it was taken, and whether it has to be asked for,
    as others would do as well.
    """

    value: Any
    why: str
    is_asked: bool = False

    def to_dict(self) -> dict[str, Any]:
        return {"value": self.value, "why": self.why}


@dataclass(frozen=True, kw_only=True)
class FileFacts:
    """Statements of a file about a model besides its weights; the one list of these fields.

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
        return {item.name: getattr(self, item.name) for item in dataclasses.fields(FileFacts)}


@dataclass(frozen=True, kw_only=True)
class ParsedCheckpoint(FileFacts):
    """The contents of one checkpoint in mechint's terms.

    config: of the architecture (ModelConfig or a student's); weights: in the names and shapes of
    that architecture; format: its name, where the reader serves several; task,
    parameters: name and fields of the task where the file tells them; reshape: the weights under
    another configuration, for a file whose tensors can be split in several ways (number of heads);
    model: a finished module in place of weights, for a model that is not one of mechint's
    architectures.
    """

    config: Any
    weights: StateDict = field(default_factory=dict)
    format: str | None = None
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


def find_state(content: Any) -> dict[str, Tensor] | None:
    """The state dict that `content` is or holds under a usual name, without wrappers' prefixes;
    None where there is none.
    """
    state = state_dict(content)
    if state is None and isinstance(content, Mapping):
        named = (state_dict(content.get(name)) for name in STATES)
        several = saved_states(content).values()  # a full run's file may hold nothing else
        state = next(
            (candidate for candidate in (*named, *reversed(several)) if candidate is not None), None
        )
    return None if state is None else unwrapped(state)


def unwrapped(state: StateDict) -> dict[str, Tensor]:
    """`state` without the prefixes that wrappers (compilation, data parallelism, Lightning,
    DeepSpeed, averaging) put before every name, and without their counter.

    >>> sorted(unwrapped({"n_averaged": 1, "module.net.a": 2, "module.net.b": 3}))
    ['a', 'b']
    """
    if "n_averaged" in state and len(state) > 1:
        state = {name: value for name, value in state.items() if name != "n_averaged"}
    for _ in range(MAX_WRAPPERS):
        prefix = next(
            (wrapper for wrapper in WRAPPERS if all(n.startswith(wrapper) for n in state)), ""
        )
        if not prefix:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return dict(state)


class TrackedStateDict(dict[str, Tensor]):
    """A state dict that records which of its tensors a reader took."""

    def __init__(self, tensors: StateDict) -> None:
        super().__init__(tensors)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.asked.add(name)
        return super().__getitem__(name)

    def refuse_the_rest(self, path: Path, reason: str) -> None:
        """CheckpointError where a tensor was left that would change the function: any but biases of
        zero, and the causal mask that a file keeps as ``attn.bias``.
        """
        left = [
            name
            for name, value in self.items()
            if name not in self.asked
            and not (name.endswith("bias") and not bool(value.any()))
            and not _causal_mask(name, value)
        ]
        if left:
            more = f" and {len(left) - 1} more" if len(left) > 1 else ""
            raise CheckpointError(f"{path}: has {left[0]}{more}, which {reason}")


def _causal_mask(name: str, value: Tensor) -> bool:
    """Return whether the tensor is a causal mask that a file keeps, or its lowest score."""
    if name.endswith("attn.masked_bias"):
        return value.numel() == 1
    causal = value.dim() == 4 and torch.equal(value.bool(), torch.ones_like(value).tril().bool())
    return name.endswith("attn.bias") and causal


def layer_count(state: StateDict) -> int:
    """Number of layers in the names ``blocks.0.… blocks.1.…``."""
    return len({name.split(".")[1] for name in state if name.startswith("blocks.")})


def settings(cls: type[Settings], values: Any, path: Path) -> Any:
    """A configuration from the values a file gives; CheckpointError when they are not fit."""
    try:
        return cls.from_dict(values)
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: its configuration is not usable: {error}") from error


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
    counts = (_number(content.get(name)) for name in ("step", "epoch", "iter_num", "iteration"))
    step = next((count for count in counts if count is not None), None)
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
        by_step = {
            int(step): state for step, value in pairs if (state := state_dict(value)) is not None
        }
        if by_step:
            return dict(sorted(by_step.items()))
    return {}


def _number(value: Any) -> float | None:
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
