"""Figures and the table of the embedding's geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.probe import Report
from mechint.results import Figure, Table
from probes.embedding.measures import RESIDUES
from probes.fourier.spectra import Array


def singular_table(singular: Array) -> Table:
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    columns = {
        "rank": list(range(1, len(singular) + 1)),
        "singular value": singular.tolist(),
        "variance held": held.tolist(),
    }
    return Table(
        columns,
        "one row a singular value of the centered embedding",
        {"variance held": "0–1, cumulative"},
    )


def draw(
    report: Report,
    similar: Array,
    scores: Array,
    singular: Array,
    left: Array,
    tokens: Sequence[int],
) -> None:
    """Add the table of singular values and all figures to the report."""
    report.table("singular values", singular_table(singular))
    report.figure("singular_values", _spectrum(singular, report.metrics))
    report.figure("singular_vectors", _vectors(left))
    report.figure("similarity", _similarity(similar))
    for name in RESIDUES:
        report.figure(name, _residues(name, scores, tokens, report.metrics))


def _spectrum(singular: Array, metrics: Mapping[str, Any]) -> Figure:
    ranks = list(range(1, len(singular) + 1))
    return figures.lines(
        ranks,
        {"singular value": singular},
        title="Singular values of the embedding",
        x_title="rank",
        y_title="singular value (units of the embedding)",
        caption=(
            f"{metrics['svd.rank_50']} values hold half of the variance, "
            f"{metrics['svd.rank_90']} hold 90% of it."
        ),
        markers=len(ranks) <= 40,
    )


def _vectors(left: Array) -> Figure:
    return figures.lines(
        list(range(len(left))),
        {f"vector {i + 1}": left[:, i] for i in range(min(4, left.shape[1]))},
        title="Left singular vectors of the embedding",
        x_title="value of the token",
        y_title="coordinate (−1 … 1)",
        caption="Waves over the values are a periodic code; steps or lines an order.",
    )


def _similarity(similar: Array) -> Figure:
    return figures.heatmap(
        similar,
        title="Similarity of the tokens",
        x_title="value of the token",
        y_title="value of the token",
        z_title="correlation (−1 … 1)",
        caption=(
            "Diagonal bands mean that similarity depends on the difference of two values; a "
            "checkerboard is parity."
        ),
        diverging=True,
        limits=(-1, 1),
        annotate=False,
        square=True,
    )


def _residues(
    name: str, scores: Array, tokens: Sequence[int], metrics: Mapping[str, Any]
) -> Figure:
    modulus, component = RESIDUES[name], metrics[f"{name}.component"] - 1
    other = 0 if component else 1
    return figures.scatter(
        scores[:, component],
        scores[:, other],
        title=f"Principal components by residue mod {modulus}",
        x_title=f"component {component + 1} of the similarity matrix (score)",
        y_title=f"component {other + 1} of the similarity matrix (score)",
        groups=[f"{i % modulus} mod {modulus}" for i in range(len(tokens))],
        text=[str(token) for token in tokens],
        labels=len(tokens) <= 40,
        caption=(
            f"{metrics[f'{name}.separation']:.0%} of component {component + 1}'s variance "
            "lies between the classes."
        ),
    )
