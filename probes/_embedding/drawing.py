"""Figures and the table of the embedding's geometry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.errors import counted
from mechint.probe import Report
from mechint.results import Figure, Table
from probes._embedding.residues import RESIDUES, SEPARATED
from probes._fourier.spectra import Array


def singular_table(singular: Float[np.ndarray, " component"]) -> Table:
    """A row per singular value, with the variance that it and those before it hold."""
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    columns = {
        "rank": list(range(1, len(singular) + 1)),
        "singular value": singular.tolist(),
        "variance held": held.tolist(),
    }
    return Table(
        columns,
        "one row per singular value of the centered embedding",
        {"variance held": "0–1, cumulative"},
    )


def draw(
    report: Report,
    similar: Float[np.ndarray, "token token"],
    scores: Float[np.ndarray, "token principal"],
    singular: Float[np.ndarray, " component"],
    rows: Float[np.ndarray, "token d"],
    tokens: Sequence[int],
    alpha: float,
) -> None:
    """Add the table of singular values and the figures of what stands to the report."""
    report.table("singular values", singular_table(singular))
    report.figure("singular_values", _spectrum(singular, report.metrics))
    for k in report.metrics.get("cyclic.frequencies", [])[:1]:
        report.figure("circle", _circle(rows, k))
    ordered = "cyclic.share" in report.metrics
    report.figure("similarity", _similarity(similar, ordered))
    for name in RESIDUES:
        null = report.nulls.get(f"{name}.separation")
        if null is not None and null.p_value <= alpha:
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
            f"Half of the variance lies in {counted(metrics['svd.rank_50'], 'dimension')}, "
            f"90% of it in {metrics['svd.rank_90']}."
        ),
        markers=len(ranks) <= 40,
    )


def _circle(rows: Array, k: int) -> Figure:
    """The rows projected on the two directions that vary at frequency k."""
    n = len(rows)
    angle = 2 * np.pi * k * np.arange(n) / n
    waves = np.stack([np.cos(angle), np.sin(angle)])  # (2, value)
    axes = waves @ (rows - rows.mean(0))  # (2, d_model)
    basis = np.linalg.qr(axes.T)[0]
    at = (rows - rows.mean(0)) @ basis
    return figures.scatter(
        at[:, 0],
        at[:, 1],
        title=f"Tokens on the circle of frequency {k}",
        x_title=f"first direction of frequency {k} (units of the embedding)",
        y_title=f"second direction of frequency {k} (units of the embedding)",
        color=(k * np.arange(n)) % n,
        color_title=f"{k}·value mod {n}",
        cyclic=True,
        equal=True,
        text=[str(i) for i in range(n)],
        labels=n <= 40,
        caption=f"In order of {k} times the value, the tokens go round a circle.",
    )


def _similarity(similar: Array, ordered: bool) -> Figure:
    title = "value of the token" if ordered else "token, as the task lists them"
    return figures.heatmap(
        similar,
        title="Similarity of the tokens",
        x_title=title,
        y_title=title,
        z_title="correlation (−1 … 1)",
        caption=(
            "Diagonal bands mean that similarity depends on the difference of two values; a "
            "checkerboard is parity."
            if ordered
            else "Two tokens whose rows correlate are alike to the model."
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
            f"{metrics[f'{name}.separation']:.0%} of {SEPARATED[name].format(component + 1)} "
            "lies between the classes."
        ),
    )
