"""The kinds of tasks: those whose inputs can be enumerated, those drawn for ever, and those that a
function of their inputs answers (`Task.of`).
"""

# rows are of any length, and fields are made of names
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import abc
import contextlib
import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int, Int8
from torch import Tensor

from mechint.config import setting
from mechint.errors import ParameterError
from mechint.groups.finite import group_of
from mechint.registry import TASKS, reduced
from mechint.task.base import Task
from mechint.task.batch import (
    IGNORE,
    MAX_SEED,
    SPLITS,
    Batch,
    Output,
    Vocabulary,
    check_fits,
    epochs,
    rng,
)
from mechint.task.truth import Chance, Control, Program, Step, Symmetry


class FiniteTask(Task):
    """A task whose inputs can be enumerated.

    A family defines `inputs` (every input once, in the order of `grid`), `label_inputs` (targets of
    inputs) and `fractions` (share of train and of validation; the rest is test). `is_sample`: the
    inputs are but some of those that are meant, as prompts in a file are, so that what is fitted on
    some of them is judged on others (`mechint.task.sides`).
    """

    is_sample: ClassVar[bool] = False

    @abc.abstractmethod
    def inputs(self) -> Int[Tensor, "n pos"]:
        """Every input once, (n, pos) int64; reshaped to `grid`, operand k is axis k."""

    @abc.abstractmethod
    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, output) of tokens (batch, pos)."""

    def target_kinds(self, tokens: Int[Tensor, "batch pos"]) -> Int8[Tensor, "batch pos"] | None:
        """(batch, pos) int8, the `TargetKind` of each target; None where every one is an answer."""
        return None

    @property
    @abc.abstractmethod
    def grid(self) -> tuple[int, ...]:
        """Shape of the input grid; its product is the number of inputs."""

    @property
    @abc.abstractmethod
    def fractions(self) -> tuple[float, float]:
        """Share of the inputs in train and in validation."""

    @cached_property
    def _all(self) -> Batch:
        n = math.prod(self.grid)
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
        return self.batch_of(self.inputs())

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        return Batch(tokens, self.label_inputs(tokens), kinds=self.target_kinds(tokens))

    def examples(self) -> Batch:
        """All inputs with their labels, in grid order."""
        return self._all

    def split(self, seed: int) -> dict[str, Int[Tensor, " _index"]]:
        """A random partition of the inputs: split → indices into `examples()`, ascending."""
        n = len(self._all)
        order = torch.as_tensor(rng("split", seed).permutation(n))
        a = round(self.fractions[0] * n)
        b = a + round(self.fractions[1] * n)
        if not 0 < a <= n:
            raise ParameterError(
                f"{self.name}: a train fraction of {self.fractions[0]} of {n} inputs leaves "
                f"{a} to train on"
            )
        return {
            name: part.sort().values
            for name, part in zip(SPLITS, (order[:a], order[a:b], order[b:]), strict=True)
        }

    @property
    def probe_split(self) -> str:
        """Probes look at every input, whatever a model was trained on."""
        return "all"

    def sample(
        self, n: int, seed: int, split: str = "all", *, split_seed: int | None = None
    ) -> Batch:
        """`n` inputs drawn with replacement, from all inputs ("all") or from a part of the
        partition of seed `split_seed`, which is `seed` when None.

        Raises:
            ParameterError: the split is empty, or `n` examples do not fit in memory.

        >>> import tasks
        >>> task = tasks.modular_arithmetic(p=7)
        >>> held_out = task.examples()[task.split(0)["test"]].tokens.tolist()
        >>> drawn = task.sample(50, seed=8, split="test", split_seed=0).tokens.tolist()
        >>> all(row in held_out for row in drawn)
        True
        """
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
        index = torch.arange(len(self._all))
        if split != "all":
            index = self.split(seed if split_seed is None else split_seed)[split]
        self._check_split(split, len(index))
        return self._all[index[torch.as_tensor(rng("sample", seed).integers(0, len(index), n))]]

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        index = self.split(seed)[split]
        self._check_split(split, len(index))
        return epochs(self._all[index], seed, batch_size, start)

    def _check_split(self, split: str, n: int) -> None:
        if not n:
            share = (*self.fractions, 1 - sum(self.fractions))[SPLITS.index(split)]
            raise ParameterError(
                f"{self.name}: its {split} split is empty, a share of {share:g}; expected "
                "some of the inputs: set train_fraction and validation_fraction"
            )


class GeneratedTask(Task):
    """A task whose inputs are drawn for ever.

    A family defines `generate(n, split, generator)`, vectorized; block i of a stream depends on
    (split, seed, i) alone, so that any worker can make any block.
    """

    block: ClassVar[int] = 4096

    @abc.abstractmethod
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        """`n` examples of `split`; never a held-out pattern in "train"."""

    def sample(
        self, n: int, seed: int, split: str = "test", *, split_seed: int | None = None
    ) -> Batch:
        check_fits(self.name, n, self.n_ctx, len(self.outputs))
        return self.generate(n, split, rng("sample", self.name, split, seed))

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        if batch_size is None:
            raise ParameterError(
                f"train: batch_size=none: {self.name} is generated without end; expected a number"
            )
        per_block = max(1, self.block // batch_size)
        step = start
        while True:
            block = self.generate(
                per_block * batch_size,
                split,
                rng("stream", self.name, split, seed, step // per_block),
            )
            for i in range(step % per_block, per_block):
                yield block[i * batch_size : (i + 1) * batch_size]
                step += 1


# --- answered by a function -----------------------------------------------------------------------
FEW = 100
"""Inputs below which a model is trained on all of them."""


class FunctionTask(FiniteTask):
    """Inputs that a function answers; `function_task` gives a class its rows and right answers.

    rows: the arguments of the function, in the order of the grid. operands: their names, where each
    has values of its own; then "=" follows them.
    """

    source: ClassVar[str] = "a function of its inputs"
    model_defaults: ClassVar[Mapping[str, Any]] = {"n_layers": 1, "act_fn": "relu"}
    function: ClassVar[Callable[..., int]]
    rows: ClassVar[tuple[tuple[int, ...], ...]]
    right: ClassVar[tuple[int, ...]]
    operands: ClassVar[tuple[str, ...]]
    train_fraction: float
    labels: str
    label_seed: int

    @property
    def fractions(self) -> tuple[float, float]:
        return self.train_fraction, 0.0

    @cached_property
    def chance(self) -> Mapping[str, Chance]:  # type: ignore[override]
        return {"answer": Chance.of(torch.tensor(self.right))}

    @property
    def controls(self) -> tuple[Control, ...]:
        said = "the answers permuted over the inputs: nothing to generalize"
        return (*super().controls, Control("shuffled", said, {"labels": "shuffled"}))

    @cached_property
    def _answers(self) -> dict[tuple[int, ...], int]:
        """Row → its answer as labeled, shuffled or not."""
        order = np.arange(len(self.right))
        if self.labels == "shuffled":
            order = rng("labels", self.name, self.label_seed).permutation(order)
        return dict(zip(self.rows, np.array(self.right)[order].tolist(), strict=True))

    def inputs(self) -> Int[Tensor, "n pos"]:
        rows, equals = torch.tensor(self.rows), [len(self.vocabulary) - 1] * bool(self.operands)
        return torch.cat([rows, torch.tensor(equals).long().expand(len(rows), -1)], 1)

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        targets = tokens.new_full((*tokens.shape, 1), IGNORE)
        targets[:, -1, 0] = self._answer(tokens, *tokens[:, : len(self.rows[0])].unbind(1))
        return targets

    def _answer(self, tokens: Tensor, *values: Tensor) -> Int[Tensor, " batch"]:
        """The answers to operands (batch,), or to rows of tokens."""
        rows = zip(*(column.tolist() for column in values or tokens.unbind(1)), strict=True)
        return tokens.new_tensor([self._answers[row] for row in rows])

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        row = tuple(tokens)[: len(self.rows[0])]
        true = self.labels == "true"
        answer = int(type(self).function(*row)) if true else self._answers[row]
        return [[IGNORE]] * (self.n_ctx - 1) + [[answer]]

    @cached_property
    def programs(self) -> Mapping[str, Program]:  # type: ignore[override]
        """The operands, where each has values of its own, and the answer."""
        sizes = zip(self.operands, self.grid, strict=True) if self.operands else ()
        steps = [
            Step(name, size, partial(_operand, i), description=f"operand {i}", positions=(i,))
            for i, (name, size) in enumerate(sizes)
        ]
        n, said = self.outputs[0].n_classes, "what the function gives"
        steps.append(Step("answer", n, self._answer, self.operands, said))
        return {"function": Program("function", tuple(steps), (("answer",),))}

    @property
    def symmetry(self) -> Symmetry | None:
        """The group of which the answers are products, of one operand or its inverse, if any."""
        group = self.outputs[0].group
        if group is None or self.labels != "true":
            return None
        return Symmetry(group, tuple(range(group.order)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced(TASKS, self) or super().__reduce_ex__(protocol)


def _operand(place: int, tokens: Tensor) -> Tensor:
    return tokens[:, place]


def function_task(
    inputs: Sequence[int] | Sequence[Sequence[int]], answer: Callable[..., int], name: str
) -> FunctionTask:
    """The task of `Task.of`."""
    given: list[Any] = list(inputs)
    sizes = tuple(given) if all(isinstance(size, int) for size in given) else ()
    if not given or min(sizes, default=1) < 1:
        raise ParameterError(f"Task.of: inputs={inputs!r}: expected sizes, or rows of tokens")
    check_fits(name, math.prod(sizes) if sizes else len(given), 1 + len(sizes or given[0]), 1)
    rows = tuple(itertools.product(*map(range, sizes)) if sizes else map(tuple, given))
    values: list[Any] = [value for row in rows for value in row]
    whole = all(isinstance(value, int) and value >= 0 for value in values)
    if not whole or len({len(row) for row in rows}) > 1 or len(set(rows)) < len(rows):
        raise ParameterError("Task.of: inputs: expected distinct rows of tokens, of one length")
    right = list[int]()
    for row in rows:
        try:
            value: Any = answer(*row)
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            raise ParameterError(f"Task.of: answer{row}: {said}") from error
        if not isinstance(value, int | np.integer | np.bool_) or value < 0:
            raise ParameterError(f"Task.of: answer{row}: got {value!r}; expected a number from 0")
        right.append(int(value))
    n = max(right) + 1
    group = group_of(np.reshape(right, sizes)) if sizes == (n, n) else None
    tokens = map(str, range(max(map(max, rows)) + 1))
    share = 1.0 if len(rows) < FEW else 0.7
    trained = "share of the inputs to train on"
    fields: list[Any] = [
        ("train_fraction", float, setting(share, trained, low=0, high=1)),
        ("labels", str, setting("true", SHUFFLED, choices=("true", "shuffled"))),
        ("label_seed", int, setting(0, "seed of the shuffle", low=0, high=MAX_SEED)),
    ]
    namespace = {
        "__module__": answer.__module__,
        "__doc__": inspect.getdoc(answer) or "Inputs that a function answers.",
        "name": name,
        "function": staticmethod(answer),
        "rows": rows,
        "right": tuple(right),
        "operands": operand_names(answer, len(sizes)),
        "grid": sizes or (len(rows),),
        "n_ctx": len(rows[0]) + bool(sizes),
        "vocabulary": Vocabulary((*tokens, *["="] * bool(sizes))),
        "outputs": (Output("answer", n, group),),
    }
    return dataclasses.make_dataclass(
        "FunctionTask", fields, bases=(FunctionTask,), namespace=namespace, frozen=True
    )()


SHUFFLED = "shuffled: the answers permuted over the inputs"


def operand_names(function: Callable[..., Any], n: int) -> tuple[str, ...]:
    """Names of the first n arguments of a function, numbered where it has fewer.

    >>> operand_names(lambda a, b: a + b, 2), operand_names(max, 2)
    (('a', 'b'), ('x0', 'x1'))
    """
    names = list[str]()
    with contextlib.suppress(ValueError):  # of a function without a signature, such as max
        arguments = inspect.signature(function).parameters.values()
        names = [
            argument.name
            for argument in arguments
            if argument.kind is argument.POSITIONAL_OR_KEYWORD
        ][:n]
    return tuple(names if len(names) == n else (f"x{i}" for i in range(n)))
