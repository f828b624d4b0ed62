"""By which algorithm the model adds, and whether its loss rests on the frequencies that are named.

The measures are of gradients and logits. A model can have a clock's although its answers come from
somewhere else, e.g. a table of all pairs whose unembedding writes a few frequencies. So the
embeddings of the operands are taken down to the key frequencies, and these are taken out of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mechint.errors import plural
from mechint.probe import Report
from mechint.subject import Subject
from mechint.task import IGNORE
from probes._fourier import spectra
from probes._fourier.spectra import KeyFrequencyRule, Spectrum
from probes.answers import Cycle
from probes.operands import operand_positions
from probes.removal import EmbeddingRemoval
from probes.words import LISTED, listed

WORDS = {
    "pizza": "The model adds as a pizza does",
    "clock": "The model adds as a clock does",
    "both": "The model has a sign of a clock and one of a pizza",
}
"""What stands in the finding, by mechanism."""
NULL = "logits.largest_cosine"


@dataclass(frozen=True)
class Needed:
    """Losses of the cycle's output in nats, by what the embeddings of the operands are left with:
    all frequencies, the key ones `alone`, or all others (`without` the key ones). None where no
    frequency is key, or no other is there.
    """

    loss: float
    alone: float | None = None
    without: float | None = None
    chance: float = math.inf

    @classmethod
    def of(
        cls, subject: Subject, cycle: Cycle, order: Sequence[int], keys: Sequence[int]
    ) -> Needed:
        """order: where on either axis of the grid the operands stand, by exponent.

        Cost: three forwards over the data.
        """
        n = cycle.n
        targets = torch.full_like(subject.targets, IGNORE)
        targets[:, cycle.index] = subject.targets[:, cycle.index]
        edited = EmbeddingRemoval.of(subject, *_tokens(subject, order))
        assert edited is not None  # `ClockPizza.unmet` asks for hook_embed
        loss = edited.loss(np.empty((0, n)), targets)
        waves = dict(enumerate(spectra.waves(n), 1))
        key = [wave for k, wave in waves.items() if k in keys]
        other = [wave for k, wave in waves.items() if k not in keys]
        if not key or not other:
            return cls(loss)
        alone, without = (edited.loss(np.concatenate(some), targets) for some in (other, key))
        assert subject.task is not None
        return cls(loss, alone, without, math.log(subject.task.outputs[cycle.index].n_classes))

    @property
    def shown(self) -> bool:
        """Whether the key frequencies alone keep the loss nearer to the model's own than to that of
        equal logits, and without them it is nearer to the latter.
        """
        half = (self.loss + self.chance) / 2
        return (
            self.alone is not None and self.without is not None and self.alone < half < self.without
        )

    def __str__(self) -> str:
        return (
            f"with these frequencies alone in the operands' embeddings the loss of {self.loss:.2g} "
            f"nats is {self.alone:.2g}, without them {self.without:.2g}"
        )


def _tokens(subject: Subject, order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Tokens of the first and of the second operand, at `order` on their axes of the grid."""
    tokens, positions = subject.grid(subject.data.tokens), operand_positions(subject)
    assert positions is not None
    rows = list(order)
    return tokens[rows, 0, positions[0]].tolist(), tokens[0, rows, positions[1]].tolist()


def add_finding(report: Report, logits: Spectrum, needed: Needed, measured: str, n: int) -> None:
    """The metrics of the removals, `mechanism`, and the sentence.

    measured: what the measures speak for; n: triples behind them.
    """
    metrics: Mapping[str, Any] = report.metrics
    verdict = measured if needed.shown else "neither"
    report.metric("mechanism", verdict)
    report.metric("loss", needed.loss, unit="nats")
    if needed.alone is not None:
        report.metric("loss.key_frequencies_alone", needed.alone, unit="nats")
        report.metric("loss.without_key_frequencies", needed.without, unit="nats")
    question = "whether the model adds as a clock or as a pizza does"
    few = report.nulls[NULL].too_few_arrangements(KeyFrequencyRule().alpha)
    if few and not logits.keys:
        report.abstain(few, question)
        return
    if logits.keys and needed.alone is None:
        report.abstain(
            "every frequency of the logits is key, so that none is left to take away", question
        )
        return
    numbers = (
        f"gradient symmetricity {metrics['gradient_symmetricity']:.3f} (95% interval "
        f"{metrics['gradient_symmetricity.low']:.3f} to "
        f"{metrics['gradient_symmetricity.high']:.3f}), distance irrelevance "
        f"{metrics['distance_irrelevance']:.3f} "
        f"({metrics['distance_irrelevance_wrong']:.3f} on the largest wrong logit)"
    )
    if logits.keys:
        numbers += f"; {_circles(metrics, logits)}; {needed}"
    report.finding(
        f"{WORDS.get(verdict, '')}: {numbers}.",
        question=question,
        otherwise=f"Neither clock nor pizza, since {_reason(logits, needed)}: {numbers}.",
        holds=verdict != "neither",
        null=NULL,
        n=n,
        causal=verdict in ("clock", "pizza"),
    )


def _reason(logits: Spectrum, needed: Needed) -> str:
    if not logits.keys:
        return "no frequency of the logits is key"
    if not needed.shown:
        return "the loss does not rest on the key frequencies of the operands' embeddings"
    return "the measures lie between"


def _circles(metrics: Mapping[str, Any], logits: Spectrum) -> str:
    """The key frequencies, the strongest where they are many, and how round their circles are."""
    turning = [k for k in logits.keys if k in metrics["circularity"]]
    shown = sorted(sorted(turning, key=lambda k: -logits.values[k - 1])[:LISTED])
    circles = [f"{metrics['circularity'][k]:.3f}" for k in shown]
    named = plural("key frequency", len(turning))
    if len(turning) > LISTED:
        named = f"the {LISTED} strongest of {len(turning)} key frequencies,"
    return f"{named} {listed(shown)}, with circularity {', '.join(circles)}"
