"""What the Fourier probe writes into its report: metrics with their nulls, tables, sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

from mechint.errors import plural
from mechint.probe import Report
from mechint.results import Table
from probes._fourier import drawing, outputs, spectra
from probes._fourier.cosines import RELABELED
from probes._fourier.neurons import Neurons
from probes._fourier.removals import Removals
from probes._fourier.spectra import Spectrum
from probes.answers import Cycle
from probes.rises import REMOVAL_LEVEL, add_named_removal, add_removal_finding
from probes.words import first_of, listed

T = TypeVar("T")

LARGEST = "logits.largest_cosine"
REMOVAL_NULL = "as many random directions of the unnamed frequencies removed"
NONE_STANDS_OUT = "too few frequencies or too much alike for one to stand out"


# --- spectra --------------------------------------------------------------------------------------
def add_shares(report: Report, part: str, spectrum: Spectrum, how: str, sigma: float) -> None:
    """Shares of the energy of `part`, "embedding" or "neurons", and its key frequencies."""
    report.metric(f"{part}.key_frequencies", spectrum.keys)
    report.metric(f"{part}.share", spectrum.by_frequency, unit="share of the energy, 0–1")
    report.metric(f"{part}.threshold", spectrum.threshold)
    name = f"{part}.largest_share"
    null = spectrum.test(name, f"the largest share with {how}")
    report.metric(name, float(spectrum.values.max()), null=null)
    report.metric(f"{part}.active", spectra.active(np.sqrt(spectrum.values), sigma))
    units = {"share": "of the energy, 0–1"}
    report.table(part, _table(spectrum, f"{part}: one row per frequency", units))
    title = {"embedding": "Token embedding", "neurons": "Neurons over the input grid"}[part]
    y_title = f"share of the {part}'s energy (0–1)".replace("neurons's", "neurons'")
    report.figure(part, drawing.spectrum(spectrum, title, y_title))


def add_neurons(report: Report, grid: Neurons) -> None:
    """How many neurons each frequency has, and pictures of the strongest."""
    report.metric("neurons.clusters", grid.clusters, unit="neurons")
    report.figure("neuron_images", drawing.neuron_images(grid))


def add_logits(report: Report, cycles: Sequence[Cycle], logits: Mapping[str, Spectrum]) -> None:
    """Cosines of the logits with the waves of the answer, by output, and the sentence on them."""
    of = {
        "key_frequencies": lambda spectrum: spectrum.keys,
        "cosine": lambda spectrum: spectrum.by_frequency,
        "share": lambda spectrum: {k: v**2 for k, v in spectrum.by_frequency.items()},
        "threshold": lambda spectrum: spectrum.threshold,
        "explained": explained,
        "largest_cosine": lambda spectrum: float(spectrum.values.max()),
    }
    for name, value in of.items():
        values = one_or_all({output: value(spectrum) for output, spectrum in logits.items()})
        report.metric(f"logits.{name}", values)
    unseen = {output: one.unseen for output, one in logits.items() if one.unseen is not None}
    if unseen:
        cosines = {output: one.by_frequency for output, one in unseen.items()}
        report.metric(
            "logits.unseen_cosine", cosines if len(logits) > 1 else next(iter(cosines.values()))
        )
    output, first = next(iter(logits.items()))
    units = {"cosine": "with cos w(answer − class), −1 … 1"}
    report.table(
        "logits", _table(first, f"logits, {output}: one row per frequency", units, "cosine")
    )
    y_title = "cosine with cos w(answer − class) (−1 … 1)"
    report.figure("logits", drawing.spectrum(first, f"Logits, {output}", y_title))
    if len(logits) == 1:
        report.nulls[LARGEST] = first.test(LARGEST, RELABELED)
        sentence, otherwise = _logit_sentences(first)
        report.finding(
            sentence,
            question="whether the logits have key frequencies",
            otherwise=otherwise,
            holds=bool(first.keys),
            null=LARGEST,
        )
        return
    alpha = report.probe.significance
    tested = {
        cycle.output: logits[cycle.output]
        for cycle in cycles
        if outputs.enough_classes(cycle.n, alpha, len(logits))
    }
    if tested:
        outputs.add_finding(report, tested, [name for name in logits if name not in tested])
    else:
        report.abstain(f"the outputs have too few classes to tell a key frequency at p ≤ {alpha:g}")


def add_residual(report: Report, residual: Mapping[str, Mapping[str, Spectrum]]) -> None:
    """Fourier modes of the mean residual vector of each answer, by output and layer."""
    modes = {
        name: {hook: len(found.keys) for hook, found in layers.items()}
        for name, layers in residual.items()
    }
    report.metric("residual.modes", one_or_all(modes), unit="frequencies above the null")
    rows = [
        (name, hook, len(found.keys), found.keys)
        for name, layers in residual.items()
        for hook, found in layers.items()
    ]
    columns = {
        name: [row[i] for row in rows]
        for i, name in enumerate(("output", "hook", "modes", "frequencies"))
    }
    caption = "one row per output and layer: Fourier modes of the mean residual vector per answer"
    report.table("residual", columns, caption, {"modes": "frequencies above the null"})
    if len(next(iter(residual.values()))) > 2:  # with one layer there is nothing to compare
        report.figure("residual", drawing.residual(residual))


def explained(spectrum: Spectrum) -> float:
    """Share of the centered logits' variance that the key frequencies' waves explain together, 0–1.

    It is the "trigonometric logit share" of Nanda et al. 2023: the waves are orthogonal, so squared
    cosines add.
    """
    return float(sum(spectrum.values[k - 1] ** 2 for k in spectrum.keys))


# --- removals -------------------------------------------------------------------------------------
def add_removals(report: Report, removed: Removals, least: float) -> None:
    """The rises of the loss, as a table, and what they say about each named frequency."""
    report.metric("loss", removed.loss, unit="nats")
    report.metric("embedding.removal", removed.embedding, unit="nats")
    report.metric("embedding.removal_unnamed", removed.unnamed, unit="nats")
    if removed.without_harmonics is not None:
        report.metric("embedding.harmonics", list(removed.harmonics))
        report.metric("embedding.removal_harmonics", removed.without_harmonics, unit="nats")
    add_named_removal(report, removed, "frequencies")
    if removed.harmonics_test is not None:
        rise, null = removed.harmonics_test
        name = "embedding.removal_harmonics.sample"
        report.metric(name, rise, null=null, how=REMOVAL_NULL, unit="nats")
    for part in ("neurons", "unembedding"):
        if rises := getattr(removed, part):
            report.metric(f"{part}.removal", rises, unit="nats")
    table = _removal_table(removed)
    report.table("removal", table)
    report.figure("removal", drawing.removal(table, removed.loss))
    if removed.embedding:
        label = f"{plural('frequency', len(removed.embedding))} "
        add_removal_finding(report, removed, "frequencies", least, label)
    if removed.without_harmonics is not None and removed.harmonics_test is not None:
        _add_harmonics_finding(report, removed, least)


def _removal_table(removed: Removals) -> Table:
    rows: list[tuple[str, str, float]] = [
        (part, str(k), rise)
        for part in ("embedding", "neurons", "unembedding")
        for k, rise in getattr(removed, part).items()
    ]
    if removed.without_harmonics is not None:
        rows.append(("embedding", _harmonics(removed), removed.without_harmonics))
    rows.append(("embedding", "all unnamed", removed.unnamed))
    return Table(
        {
            "part": [row[0] for row in rows],
            "removed": [row[1] for row in rows],
            "rise": [row[2] for row in rows],
        },
        f"one row per removal: how much the loss of {removed.loss:.3g} nats rises without it",
        {"rise": "nats"},
    )


def _harmonics(removed: Removals) -> str:
    """The second harmonics that were removed, in words."""
    noun = plural("second harmonic", len(removed.harmonics))
    return f"{noun} {first_of(removed.harmonics)}"


def _add_harmonics_finding(report: Report, removed: Removals, least: float) -> None:
    rise, harmonics = removed.without_harmonics, _harmonics(removed)
    assert rise is not None
    verb, them = ("is", "it") if len(removed.harmonics) == 1 else ("are", "them")
    report.finding(
        f"The {harmonics} of the logits' key frequencies {verb} not key in the logits; without "
        f"{them} in the embedding the loss is {rise:.2g} nats higher.",
        question=f"whether the model needs the {harmonics} of the logits' key frequencies",
        otherwise=(
            f"Projecting the {harmonics} of the logits' key frequencies out of the embedding "
            f"changes the loss by {rise:+.2g} nats."
        ),
        null="embedding.removal_harmonics.sample",
        alpha=REMOVAL_LEVEL,
        effect=rise,
        least=least,
        causal=True,
    )


# --- words ----------------------------------------------------------------------------------------
def add_embedding_finding(report: Report, spectrum: Spectrum) -> None:
    """At which frequencies the embedding's energy stands."""
    ordered = sorted(spectrum.keys, key=lambda k: -spectrum.values[k - 1])
    shares = [f"{k} ({spectrum.values[k - 1]:.1%})" for k in ordered]
    level = f"where a key exceeds {spectrum.threshold:.1%}" * (spectrum.threshold < 1)
    report.finding(
        f"The embedding holds its energy at {plural('frequency', len(shares))} "
        f"{', '.join(shares)}.",
        question="whether the embedding has key frequencies",
        otherwise=(
            f"No frequency of the embedding is key: the largest share is "
            f"{spectrum.values.max():.1%}, {level or NONE_STANDS_OUT}."
        ),
        holds=bool(spectrum.keys),
        null="embedding.largest_share",
        at_chance=True,
    )


def _logit_sentences(spectrum: Spectrum) -> tuple[str, str]:
    largest, unseen = spectrum.values.max(), spectrum.unseen
    one, over_all = len(spectrum.keys) == 1, f"the largest cosine is {_with_level(spectrum)}"
    if unseen is not None and largest > spectrum.threshold:
        otherwise = (
            f"No frequency of the logits is key on {unseen.where} as it is over all inputs: there "
            f"the largest cosine is {_with_level(unseen)}; over all inputs {over_all}."
        )
    else:
        otherwise = f"No frequency of the logits is key: {over_all}."
    return (
        f"The logits have {plural('key frequency', len(spectrum.keys))} "
        f"{listed(spectrum.keys)}, which {'explains' if one else 'explain'} "
        f"{explained(spectrum):.1%} of their variance, largest cosine {largest:.2f}.",
        otherwise,
    )


def _with_level(spectrum: Spectrum) -> str:
    """The largest cosine, and what a key exceeds."""
    level = f"where a key exceeds {spectrum.threshold:.3f}" * (spectrum.threshold < 1)
    return f"{spectrum.values.max():.3f}, {level or NONE_STANDS_OUT}"


def one_or_all(values: dict[str, T]) -> T | dict[str, T]:
    """The one value there is, or all of them by output."""
    return next(iter(values.values())) if len(values) == 1 else values


def _table(
    spectrum: Spectrum, caption: str, units: Mapping[str, str], column: str = "share"
) -> Table:
    k: Sequence[int] = list(spectrum.by_frequency)
    columns = {
        "frequency": k,
        column: spectrum.values.tolist(),
        "key": [i in spectrum.keys for i in k],
    }
    return Table(columns, caption, {"frequency": "cycles over the group", **units})
