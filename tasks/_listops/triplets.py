"""The triplet experiments: one bracket of three operands, every triplet under every operation, a
fixed training set.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Int8
from torch import Tensor

from mechint.config import setting
from mechint.errors import UnknownNameError
from mechint.task import MAX_SEED, Batch, Chance, Control, FiniteTask, rng
from mechint.tasks._listops.algebra import ADDITIONS
from mechint.tasks._listops.expression import Bracket, Notation
from mechint.tasks._listops.task import ListOps
from mechint.tasks._listops.text import ExpressionTask


@dataclass(frozen=True)
class Triplets(ExpressionTask, FiniteTask):
    """ListOps on single triplets, ``s(%123)=6e``: all n³ under each operation, `excluded` triplets
    held out.

    Train: the other triplets, each under every operation, or `per_operation` of them drawn for
    each. Test: the held-out triplets under `test_operation`. Validation: the rest. At n = 10 the
    source's sets are SUM 900 (``operations=["ADD"]``), MAX+MED+SUM 2,700 (as it stands) and
    MAX+MED+SUM 900 (``per_operation=300``).

    >>> task = Triplets(n=10)
    >>> {name: len(index) for name, index in task.split(0).items()}, task.text(task.inputs()[2123])
    ({'train': 2700, 'validation': 200, 'test': 100}, 's(%123)=6e')
    """

    name: ClassVar[str] = "listops-triplets"
    topic: ClassVar[str] = "languages"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, App. C"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = ListOps.model_defaults
    train_defaults: ClassVar[Mapping[str, Any]] = ListOps.train_defaults
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.n": 5,
            "task.test_operation": "MED",
            "model.d_model": 32,
            "train.steps": 600,
            "train.lr": 3e-3,
        },
        "paper": {"task.n": 10, "train.steps": 6000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test accuracy 100.0% by step 600, seed 0"
    }

    n: int = setting(10, "modulus", low=2, high=64)
    operations: tuple[str, ...] = setting(("MAX", "MED", "ADD"), "operations mixed")
    test_operation: str | None = setting(
        None, "operation of the test; ADD, or the last where it is not mixed in, when none"
    )
    excluded: int | None = setting(
        None,
        "triplets held out; 100, or a tenth of all where that is less, when none",
        low=1,
        high=64**3,
    )
    per_operation: int | None = setting(
        None,
        "training triplets of each operation; all that are not held out when none",
        low=1,
        high=64**3,
    )
    addition: str = setting(
        "sum",
        "table of ADD: the sum, the sum shuffled symmetrically, or random answers",
        choices=ADDITIONS,
    )
    answers: str = setting(
        "true",
        "random: each answer a fixed random function of operation and operands",
        choices=("true", "random"),
    )
    table_seed: int = setting(
        0, "seed of shuffled and random tables and answers", low=0, high=MAX_SEED
    )
    loss_on: str = setting(
        "answer", "characters predicted: after the =, or all", choices=("answer", "all")
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require("operations", self.operations, "at least one")
        triplets = self.n**3
        if self.excluded is None:
            object.__setattr__(self, "excluded", max(1, min(100, triplets // 10)))
        left = triplets - self.held_out
        self.require("excluded", left > 0, f"1 to {triplets - 1}, of {triplets} triplets")
        self.require(
            "per_operation",
            (self.per_operation or 0) <= left,
            f"1 to {left}, what is left of {triplets} triplets",
        )
        if self.test_operation is None:
            object.__setattr__(
                self, "test_operation", "ADD" if "ADD" in self.operations else self.operations[-1]
            )
        if self.test_operation not in self.listops.mixture:
            raise UnknownNameError.of(
                "operation of the mixture", str(self.test_operation), self.operations
            )

    @cached_property
    def listops(self) -> ListOps:
        """The same expressions as a stream."""
        return ListOps(
            n=self.n,
            operations=self.operations,
            operands=3,
            min_operands=3,
            depth=1,
            chain_of_thought=False,
            addition=self.addition,
            answers=self.answers,
            table_seed=self.table_seed,
            loss_on=self.loss_on,
        )

    # --- how texts are written --------------------------------------------------------------------
    depth: ClassVar[int] = 1  # type: ignore[assignment]
    fewest_operands: ClassVar[int] = 3  # type: ignore[assignment]
    chain_of_thought: ClassVar[bool] = False  # type: ignore[assignment]

    @property
    def notation(self) -> Notation:  # type: ignore[override]
        return self.listops.notation

    @property
    def drawn(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.listops.drawn

    @property
    def n_ctx(self) -> int:
        return self.listops.n_ctx

    @property
    def controls(self) -> tuple[Control, ...]:
        return self.listops.controls

    # --- inputs and split -------------------------------------------------------------------------
    @property
    def held_out(self) -> int:
        """The number of triplets kept out of training."""
        return self.excluded or 0

    @property
    def grid(self) -> tuple[int, ...]:
        """(n, n, n), behind an axis of operations where there are several."""
        return (len(self.operations),) * (len(self.operations) > 1) + (self.n,) * 3

    @property
    def fractions(self) -> tuple[float, float]:
        train = (
            (self.per_operation or self.n**3 - self.held_out)
            * len(self.operations)
            / np.prod(self.grid)
        )
        return float(train), float(1 - train - self.held_out / np.prod(self.grid))

    def inputs(self) -> Int[Tensor, "n pos"]:
        notation = self.notation
        trees = [
            Bracket(notation.algebra.names.index(name), operands)
            for name in self.operations
            for operands in itertools.product(range(self.n), repeat=3)
        ]
        return self.written([notation.write(notation.texts(tree), False) for tree in trees])

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        return self.batch_of(tokens).targets

    def target_kinds(self, tokens: Int[Tensor, "batch pos"]) -> Int8[Tensor, "batch pos"] | None:
        return self.batch_of(tokens).kinds

    def split(self, seed: int) -> dict[str, Int[Tensor, " _index"]]:
        """Train, validation and test as the class says; the held-out triplets are drawn from
        `seed`.
        """
        generator, triplets = rng("triplets", seed), self.n**3
        order = generator.permutation(triplets)
        held_out, rest = order[: self.held_out], order[self.held_out :]
        part = np.full((len(self.operations), triplets), "validation", object)
        for row in part:
            row[generator.permutation(rest)[: self.per_operation]] = "train"
        part[self.operations.index(str(self.test_operation)), held_out] = "test"
        return {
            name: torch.from_numpy(np.flatnonzero(part.ravel() == name))
            for name in ("train", "validation", "test")
        }

    def score(
        self, predict: Callable[[Tensor, Tensor], Tensor], split: str, seed: int, n: int
    ) -> dict[str, Float[np.ndarray, " model"]]:
        """Accuracies (model,) of the character after the =: of `split`, and of the held-out
        triplets under each operation.
        """
        index, triplets = self.split(seed), self.n**3
        scores = {"accuracy": self.accuracy(predict, self._some(index[split], n, seed))}
        for place, name in enumerate(self.operations) if len(self.operations) > 1 else ():
            scores[f"accuracy.{name}"] = self.accuracy(
                predict, self._some(index["test"] % triplets + place * triplets, n, seed)
            )
        return scores

    def _some(self, index: Tensor, n: int, seed: int) -> Batch:
        """At most `n` of the examples at `index`, as a stream would hand them out."""
        chosen = self.examples()[
            index[torch.from_numpy(rng("some", seed).permutation(len(index))[:n])]
        ]
        return self.batch_of(chosen.tokens)

    @property
    def chance(self) -> Mapping[str, Chance]:
        """Of the best constant character over all those predicted, for all triplets under the
        test's operation; exact.
        """
        return {"token": Chance.of(self._tested.targets)}

    @property
    def answer_chance(self) -> Chance:
        """Of the best constant value, as `score` counts; exact."""
        return Chance.of(self.answers_of(self._tested.tokens))

    @property
    def _tested(self) -> Batch:
        place, triplets = self.operations.index(str(self.test_operation)), self.n**3
        return self.examples()[place * triplets : (place + 1) * triplets]

    def tables(self) -> dict[str, Any]:
        """Tables of operations that are not arithmetic, and the held-out triplets of seed 0."""
        triplets = self.examples().tokens[self.split(0)["test"]][:, 3:6].tolist()
        return {
            name: table for name, table in self.listops.tables().items() if name != "excluded"
        } | {"excluded of seed 0": triplets}
