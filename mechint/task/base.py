"""The contract of a task: what every family says, what it may have, and what follows."""

from __future__ import annotations

import abc
import dataclasses
import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from mechint.config import Settings
from mechint.errors import NotApplicableError, ParameterError, UnknownNameError
from mechint.registry import summary
from mechint.system.jsonable import as_html
from mechint.task.batch import ANY, IGNORE, Batch, Output, Vocabulary
from mechint.task.truth import (
    Chance,
    Control,
    Counterfactuals,
    Given,
    Program,
    Relation,
    Step,
    Symmetry,
    Variable,
    choose_answer,
    draw_pairs,
    find_variable,
)

if TYPE_CHECKING:
    from mechint.subject.pairs import Pairs
    from mechint.task.families import FiniteTask

ACCURACY, LOSS = 0, 1
"""Columns of `answer_scores`."""


class Task(Settings, abc.ABC):
    """Base of all tasks; derive from FiniteTask or GeneratedTask.

    The docstring's first line is what ``mechint tasks`` prints. Class attributes: `name` (of the
    registry), `topic` (heading of that list), `source` (paper and section), `model_defaults` and
    `train_defaults` (fields of ModelConfig and TrainConfig that suit the task; d_vocab, n_ctx,
    d_vocab_out follow from the task), `presets` (name → settings for ``mechint train --preset``,
    keys as in ``--set``: "task.p", "model.d_model", "train.lr"), `preset_results` (name of a preset
    → what models trained with it reached, over which seeds), `without_variables` (what a probe of
    causal variables says where there are none), `when_wrong` (what to do where a model answers too
    few examples right).
    """

    name: ClassVar[str]
    topic: ClassVar[str] = "other"
    source: ClassVar[str]
    model_kind: ClassVar[str] = "transformer"
    model_defaults: ClassVar[Mapping[str, Any]] = {}
    train_defaults: ClassVar[Mapping[str, Any]] = {}
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    preset_results: ClassVar[Mapping[str, str]] = {}
    without_variables: ClassVar[str] = "its task names no causal variables"
    when_wrong: ClassVar[str] = "train the model further"

    @staticmethod
    def of(
        *,
        inputs: Sequence[int] | Sequence[Sequence[int]],
        answer: Callable[..., int],
        name: str = "function",
    ) -> FiniteTask:
        """A task from a function of its inputs; vocabulary, labels, chance, program, controls and
        the group, where the answers are products of one, follow.

        Args:
            inputs: how many values each operand has, so that an example is the operands and "=";
                or rows of tokens as a model reads them, with the answer at the last one.
            answer: of the operands, or of the tokens of a row, a whole number from 0.
            name: under which it is registered.

        Raises:
            ParameterError: no such inputs, or an answer that is none.

        >>> task = Task.of(inputs=(5, 5), answer=lambda a, b: (a + b) % 5)
        >>> task.text([3, 4, 5]), task.answer_text(task.brute_force([3, 4, 5]))
        ('3 4 =', '2')
        """
        import mechint

        return mechint.task.function_task(inputs, answer, name)

    @classmethod
    def preset(cls, name: str) -> dict[str, dict[str, Any]]:
        """Settings of the preset `name`: {"task": …, "model": …, "train": …}.

        Raises:
            UnknownNameError: the task has no such preset.
        """
        if name not in cls.presets:
            raise UnknownNameError.of(f"preset of {cls.name}", name, cls.presets)
        parts: dict[str, dict[str, Any]] = {"task": {}, "model": {}, "train": {}}
        for key, value in cls.presets[name].items():
            part, _, field = key.partition(".")
            parts[part][field] = value
        return parts

    @property
    def title(self) -> str:
        """The task in words, with the sizes and choices that are its own: "Addition mod 113"."""
        defaults = type(self)().to_dict()
        changed = ", ".join(
            f"{name} = {value}"
            for name, value in self.to_dict().items()
            if value != defaults[name] and isinstance(value, int | str) and value is not True
        )
        words = self.name.replace("-", " ").capitalize()
        return f"{words}, {changed}" if changed else words

    def _repr_html_(self) -> str:
        """The task, its parameters, outputs and variables, for a notebook."""
        outputs = ", ".join(f"{out.name} ({out.n_classes} classes)" for out in self.outputs)
        names = list(self.variables)
        variables = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if names[12:] else "")
        rows = [
            *self.to_dict().items(),
            ("outputs", outputs or "real numbers"),
            ("variables", variables or "none"),
            ("source", self.source),
        ]
        line = html.escape(summary(type(self).__doc__))
        table = as_html(("parameter", "value"), rows)
        return f"<b>{html.escape(self.name)}</b><p>{line}</p>{table}"

    # --- what every task says ---------------------------------------------------------------------
    @property
    @abc.abstractmethod
    def vocabulary(self) -> Vocabulary:
        """Tokens and their text; of no tokens where inputs are real vectors."""

    @property
    @abc.abstractmethod
    def n_ctx(self) -> int:
        """Most positions of an example."""

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[Output, ...]:
        """The groups of classes that are answered, in the order of their columns in the logits."""

    @property
    @abc.abstractmethod
    def chance(self) -> Mapping[str, Chance]:
        """Name of the output → its chance level."""

    @abc.abstractmethod
    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        """Batches for ever, from batch `start` on; a pure function of its arguments."""

    @abc.abstractmethod
    def sample(
        self, n: int, seed: int, split: str = "test", *, split_seed: int | None = None
    ) -> Batch:
        """`n` examples of `split` for evaluation and probing, the same for the same seed.

        split_seed: seed of a finite task's partition; `seed` when None. Generated tasks have one
        split.
        """

    @abc.abstractmethod
    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        """Targets (pos, output) of one example by the plainest possible computation, for tests."""

    # --- what a task may have ---------------------------------------------------------------------
    @property
    def n_answers(self) -> int:
        """Most answers that an example has."""
        return 1

    @property
    def answer_names(self) -> tuple[str, ...]:
        """(n_answers,) what each answer is, in the order of their positions."""
        if self.n_answers == 1:
            return ("answer",)
        return tuple(f"answer {index}" for index in range(self.n_answers))

    @property
    def grid(self) -> tuple[int, ...]:
        """Shape of the input grid; () where the inputs are drawn."""
        return ()

    @property
    def probe_split(self) -> str:
        """The split whose examples probes look at."""
        return "test"

    @property
    def programs(self) -> Mapping[str, Program]:
        """Algorithms by name: first that of `run` and `variables`, then its rivals."""
        return {}

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Causal variables by name: those of the first of `programs`."""
        return {} if self.own_program is None else self.variables_of(self.own_program)

    @property
    def symmetry(self) -> Symmetry | None:
        """The group that acts on the value tokens; None where there is none."""
        return None

    @property
    def controls(self) -> tuple[Control, ...]:
        """Variants on which the mechanism must be absent."""
        return (
            Control("untrained", "the same architecture with its initial weights", untrained=True),
        )

    def stated_pairs(self, variable: Variable) -> Counterfactuals | None:
        """All minimal pairs for `variable` where a task is given them; None: they are drawn."""
        return None

    def wrong_answers(
        self, tokens: Int[Tensor, "batch pos"]
    ) -> Int[Tensor, "batch alternative"] | None:
        """Classes that the answer of each example is held against, IGNORE where it has fewer;
        None: all classes of its output.
        """
        return None

    @property
    def own_choices(self) -> bool:
        """True where answers are the model's own first choices, which nobody called right."""
        return False

    @property
    def several(self) -> int:
        """1 where an answer has several right classes, 2 where one is several tokens, else 0."""
        return 0

    def alternatives(self, classes: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape m"]:
        """Classes that are right where the target is each of `classes`, IGNORE where it has fewer;
        of an answer of several tokens its first.
        """
        return classes[..., None]

    def spelled(self, pairs: Pairs) -> tuple[Pairs, Int[Tensor, " part"]]:
        """The pairs, then one for each later token of an answer, behind those before it and against
        any other; and which pair each is of. Their differences add up to those of the answers.
        """
        return pairs, torch.arange(len(pairs), device=pairs.base.device)

    def tables(self) -> dict[str, Any]:
        """All that was drawn or given (permutations, tables), as JSON values."""
        return {}

    def text(self, tokens: Sequence[int] | Shaped[Tensor, " pos"]) -> str:
        """One example in a form that a person reads; `tokens_of` is its inverse."""
        return self.vocabulary.decode(tokens)

    def tokens_of(self, text: str) -> list[int]:
        """The tokens of one example from its text; DataError where it is not one."""
        return self.vocabulary.encode(text)

    def answer_text(self, targets: Any) -> str:
        """The answers of one example, targets (pos, output), by output where there are several.

        >>> import tasks
        >>> task = tasks.modular_arithmetic(p=7)
        >>> task.answer_text(task.label_inputs(torch.tensor([[3, 5, 7]]))[0])
        '1'
        """
        values = np.asarray(targets)
        if values.ndim != 2 or not np.issubdtype(values.dtype, np.integer):
            return str(np.round(values, 3).tolist())
        every: list[list[int]] = values.tolist()
        rows = [row for row in every if any(value >= 0 for value in row)]
        shown = [
            [
                (output.name, output.class_names[v])
                for output, v in zip(self.outputs, row, strict=True)
                if v >= 0
            ]
            for row in rows
        ]
        if len(rows) == 1 and len(self.outputs) > 1:
            return ", ".join(f"{name}: {value}" for name, value in shown[0])
        return " ".join(value for row in shown for _, value in row)

    def score(
        self, predict: Callable[[Tensor, Tensor], Tensor], split: str, seed: int, n: int
    ) -> dict[str, Float[np.ndarray, " model"]]:
        """Accuracies beyond the teacher-forced ones, e.g. by greedy continuation.

        predict(tokens (model, batch, pos), positions (model, batch, *read)) -> logits (model,
        batch, *read, d_vocab_out), several positions of one example ascending and -1 for none.
        Returns name → (model,) array.
        """
        return {}

    # --- what follows -----------------------------------------------------------------------------
    @property
    def own_program(self) -> Program | None:
        """The first of `programs`, if any."""
        return next(iter(self.programs.values()), None)

    @property
    def d_vocab(self) -> int:
        """The number of tokens."""
        return len(self.vocabulary)

    @property
    def d_vocab_out(self) -> int:
        """Classes of all outputs together: the width of the logits."""
        return sum(output.n_classes for output in self.outputs)

    @property
    def class_names(self) -> dict[str, tuple[str, ...]]:
        """Name of the output → the names of its classes."""
        return {output.name: output.class_names for output in self.outputs}

    @property
    def output_slices(self) -> dict[str, slice]:
        """Name of the output → its columns of the logits."""
        ends = np.cumsum([0] + [output.n_classes for output in self.outputs]).tolist()
        return {
            output.name: slice(a, b)
            for output, a, b in zip(self.outputs, ends[:-1], ends[1:], strict=True)
        }

    def control(self, name: str) -> Task:
        """The task as varied by the control `name`; itself for untrained weights."""
        for control in self.controls:
            if control.name == name:
                return dataclasses.replace(self, **control.parameters)  # type: ignore[type-var]
        raise UnknownNameError.of("control", name, [control.name for control in self.controls])

    def run(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> dict[str, Int[Tensor, " batch"]]:
        """Compute every causal variable and answer of the task's own algorithm, with the variables
        in `given` set by hand and all that follows from them recomputed.

        Returns name → (batch,) values, of the steps of the first of `programs`.

        Raises:
            NotApplicableError: the task names no causal variables, or states no program of them.
            UnknownNameError: there is no variable of that name.

        >>> import tasks
        >>> task = tasks.digit_sum(digits=2)
        >>> tokens = torch.tensor([task.tokens_of("19+21=40")])
        >>> values = task.run(tokens, {"carry_0": 0})
        >>> values["digit_1"].tolist(), task.targets(tokens, {"carry_0": 0})[0, 5].tolist()
        ([3], [3])
        """
        return self._stated_program().run(tokens, given)

    def targets(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, output) with the variables in `given` set; raises as `run`."""
        return self.targets_by(self._stated_program(), tokens, given)

    def _stated_program(self) -> Program:
        if self.own_program is None:
            lacks = "it states no program" if self.variables else self.without_variables
            raise NotApplicableError(f"{self.name}: {lacks}")
        return self.own_program

    def targets_by(
        self, program: Program, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> Int[Tensor, "batch pos output"]:
        """Targets (batch, pos, output) by `program`, with the variables in `given` set."""
        names = {name for row in program.answers for name in row if name is not None}
        if given:  # the other answers stay as they are
            names = {name for name in names if program.depends(name, given)}
        values = program.run(tokens, given, names)
        batch = self.batch_of(tokens)
        targets, asked = batch.targets.clone(), batch.answers
        rows = torch.arange(len(tokens), device=tokens.device)
        for answer, outputs in enumerate(program.answers[: len(asked)]):
            there = asked.positions[:, answer] != IGNORE
            positions = asked.positions[there, answer]
            for output, name in enumerate(outputs):
                if name in values:
                    targets[rows[there], positions, output] = values[name][there]
        return targets

    def variables_of(self, program: Program) -> dict[str, Variable]:
        """The steps of `program` as causal variables of this task."""

        def variable(step: Step) -> Variable:
            return Variable(
                step.name,
                step.n_values,
                step.description,
                lambda tokens: program.run(tokens, only=(step.name,))[step.name],
                lambda tokens, values: self.targets_by(program, tokens, {step.name: values}),
                positions=step.positions,
                parents=step.parents,
                answers=program.reached(step.name),
                change=step.change,
            )

        names = program.shown or program.variables
        return {name: variable(program.variables[name]) for name in names}

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        """The examples with these tokens (batch, pos), labeled by `brute_force`."""
        targets = [self.brute_force(row) for row in tokens.cpu().numpy().tolist()]
        shape = (*tokens.shape, len(self.outputs))
        return Batch(tokens, torch.tensor(targets, device=tokens.device).reshape(shape))

    def counterfactuals(
        self,
        variable: str,
        n: int,
        seed: int,
        *,
        answer: int | None = None,
        relation: Relation | str = Relation.MINIMAL,
        split: str | None = None,
        split_seed: int = 0,
    ) -> Counterfactuals:
        """`n` pairs of examples for an interchange of `variable`.

        Args:
            answer: index of the answer that is to change; the last one that the variable reaches
                when None.
            relation: the source differs from the base in the variable and in as little else as the
                task allows ("minimal"); is drawn whatever the base is ("independent"); or has the
                same value of the variable ("same").
            split: where examples come from; `probe_split` when None. A minimal source is made from
                its base where the variable says how, and may then be of any split.
            split_seed: seed of a finite task's partition, of which `split` is a part.

        Raises:
            UnknownNameError: no variable of that name.
            NotApplicableError: the answer cannot depend on the variable.
            DataError: there are fewer such pairs.
        """
        if n < 1:
            raise ParameterError(f"counterfactuals: n={n}: expected at least 1")
        chosen = find_variable(self, variable)
        index = choose_answer(self, chosen, answer)
        split = self.probe_split if split is None else split
        return draw_pairs(self, chosen, n, seed, split, split_seed, Relation(relation), index)


def answer_scores(
    task: Task,
    logits: Float[Tensor, "*batch example d_vocab_out"],
    targets: Int[Tensor, "example output"],
) -> Float[Tensor, "*batch example output 2"]:
    """(..., example, output, 2) accuracy (0 or 1) and cross-entropy (nats) of every answer, in
    float64; NaN where an output is not asked for. Differentiable in the losses.

    Args:
        logits: at the answers, the columns of all outputs side by side.
        targets: classes, IGNORE for an output that is not asked for.

    >>> import tasks
    >>> task = tasks.make("modular-arithmetic", p=5)
    >>> scores = answer_scores(task, 9.0 * torch.eye(5)[None], torch.arange(5)[:, None])
    >>> scores.shape, scores[..., ACCURACY].mean().item(), round(scores[..., LOSS].max().item(), 4)
    (torch.Size([1, 5, 1, 2]), 1.0, 0.0005)
    """
    columns: list[Tensor] = []
    for output, part in enumerate(task.output_slices.values()):
        own_logits, wanted = logits[..., part].double(), targets[:, output, None]
        loss = own_logits.logsumexp(-1) - logits_of(task, own_logits, wanted)[..., 0]
        right = (own_logits.argmax(-1)[..., None] == task.alternatives(wanted[:, 0])).any(-1)
        score = torch.stack((right.double(), loss), -1)
        columns.append(score.masked_fill(wanted == IGNORE, math.nan))
    return torch.stack(columns, -2)


def logits_of(
    task: Task,
    logits: Float[Tensor, "*batch example n_classes"],
    classes: Int[Tensor, "example k"],
) -> Float[Tensor, "*batch example k"]:
    """Logits of classes: of one with `alternatives`, and of ANY, the logsumexp of theirs."""
    columns = task.alternatives(classes.clamp_min(0))
    index = columns.clamp_min(0).flatten(1)
    chosen = logits.gather(-1, index.expand(*logits.shape[:-1], -1))
    chosen = chosen.view(*chosen.shape[:-1], *columns.shape[1:])
    chosen = chosen.masked_fill(columns == IGNORE, -math.inf).logsumexp(-1)
    every = classes == ANY
    return torch.where(every, logits.logsumexp(-1, keepdim=True), chosen) if every.any() else chosen
