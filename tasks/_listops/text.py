"""Parts that ListOps and its triplets share: texts with their targets, causal variables, and
accuracy by greedy continuation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.errors import DataError, UnknownNameError
from mechint.task import (
    IGNORE,
    Batch,
    Output,
    Symmetry,
    TargetKind,
    Task,
    Variable,
    Vocabulary,
    greedy,
)
from mechint.task.truth import Given
from mechint.tasks._listops.expression import END, Bracket, Notation, Path, solve, with_value

Predict = Callable[[Tensor, Tensor], Tensor]


class ExpressionTask(Task):
    """Base of tasks whose examples are whole texts ``s(%12(%34))>(%127)>0=0e``.

    A task has `notation`; `drawn`, the names of its operations; `depth`, `fewest_operands`;
    `chain_of_thought`; `loss_on`, from where on characters are predicted.
    """

    notation: Notation
    drawn: tuple[str, ...]
    depth: int
    fewest_operands: int
    chain_of_thought: bool
    loss_on: str

    @property
    def vocabulary(self) -> Vocabulary:
        return self.notation.vocabulary

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("token", len(self.vocabulary), names=self.vocabulary.tokens),)

    @property
    def symmetry(self) -> Symmetry:
        algebra = self.notation.algebra
        return Symmetry(algebra.group, tuple(range(algebra.size)))

    # --- texts and targets ------------------------------------------------------------------------
    def text(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> str:
        """The expression as written, without its padding."""
        before, end, _ = super().text(tokens).partition(END)
        return before + end

    def tokens_of(self, text: str) -> list[int]:
        """Tokens of a whole text, padded to `n_ctx`, or of the beginning of one; DataError where it
        cannot be read.
        """
        if len(text) > self.n_ctx:
            raise DataError(
                f"text of {len(text)} characters: expected at most context={self.n_ctx}"
            )
        return super().tokens_of(text.ljust(self.n_ctx, END) if text.endswith(END) else text)

    def written(self, texts: Sequence[str]) -> Int[Tensor, "batch n_ctx"]:
        """Tokens of whole texts, padded with the end, and cut at the context."""
        ids = torch.zeros(1 + max(map(ord, self.vocabulary.tokens)), dtype=torch.int64)
        ids[[ord(token) for token in self.vocabulary.tokens]] = torch.arange(self.d_vocab)
        width = self.n_ctx
        padded = "".join(text[:width].ljust(width, END) for text in texts)
        codes = np.frombuffer(padded.encode("utf-32-le"), np.uint32).astype(np.int64)
        return ids[torch.from_numpy(codes)].view(len(texts), width)

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        """Whole texts with the targets that `loss_on` asks for, the target of a character the next
        one; a text that does not end is taken to fill the context.
        """
        ends = tokens == self.notation.end_token
        lengths = torch.where(ends.any(1), ends.int().argmax(1) + 1, tokens.shape[1])
        place = torch.arange(tokens.shape[1] - 1, device=tokens.device)
        first = self.prompts(tokens, self.loss_on)[:, None] - 1
        read = (place < lengths[:, None] - 1) & (place >= first)
        targets = torch.full_like(tokens, IGNORE)
        targets[:, :-1] = tokens[:, 1:].where(read, IGNORE)
        kinds = self._kinds(tokens, targets)
        return Batch(tokens, targets[..., None], lengths=lengths, kinds=kinds)

    def _kinds(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The first character of the value is the answer; its further characters and the chain of
        thought are steps; the prompt, marks and the end are form.
        """
        ids, end = self.vocabulary.ids, self.notation.end_token
        equals = tokens == ids["="]  # the answer is read at the =
        solved = ((tokens == ids[">"]) | equals).cumsum(1) > 0
        kinds = torch.where(solved, int(TargetKind.STEP), int(TargetKind.FORM)).to(torch.int8)
        for mark in (ids[">"], ids["="], end):
            kinds[targets == mark] = TargetKind.FORM
        kinds[equals] = TargetKind.ANSWER
        kinds[targets == IGNORE] = TargetKind.NONE
        return kinds

    def prompts(
        self, tokens: Int[Tensor, "batch n_ctx"], until: str = "output"
    ) -> Int[Tensor, " batch"]:
        """(batch,) tokens before the answer, before the output (the first > or =), or 1 for all."""
        if until == "all":
            return torch.ones_like(tokens[:, 0])
        mark = ">" if until == "output" and self.chain_of_thought else "="
        return (tokens == self.vocabulary.ids[mark]).int().argmax(1) + 1

    def solution(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> list[str]:
        """The expression that `tokens` ask for, after 0, 1, 2, … steps; DataError where it is
        none.
        """
        return self.notation.texts(self._tree(tokens))

    def _tree(self, tokens: Sequence[int] | Int[Tensor, " pos"]) -> Bracket:
        return self.notation.parse(self.notation.expression(self.text(tokens)))

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        steps = self.notation.rewrite(self.notation.expression(self.text(tokens)))
        text = self.notation.write(steps, self.chain_of_thought)
        ids = self.vocabulary.encode(text)
        marks = {"answer": text.index("="), "output": len(re.split("[>=]", text)[0]), "all": 0}
        first = marks[self.loss_on]
        return [
            [ids[place + 1] if first <= place < len(ids) - 1 else IGNORE]
            for place in range(self.n_ctx)
        ]

    # --- causal variables -------------------------------------------------------------------------
    def run(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> dict[str, Int[Tensor, " batch"]]:
        """Value of every variable, with those in `given` set by hand."""
        rows = [self._solved(*row)[1] for row in self._rows(tokens, given)]
        return {
            name: torch.tensor([row[name] for row in rows], device=tokens.device)
            for name in self.variables
        }

    def targets(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> Int[Tensor, "batch pos output"]:
        """The output that follows each prompt with the variables in `given` set, the steps
        included; where that is longer or shorter than the example's own, only the value behind the
        = is replaced.
        """
        solved = [self._solved(*row)[0] for row in self._rows(tokens, given)]
        prompts = [self.notation.expression(self.text(row)) for row in tokens]
        texts = [
            self.notation.write([prompt, *steps[1:]], self.chain_of_thought)
            for prompt, steps in zip(prompts, solved, strict=True)
        ]
        before, new = self.batch_of(tokens), self.batch_of(self.written(texts).to(tokens.device))
        assert before.lengths is not None and new.lengths is not None
        aligned = before.lengths == new.lengths
        targets = torch.where(aligned[:, None, None], new.targets, before.targets)
        for row in (~aligned).nonzero().flatten().tolist():
            here, there = (int(batch[row : row + 1].answers.at(0)[0]) for batch in (before, new))
            targets[row, here:] = IGNORE
            width = self.n_ctx - max(here, there)
            targets[row, here : here + width] = new.targets[row, there : there + width]
        return targets

    def _rows(self, tokens: Tensor, given: Given | None) -> list[tuple[Bracket, dict[str, int]]]:
        """The tree of every example, and what is given for it."""
        for name in given or {}:
            if name not in self.variables:
                raise UnknownNameError.of(f"variable of {self.name}", name, self.variables)
        columns = {
            name: torch.as_tensor(values).expand(len(tokens)).tolist()
            for name, values in (given or {}).items()
        }
        return [
            (self._tree(row), {name: values[i] for name, values in columns.items()})
            for i, row in enumerate(tokens)
        ]

    def _solved(self, tree: Bracket, given: Mapping[str, int]) -> tuple[list[str], dict[str, int]]:
        """The texts of the solution and the value of every variable, with `given` set."""
        if "operation" in given:
            tree = replace(tree, operation=self._operations[given["operation"]])
        fixed: dict[Path, int] = {}
        for name, number in given.items():
            if name == "operation":
                continue
            path = self._path(name, tree)
            if isinstance(tree.at(path), Bracket):
                fixed[path] = number
            else:
                tree = tree.put(path, number)
        steps = solve(self.notation.algebra, tree, fixed)
        values = {step.path: step.value for step in steps}
        by_name = {"operation": self._operations.index(tree.operation)}
        for name in self._names:
            path = self._path(name, tree)
            operand = tree.at(path)
            by_name[name] = values[path] if isinstance(operand, Bracket) else operand
        return self.notation.texts(tree, steps), by_name

    @property
    def _names(self) -> list[str]:
        """Variables that are the value at a path."""
        operands = [f"operand_{slot}" for slot in range(self.fewest_operands)]
        return ["answer", *operands, *["first_step"] * (self.depth > 1)]

    def _path(self, name: str, tree: Bracket) -> Path:
        if name == "answer":
            return ()
        if name == "first_step":
            return tree.first_resolved
        return (int(name.removeprefix("operand_")),)

    @cached_property
    def _operations(self) -> list[int]:
        """Index in the algebra of each operation that is drawn."""
        return [self.notation.algebra.names.index(name) for name in self.drawn]

    @cached_property
    def variables(self) -> Mapping[str, Variable]:  # type: ignore[override]
        """The answer; the outermost operation; the value of each operand that every outermost
        bracket has; and, where brackets are nested, the value of the first step.
        """
        operands = tuple(name for name in self._names if name.startswith("operand"))
        descriptions = {
            "answer": "value of the expression",
            "operation": f"outermost operation: {', '.join(self.drawn)}",
            **{name: f"value of operand {slot}" for slot, name in enumerate(operands)},
            "first_step": "value of the bracket that is resolved first",
        }
        positions = {name: (3 + slot,) for slot, name in enumerate(operands) if self.depth == 1}
        positions["operation"] = (2,)
        first, *others = self._names
        return {
            name: Variable(
                name,
                len(self.drawn) if name == "operation" else self.notation.algebra.size,
                descriptions[name],
                lambda tokens, name=name: self.run(tokens)[name],
                lambda tokens, values, name=name: self.targets(tokens, {name: values}),
                positions=positions.get(name, ()),
                parents=("operation", *operands) if name == "answer" else (),
                change=partial(self._change, name),
                names=self.drawn if name == "operation" else (),
            )
            for name in (first, "operation", *others)
        }

    def _change(self, name: str, tokens: Tensor, values: Tensor) -> Tensor:
        """Whole texts of changed trees; those that do not fit stay as they are."""
        texts = []
        for row, number in zip(tokens, values.tolist(), strict=True):
            tree = self._tree(row)
            if name == "operation":
                changed = replace(tree, operation=self._operations[number])
            else:
                changed = with_value(self.notation.algebra, tree, self._path(name, tree), number)
            steps = self.notation.texts(changed or tree)
            texts.append(self.notation.write(steps, self.chain_of_thought))
        fits = torch.tensor([len(text) <= self.n_ctx for text in texts], device=tokens.device)
        return self.written(texts).to(tokens.device).where(fits[:, None], tokens)

    # --- how well it is done ----------------------------------------------------------------------
    def accuracy(self, predict: Predict, batch: Batch) -> Float[np.ndarray, " model"]:
        """(model,) share of `batch` whose value is found by greedy continuation from the prompt."""
        ids, right = self.vocabulary.ids, self.answers_of(batch.tokens)
        end = self.notation.end_token
        prompts = self.prompts(batch.tokens)
        given = greedy.answers(predict, batch.tokens, prompts, ids["="], end, right.shape[-1])
        return (given == right).all(-1).double().mean(-1).numpy()

    def answers_of(self, tokens: Int[Tensor, "*batch n_ctx"]) -> Int[Tensor, "*batch 1"]:
        """(..., 1) the value in whole texts, tokens (..., n_ctx); -1 where there is no =."""
        return greedy.after(tokens, self.vocabulary.ids["="], self.notation.end_token, 1)
