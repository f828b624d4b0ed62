"""The causal variables of ListOps, read and set on the tree of an expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.task import IGNORE, Batch, Variable
from tasks._listops.notation import Notation
from tasks._listops.tree import Bracket, Path, parse, solve, value, with_value


class Written(Protocol):
    """What variables need of a task: how its expressions are written and labeled."""

    @property
    def notation(self) -> Any:  # a Notation; type checkers take a cached_property for none
        """How expressions are spelled."""
        ...

    @property
    def drawn(self) -> tuple[str, ...]:
        """Names of the operations that are drawn."""
        ...

    @property
    def fewest_operands(self) -> int:
        """Least number of operands of a bracket."""
        ...

    @property
    def depth(self) -> int:
        """How deep brackets nest."""
        ...

    @property
    def chain_of_thought(self) -> bool:
        """Whether the steps of the solution are written."""
        ...

    @property
    def n_ctx(self) -> int:
        """Most positions of a text."""
        ...

    def text(self, tokens: Any, /) -> str: ...
    def batch_of(self, tokens: Int[Tensor, "batch pos"], /) -> Batch: ...


def variables(task: Written) -> Mapping[str, Variable]:
    """The answer; the outermost operation; the value of each operand that every outermost bracket
    has; and, where brackets are nested, the value of the first step, the right-most innermost
    bracket.

    A label is the output that follows the example's own prompt once the variable is set, the steps
    included; where that is longer or shorter than the example's own, only the value behind the = is
    replaced.
    """
    size = task.notation.algebra.size
    operands = tuple(f"operand_{slot}" for slot in range(task.fewest_operands))
    found = [
        _at_path(task, "answer", "value of the expression", lambda tree: ()),
        _operation(task),
    ]
    for slot, name in enumerate(operands):
        made = _at_path(task, name, f"value of operand {slot}", partial(_slot, slot))
        single = task.depth == 1 and task.notation.symbolic
        found.append(replace(made, positions=(3 + slot,) if single else ()))
    if task.depth > 1:
        description = "value of the bracket that is resolved first"
        found.append(_at_path(task, "first_step", description, lambda tree: tree.first_resolved))
    found[0] = replace(found[0], parents=("operation", *operands))
    assert all(variable.n_values in (size, len(task.drawn)) for variable in found)
    return {variable.name: variable for variable in found}


def _slot(slot: int, tree: Bracket) -> Path:
    return (slot,)


def _at_path(
    task: Written, name: str, description: str, path_of: Callable[[Bracket], Path]
) -> Variable:
    """The value of what stands at a path of the tree: a plain value or a bracket."""
    notation: Notation = task.notation

    def set_to(tree: Bracket, number: int) -> list[str]:
        path = path_of(tree)
        if isinstance(tree.at(path), Bracket):
            return solve(notation, tree, {path: number})
        return solve(notation, tree.put(path, number), {})

    def change(tree: Bracket, number: int) -> Bracket | None:
        return with_value(notation, tree, path_of(tree), number)

    return _variable(
        task,
        name,
        notation.algebra.size,
        description,
        lambda tree: value(notation, tree.at(path_of(tree))),
        set_to,
        change,
    )


def _operation(task: Written) -> Variable:
    notation = task.notation
    indices = [notation.algebra.names.index(name) for name in task.drawn]

    def change(tree: Bracket, number: int) -> Bracket:
        return replace(tree, operation=indices[number])

    made = _variable(
        task,
        "operation",
        len(indices),
        f"outermost operation: {', '.join(task.drawn)}",
        lambda tree: indices.index(tree.operation),
        lambda tree, number: solve(notation, change(tree, number), {}),
        change,
    )
    return replace(made, positions=(2,) if notation.symbolic else ())


def _variable(
    task: Written,
    name: str,
    n_values: int,
    description: str,
    value_of: Callable[[Bracket], int],
    set_to: Callable[[Bracket, int], list[str]],
    change: Callable[[Bracket, int], Bracket | None],
) -> Variable:
    """A variable of a tree: `set_to` gives the solved steps once it is set, `change` another tree
    that has the value.
    """
    texts = _Texts(task)

    def values(tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, " batch"]:
        return torch.tensor([value_of(tree) for tree in texts.trees(tokens)], dtype=torch.int64)

    def label(
        tokens: Int[Tensor, "batch pos"], numbers: Int[Tensor, " batch"]
    ) -> Int[Tensor, "batch pos output"]:
        trees = zip(texts.trees(tokens), numbers.tolist(), strict=True)
        return texts.relabeled(tokens, [set_to(tree, number) for tree, number in trees])

    def changed(
        tokens: Int[Tensor, "batch pos"], numbers: Int[Tensor, " batch"]
    ) -> Int[Tensor, "batch pos"]:
        trees = zip(texts.trees(tokens), numbers.tolist(), strict=True)
        return texts.rewritten(tokens, [change(tree, number) or tree for tree, number in trees])

    return Variable(name, n_values, description, values, label, change=changed)


@dataclass(frozen=True)
class _Texts:
    """From tokens to trees and back, as `task` writes them."""

    task: Written

    def trees(self, tokens: Tensor) -> list[Bracket]:
        notation, text = self.task.notation, self.task.text
        return [parse(notation, notation.expression(text(row))) for row in tokens]

    def relabeled(self, tokens: Tensor, steps: list[list[str]]) -> Tensor:
        """Targets of examples that go on with these solved steps behind their own prompts."""
        solved = [solve(self.task.notation, tree, {}) for tree in self.trees(tokens)]
        own, new = self._continued(tokens, solved), self._continued(tokens, steps)
        targets = own.targets.clone()
        assert own.lengths is not None and new.lengths is not None
        aligned = own.lengths == new.lengths
        targets[aligned] = new.targets[aligned]
        for row in (~aligned).nonzero().flatten().tolist():
            one = slice(row, row + 1)
            _replace_answer(targets[row], new.targets[row], own[one], new[one])
        return targets

    def _continued(self, tokens: Tensor, steps: list[list[str]]) -> Batch:
        """The texts that begin with the examples' own expressions and go on with these steps."""
        notation = self.task.notation
        expressions = [notation.expression(self.task.text(row)) for row in tokens]
        texts = [
            notation.write([expression, *solved[1:]], self.task.chain_of_thought)
            for expression, solved in zip(expressions, steps, strict=True)
        ]
        return self.task.batch_of(self._encoded(torch.zeros_like(tokens), texts))

    def rewritten(self, tokens: Tensor, trees: list[Bracket]) -> Tensor:
        """Whole texts of other trees; those that do not fit stay as they are."""
        notation = self.task.notation
        texts = [
            notation.write(solve(notation, tree, {}), self.task.chain_of_thought) for tree in trees
        ]
        fits = torch.tensor([len(text) <= self.task.n_ctx for text in texts])
        return self._encoded(tokens.clone(), texts).where(fits[:, None], tokens)

    def _encoded(self, tokens: Tensor, texts: list[str]) -> Tensor:
        """`tokens` overwritten with texts, cut at the context and filled with the end."""
        notation = self.task.notation
        for row, text in zip(tokens, texts, strict=True):
            row[:] = notation.end_token
            encoded = notation.vocabulary.encode(text)[: len(row)]
            row[: len(encoded)] = torch.tensor(encoded)
        return tokens


def _replace_answer(targets: Tensor, given: Tensor, own: Batch, new: Batch) -> None:
    """What follows the = in `targets` (pos, output) becomes what follows it in `given`."""
    here, there = int(own.answers.at(0)[0]), int(new.answers.at(0)[0])
    targets[here:] = IGNORE
    width = min(len(targets) - here, len(given) - there)
    targets[here : here + width] = given[there : there + width]
