"""The loss without a part of a model: components of the embedding projected out, neurons at their
mean.

A spectrum says where a model's energy is, not what the model needs. Every removal checks that it
changed what it was to change, and raises where it did not.

Cost: one forward over the data per removal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.decide import Claim, first_of
from mechint.errors import DataError
from mechint.groups.spectrum import Harmonics, Label
from mechint.interventions import Compute, EditedRuns, Mean, Site
from mechint.interventions.runs import At
from mechint.probe.report import Report
from mechint.probe.results import Effect, Null
from mechint.probes._effects import Cases
from mechint.probes.spectra import say_order, value_tokens
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.subject.activations import slices
from mechint.task import LOSS, Task, answer_scores, rng

ALPHA = 0.01
"""Level at which removals are held against random ones."""
ROWS_AT_ONCE = 4096
"""Examples of one forward, over all removals that it has."""
ALSO = 0.1
"""Share of the rise without the keys from which that without another component alone is said, and
of the right answers that have to be lost without what is needed."""
EXACT = 1e-3
"""The largest part of an embedding, relative to its largest value, that may depend on more than its
token."""


def mean_loss(
    subject: Subject,
    logits: Float[Tensor, "row d_vocab_out"] | None = None,
    targets: Int[Tensor, "row output"] | None = None,
) -> float:
    """Cross-entropy in nats, float64, mean over rows and outputs; of the subject's own logits on
    its own targets where none are given.
    """
    logits = subject.logits() if logits is None else logits
    targets = subject.targets if targets is None else targets
    return float(answer_scores(subject.known_task, logits, targets)[..., LOSS].nanmean())


# --- the embedding --------------------------------------------------------------------------------
@dataclass(frozen=True)
class EmbeddingRemoval:
    """The subject without some directions, over the elements, of its operands' embedding.

    operands: the tokens of the group's elements, in the order of the directions' columns; several
    lists where the operands have different tokens. Every token of these in the data is changed, by
    the embedding that the model gives it at its position.
    """

    subject: Subject
    operands: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, subject: Subject, *operands: Sequence[int]) -> EmbeddingRemoval | None:
        """None where the model has no ``hook_embed``."""
        if "hook_embed" not in subject.model.hook_dict:
            return None
        return cls(subject, tuple(dict.fromkeys(tuple(tokens) for tokens in operands)))

    @cached_property
    def _tables(self) -> list[Float[Tensor, "token pos d_embed"]]:
        """The value of ``hook_embed`` for each token of each list, at every position."""
        model, n_ctx = self.subject.model, self.subject.data.tokens.shape[1]
        columns = [torch.tensor(tokens, device=self.subject.device) for tokens in self.operands]
        every = [column[:, None].repeat(1, n_ctx) for column in columns]  # (token, pos)
        return [
            EditedRuns(model, tokens, tokens[:, 0] * 0).recorded("hook_embed") for tokens in every
        ]

    def logits(
        self, directions: Float[np.ndarray, "removal direction element"]
    ) -> Float[Tensor, "removal row d_vocab_out"]:
        """Logits at the answer with the orthonormal directions of each removal projected out.

        Raises:
            DataError: no token of the operands is in the data, or ``hook_embed`` depends on more
                than token and position, so that nothing, or something else, would be removed.
        """
        subject, operands = self.subject, [token for tokens in self.operands for token in tokens]
        if not bool(np.isin(subject.data.tokens.cpu(), operands).any()):
            raise DataError("no operand's token is in the data: nothing to remove")
        basis = torch.tensor(np.asarray(directions), device=subject.device, dtype=torch.float64)
        onto = basis.mT @ basis  # (removal, element, element)
        at_answer = self._at_answer(onto) if len(set(operands)) == len(operands) else None
        if at_answer is not None:
            return at_answer
        removed = [
            torch.einsum("ref,fpd->repd", onto, table.double()).to(table.dtype)
            for table in self._tables
        ]
        cases = Cases(
            subject, subject.data.tokens[subject.answer_examples], subject.answer_positions
        )
        parts = []
        for _, runs, inputs, _ in cases.parts():
            edit = partial(self._project, runs, removed)
            edits = [Compute(Site("hook_embed"), partial(edit, r)) for r in range(len(onto))]
            parts.append(runs.under(edits, inputs))
        return torch.cat(parts, 1)

    def _project(
        self,
        runs: EditedRuns,
        removed: Sequence[Float[Tensor, "removal element pos d_embed"]],
        index: int,
        part: Float[Tensor, "case pos d_embed"],
        at: At,
    ) -> Float[Tensor, "case pos d_embed"]:
        """The embeddings with the directions of the removal `index` taken out of the operands."""
        seen, places = at.window(runs.tokens)[:, : part.shape[1]], at.positions
        for tokens, table, change in zip(self.operands, self._tables, removed, strict=True):
            element = _elements(tokens, seen)
            row, column = torch.nonzero(element >= 0, as_tuple=True)
            chosen, pos = element[row, column], places[row, column]
            _check_same(part[row, column], table[chosen, pos])
            part[row, column] = table[chosen, pos] - change[index, chosen, pos]
        return part

    def _at_answer(
        self, onto: Float[Tensor, "removal element element"]
    ) -> Float[Tensor, "removal row d_vocab_out"] | None:
        """`logits` as those of other embeddings W_E, computed at the answer alone; None for a model
        that this cannot express.
        """
        own = getattr(self.subject.model, "W_E", None)
        if own is None:
            return None
        own = own.detach()
        tables = own.repeat(len(onto), 1, 1)
        for tokens in map(list, self.operands):
            change = torch.einsum("ref,fd->red", onto, own[tokens].double())
            tables[:, tokens] = own[tokens] - change.to(own.dtype)
        return self.subject.logits_embedded(tables)

    def losses(
        self,
        directions: Float[np.ndarray, "removal direction element"],
        targets: Int[Tensor, "row output"] | None = None,
    ) -> Float[np.ndarray, " removal"]:
        """`mean_loss` of each removal; against `targets` if given."""
        at_once = max(1, ROWS_AT_ONCE // max(1, len(self.subject.data)))
        return np.array(
            [
                mean_loss(self.subject, logits, targets)
                for some in slices(len(directions), at_once)
                for logits in self.logits(directions[some])
            ]
        )

    def loss(
        self,
        directions: Float[np.ndarray, "direction element"],
        targets: Int[Tensor, "row output"] | None = None,
    ) -> float:
        """`mean_loss` with `directions` projected out; against `targets` if given."""
        return float(self.losses(np.asarray(directions)[None], targets)[0])


def _check_same(activation: Tensor, table: Tensor) -> None:
    """DataError where an embedding is not that of its token at its position."""
    largest = float(table.abs().max()) if len(table) else 0.0
    if not torch.allclose(activation, table, rtol=0, atol=EXACT * largest):
        raise DataError("hook_embed depends on more than token and position: nothing to remove")


def _elements(tokens: Sequence[int], seen: Int[Tensor, "row pos"]) -> Int[Tensor, "row pos"]:
    """The index in `tokens` of each token seen; -1 where it is none."""
    element = torch.full((max(int(seen.max()), *tokens) + 1,), -1, device=seen.device)
    element[list(tokens)] = torch.arange(len(tokens), device=seen.device)
    return element[seen]


def random_directions(
    basis: Float[np.ndarray, "direction element"],
    count: int,
    samples: int,
    generator: np.random.Generator,
) -> Float[np.ndarray, "sample count element"]:
    """`samples` times `count` random orthonormal directions in the span of the orthonormal `basis`.

    >>> random_directions(np.eye(5)[:3], 2, 1, np.random.default_rng(0)).round(12)[..., 3:].tolist()
    [[[0.0, 0.0], [0.0, 0.0]]]
    """
    drawn = generator.standard_normal((samples, len(basis), count))
    return np.linalg.qr(drawn)[0].swapaxes(1, 2) @ basis


# --- neurons ------------------------------------------------------------------
def losses_at_mean(
    subject: Subject,
    hook: str,
    mean: Float[Tensor, " neuron"],
    sets: Sequence[Int[np.ndarray, " _chosen"]],
) -> Float[np.ndarray, " set"]:
    """`mean_loss` with each set of neurons of `hook` at their `mean`, at every position."""
    units = (tuple(some.tolist()) for some in sets)
    edits = [Mean(Site(hook, units=some), mean[list(some)]) for some in units]
    targets, losses = subject.targets, []
    tokens = subject.data.tokens[subject.answer_examples]
    for rows, runs, inputs, _ in Cases(subject, tokens, subject.answer_positions).parts():
        read = partial(_losses, subject.known_task, targets[rows])
        losses.append(runs.under(edits, inputs, read=read))
    return torch.cat(losses, 1).nanmean((1, 2)).cpu().numpy()


def _losses(
    task: Task, targets: Tensor, logits: Tensor, rows: Tensor
) -> Float[Tensor, "case output"]:
    return answer_scores(task, logits, targets[rows])[..., LOSS]


@dataclass(frozen=True)
class Removals:
    """The rises of the loss, in nats, without components of the embedding, as metrics of a report;
    components are labels of `harmonics`.

    samples: random directions in the null.
    """

    report: Report
    edited: EmbeddingRemoval
    harmonics: Harmonics
    samples: int
    seed: int

    @cached_property
    def base(self) -> float:
        """The loss with nothing removed."""
        return mean_loss(self.edited.subject)

    def rise(self, labels: Sequence[Label]) -> float:
        """The rise without all of `labels` in the embedding."""
        return self.edited.loss(self.harmonics.rows(labels)) - self.base if labels else 0.0

    def add(
        self,
        key: Sequence[Label],
        others: Sequence[Label],
        alone: Sequence[Label],
        examples: int,
        least: float,
    ) -> Sequence[Label]:
        """Measure the rise of the loss without each of `alone`, without all `others`, and without
        the needed keys together, these beside random directions of the others on so many examples.

        Returns:
            The keys that are removed together, as the metric "embedding.needed": those without
            which alone the loss rises by more than `least`, and by more than without any other
            alone, on these examples, and at once by half of what all keys raise it; all, where
            there are none.
        """
        report, subject = self.report, self.edited.subject
        report.metric("loss", self.base, unit="nats")
        report.metric("embedding.removal", {k: self.rise([k]) for k in alone}, unit="nats")
        report.metric("embedding.removal_unnamed", self.rise(others), unit="nats")
        if not key:
            return key
        examples_rng = rng(f"{report.probe.name} removal examples", self.seed)
        sample = sample_examples(subject, examples, examples_rng)
        on_sample = replace(self, edited=replace(self.edited, subject=sample))
        report.metric("embedding.examples", len(sample.data))
        other_rises = {k: on_sample.rise([k]) for k in others}
        bar = max([least, *other_rises.values()])
        needed = [k for k in key if on_sample.rise([k]) > bar]
        if on_sample.rise(needed) < on_sample.rise(key) / 2:
            needed = []  # what is needed is more than these
        report.metric("embedding.needed", needed)
        together, name = needed or key, "embedding.removal_named"
        # a loss far above that of equal logits has no more to say
        full = min(on_sample.rise(together), math.log(self.harmonics.group.order))
        most = max(least, ALSO * full)
        report.metric("embedding.also_needed", {k: r for k, r in other_rises.items() if r > most})
        report.metric(name, self.rise(together), unit="nats")
        rows, rest = self.harmonics.rows(together), self.harmonics.rows(others)
        right, left = sample.correct(), sample.correct(on_sample.edited.logits(rows[None])[0])
        stay = float((right & left).sum() / right.sum().clamp_min(1))
        report.metric("embedding.removal_stay", stay, unit="share of right answers")
        if len(rows) < len(rest):  # else no as many directions are left to remove
            directions_rng = rng(f"{report.probe.name} removal null", self.seed)
            random = random_directions(rest, len(rows), self.samples, directions_rng)
            null_rises = on_sample.edited.losses(random) - on_sample.base
            how = "as many random directions of the others removed"
            report.nulls[name] = Null.sampled(name, on_sample.rise(together), null_rises, how)
        return together


def add_finding(
    report: Report, noun: str, keys: Sequence[Any], others: Sequence[Any], least: float, **gate: Any
) -> None:
    """The finding on what the loss is without `keys` of the embedding together, from the metrics
    ``embedding.removal_named`` and its like, and the null of the former where it has one. Where the
    loss rises as much without random others, the model needs the keys no more than these; where
    the answers stay right, it does without them. Where none is needed by itself (`Removals.add`),
    they are needed together.

    noun: of one key; others: those that are not key; gate: what more `Report.finding` is to know.
    """
    metrics, name = report.metrics, "embedding.removal_named"
    these = f"{in_words(len(keys), noun)} of its embedding"
    together = len(keys) > 1 and not metrics["embedding.needed"]
    unclear = f"Whether the model needs {these} is unclear."
    asked = len(keys) if together else 1
    most = sorted(metrics["embedding.also_needed"].items(), key=lambda also: -also[1])[:4]
    also = ", ".join(f"{k} ({rise:.3g} nats)" for k, rise in most)
    leads = bool(most) and most[0][1] < metrics[name]
    stay, rest = metrics["embedding.removal_stay"], metrics["embedding.removal_unnamed"]
    caveats = (
        say_order(value_tokens(report.subject)),
        f"without others alone it rises, too: {also}" * bool(also),
        f"without all others by {rest:.3g} nats" * (rest >= max(metrics[name], least)),
    )
    if (null := report.nulls.get(name)) is None:
        few = f"the other {in_words(len(others), noun)} have no more directions to compare with"
        report.unclear(unclear, few)
        return
    report.finding(
        Claim(
            f"The model needs {these}{' together' * together or ' most' * leads}: "
            f"{named(keys, 6)}.",
            no=first_of(
                (
                    null.p_value <= ALPHA and metrics[name] > least,
                    f"{stay:.0%} of its right answers stay without {these}.",
                ),
                (metrics[name] > least, f"The model needs {these} no more than others."),
                (True, f"The model does not need {these}."),
            ),
            unclear=unclear,
            caveat="; ".join(filter(None, caveats)),
            causal=True,
        ),
        Effect.of(
            null,
            "nats",
            f"rise of the loss without {'them' if keys[1:] else 'it'}",
            "without random others",
        ),
        null=name,
        holds=stay <= 1 - ALSO,
        alpha=ALPHA,
        least=least,
        scope=report.scope(metrics["embedding.examples"], asked, len(keys) + len(others)),
        **gate,
    )


def sample_examples(subject: Subject, count: int, generator: np.random.Generator) -> Subject:
    """The subject on at most `count` of its examples, drawn at random, in their order."""
    drawn = np.sort(generator.permutation(len(subject.data))[:count])
    return subject.with_data(subject.data[torch.from_numpy(drawn).to(subject.device)])
