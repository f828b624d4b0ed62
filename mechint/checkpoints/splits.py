"""Train and test splits of other projects, rebuilt from a seed.

All of them list the inputs in the order of the task's grid, permute the list, and train on its
first part, ``int(fraction * n)`` examples; the generator of the permutation is what differs.
Losses on the rebuilt parts agree with the published ones to all digits that float32 keeps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import ParameterError
from mechint.task import FiniteTask, Task


def _python_shuffle(n: int, seed: int) -> Tensor:
    order = list(range(n))
    random.Random(seed).shuffle(order)
    return torch.tensor(order, dtype=torch.int64)


def _torch_randperm(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _torch_randperm_or_sorted(n: int, seed: int) -> Tensor:
    return _torch_randperm(n, seed) if seed else torch.arange(n)


PERMUTATIONS: Mapping[str, Callable[[int, int], Tensor]] = {
    "python-shuffle": _python_shuffle,
    "torch-randperm": _torch_randperm,
    "torch-randperm-or-sorted": _torch_randperm_or_sorted,
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
    own = type(task).from_dict(parameters)
    same = own.fractions == task.fractions and own.grid == task.grid
    return rule if same else None
