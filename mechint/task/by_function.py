"""Tasks that a function of their inputs answers, made by `Task.of`; all else is derived."""

# rows are of any length, and fields are made of names
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import ParameterError
from mechint.groups.finite import group_of
from mechint.registry import TASKS, reduced
from mechint.task.batch import IGNORE, MAX_SEED, Output, Vocabulary, check_fits, rng
from mechint.task.families import FiniteTask
from mechint.task.truth import Chance, Control, Program, Step, Symmetry

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
        rows = zip(*(one.tolist() for one in values or tokens.unbind(1)), strict=True)
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
    sizes = tuple(given) if all(isinstance(one, int) for one in given) else ()
    if not given or min(sizes, default=1) < 1:
        raise ParameterError(f"Task.of: inputs={inputs!r}: expected sizes, or rows of tokens")
    check_fits(name, math.prod(sizes) if sizes else len(given), 1 + len(sizes or given[0]), 1)
    rows = tuple(itertools.product(*map(range, sizes)) if sizes else map(tuple, given))
    values: list[Any] = [one for row in rows for one in row]
    whole = all(isinstance(one, int) and one >= 0 for one in values)
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
    told = {
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
        "FunctionTask", fields, bases=(FunctionTask,), namespace=told, frozen=True
    )()


SHUFFLED = "shuffled: the answers permuted over the inputs"


def operand_names(function: Callable[..., Any], n: int) -> tuple[str, ...]:
    """Names of the first n arguments of a function, numbered where it has fewer.

    >>> operand_names(lambda a, b: a + b, 2), operand_names(max, 2)
    (('a', 'b'), ('x0', 'x1'))
    """
    names = list[str]()
    with contextlib.suppress(ValueError):  # of a function without a signature, such as max
        found = inspect.signature(function).parameters.values()
        names = [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD][:n]
    return tuple(names if len(names) == n else (f"x{i}" for i in range(n)))
