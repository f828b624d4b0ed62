"""Checkpoint: an opened file or run directory, as a model with what is known of it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jaxtyping import Int
from torch import Tensor

from mechint.checkpoints.fitting import propose
from mechint.checkpoints.performance import LEARNED, LOSS_GAINED, SplitPerformance, measure
from mechint.checkpoints.reader import Recorded
from mechint.config import ModelConfig
from mechint.models import build
from mechint.subject import Subject
from mechint.system.packages import changed_files
from mechint.task import Task


@dataclass(frozen=True, kw_only=True)
class Checkpoint(Recorded):
    """A model, its task and its history.

    path: the file that was read; format: name of the reader that recognized it; model:
    HookedTransformer, student or TransformerBridge, on its device, in evaluation mode; config: of
    the architecture; task: None where neither the file nor the caller names it. The other fields
    are those of `Recorded`.
    """

    path: Path
    format: str
    model: Any
    config: Any
    task: Task | None = None

    @property
    def provenance(self) -> dict[str, Any]:
        """path, format, step, metrics, seed, what was assumed and extra, as JSON values."""
        known: dict[str, Any] = {
            "path": str(self.path),
            "format": self.format,
            "step": self.step,
            "metrics": dict(self.metrics),
            "seed": self.seed,
        }
        if self.split is not None and self.split.rule != "mechint":
            known["split"] = self.split.to_dict()
        if self.assumed:
            known["assumed"] = {name: item.to_dict() for name, item in self.assumed.items()}
        return known | ({"extra": dict(self.extra)} if self.extra else {})

    @property
    def proposals(self) -> list[str]:
        """Command-line texts that name a task this model fits, where none is known:
        ``--task … --set p=113``.
        """
        return (
            propose(self.config)
            if self.task is None and isinstance(self.config, ModelConfig)
            else []
        )

    @cached_property
    def split_indices(self) -> dict[str, Int[Tensor, " _index"]] | None:
        """Split → indices into the task's examples; None where the split is not known."""
        return None if self.split is None else self.split.of(self.task)

    @cached_property
    def performance(self) -> SplitPerformance | None:
        """Accuracy and loss beside chance; None without a task."""
        return measure(self.subject(), self.split_indices)

    def warnings(self) -> list[str]:
        """Lines to show before any result: another corpus, chance, few examples, a file read
        wrongly, or no task.
        """
        said = [
            f"{file} is another file now than when this model was trained with it, so that its "
            "numbers are of other data or of another task"
            for file in changed_files(self.path.parent)
        ]
        if self.task is None:
            fitting = " or ".join(self.proposals)
            said.append(
                "no task is known, so only probes that need none apply; name it with --task and "
                "--set, or give a language model prompts with --data"
                + (f": {fitting} fits the vocabulary" if fitting else "")
            )
        if self.performance is None:
            return said
        doubtful = self.performance.misread or self.performance.at_chance
        doubtful = doubtful or min(self.performance.accuracy.values(), default=1.0) < LEARNED
        better = self._better_reading() if doubtful else ""
        return said + self.performance.warnings(self.metrics, self.assumed, better)

    def _better_reading(self) -> str:
        """The settings, each in place of one assumption, that bring the loss below that of a
        constant answer and well below what it is, and the accuracy above chance; empty where none
        does.
        """
        if (
            not isinstance(self.config, ModelConfig)
            or self.task is None
            or self.performance is None
        ):
            return ""
        found: dict[str, float] = {}
        most = sum(self.performance.loss.values()) - LOSS_GAINED
        for name, values in READINGS.items():
            for value in values if name in self.assumed else ():
                if value == (now := getattr(self.config, name)) or now not in values:
                    continue
                other = build(dataclasses.replace(self.config, **{name: value}))
                other.load_weights(self.model.weights())
                read = Subject(other.eval(), self.task, data=self.subject().data)
                made = measure(read, None)
                if made is None or made.at_chance or (total := sum(made.loss.values())) >= most:
                    continue
                if all(loss < made.chance[output]["loss"] for output, loss in made.loss.items()):
                    found[f"{name}={value}"] = total
        if not found:
            return ""
        first, *more = sorted(found, key=lambda text: found[text])
        near = [text for text in more if found[text] < 2 * found[first]]
        return f"with --set model.{first} the loss is {found[first]:.3g}" + "".join(
            f", with {text} {found[text]:.3g}" for text in near
        )

    def subject(self, **options: Any) -> Subject:
        """Return the subject for probes; `options` are those of `mechint.subject.Subject`.

        Its split is the recorded one, so that train and test are those the model was trained with;
        None where that is not known. Without options it is one subject, whose activations are kept.
        """
        return self._subject_with(**options) if options else self._subject

    @cached_property
    def _subject(self) -> Subject:
        return self._subject_with()

    def _subject_with(self, **options: Any) -> Subject:
        return Subject(
            self.model,
            self.task,
            **{
                "provenance": self.provenance,
                "series": self.series,
                "split_seed": self.seed or 0,
                "split": self.split_indices,
                **options,
            },
        )


READINGS = {
    "attention_dir": ("causal", "bidirectional"),
    "act_fn": ("relu", "gelu", "gelu_new", "silu"),
    "normalization_type": (None, "LNPre", "RMSPre"),  # without weights, as folding leaves them
}
"""Assumptions that are tried where a model is at chance or its loss above a constant answer's."""
