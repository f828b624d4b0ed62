"""Subject: a model with its task, its data and its cached activations; what a probe is given.

    subject = mechint.load("ckpt.pt")
    subject.activation("blocks.0.mlp.hook_post", at="answer")      # (example, d_mlp), cached
    subject.grid(...)                                              # (p, p, d_mlp) on a p x p grid

A Subject does not change: `with_data`, `with_model`, `with_answer`, `with_limits`, `untrained` and
`at_step` give new ones. Its model may: what was cached before an edit of weights or hooks that
torch counts (not through ``.data``), or was edited itself, is computed again. Activations are
computed in evaluation mode, in chunks of at most `chunk` examples and a quarter of `memory` bytes,
and cached up to `memory` bytes; no hook is left behind. Cost: one forward per chunk and request
that is not cached.
"""

from __future__ import annotations

import contextlib
import copy
import math
import operator
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path, PurePath
from types import EllipsisType
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from mechint.errors import (
    DataError,
    MechintError,
    NotApplicableError,
    ParameterError,
    UnknownNameError,
    counted,
)
from mechint.models.foreign.untouched import (
    check_finite,
    check_weight_types,
    plain_arithmetic,
    untouched,
)
from mechint.models.protocol import (
    Capability,
    Hooks,
    ModelDescription,
    capabilities,
    check_hooked,
    describe,
    hook_names,
    reinitialized,
)
from mechint.models.transformer import HookedTransformer
from mechint.subject.activations import (
    LEAST_WORKING_BYTES,
    LOGITS,
    BoundedCache,
    Positions,
    Recorder,
    model_version,
    slices,
)
from mechint.system.jsonable import as_html
from mechint.task import (
    ACCURACY,
    IGNORE,
    LOSS,
    Answers,
    Batch,
    Chance,
    FiniteTask,
    Task,
    answer_scores,
    first_of_each,
    logits_of,
    rng,
)

Which = int | Literal["all"]
"""An answer of an example: counted from 0, negative from its last one, or all."""

At = Literal["answer"] | int | None
"""The place where an activation is taken: at the answer of each example, at one position of all,
or everywhere.
"""


class Subject:
    """A model under study.

    Args:
        model: any hooked model: a HookedTransformer, a student, a bridge, or a wrapped module.
        task: what it was trained on; None for a language model without a task of ours.
        data: the examples probes look at; all inputs of a finite task, `n_examples` different ones
            of a generated one when None. Where some have the answer meant and others lack it,
            `Subject.data` are those that have it: the others have no position to be measured at.
            `data_given`: whether they were given, and not drawn here.
        provenance: where the model comes from: "path", "format", "step", "metrics" and more, as
            JSON values.
        series: step → function that gives the weights at that step (checkpoints of one run),
            ascending.
        split_seed: seed of the train/test split the model was trained with.
        split: "train", "test" → indices into the examples of a finite task; the task's own split
            of `split_seed` when not given, None where the model's split is not known. It is that
            of data that are all of the task's examples, in order, alone.
        answer: which of an example's answers is meant, counted from 0, negative from the last one;
            or "all": one row per example and answer.
        memory: bytes of cached activations; chunk: examples per forward, at most.
    """

    model: Any
    task: Task | None
    data: Batch
    series: Mapping[int, Callable[[], Mapping[str, Tensor]]]
    split_seed: int
    answer: Which
    memory: int
    data_given: bool
    _all_examples: Batch
    _max_chunk: int
    _split: Mapping[str, Tensor] | EllipsisType | None
    _provenance: Mapping[str, Any]
    _cache: BoundedCache

    def __init__(
        self,
        model: Any,
        task: Task | None,
        *,
        data: Batch | None = None,
        provenance: Mapping[str, Any] | None = None,
        series: Mapping[int, Callable[[], Mapping[str, Tensor]]] | None = None,
        split_seed: int = 0,
        split: Mapping[str, Tensor] | EllipsisType | None = ...,
        answer: Which = -1,
        n_examples: int = 1024,
        memory: int = 1 << 29,
        chunk: int = 4096,
    ) -> None:
        check_hooked(model)
        check_weight_types(model, str((provenance or {}).get("path", type(model).__name__)))
        if task is not None and getattr(model, "vocabulary", 0) is None:
            model.vocabulary = task.vocabulary  # a HookedTransformer then takes text
            model.tokenizer = model.tokenizer or getattr(task, "encoder", None)
        data_given = data is not None
        if data is None:
            data = _examples(task, n_examples, split_seed)
        _check_data(data, task)
        answer = _checked("answer", answer, "all", "its number or all")
        data = data.to(next(model.parameters()).device)
        if not getattr(model, "checked", True) and len(data):
            model.check_forward(data.tokens[:8])
        self.__dict__.update(
            model=model,
            task=task,
            data=_drop_unanswered(answer, data),
            data_given=data_given,
            _all_examples=data,
            series=dict(series or {}),
            split_seed=split_seed,
            _split=split,
            answer=answer,
            memory=memory,
            _max_chunk=chunk,
            _provenance=dict(provenance or {}),
            _cache=BoundedCache(memory),
        )

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"Subject.{name}: a Subject does not change; with_data, with_model, with_answer, "
            "with_limits, untrained and at_step give new ones"
        )

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.data.tokens.shape))
        return f"Subject({self.describe()}; {type(self.model).__name__}, data {shape})"

    def _repr_html_(self) -> str:
        """Model, task, data, and the metrics and assumptions of its checkpoint. Cost: none."""
        known, shape = self._provenance, self.model_description
        sizes = {name: value for name, value in vars(shape).items() if value is not None}
        rows = {
            "model": type(self.model).__name__,
            **sizes,
            "parameters": sum(weight.numel() for weight in self.model.parameters()),
            "task": "none" if self.task is None else repr(self.task),
            "data": "×".join(map(str, self.data.tokens.shape)),
            "answers per example": len(self.answers),
            **{name: known[name] for name in ("path", "format", "step") if name in known},
            "kept checkpoints": len(self.series),
            **dict(known.get("metrics") or {}),
            **{f"assumed: {name}": why for name, why in dict(known.get("assumed") or {}).items()},
        }
        return as_html(("", self.describe()), list(rows.items()))

    # --- what it is -------------------------------------------------------------------------------
    @property
    def device(self) -> torch.device:
        """Device of the model's weights and of the data."""
        return self._weight.device

    @property
    def _weight(self) -> Tensor:
        return next(self.model.parameters())

    @cached_property
    def model_description(self) -> ModelDescription:
        """Sizes of the model, whatever kind it is of."""
        return describe(self.model, self.hooks)

    @cached_property
    def hooks(self) -> frozenset[str]:
        """Names of the activations that a forward of the model makes."""
        return hook_names(self.model)

    @cached_property
    def chunk(self) -> int:
        """Examples per forward: those allowed, and at most a quarter of `memory` at once."""
        shape = self.model_description
        # numbers that are not tokens are one input together
        n = 1 if self.data.tokens.is_floating_point() else self.data.tokens.shape[1]
        example_bytes = (
            n * (shape.width(n) + (shape.d_vocab_out or 0)) * self._weight.element_size()
        )
        room = max(self.memory // 4, LEAST_WORKING_BYTES)
        return max(1, min(self._max_chunk, room // max(example_bytes, 1)))

    @cached_property
    def _recorder(self) -> Recorder:
        return Recorder(self.model, self.chunk)

    @property
    def n_layers(self) -> int:
        """Blocks passed through, repeated passes counted."""
        return self.model_description.n_layers

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Abilities of the model beyond being run under hooks."""
        return capabilities(self.model)

    @property
    def provenance(self) -> dict[str, Any]:
        """Checkpoint, task and versions, as JSON values."""
        import mechint

        task = (
            None
            if self.task is None
            else {"name": self.task.name, "parameters": self.task.to_dict()}
        )
        return {
            "checkpoint": self._provenance,
            "task": task,
            "mechint": mechint.__version__,
            "torch": torch.__version__,
        }

    @cached_property
    def on_grid(self) -> bool:
        """True where the data are all inputs of a finite task, in the order of its grid.

        >>> from mechint.planted import modular_addition
        >>> subject = modular_addition(11, (3,)).subject
        >>> subject.on_grid, subject.with_data(subject.data[torch.arange(121).flip(0)]).on_grid
        (True, False)
        """
        task, tokens = self.task, self.data.tokens
        # the length first: not every task's inputs fit in memory
        if not isinstance(task, FiniteTask) or len(tokens) != math.prod(task.grid):
            return False
        inputs = task.examples().tokens
        return inputs.shape == tokens.shape and bool((inputs.to(tokens.device) == tokens).all())

    @cached_property
    def split(self) -> Mapping[str, Int[Tensor, " _index"]] | None:
        """Split → indices into the data, as the model was trained; None where that is not known,
        or the data are not all examples of a finite task in order (`on_grid`).
        """
        if not self.on_grid:
            return None
        if not isinstance(self._split, EllipsisType):
            return self._split
        assert isinstance(self.task, FiniteTask)
        return self.task.split(self.split_seed)

    def describe(self) -> str:
        """The subject in a few words, for messages."""
        name = self._provenance.get("path", type(self.model).__name__)
        words = f"{name} on {self.task.name}" if self.task else f"{name} without a task"
        if len(self.data) < len(self._all_examples):
            share = f"{len(self.data)} of {counted(len(self._all_examples), 'example')}"
            words += f", the {share} that have an answer{f' {self.answer}' * (self.answer != -1)}"
        return words

    # --- answers ----------------------------------------------------------------------------------
    @cached_property
    def answers(self) -> Answers:
        """Positions (example, answer) and targets (example, answer, output) of all answers."""
        return self.data.answers

    @property
    def asked(self) -> str:
        """The name of the answer meant; "" where an example has one, and of all."""
        task = self.task
        several = task is not None and task.n_answers > 1 and self.answer != "all"
        return task.answer_names[int(self.answer)] if task is not None and several else ""

    @property
    def answer_positions(self) -> Int[Tensor, " row"]:
        """Position of the answer meant, one row per example (and answer, with "all")."""
        return self._rows(self._positions("answer", self.data), self.data)

    @property
    def answer_examples(self) -> Int[Tensor, " row"]:
        """Example that each row belongs to: 0, 1, … unless `answer` is "all"."""
        rows = torch.arange(len(self.data), device=self.device)
        if self.answer == "all":
            rows = rows[:, None].expand(self.answers.positions.shape)
        return self._rows(rows, self.data)

    @cached_property
    def distinct_examples(self) -> Int[Tensor, " row"]:
        """A number of the distinct example that each row belongs to: rows of equal inputs share it,
        so that an example that was given twice, or has several answers, can be counted once.

        >>> from mechint.planted import modular_addition
        >>> subject = modular_addition(5, (1,)).subject
        >>> subject.with_data(subject.data[[3, 0, 3]]).distinct_examples.tolist()
        [1, 0, 1]
        """
        unique: Any = torch.unique  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        distinct: Tensor = unique(self.data.tokens, dim=0, return_inverse=True)[1]
        return distinct[self.answer_examples]

    @cached_property
    def targets(self) -> Int[Tensor, "row output"]:
        """Classes of the answer meant, IGNORE for an output that is not asked for there."""
        if self.answer == "all":
            return self._rows(self.answers.targets, self.data)
        return self.answers.at(self.answer)[1]

    @property
    def known_task(self) -> Task:
        """The task; ParameterError where there is none, so that no answer is right or wrong."""
        if self.task is None:
            raise ParameterError(
                f"{self.describe()}: no answer, so there is no loss, accuracy or chance level; "
                "Subject(model, task) has them"
            )
        return self.task

    def logits(
        self, data: Batch | None = None, hooks: Hooks = (), at: At = "answer"
    ) -> Float[Tensor, "row ..."]:
        """Logits at the answer, at a position or everywhere, under `hooks` if any; plain ones on
        the subject's own data are cached.

        hooks: (hook name, function(activation, hook)) pairs as TransformerLens's.
        """
        at = _checked_position(at)
        if not hooks:
            return self.activation(LOGITS, at, data)
        batch = self.data if data is None else data
        logits = self._recorder.logits(batch.tokens, hooks, self._positions(at, batch))
        return self._rows(logits, batch) if at == "answer" else logits

    def logits_embedded(
        self, tables: Float[Tensor, "table d_vocab d_model"]
    ) -> Float[Tensor, "table row d_vocab_out"] | None:
        """Logits at the answer with each of `tables` in place of the embedding W_E; None for a
        model that is not computed at the answer alone, or with several answers an example.
        """
        if self.answer == "all":
            return None
        where = self._positions("answer", self.data)
        return self._recorder.embedded(self.data.tokens, where, tables)

    def correct(
        self,
        logits: Float[Tensor, "row d_vocab_out"] | None = None,
        targets: Int[Tensor, "row output"] | None = None,
    ) -> Bool[Tensor, "row output"]:
        """Return whether the arg-max class of every output is the target.

        What is asked of the subject's own logits is cached; its cost is one forward.
        """
        if logits is None and targets is None:
            return self._current_cache().get("correct", lambda: self._by_chunk(self.correct))
        columns = self.known_task.output_slices.values()
        logits = self.logits() if logits is None else logits
        targets = self.targets if targets is None else targets
        said = torch.stack([logits[..., part].argmax(-1) for part in columns], -1)
        return (said[..., None] == self.known_task.alternatives(targets)).any(-1)

    @property
    def finite(self) -> bool:
        """True where no logit at the answer is +∞ or no number; -∞, which forbids a class, is
        neither. Cached; its cost is one forward, which `correct` is then taken from, too.
        """
        return bool(self._current_cache().get("finite", self._finite_and_correct_by_chunk))

    def _by_chunk(self, measure: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        """(row, …) of a measure of logits and targets at the answer, not all held at once."""
        targets, parts = self.targets, self.stream([LOGITS], at="answer")
        return torch.cat([measure(chunk[LOGITS], targets[rows]) for rows, chunk in parts])

    def _finite_and_correct_by_chunk(self) -> Bool[Tensor, ""]:
        finite, correct, targets = True, list[Tensor](), self.targets
        for rows, chunk in self.stream([LOGITS], at="answer"):
            logits = chunk[LOGITS]
            finite &= not bool(logits.isnan().any() or (logits == float("inf")).any())
            if not targets.is_floating_point():
                correct.append(self.correct(logits, targets[rows]))
        if correct:
            self._current_cache().put("correct", torch.cat(correct))
        return torch.tensor(finite)

    @cached_property
    def margins(self) -> Float[Tensor, " row"] | None:
        """Logit of the right answer minus the largest logit among the wrong answers that the task
        names (nats, one row per answer meant), NaN for a row for which it names none; None if every
        class is a rival.
        """
        return self.margins_of(None)

    def margins_of(
        self, logits: Float[Tensor, "row d_vocab_out"] | None
    ) -> Float[Tensor, " row"] | None:
        """The margins of other logits, such as those under an intervention; its own when None.

        Raises:
            NotApplicableError: of other logits, where answers are of several tokens.
        """
        if self.task is None or self.data.tokens.is_floating_point():
            return None
        wrong = self.task.wrong_answers(self.data.tokens)
        if wrong is None:
            return None
        from mechint.subject.pairs import Pairs, differences

        wrong, right = wrong[self.answer_examples], self.targets[:, :1]
        if self.task.several < 2:
            logits = (self.logits() if logits is None else logits).double()
            margin_each = logits_of(self.task, logits, torch.cat((right, wrong), 1))
            margin_each = margin_each[:, :1] - margin_each[:, 1:]
        elif logits is None:
            tokens, reads = self.data.tokens[self.answer_examples], self.answer_positions
            parts = (
                Pairs(tokens, tokens, reads, reads, right, right, wrong_class[:, None])
                for wrong_class in wrong.T
            )
            pairs = Pairs.cat([*parts])
            each = [
                differences(self.model, self.task, pairs[start : start + self.chunk])[0]
                for start in range(0, len(pairs), self.chunk)
            ]
            margin_each = -torch.cat(each).double().view(wrong.shape[1], -1).T
        else:
            raise NotApplicableError(f"{self.describe()}: answers of several tokens; ask heads")
        margins = margin_each.masked_fill(wrong == IGNORE, torch.inf).amin(-1)
        return margins.where(margins.isfinite() & (right[:, 0] != IGNORE), torch.nan)

    def scores_by_pair(
        self, logits: Float[Tensor, "row d_vocab_out"] | None = None
    ) -> tuple[dict[str, float], dict[str, float], float | None]:
        """Accuracy and loss (nats) by output: of the right answer beside those that the task holds
        it against, with the mean margin; where it holds it against all classes None.
        """
        both = self.accuracy(logits), self.loss(logits)
        margins = self.margins if logits is None else self.margins_of(logits)
        if margins is None:
            return *both, None
        margins = margins[~margins.isnan()]
        losses = torch.nn.functional.softplus(-margins)
        right, lost = (float(values.double().mean()) for values in (margins > 0, losses))
        return dict.fromkeys(both[0], right), dict.fromkeys(both[1], lost), float(margins.mean())

    def accuracy(
        self,
        logits: Float[Tensor, "row d_vocab_out"] | None = None,
        targets: Int[Tensor, "row output"] | None = None,
    ) -> dict[str, float]:
        """Output → share of answers that are correct."""
        return self._means(ACCURACY, logits, targets)

    @cached_property
    def chance(self) -> dict[str, Chance]:
        """Output → the best constant answer's accuracy and loss on the answers asked for; those of
        the task where the data have none. A task's own count every answer of an example, also those
        that are not asked for.

        >>> from mechint.planted import modular_addition
        >>> subject = modular_addition(5, (1,)).subject
        >>> few = subject.with_data(subject.data[:2])
        >>> subject.chance["answer"].accuracy, few.chance["answer"].accuracy
        (0.2, 0.5)
        """
        task = self.known_task
        return {
            output.name: (
                Chance.of(answers) if bool((answers != IGNORE).any()) else task.chance[output.name]
            )
            for output, answers in zip(task.outputs, self.targets.unbind(1), strict=True)
        }

    def loss(
        self,
        logits: Float[Tensor, "row d_vocab_out"] | None = None,
        targets: Int[Tensor, "row output"] | None = None,
    ) -> dict[str, float]:
        """Output → mean cross-entropy in nats, in float64."""
        return self._means(LOSS, logits, targets)

    def _means(
        self, column: int, logits: Tensor | None, targets: Tensor | None
    ) -> dict[str, float]:
        task = self.known_task
        if logits is None and targets is None:
            scores = self.scores
        else:
            logits = self.logits() if logits is None else logits
            scores = answer_scores(task, logits, self.targets if targets is None else targets)
        means = scores[..., column].nanmean(0)
        return {name: float(mean) for name, mean in zip(task.output_slices, means, strict=True)}

    @property
    def scores(self) -> Float[Tensor, "row output score"]:
        """Accuracy (0 or 1) and cross-entropy of every answer, as `answer_scores` gives them.

        Cached; its cost is one forward, and the logits of all answers are not held at once.
        """
        score = partial(answer_scores, self.known_task)
        return self._current_cache().get("scores", lambda: self._by_chunk(score))

    # --- activations ------------------------------------------------------------------------------
    def check_hook(self, name: str) -> str:
        """`name` if the model has that hook; UnknownNameError with the nearest one if not."""
        if name != LOGITS and name not in self.hooks and name in self.model.hook_dict:
            raise ParameterError(
                f"hook {name}: it does not run, or is not what its name says in this "
                "architecture; for attn.hook_result set model.use_attn_result"
            )
        if name != LOGITS and name not in self.model.hook_dict and hasattr(self.model, "missing"):
            raise UnknownNameError(
                f"hook {name}: wrap was given none of that name; add hooks={{{name!r}: submodule "
                "path}"
            )
        return self._recorder.check(name)

    def activation(
        self, name: str, at: At = None, data: Batch | None = None
    ) -> Float[Tensor, "row ..."]:
        """The activation at hook `name`: (example, pos, …), or (row, …) at the answer or at one
        position; "logits" is the model's output.

        Of attention patterns and scores, (example, head, query, key), `at` picks the query.
        Non-finite values are an error.
        """
        return self.activations([name], at, data)[name]

    def activations(
        self, names: Sequence[str], at: At = None, data: Batch | None = None
    ) -> dict[str, Float[Tensor, " ..."]]:
        """Several activations by the name asked for, all of one forward per chunk."""
        at = _checked_position(at)
        cache = self._current_cache() if data is None else BoundedCache(0)
        kept = {name: cache.find((name, at)) for name in names}
        activations = {name: value for name, value in kept.items() if value is not None}
        missing = [name for name in kept if name not in activations]
        if missing:
            batch = self.data if data is None else data
            where = self._positions(at, batch)
            with self._naming_subject():
                recorded = self._recorder.record(batch.tokens, missing, where, self.memory // 8)
            for name, value in recorded.items():
                rows = self._rows(value, batch) if at == "answer" else value
                activations[name] = cache.put((name, at), rows)
        return {name: activations[name] for name in names}

    def stream(
        self, names: Sequence[str], at: At = None
    ) -> Iterator[tuple[slice, dict[str, Float[Tensor, "row ..."]]]]:
        """Rows (examples; answers where `answer` is "all"), and their activations by name.

        Taken from the cache where they are there, or where they are at one place of an example and
        a quarter of the memory holds them all; else computed a chunk at a time, each chunk within
        an eighth of the memory, and not kept.
        """
        at, cache = _checked_position(at), self._current_cache()
        cached = all(cache.find((name, at)) is not None for name in names)
        if cached or (at is not None and self._fits(names, at)):
            activations = self.activations(names, at)
            for part in slices(len(activations[names[0]]), self.chunk):
                yield part, {name: value[part] for name, value in activations.items()}
            return
        tokens, where, start = self.data.tokens, self._positions(at, self.data), 0
        with self._naming_subject():
            for part, activations in self._recorder.stream(tokens, names, where, self.memory // 8):
                if at == "answer":
                    activations = {
                        name: self._rows(x, self.data, part) for name, x in activations.items()
                    }
                stop = start + len(activations[names[0]])
                yield slice(start, stop), activations
                start = stop

    def grid(self, activation: Shaped[Tensor, "example ..."]) -> Shaped[Tensor, " ..."]:
        """(example, …) reshaped to the task's input grid, e.g. (p, p, …).

        Raises:
            DataError: the data are not all inputs of a finite task, in order.
        """
        if not isinstance(self.task, FiniteTask) or not self.on_grid:
            raise DataError(
                f"{self.describe()}: its data are no grid; expected all inputs of a finite task, "
                "in order, as without with_data"
            )
        return activation.reshape(*self.task.grid, *activation.shape[1:])

    @property
    def cached_bytes(self) -> int:
        """Bytes of activations that are kept."""
        return self._cache.nbytes

    def _current_cache(self) -> BoundedCache:
        """The cache, without what was computed before the last edit of the model."""
        _ = self.hooks  # runs a bridge once, which adds hooks of its own in its first forward
        self._cache.keep_for(model_version(self.model))
        return self._cache

    def _fits(self, names: Sequence[str], at: At) -> bool:
        """Return whether a quarter of the memory holds activations that are not cached."""
        if not self.memory or not len(self.data):
            return False
        first = self.activations(names, at, self.data[:1])
        return 4 * len(self.data) * sum(value.nbytes for value in first.values()) <= self.memory

    def _positions(self, at: At, data: Batch) -> Positions:
        """`at` as the recorder takes it: (example,), or (example, answer) for all answers."""
        if at != "answer":
            data.check_position("activation", at)
            return at
        answers = self.answers if data is self.data else data.answers
        if self.answer == "all":
            return answers.positions.clamp(min=0)
        return answers.at(self.answer)[0].clamp(min=0)

    def _rows(self, values: Any, data: Batch, part: slice = slice(None)) -> Tensor:
        """(example, answer, …) of all answers as rows, what is padding left out; else one row per
        example that has the answer. part: the examples of `data` that `values` belong to.
        """
        if self.answer == "all":
            positions = (self.answers if data is self.data else data.answers).positions
        elif data is self.data:  # all of them have it
            return values
        else:
            positions = data.answers.at(self.answer)[0]
        there = positions[part] != IGNORE
        if self.answer != "all" and bool(there.all()):
            return values
        with plain_arithmetic(self.device):
            return values[there]

    @contextlib.contextmanager
    def _naming_subject(self) -> Generator[None]:
        """Say of which subject an activation is not finite."""
        try:
            yield
        except MechintError as error:
            if type(error) is MechintError:
                raise MechintError(f"{self.describe()}: {error}") from error
            raise

    # --- other subjects ---------------------------------------------------------------------------
    def _replace(self, **changes: Any) -> Subject:
        kept: dict[str, Any] = {
            "model": self.model,
            "task": self.task,
            "data": self._all_examples,
            "provenance": self._provenance,
            "series": self.series,
            "split_seed": self.split_seed,
            "split": self._split,
            "answer": self.answer,
            "memory": self.memory,
            "chunk": self._max_chunk,
        }
        other = Subject(**{**kept, **changes})
        other.__dict__["data_given"] = self.data_given or "data" in changes
        return other

    def with_model(self, model: Any, **provenance: Any) -> Subject:
        """The same task, data and limits with another model, which belongs to no run."""
        return self._replace(
            model=model, series=None, provenance={**self._provenance, **provenance}
        )

    def with_task(self, task: Task) -> Subject:
        """The same model and examples of another task."""
        return self._replace(task=task)

    def with_data(self, data: Batch) -> Subject:
        """The same model on other examples."""
        return self._replace(data=data)

    def with_answer(self, answer: Which) -> Subject:
        """The same subject asked about another of its answers, or about all of them; its data are
        the examples that have it.

        Raises:
            ParameterError: no example has that answer, or it is neither a number nor "all".
        """
        count = len(self.answers)
        answer = _checked("answer", answer, "all", "its number or all")
        if answer != "all" and not -count <= answer < count:
            raise ParameterError(
                f"answer={answer}: the examples of {self.describe()} have "
                f"{counted(count, 'answer')}; expected {-count} … {count - 1} or all"
            )
        return self._replace(answer=answer)

    def with_limits(self, *, memory: int | None = None, chunk: int | None = None) -> Subject:
        """The same subject with other limits on memory (bytes) and chunk (examples per forward)."""
        return self._replace(
            memory=self.memory if memory is None else memory,
            chunk=self._max_chunk if chunk is None else chunk,
        )

    def untrained(self, seed: int = 0) -> Subject:
        """The same architecture with initial weights: the control on which no mechanism can be.

        Raises:
            MechintError: a model without the capability REINITIALIZE.
        """
        weight = self._weight
        model = reinitialized(self.model, seed)
        if (weight.device, weight.dtype) != (torch.device("cpu"), torch.float32):
            with contextlib.redirect_stdout(sys.stderr):  # a bridge announces its moves
                model = model.to(device=weight.device, dtype=weight.dtype)
        return self.with_model(model, path=f"untrained, seed {seed}")

    @property
    def knows_initialization(self) -> bool:
        """True where `untrained` draws the weights that training began from: of models of mechint's
        own, and of those whose library or user makes them again; not of files of others.
        """
        known = self._provenance.get("format") in (None, "mechint", "memory", "planted")
        made_again = not isinstance(self.model, HookedTransformer)
        return (known or made_again) and Capability.REINITIALIZE in self.capabilities

    @property
    def control(self) -> str:
        """The models of `controls_in_turn` in words."""
        return "untrained models" if self.knows_initialization else REORDERED

    def controls_in_turn(self, seeds: Iterable[int]) -> Iterator[Subject]:
        """Models without a mechanism, one per seed: freshly initialized ones (`untrained`), or, if
        the initialization is unknown, the model with the entries of each tensor in random order:
        of an untrained model that is another draw of its initialization, whichever it was. All
        share one module, so use each before asking for the next.

        >>> from mechint.planted import modular_addition
        >>> subject = modular_addition(5, (1,)).subject
        >>> other = subject.with_model(subject.model, format="a file of others")
        >>> subject.control, other.control
        ('untrained models', 'its own weights in random order')
        """
        if self.knows_initialization:
            subject: Subject | None = None
            for seed in seeds:
                if subject is None or not isinstance(subject.model, HookedTransformer):
                    subject = self.untrained(seed)
                else:
                    subject.model.reset(seed)
                    subject = subject.with_model(subject.model, path=f"untrained, seed {seed}")
                yield subject
            return
        model = copy.deepcopy(self.model)
        for seed in seeds:
            generator = torch.Generator().manual_seed(seed)
            weights = zip(model.parameters(), self.model.parameters(), strict=True)
            with torch.no_grad():
                for shuffled, values in weights:
                    order = torch.randperm(values.numel(), generator=generator).to(values.device)
                    shuffled.copy_(values.flatten()[order].reshape(values.shape))
            yield self.with_model(model, path=f"in random order, seed {seed}")

    def at_step(self, step: int) -> Subject:
        """The subject at another checkpoint of its run, of which it has the `series` too."""
        if step not in self.series:
            raise ParameterError(
                f"step {step}: {self.describe()} has checkpoints at "
                f"{', '.join(map(str, self.series)) or 'no other step'}"
            )
        model = copy.deepcopy(self.model)
        model.load_state_dict(dict(self.series[step]()))
        return self._replace(model=model, provenance={**self._provenance, "step": step})

    def save_pretrained(self, out: str | Path, account: Any = None, *, force: bool = False) -> Path:
        """Write the model as a folder with a card that is its account, and return the folder: see
        `mechint.account.card.save_pretrained`.
        """
        import mechint

        return mechint.save_pretrained(self, out, account, force=force)

    @contextlib.contextmanager
    def untouched(self) -> Generator[None]:
        """Evaluation mode inside; mode, gradients, hooks and RNG state as before afterwards, after
        an error too.

        Raises:
            MechintError: weights that are not finite, or no longer dense float32 or float64.
        """
        check_weight_types(self.model, self.describe())
        check_finite(self.model, self.describe())
        with untouched(self.model):
            yield


REORDERED = "its own weights in random order"
"""The initialization that a model of unknown initialization is compared with."""


def _checked_position(at: Any) -> At:
    """`at` as an `At`, whatever kind of whole number it is."""
    return at if at is None else _checked("at", at, "answer", "answer, a position or None")


def _checked(name: str, value: Any, word: str, expected: str) -> Any:
    """`value` as an int, whatever kind of whole number it is, or the one word that it may be."""
    if type(value) is str and value == word:
        return word
    number: Any = value
    try:
        return operator.index(number)
    except TypeError as error:
        raise ParameterError(f"{name}={value!r}: expected {expected}") from error


def _check_data(data: Batch, task: Task | None) -> None:
    """ParameterError where `data` are no examples, or a target is no class of `task`."""
    if data.tokens.dim() < 2:
        raise ParameterError(
            f"data: tokens of shape {tuple(data.tokens.shape)}; expected (example, pos)"
        )
    if task is None or data.targets.dim() < 3:  # real targets are no classes
        return
    for output, targets in zip(task.outputs, data.targets.unbind(-1), strict=False):
        n = len(output.class_names)
        wrong = targets[(targets != IGNORE) & ((targets < 0) | (targets >= n))]
        if len(wrong):
            raise ParameterError(
                f"data: target {int(wrong[0])} of output {output.name}; expected 0 to {n - 1}, or "
                f"{IGNORE} where nothing is read"
            )


def _drop_unanswered(answer: Which, data: Batch) -> Batch:
    """The examples that have the answer; all where none has an answer, or all answers are meant."""
    if answer == "all":
        return data
    answers = data.answers
    if not -len(answers) <= answer < len(answers):
        return data
    there = answers.at(answer)[0] != IGNORE
    if bool(there.all()):
        return data
    with plain_arithmetic(there.device):
        return data[there]


def _examples(task: Task | None, n: int, seed: int) -> Batch:
    """All inputs of a finite task, `n` of another, each once; where few are held out, as of a task
    of few inputs, three times as many of all its splits.
    """
    if task is None:
        return Batch(torch.zeros(0, 1, dtype=torch.int64), torch.zeros(0, 1, 1, dtype=torch.int64))
    if isinstance(task, FiniteTask):
        return task.examples()
    drawn = task.sample(n, seed=seed, split=task.probe_split)
    first = first_of_each(drawn.tokens)
    if 2 * len(first) < n:
        shares = {"test": 1, "validation": 1, "train": 14}
        parts = [task.sample(3 * share * n, seed, split) for split, share in shares.items()]
        drawn = Batch.cat(parts)
        first = first_of_each(drawn.tokens)
        order = rng("examples", seed).permutation(len(first))[: 3 * n]
        first = first[np.sort(order).tolist()]
    return drawn[first]


def check_subjects(probe: str, *given: object) -> None:
    """ParameterError where `probe` was given a path, a model or a checkpoint for a subject."""
    for subject in given:
        if not isinstance(subject, Subject):
            got = (
                repr(str(subject))
                if isinstance(subject, str | PurePath)
                else type(subject).__name__
            )
            raise ParameterError(
                f"probe {probe}: got {got}; expected a Subject: mechint.load(path) opens a "
                "checkpoint as one, mechint.Subject(model, task) makes one of a model; a run's "
                "and a checkpoint's own is .subject()"
            )
