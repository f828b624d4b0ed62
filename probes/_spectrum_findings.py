"""Findings on spectra: key components of logits and embeddings, and all frequencies together."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.decide import Claim
from mechint.errors import plural
from mechint.groups.spectrum import Harmonics, Label
from mechint.probe.report import Report
from mechint.probe.results import Effect, Null
from mechint.probes.spectra import (
    HALF,
    LARGEST_COSINE,
    PERMUTED_CLASSES,
    TIE,
    Cycle,
    KeyRule,
    Spectrum,
    permuted,
    say_order,
    sum_logits,
    value_tokens,
)
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.task import rng


def add_logits_finding(
    report: Report,
    found: Spectrum,
    noun: str,
    keys: Sequence[Label],
    whole: WholeSpectrum | None = None,
) -> None:
    """Report the largest cosine of the logits beside its null, and which components are key.

    noun: of one component; keys: the order in which those of `named_keys` are named; whole: where
    none can be key, the finding is on all frequencies together.
    """
    name = LARGEST_COSINE
    null = found.test(name, PERMUTED_CLASSES)
    report.metric(name, found.observed, null=null)
    keys = [label for label in keys if label in found.named_keys]
    some, which = in_words(len(keys), noun), named(keys)
    if found.undecided and whole is not None and whole.alike:
        add_whole_finding(report, whole, noun, len(found.null))
        return
    fails_on_unseen = found.unseen is not None and found.observed > null.mean and not keys
    where = f" on {found.unseen.where}" if fails_on_unseen and found.unseen else ""
    report.finding(
        Claim(
            f"The logits use {some}, {found.named_share:.0%} of their variance: {which}.",
            no=f"No {noun} stands out in the logits{where}.",
            unclear=f"Key {plural(noun)} of the logits are unclear.",
            doubt=found.undecided,
            lead=found.named_share >= HALF,
            caveat=say_order(value_tokens(report.subject)),
        ),
        Effect(found.observed, "", "largest cosine", null.mean, "permuted classes"),
        holds=bool(keys),
        null=name,
    )


def add_embedding_finding(
    report: Report, found: Spectrum, harmonics: Harmonics, noun: str, whose: str, null: str
) -> None:
    """Report the energy that the key components hold of an embedding; null: the metric's name."""
    flat = dict(zip(harmonics.labels, harmonics.flat.tolist(), strict=True))
    held, one = sum(found.by_label[k] for k in found.keys), len(found.keys) == 1
    some = f"{in_words(len(found.keys), noun).capitalize()} stand{'s' * one} out in the {whose}"
    report.finding(
        Claim(
            f"{some}, {held:.0%} of its energy: {named(found.keys)}.",
            no=f"No {noun} stands out in the {whose}.",
            unclear=f"Key {plural(noun)} of the {whose} are unclear.",
            caveat=say_order(value_tokens(report.subject)),
            at_chance=True,
        ),
        Effect(held, "", "share of the energy", sum(flat[k] for k in found.keys), "flat spectrum")
        if found.keys
        else None,
        holds=bool(found.keys),
        null=null,
    )


# --- all frequencies together ---------------------------------------------------------------------
WHOLE_ALPHA = 0.01
"""Level of the finding on all frequencies together."""


@dataclass(frozen=True)
class WholeSpectrum:
    """The part of the logits that depends on answer − class alone, and a test of whether the model
    computes it from the frequencies of its embedding or looks it up.

    The part is f(answer − class), f even, as any sum of cos w(answer − class) is. A lookup table of
    right answers has such logits, too. Of a model that computes with frequencies those taken out of
    the embedding are missing in the logits, and the others are not.

    cosines (h,); share: of the logits' variance, the sum of their squares; samples (sample,): the
    same with permuted classes. loss_whole, loss_part_alone, loss_without_part: cross-entropy (nats)
    of the logits, of this part alone and of the logits without it. share_left (h,): the share of
    each frequency's amplitude in the logits that is left without those `removed` from the
    embedding; None where the embedding cannot be edited.
    """

    cosines: Float[np.ndarray, " h"]
    share: float
    samples: Float[np.ndarray, " sample"]
    loss_whole: float
    loss_part_alone: float
    loss_without_part: float
    n: int
    removed: Bool[np.ndarray, " h"]
    share_left: Float[np.ndarray, " h"] | None

    @classmethod
    def of(
        cls,
        subject: Subject,
        cycle: Cycle,
        found: Spectrum,
        rule: KeyRule,
        seed: int,
        logits_without: Callable[[Sequence[Label]], Tensor] | None,
    ) -> Self:
        """Measure the part. Memory: all logits at once, in float64.

        logits_without(labels): logits with these frequencies taken out of the embedding.
        """
        exponents, columns = cycle.exponents(subject), cycle.columns(subject)
        logits = subject.logits()
        own, part, even = _by_difference(logits, exponents, columns)
        targets = exponents[exponents >= 0]
        losses = (float(F.cross_entropy(x, targets)) for x in (own, part, own - part))
        harmonics, draw = cycle.harmonics, rng("whole spectrum", seed)
        (sums,) = sum_logits(subject, [exponents], columns)
        assert sums is not None
        norms = np.sqrt(max(sums.squares, 1e-24) * sums.rows * (harmonics.characters**2).sum(1))
        orders = permuted(draw, rule.permutations, cycle.n)
        samples = np.square(harmonics.correlate(sums.sums, orders) / norms).sum(1)
        h, share_left = len(harmonics.labels), None
        removed = np.zeros(h, bool)
        removed[draw.permutation(h)[: h // 2]] = True
        if logits_without is not None and h > 1:
            taken = [k for k, one in zip(harmonics.labels, removed, strict=True) if one]
            after = _by_difference(logits_without(taken), exponents, columns)[2]
            # Σ_d f(d) cos(2πkd/n), k = 1 … n//2
            amplitudes = np.maximum(np.fft.rfft(even).real[1:], 1e-12)
            share_left = np.fft.rfft(after).real[1:] / amplitudes
        share = float(np.square(found.values).sum())
        return cls(found.values, share, samples, *losses, cycle.n, removed, share_left)

    @property
    def alike(self) -> bool:
        """True if no frequency has less than half the cosine of another."""
        return bool(self.cosines.min() > 0.5 * self.cosines.max() > 0)

    def null_of_pass_through(self, metric: str, permutations: int) -> Null:
        """By how much more is left of the frequencies that stay in the embedding than of those that
        were taken out of it, against the same with others said to be taken out.
        """
        assert self.share_left is not None
        left = self.share_left
        # the same permutations for every seed, so that p depends on what was removed alone
        draw = np.random.default_rng(0)

        def difference(removed: NDArray[Any]) -> float:
            # of a lookup table all is rounding noise of single precision, which has to tie
            return round(float(left[~removed].mean() - left[removed].mean()), 6)

        null = [difference(draw.permutation(self.removed)) for _ in range(permutations)]
        ways = math.comb(len(left), int(self.removed.sum()))
        how = "other frequencies said to be taken out"
        return Null.sampled(metric, difference(self.removed), np.array(null) + TIE, how, ways)


def _by_difference(
    logits: Float[Tensor, "row d_vocab_out"], exponents: Int[Tensor, " row"], columns: Sequence[int]
) -> tuple[Tensor, Tensor, NDArray[Any]]:
    """Logits of the rows that have an exponent, less their mean over the classes; the part of them
    that is an even function of answer − class; and this function (n,).
    """
    n, on = len(columns), exponents >= 0
    exponents = exponents[on]
    values = logits[on][:, list(columns)].double()
    values = values - values.mean(1, keepdim=True)
    turned = (exponents[:, None] + torch.arange(n, device=exponents.device)) % n
    mean = values.gather(1, turned).mean(0)
    even = (mean + mean.flip(0).roll(1)) / 2
    part = torch.empty_like(values).scatter_(1, turned, even.expand(len(values), -1))
    return values, part, even.cpu().numpy()


def add_whole_finding(report: Report, whole: WholeSpectrum, noun: str, permutations: int) -> None:
    """The finding on all frequencies together. The model computes with them where the loss of their
    sum alone is nearer to the model's than to that of equal logits, the loss without it is not, and
    what is taken out of the embedding is missing in the logits.
    """
    every, name = in_words(len(whole.cosines), noun), "logits.passed_on"
    unclear = f"Whether the model computes with all {every} is unclear."
    half = (whole.loss_whole + math.log(whole.n)) / 2
    report.metric("logits.whole_share", whole.share, null=whole.samples, how="permuted classes")
    report.metric("logits.whole_loss_alone", whole.loss_part_alone, unit="nats")
    report.metric("logits.whole_loss_without", whole.loss_without_part, unit="nats")
    if whole.share_left is None:
        why = "the logits hold all alike, as a lookup table's do, and its embedding is not edited"
        report.unclear(unclear, why)
        return
    null = whole.null_of_pass_through(name, permutations)
    report.metric(name, null.observed, null=null)
    report.finding(
        Claim(
            f"The model computes with all {every} alike.",
            no=f"The logits hold all {every} alike, as a lookup table's do.",
            unclear=unclear,
            lead=True,
            causal=True,
        ),
        Effect.of(
            null,
            label="more left in the logits of those not taken out of the embedding",
            than="others said to be taken out",
        ),
        holds=whole.loss_part_alone < half < whole.loss_without_part,
        null=name,
        alpha=WHOLE_ALPHA,
        least=0.5,
    )
