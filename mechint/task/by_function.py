"""Tasks that a function of their inputs answers, made by `Task.of`; all else is derived."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from mechint.config import setting
from mechint.errors import ParameterError
from mechint.groups.finite import group_of
from mechint.registry import TASKS
from mechint.task.batch import IGNORE, MAX_SEED, Output, Vocabulary, check_fits, rng
from mechint.task.families import FiniteTask
from mechint.task.truth import Chance, Control, Program, Step, Symmetry

FEW = 100
"""Inputs below which a model is trained on all of them."""


@dataclass(frozen=True)
class FunctionTask(FiniteTask):
    """Inputs that a function answers."""

    source: ClassVar[str] = "a function of its inputs"
    model_defaults: ClassVar[Mapping[str, Any]] = {"n_layers": 1, "act_fn": "relu"}
    given: ClassVar[Sequence[Any]]
    function: ClassVar[Callable[..., int]]
    sizes: ClassVar[tuple[int, ...]]
    """How many values each operand has; () where rows of tokens are given."""
    rows: ClassVar[tuple[tuple[int, ...], ...]]
    """The arguments of the function, in the order of the grid."""
    right: ClassVar[tuple[int, ...]]
    """The true answer to each."""

    train_fraction: float | None = setting(
        None, f"share to train on; when none, 0.7, or all of fewer than {FEW}", low=0, high=1
    )
    labels: str = setting(
        "true", "shuffled: the answers permuted over the inputs", choices=("true", "shuffled")
    )
    label_seed: int = setting(0, "seed of the shuffle", low=0, high=MAX_SEED)

    @property
    def vocabulary(self) -> Vocabulary:
        highest = max(map(max, self.rows))
        return Vocabulary((*map(str, range(highest + 1)), *["="] * bool(self.sizes)))

    @property
    def n_ctx(self) -> int:
        return len(self.rows[0]) + bool(self.sizes)

    @cached_property
    def outputs(self) -> tuple[Output, ...]:  # type: ignore[override]
        group = None if self.symmetry is None else self.symmetry.group
        return (Output("answer", max(self.right) + 1, group),)

    @cached_property
    def chance(self) -> Mapping[str, Chance]:  # type: ignore[override]
        return {"answer": Chance.of(self.answers)}

    @property
    def grid(self) -> tuple[int, ...]:
        return self.sizes or (len(self.rows),)

    @property
    def fractions(self) -> tuple[float, float]:
        share = self.train_fraction
        return (1.0 if len(self.rows) < FEW else 0.7) if share is None else share, 0.0

    @cached_property
    def symmetry(self) -> Symmetry | None:  # type: ignore[override]
        """The group of which the answers are products, of one operand or its inverse, if any."""
        n = max(self.right) + 1
        if self.sizes != (n, n) or self.labels != "true":
            return None
        group = group_of(np.reshape(self.right, (n, n)))
        return None if group is None else Symmetry(group, tuple(range(n)))

    @property
    def controls(self) -> tuple[Control, ...]:
        said = "the answers permuted over the inputs: nothing to generalize"
        return (*super().controls, Control("shuffled", said, {"labels": "shuffled"}))

    @cached_property
    def answers(self) -> Int[Tensor, " n"]:
        """The answers as labeled, shuffled or not."""
        if self.labels == "true":
            return torch.tensor(self.right)
        order = rng("labels", self.name, self.label_seed).permutation(len(self.right))
        return torch.tensor(self.right)[order]

    @cached_property
    def _places(self) -> dict[tuple[int, ...], int]:
        return {row: place for place, row in enumerate(self.rows)}

    def inputs(self) -> Int[Tensor, "n pos"]:
        rows = torch.tensor(self.rows)
        equals = torch.full((len(rows), 1), self.d_vocab - 1)
        return torch.cat([rows, equals], 1) if self.sizes else rows

    def label_inputs(self, tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch pos output"]:
        targets = tokens.new_full((*tokens.shape, 1), IGNORE)
        targets[:, -1, 0] = self._answer(tokens, *tokens[:, : len(self.rows[0])].unbind(1))
        return targets

    def _answer(self, tokens: Tensor, *values: Tensor) -> Int[Tensor, " batch"]:
        """The answers to operands (batch,), or to rows of tokens."""
        rows = zip(*(one.tolist() for one in values or tokens.unbind(1)), strict=True)
        places = torch.tensor([self._places[row] for row in rows], dtype=torch.int64)
        return self.answers[places].to(tokens.device)

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        row = tuple(tokens)[: len(self.rows[0])]
        shuffled = self.labels != "true"
        answer = int(self.answers[self.rows.index(row)] if shuffled else type(self).function(*row))
        return [[IGNORE]] * (self.n_ctx - 1) + [[answer]]

    @cached_property
    def programs(self) -> Mapping[str, Program]:  # type: ignore[override]
        """The operands, where each has values of its own, and the answer."""
        names = names_of(type(self).function, len(self.rows[0])) if self.sizes else ()
        steps = [
            Step(name, size, lambda t, i=i: t[:, i], description=f"operand {i}", positions=(i,))
            for i, (name, size) in enumerate(zip(names, self.sizes, strict=True))
        ]
        said = "what the function gives"
        steps.append(Step("answer", self.outputs[0].n_classes, self._answer, names, said))
        return {"function": Program("function", tuple(steps), (("answer",),))}

    def __reduce__(self) -> Any:
        """The class is made again in another process: from the registry, or from the function."""
        if self.name in TASKS:
            return _registered, (self.name, self.to_dict())
        function = type(self).function
        if "<" in getattr(function, "__qualname__", ""):
            raise ParameterError(
                f"{self.name}: a worker cannot take a lambda; expected a function of a module, or "
                "one worker"
            )
        return _again, (self.given, function, self.name, self.to_dict())


def function_task(
    inputs: Sequence[int] | Sequence[Sequence[int]], answer: Callable[..., int], name: str
) -> FunctionTask:
    """The task of `Task.of`."""
    given = list(inputs)
    sizes = tuple(given) if all(isinstance(one, int) for one in given) else ()
    if not given or min(sizes, default=1) < 1:
        raise ParameterError(f"Task.of: inputs={inputs!r}: expected sizes, or rows of tokens")
    check_fits(name, math.prod(sizes) if sizes else len(given), 1 + len(sizes or given[0]), 1)
    listed = itertools.product(*map(range, sizes)) if sizes else (tuple(row) for row in given)
    rows: Any = tuple(listed)
    whole = all(isinstance(one, int) and one >= 0 for row in rows for one in row)
    if not whole or len({len(row) for row in rows}) > 1 or len(set(rows)) < len(rows):
        raise ParameterError("Task.of: inputs: expected distinct rows of tokens, of one length")
    right = list[int]()
    for row in rows:
        try:
            value = answer(*row)
        except Exception as error:
            raise ParameterError(
                f"Task.of: answer{row}: {type(error).__name__}: {error}"
            ) from error
        if not isinstance(value, int | np.integer | np.bool_) or value < 0:
            raise ParameterError(f"Task.of: answer{row}: got {value!r}; expected a number from 0")
        right.append(int(value))
    kind = type(
        "FunctionTask",
        (FunctionTask,),
        {
            "__module__": answer.__module__,
            "__doc__": inspect.getdoc(answer) or "Inputs that a function answers.",
            "name": name,
            "given": given,
            "function": staticmethod(answer),
            "sizes": sizes,
            "rows": rows,
            "right": tuple(right),
        },
    )
    return kind()


def names_of(function: Callable[..., Any], n: int) -> tuple[str, ...]:
    """Names of the first n arguments of a function, numbered where it takes any number.

    >>> names_of(lambda a, b: a + b, 2), names_of(max, 2)
    (('a', 'b'), ('x0', 'x1'))
    """
    with contextlib.suppress(ValueError):  # of a function without a signature, such as max
        found = inspect.signature(function).parameters.values()
        named = [one.name for one in found if one.kind is one.POSITIONAL_OR_KEYWORD]
        if len(named) >= n:
            return tuple(named[:n])
    return tuple(f"x{i}" for i in range(n))


def _again(given: Any, function: Any, name: str, fields: Mapping[str, Any]) -> FunctionTask:
    return type(function_task(given, function, name)).from_dict(fields)


def _registered(name: str, fields: Mapping[str, Any]) -> Any:
    return TASKS[name].from_dict(fields)
