"""What the probe of representations writes into its report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.groups.finite import FiniteGroup
from mechint.groups.representations import representations
from mechint.probe import Report
from mechint.results import Table
from mechint.subject import Subject
from probes._fourier.cosines import RELABELED
from probes._fourier.spectra import Array, Spectrum
from probes._irreps.grouped import Grouped
from probes._irreps.spectrum import IrrepSpectra
from probes.rises import Rises, add_named_removal, add_removal_finding


@dataclass(frozen=True)
class IrrepRises(Rises):
    """Rises of the loss, in nats, over `loss` on so many `examples`, by name of the representation
    that was removed; unembedding: likewise out of W_U.
    """

    examples: int
    unembedding: Mapping[str, float]


def add_logits(report: Report, found: Grouped, spectra: IrrepSpectra, logits: Spectrum) -> None:
    """Cosines of the logits with the characters, and the sentence on them."""
    names = spectra.names
    keys = _named(logits, names)
    largest = float(logits.values.max(initial=0))
    explained = float(sum(logits.values[k - 1] ** 2 for k in logits.keys))
    levels = spectra.levels(logits)
    report.metric("table.source", found.source)
    report.metric("table.agreement", float((found.answers == found.products).mean()))
    report.metric("logits.key_irreps", keys)
    report.metric("logits.cosine", dict(zip(names, logits.values.tolist(), strict=True)))
    report.metric("logits.threshold", dict(zip(names, levels.tolist(), strict=True)))
    report.metric(
        "logits.largest_cosine", largest, null=logits.test("logits.largest_cosine", RELABELED)
    )
    report.metric("logits.explained", explained)
    source = "its own answers" if found.source == "model" else "the task's table"
    where = f"On the group of order {found.group.order} ({source})"
    strongest = sorted(keys, key=lambda name: -logits.values[names.index(name)])
    cosines = [f"{name} ({logits.values[names.index(name)]:.2f})" for name in strongest]
    report.finding(
        f"{where} the logits have key representations {', '.join(cosines)}, cosine with the "
        f"character in parentheses; they explain {explained:.1%} of the logits' variance.",
        question="whether the logits have key representations",
        otherwise=(
            f"{where} no representation of the logits is key: the largest cosine is {largest:.3f}."
        ),
        holds=bool(keys),
        null="logits.largest_cosine",
        at_chance=found.source == "model",  # by its own table all its answers are right
    )


def add_embedding(
    report: Report,
    spectra: IrrepSpectra,
    found: Spectrum,
    left: Float[Tensor, "element d"],
    right: Float[Tensor, "element d"] | None,
) -> None:
    """Shares of the operands' embeddings in each representation."""
    how = "the largest share relative to a flat spectrum, with tokens in random order"
    null = found.test("embedding.largest_excess", how)
    keys = _named(found, spectra.names)
    shares = _shares(spectra.group, left.cpu().numpy())
    report.metric("embedding.key_irreps", keys)
    report.metric("embedding.share", shares)
    if right is not None:
        report.metric("embedding.right.share", _shares(spectra.group, right.cpu().numpy()))
    report.metric("embedding.largest_excess", null.observed, null=null)
    centered = left - left.mean(0)  # what all tokens share may stand in the position as well
    varying = _shares(spectra.group, centered.cpu().numpy())
    largest_first = sorted(keys, key=lambda name: -varying[name])
    holding = ", ".join(f"{name} ({varying[name]:.1%})" for name in largest_first)
    whose = "embedding" if right is None else "first operand's embedding"
    report.finding(
        f"What varies of the {whose} holds its energy in {holding}.",
        question=f"whether the {whose} has key representations",
        otherwise=(
            f"No representation of the {whose} is key: the largest share is "
            f"{null.observed:.2g} times that of a flat spectrum."
        ),
        holds=bool(keys),
        null="embedding.largest_excess",
        at_chance=True,
    )


def add_unembedding(report: Report, subject: Subject, group: FiniteGroup) -> None:
    """Shares of the map from neurons to logits, and of W_U; without an MLP both are W_U's."""
    if getattr(subject.model, "W_U", None) is None:
        return
    direct = subject.model.W_U.detach().double()[:, : group.order]
    weights = reversed(list(subject.model.named_parameters()))
    written = next((value for name, value in weights if name.endswith("mlp.W_out")), None)
    whole = direct if written is None else written.detach().double() @ direct
    report.metric("unembedding.share", _shares(group, whole.cpu().numpy().T))
    report.metric("unembedding.direct.share", _shares(group, direct.cpu().numpy().T))


def add_hidden(report: Report, found: Grouped) -> None:
    """Shares of the last hidden layer's energy, the constant left out, that are functions of x, y
    and x·y alone, by irrep.
    """
    n, total = found.group.order, max(found.hidden_squares, 1e-24)
    for part, means in found.hidden.items():
        energy = n * float((means**2).sum()) / total
        shares = {name: share * energy for name, share in _shares(found.group, means).items()}
        report.metric(f"hidden.{part}.share", shares)


def add_removals(report: Report, rises: IrrepRises, least: float) -> None:
    """What the loss rises by without each named representation, and the sentence on it."""
    own_table = report.metrics["table.source"] == "model"
    report.metric("loss.own_answers" if own_table else "loss", rises.loss, unit="nats")
    report.metric("embedding.removal", rises.embedding, unit="nats")
    report.metric("embedding.removal_unnamed", rises.unnamed, unit="nats")
    report.metric("unembedding.removal", rises.unembedding, unit="nats")
    if not rises.embedding:
        return
    add_named_removal(report, rises, "representations")
    gate = {"n": rises.examples, "at_chance": own_table}
    against = "loss against its own answers" if own_table else "loss"
    add_removal_finding(report, rises, "representations", least, against=against, **gate)


def add_table_and_figures(report: Report, group: FiniteGroup) -> None:
    """All numbers by representation, and two pictures of them."""
    irreps, metrics = representations(group).irreps, report.metrics
    names = [irrep.name for irrep in irreps]
    shares = {
        key.removesuffix(".share"): [values[name] for name in names]
        for key, values in metrics.items()
        if key.endswith(".share")
    }
    columns = {
        "irrep": names,
        "degree": [irrep.degree for irrep in irreps],
        "kind": [irrep.kind for irrep in irreps],
        "logits cosine": [metrics["logits.cosine"].get(name) for name in names],
        **shares,
        "rise without it": [metrics.get("embedding.removal", {}).get(name) for name in names],
        "key": [name in metrics["logits.key_irreps"] for name in names],
    }
    caption = "one row per irreducible representation; shares of energy 0–1, cosines −1 … 1"
    units = {"degree": "complex dimension", "rise without it": "nats"}
    report.table("irreps", Table(columns, caption, units))
    keys = metrics["logits.key_irreps"]
    report.figure(
        "logits",
        figures.bars(
            names[1:],
            {"cosine": columns["logits cosine"][1:]},
            title="Logits against the characters",
            x_title="irreducible representation",
            y_title="cosine with χ(x·y·z⁻¹) (−1 … 1)",
            highlight=keys,
            caption=(
                "The representations the answer is computed in stand out; key: "
                f"{', '.join(keys) or 'none'}."
            ),
        ),
    )
    report.figure(
        "shares",
        figures.bars(
            names,
            shares,
            title="Where the weights and the hidden layer live",
            x_title="irreducible representation",
            y_title="share of energy (0–1)",
            caption=(
                "Share of the energy of each part in each representation; the hidden layer as a "
                "function of x, of y and of x·y."
            ),
        ),
    )


def _named(spectrum: Spectrum, names: list[str]) -> list[str]:
    return [names[k - 1] for k in spectrum.keys]


def _shares(group: FiniteGroup, x: Array) -> dict[str, float]:
    """Share of the energy of x (n, d) in each representation, the trivial one too."""
    known = representations(group)
    return dict(zip(known.names, np.asarray(known.energy(x)).tolist(), strict=True))
