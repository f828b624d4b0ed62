"""The causal variables of ListOps, read and set by plain rewriting of an expression's text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from mechint.task import Variable

if TYPE_CHECKING:
    from tasks.listops.task import ListOps


def variables(task: ListOps) -> Mapping[str, Variable]:
    """The answer, the outermost operation, and each operand where every expression of `task` is one
    bracket of a fixed size.

    A label is the output that follows the example's own prompt once the variable is set, the steps
    included; where numbers have several characters it may be longer or shorter than the example's
    own.
    """
    notation = task.notation
    indices = [task.values.names.index(name) for name in task.drawn]

    def set_answer(expression: str, value: int) -> list[str]:
        return [*notation.solve(expression)[:-1], notation.values[value]]

    def set_operation(expression: str, value: int) -> list[str]:
        return notation.solve(notation.openings[indices[value]] + notation.opening(expression)[1])

    def read_answer(expression: str) -> int:
        return notation.values.index(notation.solve(expression)[-1])

    def read_operation(expression: str) -> int:
        return indices.index(notation.opening(expression)[0])

    found = [
        _variable(
            task, "answer", task.values.size, "value of the expression", read_answer, set_answer
        ),
        _variable(
            task,
            "operation",
            len(indices),
            f"outermost operation: {', '.join(task.drawn)}",
            read_operation,
            set_operation,
            (2,),
        ),
    ]
    if task.depth == 1 and task.min_operands == task.operands:
        found += [_operand(task, slot) for slot in range(task.operands)]
    return {variable.name: variable for variable in found}


def _operand(task: ListOps, slot: int) -> Variable:
    notation = task.notation

    def change(expression: str, value: int) -> list[str]:
        opening, operands = notation.bracket(expression)
        operands[slot] = value
        return notation.solve(
            opening + notation.comma.join(notation.values[operand] for operand in operands) + ")"
        )

    return _variable(
        task,
        f"operand_{slot}",
        task.values.size,
        f"operand {slot}",
        lambda text: notation.bracket(text)[1][slot],
        change,
        (3 + slot,),
    )


def _variable(
    task: ListOps,
    name: str,
    n_values: int,
    description: str,
    read: Callable[[str], int],
    change: Callable[[str, int], list[str]],
    positions: tuple[int, ...] = (),
) -> Variable:
    """A variable that `read` finds in the text of an expression and `change` sets, giving the
    solved steps.

    `positions` are those of the symbolic spelling; the functional one has none that are fixed.
    """

    def expressions(tokens: Tensor) -> list[str]:
        return [task.notation.expression(task.text(row)) for row in tokens]

    def label(tokens: Tensor, values: Tensor) -> Tensor:
        joined = torch.full_like(tokens, task.notation.end_token)
        lengths = torch.zeros(len(tokens), dtype=torch.int64)
        for row, (expression, value) in enumerate(
            zip(expressions(tokens), values.tolist(), strict=True)
        ):
            steps = change(expression, value)
            # the example's own prompt stays in front: it is what the model reads
            text = task.notation.write([expression, *steps[1:]], task.chain_of_thought)[
                : task.n_ctx
            ]
            joined[row, : len(text)], lengths[row] = (
                torch.tensor(task.vocabulary.encode(text)),
                len(text),
            )
        return task.labelled(joined, lengths).targets

    return Variable(
        name,
        n_values,
        description,
        lambda tokens: torch.tensor([read(text) for text in expressions(tokens)]),
        label,
        positions if task.notation.symbolic else (),
    )
