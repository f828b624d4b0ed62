"""Scores of circuits of one graph on pairs of examples, and their share of the model's score.

Three ways to take an edge out: it carries a source that differs in one causal variable
("counterfactual"), another example ("resample"), or the mean of its sender over the examples
("mean"). The score is the logit of the right answer above that of the source's answer, or, where
there is no source, above the mean class; faithfulness is its share between the source run, 0, and
the model's own, 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.errors import DataError
from mechint.interventions import EditedRuns, ExampleMean
from mechint.probes._circuits.forward import Cut, sender_outputs
from mechint.probes._circuits.graph import Graph
from mechint.probes._effects import Effects
from mechint.subject.pairs import Pairs, logit_difference
from mechint.task import IGNORE, Task, logits_of

if TYPE_CHECKING:
    from mechint.subject import Subject

Ablation = Literal["counterfactual", "resample", "mean"]
ABLATIONS: tuple[Ablation, ...] = ("counterfactual", "resample", "mean")


def score(task: Task, logits: Tensor, pairs: Pairs, ablation: Ablation) -> Tensor:
    """(..., pair) logit of the right answer above the source's, or above the mean class, mean over
    the outputs.
    """
    if ablation != "mean":
        return -logit_difference(task, logits, pairs)
    parts = []
    for output, columns in enumerate(task.output_slices.values()):
        part, target = logits[..., columns], pairs.answers[:, output, None]
        right = logits_of(task, part, target)[..., 0]
        parts.append((right - part.mean(-1)) * (target[:, 0] != IGNORE))
    answered = (pairs.answers != IGNORE).sum(-1).clamp_min(1)
    return torch.stack(parts).sum(0) / answered


@dataclass(frozen=True)
class Scorer:
    """Scores circuits of `graph` on `pairs`, a chunk of pairs at a time.

    averaged: pairs whose bases the means are over, `pairs` when none. A circuit is its edges and
    these constants, so that its search and its judgement need the same ones.
    """

    subject: Subject
    graph: Graph
    pairs: Pairs
    ablation: Ablation
    averaged: Pairs | None = None

    @property
    def positions(self) -> int:
        """Positions that are computed: none behind the last answer where it cannot see them."""
        if self.graph.groups > 1:
            return self.graph.groups
        if not self.graph.config.reads_back_only:
            return self.pairs.base.shape[1]
        return int(self.pairs.reads.max()) + 1

    @cached_property
    def means(self) -> Float[Tensor, "sender 1 pos d_model"]:
        """Mean over the bases, at every position over those that have it, of what each sender
        writes.
        """
        pairs, total = self.averaged or self.pairs, None
        own = pairs.own_positions
        mean = ExampleMean(len(pairs), None if own is None else own[:, : self.positions])
        for rows in self._chunks(len(pairs)):
            written = sender_outputs(self._runs(pairs.base[rows], pairs.reads[rows]), self.graph)
            part = mean.sum(written.permute(1, 2, 0, 3), rows)  # (pos, sender, d_model)
            total = part if total is None else total + part
        assert total is not None
        return mean.of(total).transpose(0, 1)[:, None].contiguous()

    def _chunks(self, n: int) -> list[Tensor]:
        """Of `n` pairs those at a time: `subject.chunk`, and no more than the memory records."""
        config = self.graph.config
        each = 4 * 4 * len(self.graph.senders) * self.positions * config.d_model
        memory = max(self.subject.memory // 4, 1 << 24)
        size = min(self.subject.chunk, max(1, memory // (4 * each)))
        index = torch.arange(n, device=self.subject.device)
        return list(index.split(size))

    @cached_property
    def _whole(self) -> Cut:
        return self._cut(self.pairs)

    def parts(self) -> Iterator[tuple[Pairs, Cut]]:
        """The pairs in chunks, each with its runs; kept where they are one."""
        chunks = self._chunks(len(self.pairs))
        for rows in chunks:
            pairs = self.pairs[rows]
            yield pairs, self._whole if len(chunks) == 1 else self._cut(pairs)

    def _cut(self, pairs: Pairs) -> Cut:
        if self.ablation == "mean":
            source = self.means.expand(-1, len(pairs), -1, -1)
        else:
            source = sender_outputs(self._runs(pairs.source, pairs.source_reads), self.graph)
        return Cut(self._runs(pairs.base, pairs.reads), self.graph, source)

    def _runs(self, tokens: Tensor, reads: Tensor) -> EditedRuns:
        return EditedRuns(self.subject.model, tokens[:, : self.positions], reads)

    def scores(self, kept: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, "circuit pair"]:
        """The score of every circuit on every pair."""
        return self._measured(self._run(kept), self.score)

    def score(self, logits: Tensor, pairs: Pairs) -> Tensor:
        """(…, pair) `score` of logits of these pairs."""
        return score(self.subject.known_task, logits, pairs, self.ablation)

    def answered(self, kept: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, "circuit pair"]:
        """1 where a circuit alone gives the right answer in every output that is read, else 0."""

        def right(logits: Tensor, pairs: Pairs) -> Tensor:
            every = torch.stack(
                [self.subject.correct(of_circuit, pairs.answers) for of_circuit in logits]
            )
            return (every | (pairs.answers == IGNORE)).all(-1)

        return self._measured(self._run(kept), right)

    def _run(self, kept: Bool[np.ndarray, "circuit edge"]) -> Callable[[Cut], Tensor]:
        mask = torch.from_numpy(np.asarray(kept, dtype=np.float32)).to(self.subject.device)
        return lambda cut: cut.logits(mask)

    def _measured(
        self, run: Callable[[Cut], Tensor], measure: Callable[[Tensor, Pairs], Tensor]
    ) -> np.ndarray:
        found = [measure(run(cut), pairs).double().cpu().numpy() for pairs, cut in self.parts()]
        return np.concatenate(found, -1)

    @cached_property
    def _end_scores(self) -> Float[np.ndarray, "end pair"]:
        """The score of the source run (no edge) and of the model (all edges) on every pair."""
        n = len(self.graph.edges)
        return self.scores(np.stack([np.zeros(n, bool), np.ones(n, bool)]))

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Mean score of the source run (no edge) and of the model (all edges).

        Raises:
            DataError: the two are the same, so that no circuit has a share of their difference.
        """
        low, high = self._end_scores.mean(1)
        if low == high:
            raise DataError(
                f"{self.subject.describe()}: its score, {high:.3g} nats, is the same with all "
                "edges of the model replaced; no circuit can carry it"
            )
        return float(low), float(high)

    def effects(self, kept: Bool[np.ndarray, "circuit edge"]) -> Effects:
        """Effects of what is kept: the share is 0 where the score is the source's, 1 where it is
        the model's. Pairs of one example are one unit.
        """
        units = self.pairs.examples.cpu().numpy()
        source, model = self._end_scores
        return Effects(source, model, self.scores(kept), units)

    def faithfulness(self, kept: Bool[np.ndarray, "circuit edge"]) -> Float[np.ndarray, " circuit"]:
        """(score - source) / (model - source) of mean scores: 0 the source's, 1 the model's."""
        return self.effects(kept).share
