"""The parameters of a corpus, its background and its injected task, and what is known of the
synthetic language.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from mechint.config import setting
from mechint.data import TextTokens, from_dataset, from_file
from mechint.errors import NotApplicableError
from mechint.registry import TASKS
from mechint.task import MAX_SEED, GeneratedTask, rng
from tasks._corpus import language
from tasks._corpus.cut import losses_behind
from tasks._corpus.injection import Injection

CUT = 512
"""Texts over which the cost of the background behind an instance is a mean."""


@dataclass(frozen=True)
class CorpusSettings(GeneratedTask):
    """Settings of the background, and of the task that stands in it."""

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
        if self.path is not None and self.dataset is not None:
            self.reject("dataset", "none where path is given")
        if self.inject is not None and self.frequency * self.gap > 1:
            self.reject(
                "gap",
                (
                    f"at most {1 / self.frequency:g}: frequency × gap is the share of a burst's "
                    "texts with an instance, at most 1"
                ),
            )
        if self.inject == self.label():
            self.reject("inject", "a task other than the corpus itself")
        if self.inject is not None:
            longest = self.injected_task.n_ctx + 2
            if longest > self.n_ctx:
                self.reject(
                    "n_ctx",
                    f"at least {longest}, an instance of {self.inject} with its answer and end",
                )

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
    def synthetic(self) -> language.Synthetic:
        """The background, where it is the synthetic language; else NotApplicableError."""
        if not isinstance(self.background, language.Synthetic):
            raise NotApplicableError(
                "corpus: the entropy is known for the synthetic language only; leave path and "
                "dataset unset"
            )
        return self.background

    @property
    def entropy_rate(self) -> float:
        """Nats a token of the endless synthetic language; NotApplicableError for another
        background.
        """
        return self.synthetic.automaton.entropy_rate

    @cached_property
    def best_loss(self) -> float:
        """Mean loss, in nats, of the best possible predictor of the background in texts of n_ctx
        tokens, over the positions read.

        Exact where no text has an instance. Behind one the background goes on from an unseen state
        in the middle of a sentence, of which the best predictor knows the place alone; what that
        costs is a mean over CUT texts. Instances and their ends are left out: a model's loss over
        whole texts holds them too, and may lie on either side of it.
        """
        automaton = self.synthetic.automaton
        known = automaton.occupancy(self.n_ctx) @ automaton.entropies
        if not self.inject or not self.frequency:
            return float(known[1:].mean())
        generator = rng("best loss", self.inject_seed)
        first = self.injection.texts(CUT, "train", generator)[1].numpy() + 1
        tokens, _ = self.synthetic.draw(CUT, self.n_ctx, generator)
        behind = np.arange(self.n_ctx) >= first[:, None]
        # what not knowing the state adds, text by text, varies less than what a text costs
        costs = losses_behind(automaton, tokens, first)
        added = (costs + behind * automaton.log_likelihood(tokens)).sum(1).mean()
        cut = (behind @ known).mean() + added
        positions = self.n_ctx - 1, behind.sum(1).mean()
        share = np.array([1 - self.frequency, self.frequency])
        if not share @ positions:
            raise NotApplicableError(
                f"corpus: an instance of {self.inject} fills every text, no background is left; "
                "raise n_ctx, or lower frequency"
            )
        return float(share @ [known[1:].sum(), cut] / (share @ positions))
