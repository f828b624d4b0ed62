"""A language-modeling stream with a known task inside it, at a set frequency or in bursts.

Source: "Why Larger Models Learn More", Sec. 4 and App. B.3. The default synthetic language is in
`language`, other texts in ``mechint.data``, the injected task's words in `injection`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import setting
from mechint.data import TextTokens, from_dataset, from_file
from mechint.errors import NotApplicableError
from mechint.registry import TASKS
from mechint.task import (
    IGNORE,
    MAX_SEED,
    Batch,
    Chance,
    Control,
    GeneratedTask,
    Output,
    Symmetry,
    TargetKind,
    Variable,
    Vocabulary,
    rng,
)
from mechint.task.truth import Given
from mechint.tasks._corpus import language
from mechint.tasks._corpus.injection import Injection
from mechint.tasks._corpus.language import Synthetic

REFERENCES = {"rises": 2, "sums": 3}
"""Reference task of the synthetic language → words of its sentence before the answer."""

TASK_SPLITS = {"task": "test", "task-train": "train"}
"""Splits of the injected task alone → the part of it that they show."""


@dataclass(frozen=True)
class Corpus(GeneratedTask):
    """A language-modeling stream into which any token task is injected at a set frequency, or in
    bursts.

    A text has n_ctx tokens; each is the target of the position before, so the last position is not
    read. `frequency` is the expected number of instances of the injected task per text, 0 … 1: a
    text carries one in place of its first words, ended by the end-of-document token, with that
    probability; what follows goes on in the middle of a sentence. With `gap` G above 1 only every
    G-th batch has instances, G times as many: the long-run frequency stays.

    ``masks["task"]`` (batch, pos) marks the tokens of the instance, its answer among them;
    ``masks["rises"]`` and ``masks["sums"]`` the positions at which the synthetic language's two
    reference tasks are answered, in sentences that stand there whole.

    Splits: "train", "validation" and "test" of background and task alike, and the injected task
    alone, as its prompts with the answer as the only target: "task" (held out from training) and
    "task-train".

    >>> task = Corpus(inject="comparison", inject_parameters={"n": 20, "equals": False},
    ...     frequency=1.0, n_ctx=8)
    >>> batch = task.sample(2, seed=0)
    >>> batch.tokens.shape, batch.masks["task"][0].tolist()
    (torch.Size([2, 8]), [True, True, True, False, False, False, False, False])
    """

    name: ClassVar[str] = "corpus"
    topic: ClassVar[str] = "languages"
    source: ClassVar[str] = (
        "Why Larger Models Learn More: Effects of Capacity, Interference, and Rare-Task "
        "Retention, Sec. 4"
    )
    model_defaults: ClassVar[Mapping[str, Any]] = {
        "n_layers": 2,
        "d_model": 128,
        "n_heads": 4,
        "normalization_type": "LN",
        "act_fn": "gelu",
    }
    train_defaults: ClassVar[Mapping[str, Any]] = {
        "steps": 5000,
        "batch_size": 32,
        "lr": 1e-3,
        "betas": (0.9, 0.95),
        "weight_decay": 0.1,
        "warmup": 100,
        "schedule": "cosine",
        "min_lr": 1e-4,
        "clip": 1.0,
    }
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "fast": {
            "task.vocab_size": 64,
            "task.n_ctx": 24,
            "task.inject": "comparison",
            "task.inject_parameters": {"n": 40, "equals": False, "train_fraction": 0.8},
            "task.frequency": 1.0,
            "model.d_model": 64,
            "train.steps": 800,
            "train.lr": 3e-3,
            "train.weight_decay": 1.0,
        },
        "paper": {"train.steps": 5000},
    }
    preset_results: ClassVar[Mapping[str, str]] = {
        "fast": "test loss 1.43 by step 800, seed 0; accuracy of the injected task 98.6%"
    }

    n_ctx: int = setting(64, "tokens of a text", low=2, high=65_536)
    path: str | None = setting(
        None,
        "background from a file: text, .npy, or .bin (uint16); the synthetic language when none",
    )
    dataset: str | None = setting(
        None, "background from a Hugging Face dataset: its name, or a local directory"
    )
    dataset_field: str = setting("text", "text column of the dataset")
    tokenizer: str = setting(
        "bytes",
        "how text becomes tokens: bytes, or words between white space",
        choices=("bytes", "words"),
    )
    vocab_size: int | None = setting(
        None,
        (
            "words: of the synthetic language (512 when none), kept by tokenizer words (8192), or "
            "of a token file"
        ),
        low=1,
        high=1_000_000,
    )
    reference_rate: float = setting(
        0.02,
        "share of the synthetic language's sentences that each reference task makes up",
        low=0,
        high=0.5,
    )
    language_seed: int = setting(0, "seed of the synthetic language's words", low=0, high=MAX_SEED)
    inject: str | None = setting(None, "name of the task to inject")
    inject_parameters: Mapping[str, Any] | None = setting(None, "its parameters")
    frequency: float = setting(
        0.1, "expected instances of the injected task per text", low=0, high=1
    )
    gap: int = setting(
        1,
        "batches from one burst of instances to the next, at the same long-run frequency",
        low=1,
        high=1_000_000,
    )
    inject_seed: int = setting(
        0, "seed of the injected task's words and of its split", low=0, high=MAX_SEED
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        one_source = self.path is None or self.dataset is None
        self.require("dataset", one_source, "none where path is given")
        if self.inject is not None and self.frequency * self.gap > 1:
            self.reject(
                "gap",
                (
                    f"at most {1 / self.frequency:g}: frequency × gap is the share of a burst's "
                    "texts with an instance, at most 1"
                ),
            )
        self.require("inject", self.inject != self.label(), "a task other than the corpus itself")
        if self.inject is not None:
            longest = self.injected_task.n_ctx + 2
            instance = f"an instance of {self.inject} with its answer and end"
            self.require("n_ctx", longest <= self.n_ctx, f"at least {longest}, {instance}")

    @cached_property
    def injected_task(self) -> Any:
        """The task whose instances stand in the texts."""
        return TASKS[self.inject or ""].from_dict(dict(self.inject_parameters or {}))

    @cached_property
    def background(self) -> language.Synthetic | TextTokens:
        """The source of texts.

        Raises:
            DataError: a file or dataset that is missing, empty, unreadable, or shorter than a
                context.
        """
        if self.path is None and self.dataset is None:
            size = self.vocab_size or 512
            return language.Synthetic(
                *language.build(size, self.reference_rate, self.language_seed)
            )
        if self.path is not None:
            tokens = from_file(self.path, self.tokenizer, self.vocab_size, self.name)
        else:
            tokens = from_dataset(
                self.dataset or "", self.dataset_field, self.tokenizer, self.vocab_size, self.name
            )
        tokens.check(self.n_ctx)
        return tokens

    @cached_property
    def injection(self) -> Injection:
        """The injected task in the background's words; NotApplicableError where none is
        injected.
        """
        if self.inject is None:
            raise NotApplicableError(
                "corpus: no task is injected; set inject, e.g. inject=comparison"
            )
        eod = len(self.background.words) - 1
        return Injection(self.injected_task, eod, eod, self.inject_seed)

    # --- what is known of the synthetic language --------------------------------------------------
    @property
    def best_loss(self) -> float:
        """Mean loss, in nats, of the best possible predictor of texts of n_ctx tokens without an
        instance, over the positions read. What stands behind an instance costs more: it goes on
        from a state that no reader has seen. NotApplicableError for another background.
        """
        if not isinstance(self.background, Synthetic):
            raise NotApplicableError(
                "corpus: the entropy is known for the synthetic language only; leave path and "
                "dataset unset"
            )
        automaton = self.background.automaton
        return float((automaton.occupancy(self.n_ctx) @ automaton.entropies)[1:].mean())

    # --- batches ----------------------------------------------------------------------------------
    def generate(self, n: int, split: str, generator: np.random.Generator) -> Batch:
        if split in TASK_SPLITS:
            return self.injection.prompts(n, TASK_SPLITS[split], generator)
        return self._texts(n, split, generator, self.frequency)

    def _texts(self, n: int, split: str, generator: np.random.Generator, rate: float) -> Batch:
        """`n` texts, each with an instance with probability `rate`."""
        if isinstance(self.background, Synthetic):
            drawn, references = self.background.draw(n, self.n_ctx, generator)
        else:
            drawn, references = self.background.draw(n, self.n_ctx, split, generator), {}
        tokens, task = torch.from_numpy(drawn), torch.zeros(n, self.n_ctx, dtype=torch.bool)
        masks = {name: torch.from_numpy(mask) for name, mask in references.items()}
        chosen = (
            torch.from_numpy(np.flatnonzero(generator.random(n) < rate))
            if self.inject
            else torch.zeros(0, dtype=torch.int64)
        )
        kinds = torch.full((n, self.n_ctx), TargetKind.FORM, dtype=torch.int8)
        if len(chosen):
            written, lengths, asked = self.injection.texts(len(chosen), split, generator)
            place = torch.arange(written.shape[1])
            covered = place <= lengths.unsqueeze(1)
            tokens[chosen, : len(place)] = torch.where(
                covered, written, tokens[chosen, : len(place)]
            )
            task[chosen, : len(place)] = place < lengths.unsqueeze(1)
            kinds[chosen, : len(place)] = torch.where(asked, TargetKind.ANSWER, TargetKind.FORM).to(
                torch.int8
            )
            for name, mask in masks.items():  # its whole sentence has to stand in the text
                behind = (lengths + REFERENCES[name]).unsqueeze(1)
                mask[chosen] &= torch.arange(self.n_ctx) > behind
        targets = torch.full_like(tokens, IGNORE)
        targets[:, :-1] = tokens[:, 1:]
        kinds[:, -1] = TargetKind.NONE
        return Batch(
            tokens,
            targets.unsqueeze(-1),
            kinds=kinds if self.inject else None,
            masks={"task": task, **{name: mask.roll(-1, 1) for name, mask in masks.items()}},
        )

    def stream(
        self, split: str, seed: int, batch_size: int | None, start: int = 0
    ) -> Iterator[Batch]:
        if self.gap == 1 or batch_size is None or split in TASK_SPLITS:
            yield from super().stream(split, seed, batch_size, start)
            return
        for step in itertools.count(start):
            burst = (step + 1) % self.gap == 0
            yield self._texts(
                batch_size,
                split,
                rng("burst", self.name, split, seed, step),
                self.gap * self.frequency * burst,
            )

    # --- the contract -----------------------------------------------------------------------------
    @cached_property
    def vocabulary(self) -> Vocabulary:
        return Vocabulary(self.background.words, self.background.separator)

    @property
    def outputs(self) -> tuple[Output, ...]:
        return (Output("next", self.d_vocab, names=self.vocabulary.tokens),)

    @property
    def n_answers(self) -> int:
        """Those of the injected task; without one, every position but the last is an answer."""
        return self.injected_task.n_answers if self.inject else self.n_ctx - 1

    @property
    def answer_names(self) -> tuple[str, ...]:
        return self.injected_task.answer_names if self.inject else super().answer_names

    @property
    def probe_split(self) -> str:
        """The prompts of the injected task, held out from training; texts where there is none."""
        return "task" if self.inject else "test"

    @cached_property
    def chance(self) -> Mapping[str, Chance]:
        """The best constant is the distribution of single tokens, counted over 2^18 tokens of
        training text.
        """
        batch = self.sample(max(1, 2**18 // self.n_ctx), seed=0, split="train")
        counts = torch.bincount(batch.targets[:, :-1].flatten(), minlength=self.d_vocab).double()
        share = counts[counts > 0] / counts.sum()
        return {"next": Chance(float(share.max()), float(-(share * share.log()).sum()))}

    def brute_force(self, tokens: Sequence[int]) -> list[list[int]]:
        """The next token of every position; IGNORE at the last. Of a prompt of the injected task,
        which is shorter, its answers.
        """
        if len(tokens) < self.n_ctx:
            return self.injection.brute_force(tokens)
        return [[int(tokens[i + 1])] for i in range(len(tokens) - 1)] + [[IGNORE]]

    @property
    def controls(self) -> tuple[Control, ...]:
        """Untrained weights; with an injected task, its own controls inside the text, and the text
        without it.
        """
        if self.inject is None:
            return super().controls
        parameters = self.inject_parameters or {}
        inner = [
            Control(c.name, c.description, {"inject_parameters": {**parameters, **c.parameters}})
            for c in self.injected_task.controls
            if not c.untrained
        ]
        return (
            *super().controls,
            *inner,
            Control("absent", "the same background without the injected task", {"frequency": 0.0}),
        )

    @property
    def variables(self) -> Mapping[str, Variable]:
        """Those of the injected task, for its prompts alone."""
        if self.inject is None:
            return {}
        inner = self.injected_task.variables.items()
        return {name: self.injection.variable(variable) for name, variable in inner}

    def run(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> dict[str, Int[Tensor, " batch"]]:
        """The injected task's own run, of its prompts."""
        if self.inject is None:
            return super().run(tokens, given)
        return self.injected_task.run(self.injection.own_tokens(tokens), given)

    def targets(
        self, tokens: Int[Tensor, "batch pos"], given: Given | None = None
    ) -> Int[Tensor, "batch pos output"]:
        if self.inject is None:
            return super().targets(tokens, given)
        injected = self.injected_task.targets(self.injection.own_tokens(tokens), given)
        return self.injection.targets(injected)

    def batch_of(self, tokens: Int[Tensor, "batch pos"]) -> Batch:
        """Prompts of the injected task; texts where none is injected."""
        return self.injection.batch_of(tokens) if self.inject else super().batch_of(tokens)

    @property
    def symmetry(self) -> Symmetry | None:
        return None if self.inject is None else self.injection.symmetry

    def tables(self) -> dict[str, Any]:
        if self.inject is None:
            return {}
        words = self.vocabulary.tokens
        inner = self.injected_task
        return {
            "injected": inner.tables(),
            "words_of_tokens": {
                inner.vocabulary.tokens[i]: words[word]
                for i, word in enumerate(self.injection.token_words.tolist())
            },
            "words_of_classes": [words[word] for word in self.injection.class_words.tolist()],
        }

    def score(
        self, predict: Callable[[Tensor, Tensor], Tensor], split: str, seed: int, n: int
    ) -> dict[str, Float[np.ndarray, " model"]]:
        """Accuracy and loss (nats), (model,) each, of what is answered inside the stream.

        accuracy.task, loss.task: the answers of `n` prompts of the injected task, held-out ones
        unless `split` is "train"; accuracy.sums, loss.sums, accuracy.rises, loss.rises: the
        reference tasks' answers in `n` texts. Names whose answers are not met are left out. Tokens
        have a model axis of one, which stands for the same tokens under all.
        """
        texts = self.sample(n, seed, split)
        asked = {
            name: (texts, mask & (texts.targets[..., 0] != IGNORE))
            for name, mask in texts.masks.items()
            if name != "task"
        }
        if self.inject is not None:
            prompts = self.sample(n, seed, "task-train" if split == "train" else "task")
            asked["task"] = prompts, prompts.targets[..., 0] != IGNORE
        scores = {}
        for name, (batch, mask) in asked.items():
            rows, positions = mask.nonzero(as_tuple=True)
            if len(rows):
                right = batch.targets[rows, positions, 0]
                logits = (
                    predict(batch.tokens[rows].unsqueeze(0), positions.unsqueeze(0)).double().cpu()
                )
                scores[f"accuracy.{name}"] = (logits.argmax(-1) == right).double().mean(-1).numpy()
                chosen = logits.log_softmax(-1).gather(
                    -1, right.expand(logits.shape[:-1]).unsqueeze(-1)
                )
                scores[f"loss.{name}"] = -chosen.squeeze(-1).mean(-1).numpy()
        return scores
