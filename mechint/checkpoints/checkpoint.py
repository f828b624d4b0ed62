"""An opened file or run directory as a model with what is known of it, and its accuracy and loss
beside chance.

A probe's numbers describe a mechanism only where there is one, so a model at chance, one that
answers much worse than its own training recorded, or one whose loss shows that its file is read
wrongly is reported before anything else.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.checkpoints.reader import Assumption, FileFacts
from mechint.checkpoints.weights import propose_moduli
from mechint.config import ModelConfig
from mechint.decide.evidence import at_least, why_too_few
from mechint.models import build
from mechint.subject import Subject
from mechint.system.packages import changed_files
from mechint.task import IGNORE, Task
from mechint.task.base import ACCURACY, LOSS


@dataclass(frozen=True, kw_only=True)
class Checkpoint(FileFacts):
    """A model, its task and its history.

    path: the file that was read; format: name of the reader that recognized it; model:
    HookedTransformer, student or TransformerBridge, on its device, in evaluation mode; config: of
    the architecture; task: None where neither the file nor the caller names it. The other fields
    are those of `FileFacts`.
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
        asked = self.task is None and isinstance(self.config, ModelConfig)
        return propose_moduli(self.config) if asked else []

    @cached_property
    def split_indices(self) -> dict[str, Int[Tensor, " _index"]] | None:
        """Split → indices into the task's examples; None where the split is not known."""
        return None if self.split is None else self.split.of(self.task)

    @cached_property
    def performance(self) -> SplitPerformance | None:
        """Accuracy and loss beside chance; None without a task."""
        return measure_performance(self.subject(), self.split_indices)

    def warnings(self) -> list[str]:
        """Lines to show before any result: another corpus, chance, few examples, a file read
        wrongly, or no task.
        """
        said = [
            f"{file} is another file now than when this model was trained with it, so that its "
            "numbers may be of other data or of another task"
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
        losses: dict[str, float] = {}  # setting → loss under it
        limit = sum(self.performance.loss.values()) - LOSS_GAINED
        for name, values in READINGS.items():
            current = getattr(self.config, name)
            others = [value for value in values if value != current]
            for value in others if name in self.assumed and current in values else ():
                model = build(dataclasses.replace(self.config, **{name: value}))
                model.load_weights(self.model.weights())
                reread = Subject(model.eval(), self.task, data=self.subject().data)
                trial = measure_performance(reread, None)
                if trial is None or trial.at_chance or sum(trial.loss.values()) >= limit:
                    continue
                if all(loss < trial.chance[output]["loss"] for output, loss in trial.loss.items()):
                    losses[f"{name}={value}"] = sum(trial.loss.values())
        if not losses:
            return ""
        best, *more = sorted(losses, key=lambda setting: losses[setting])
        near = [setting for setting in more if losses[setting] < 2 * losses[best]]
        return f"with --set model.{best} the loss is {losses[best]:.3g}" + "".join(
            f", with {setting} {losses[setting]:.3g}" for setting in near
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


# --- accuracy and loss beside chance --------------------------------------------------------------
CHANCE_LEVEL = 1e-3
"""Probability under chance at which an accuracy counts as above it."""

LEARNED = 0.9
"""Accuracy below which a warning says that the model answers only part of its task."""

ACCURACY_LOST = 0.1
"""Accuracy below the recorded one from which a model is called worse than its training."""

CAN_MISREAD = ("attention_dir", "act_fn", "normalization_type", "n_heads", "attn_scale", "eps")
CAN_MISREAD += ("architecture", "join", "placement", "d_vocab")
"""Assumptions that change what the model computes."""

LOSS_FACTOR, LOSS_GAINED = 10.0, 0.1
"""Loss above the recorded one, by a factor and in nats, from which a model is called worse."""


@dataclass(frozen=True)
class SplitPerformance:
    """accuracy, loss: output → share answered correctly, mean cross-entropy in nats; chance:
    output → the accuracy and loss of the best constant answer; n: output → how many of its answers
    were looked at; splits: train and test → their accuracy and loss, where the split is known;
    top_1: share of first choices that are right, where each answer is held against the other of its
    pair, and accuracy, loss and chance are of these two alone, else None; pairs: how many there
    are, and how many are right both ways.
    """

    accuracy: Mapping[str, float]
    loss: Mapping[str, float]
    chance: Mapping[str, Mapping[str, float]]
    n: Mapping[str, int]
    splits: Mapping[str, Mapping[str, Mapping[str, float]]]
    top_1: float | None = None
    pairs: tuple[int, int] | None = None

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        known = {"accuracy": self.accuracy, "loss": self.loss, "chance": self.chance}
        known |= {} if self.top_1 is None else {"top_1": self.top_1}
        return known | ({"splits": self.splits} if self.splits else {})

    @property
    def held_out(self) -> Mapping[str, float]:
        """Output → accuracy on the test split; empty where the split is not known."""
        return self.splits.get("test", {}).get("accuracy", {})

    @property
    def too_few(self) -> list[str]:
        """Outputs with so few answers that even all right ones could not be told from chance."""
        return [name for name in self.accuracy if self._p_value(name, 1.0) > CHANCE_LEVEL]

    @property
    def at_chance(self) -> list[str]:
        """Outputs whose accuracy is not above that of the best constant answer, where it could be.

        One-sided binomial test at `CHANCE_LEVEL`.
        """
        return [
            name
            for name, accuracy in self.accuracy.items()
            if name not in self.too_few and self._p_value(name, accuracy) > CHANCE_LEVEL
        ]

    @property
    def misread(self) -> list[str]:
        """Outputs whose loss exceeds that of a constant answer, on the training examples if known.

        A model is trained below it, so something assumed about its file is wrong.
        """
        if self.top_1 is not None:  # of an answer against one other any loss may come
            return []
        losses = self.splits.get("train", {}).get("loss", self.loss)
        return [
            name
            for name, loss in losses.items()
            if name not in self.too_few and loss > self.chance[name]["loss"] + LOSS_GAINED
        ]

    def _p_value(self, name: str, accuracy: float) -> float:
        """Probability of at least `accuracy` where each answer is right at the level of chance."""
        n = self.n[name]
        return at_least(round(accuracy * n), n, self.chance[name]["accuracy"])

    def warnings(
        self,
        metrics: Mapping[str, Any],
        assumed: Mapping[str, Assumption] | None = None,
        better: str = "",
    ) -> list[str]:
        """Lines to show first: few examples, chance, a file read wrongly, or much worse than
        `metrics`, recorded in training.

        assumed: about the file; better: the setting under which the model answers well.
        """
        said = [
            why_too_few(self.accuracy[name], self.chance[name]["accuracy"], self.n[name], name)
            for name in self.too_few
        ]
        if self.misread:
            name = self.misread[0]
            blamed = [name for name in assumed or {} if name in CAN_MISREAD]
            why = f"the file may be read wrongly: assumed are {', '.join(blamed)}"
            why = better or (why if blamed else "it is trained too little, or on another task")
            if self.accuracy[name] >= LEARNED and not better:
                return [
                    *said,
                    f"the model answers {self.accuracy[name]:.3g} right on {name!r} at a loss of "
                    f"{self.loss[name]:.3g} nats, above that of a constant answer "
                    f"({self.chance[name]['loss']:.3g}): its logits are no probabilities, as of a "
                    "compiled program, and numbers in nats say little of it",
                ]
            return [
                *said,
                f"the loss of {self.loss[name]:.3g} nats on {name!r} is above that of a constant "
                f"answer ({self.chance[name]['loss']:.3g}): {why}",
            ]
        for name in self.at_chance:
            rival = "the best constant answer" if self.top_1 is None else "a coin"
            said.append(
                f"the model's accuracy on {name!r} is at chance: {self.accuracy[name]:.3g}, "
                f"{rival} has {self.chance[name]['accuracy']:.3g}; "
                + (better or "there is no mechanism to read")
            )
        if said:
            return said
        worst = min(self.accuracy.values(), default=1.0)
        most = max(self.loss.values(), default=0.0)
        accuracy, loss = _recorded(metrics, "acc"), _recorded(metrics, "loss")
        lost = ""
        if accuracy is not None and worst < accuracy - ACCURACY_LOST:
            lost = f"accuracy {worst:.3g}, recorded {accuracy:.3g}"
        elif loss is not None and most > max(LOSS_FACTOR * loss, loss + LOSS_GAINED):
            lost = f"loss {most:.3g} nats, recorded {loss:.3g}"
        if lost:
            why = "something assumed about the file may be wrong" if assumed else "of other inputs"
            return [f"the model answers worse than its training recorded: {lost}; {why}"]
        if worst < LEARNED:
            only = f"the model answers only {worst:.3g} of its inputs right"
            return [only + (f"; {better}" if better else "")]
        return []


def measure_performance(
    subject: Subject, split: Mapping[str, Int[Tensor, " _index"]] | None
) -> SplitPerformance | None:
    """Accuracy and loss on the subject's data, and on its splits where they are known; None where
    there is no task or it reads no answers. A subject that says no more than the last of its
    answers is asked about all of them.

    Cost: one forward over the subject's data, which the subject caches.
    """
    task = subject.task
    if task is None or subject.data.targets.is_floating_point():
        return None
    if not bool((subject.data.targets != IGNORE).any()):
        return None
    if subject.answer == -1 and len(subject.answers) > 1:
        subject = subject.with_answer("all")
    margins = subject.margins
    if margins is not None:
        return _by_pair(subject, margins)
    targets = subject.targets
    examples = subject.answer_examples  # of each row
    asked = (targets != IGNORE).sum(0).tolist()
    n = {output.name: asked[i] for i, output in enumerate(task.outputs)}
    splits = {}
    for name, index in (split or {}).items():
        if len(index):
            rows = torch.isin(examples, index.to(examples.device))
            means = subject.scores[rows].nanmean(0).tolist()
            splits[name] = {
                kind: {
                    output.name: mean[column]
                    for output, mean in zip(task.outputs, means, strict=True)
                }
                for kind, column in (("accuracy", ACCURACY), ("loss", LOSS))
            }
    chance = {
        name: {"accuracy": level.accuracy, "loss": level.loss}
        for name, level in subject.chance.items()
    }
    return SplitPerformance(subject.accuracy(), subject.loss(), chance, n, splits)


def _by_pair(subject: Subject, margins: Float[Tensor, " row"]) -> SplitPerformance:
    """Share of the answers above the other of their pair, and the loss among the two."""
    accuracy, loss, _ = subject.scores_by_pair()
    (output,), right = accuracy, (margins > 0).tolist()
    task: Any = subject.task
    pairs = None
    stated = {tuple(sorted(pair)) for pair in getattr(task, "pairs", ())}
    if stated and torch.equal(subject.data.tokens, task.examples().tokens.to(subject.device)):
        pairs = len(stated), sum(right[a] and right[b] for a, b in stated)
    chance = {output: {"accuracy": 0.5, "loss": math.log(2)}}
    n = {output: int((~margins.isnan()).sum())}
    return SplitPerformance(accuracy, loss, chance, n, {}, subject.accuracy()[output], pairs)


def _recorded(metrics: Mapping[str, Any], kind: str) -> float | None:
    """The least flattering recorded number of a kind: the test's rather than the train's."""
    numbers = {
        name.lower(): float(value)
        for name, value in metrics.items()
        if kind in name.lower() and type(value) in (int, float) and math.isfinite(value)
    }
    for word in ("test", "val", ""):
        values = [value for name, value in numbers.items() if word in name]
        if values:
            return min(values) if kind == "acc" else max(values)
    return None
