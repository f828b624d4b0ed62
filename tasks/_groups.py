"""The product in a finite group: modular addition where the group is cyclic, representation theory
where it is not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mechint.config import setting
from mechint.groups import finite
from mechint.groups.finite import FiniteGroup
from mechint.task import Output, Symmetry
from mechint.tasks.two_operands import TwoOperandTask


@dataclass(frozen=True)
class Groups(TwoOperandTask):
    """The product x·y in a finite group: cyclic, dihedral, symmetric, alternating, a direct
    product, or a given table.

    `group` names it: C113, D7, S5, A5, S3xC4, or blocks (36 block-diagonal permutations, S3×S3).
    Element i is token i and class i; the order of the elements is that of the constructors of
    `FiniteGroup`, permutations act right to left.

    >>> task = Groups(group="S3")
    >>> task.text([1, 3, 6]), task.label_inputs(torch.tensor([[1, 3, 6]]))[0, -1].tolist()
    ('021 · 120 =', [5])
    """

    name: ClassVar[str] = "groups"
    symbol: ClassVar[str] = "·"
    topic: ClassVar[str] = "groups"
    source: ClassVar[str] = (
        "Chughtai et al. 2023, A Toy Model of Universality, Sec. 3; Power et al. 2022"
    )
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 50_000,
        "lr": 1e-3,
        "weight_decay": 1.0,
        "betas": (0.9, 0.98),
        "warmup": 10,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.group": "D18",
            "task.train_fraction": 0.8,
            "model.d_model": 64,
            "train.steps": 3000,
            "train.lr": 5e-3,
            "train.weight_decay": 1.5,
            "train.stop_accuracy": 0.99,
        },
        "grokking": {"task.group": "S5", "train.lr": 2e-3, "train.grokfast": "ema"},
        "paper": {"task.group": "S5", "train.steps": 50_000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 97.7–100% by step 3000, seeds 4–11; at least 99% in 7 of them"
    }

    group: str = setting("S5", "C<n>, D<n>, S<n>, A<n>, blocks, or a product of such, as S3xC4")
    table: tuple[tuple[int, ...], ...] | None = setting(
        None, "a multiplication table in place of the named group", low=0, high=1023
    )
    train_fraction: float = setting(0.4, "share of the pairs that is trained on", low=0, high=1)

    @property
    def title(self) -> str:
        """Operation and group: "Products in S5"; of a table, where its elements have the orders of
        those of the named group.
        """
        if self.table is not None:
            groups = (finite.parse(self.group), self.finite_group)
            stated, given = (np.sort(group.element_orders).tolist() for group in groups)
            if stated != given:
                return f"Products in a group of order {self.n_values}"
        return f"Products in {self.group}"

    @cached_property
    def finite_group(self) -> FiniteGroup:
        """The group itself; made on construction, where the number of pairs is checked, so that
        what is not a group is refused at once.
        """
        return finite.parse(self.group) if self.table is None else FiniteGroup(self.table)

    @property
    def n_values(self) -> int:
        return self.finite_group.order

    @property
    def value_names(self) -> Sequence[str]:
        return self.finite_group.names

    def _answers(self) -> Tensor:
        return torch.tensor(self.finite_group.table)[..., None]

    @property
    def _is_addition(self) -> bool:  # type: ignore[override]
        return self.table is None and re.fullmatch(r"C\d+", self.group) is not None

    def plain(self, x: int, y: int) -> list[int]:
        if self.table is not None:
            return [self.table[x][y]]
        names = list(self.value_names)
        factors = re.split("[x×]", self.group.replace("blocks", "S3xS3"))
        parts = zip(factors, names[x].split(","), names[y].split(","), strict=True)
        return [
            names.index(
                ",".join(_product(factor[0], int(factor[1:]), a, b) for factor, a, b in parts)
            )
        ]

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("answer", self.n_values, self.finite_group, self.finite_group.names),)

    @property
    def symmetry(self) -> Symmetry:
        return Symmetry(self.finite_group, tuple(range(self.n_values)))

    def tables(self) -> dict[str, Any]:
        return {
            **super().tables(),
            "elements": list(self.value_names),
            "product": self.finite_group.table.tolist(),
        }


def _product(kind: str, n: int, a: str, b: str) -> str:
    """The name of a·b from the names of two elements of the cyclic, dihedral, symmetric or
    alternating group.
    """
    if kind == "C":
        return str((int(a) + int(b)) % n)
    if kind == "D":
        turns = int(a.strip("rs")) + int(b.strip("rs")) * (-1 if a.endswith("s") else 1)
        return f"r{turns % n}" + "s" * (a.endswith("s") != b.endswith("s"))
    return "".join(a[int(image)] for image in b)
