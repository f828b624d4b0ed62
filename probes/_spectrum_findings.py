"""Findings on spectra: key components of logits and embeddings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mechint.decide import Claim
from mechint.errors import plural
from mechint.groups.spectrum import Harmonics, Label
from mechint.probe.report import Report
from mechint.probe.results import Effect
from mechint.probes.spectra import (
    HALF,
    LARGEST_COSINE,
    NAMED_SHARE,
    PERMUTED_CLASSES,
    SAME_ENERGIES,
    Spectrum,
    say_order,
    value_tokens,
)
from mechint.probes.words import in_words, named


def add_logits_finding(
    report: Report,
    found: Spectrum,
    noun: str,
    keys: Sequence[Label],
) -> None:
    """Report the largest cosine of the logits beside its null, and which components are key.

    noun: of one component; keys: the order in which those of `named_keys` are named.
    """
    name = LARGEST_COSINE
    null = found.test(name, PERMUTED_CLASSES)
    report.metric(name, found.observed, null=null)
    keys = [label for label in keys if label in found.named_keys]
    others = named(found.unnamed_keys)
    small = named([key for key in found.keys if key not in keys])
    some, which = "at least " * bool(others or small) + in_words(len(keys), noun), named(keys)
    fails_on_unseen = found.unseen is not None and found.observed > null.mean and not keys
    where = f" on {found.unseen.where}" if fails_on_unseen and found.unseen else ""
    shown = found.unseen if fails_on_unseen and found.unseen else found
    report.finding(
        Claim(
            f"The logits use {some}, {found.named_share:.0%} of their variance: {which}.",
            no=f"No {noun} stands out in the logits{where}.",
            unclear=f"Key {plural(noun)} of the logits are unclear.",
            doubt=found.undecided,
            lead=found.named_share >= HALF,
            caveat="; ".join(
                filter(
                    None,
                    (
                        say_order(value_tokens(report.subject)),
                        f"key with under {NAMED_SHARE:.0%} of it: {small}" * bool(small),
                        f"unclear whether {others}, too" * bool(others),
                    ),
                )
            ),
        ),
        Effect(shown.observed, "", "largest cosine", float(shown.null.mean()), "permuted classes"),
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
            doubt=SAME_ENERGIES * found.is_flat_in_any_order,
            caveat=say_order(value_tokens(report.subject)),
            at_chance=True,
        ),
        Effect(held, "", "share of the energy", sum(flat[k] for k in found.keys), "flat spectrum")
        if found.keys
        else Effect(
            found.observed,
            "",
            "largest share over its flat one",
            float(found.null.mean()),
            "permuted elements",
        ),
        # a share below what a key exceeds is denied whatever its p-value
        least=0.0 if found.keys else float(np.min(found.levels)),
        holds=bool(found.keys),
        null=null,
    )
