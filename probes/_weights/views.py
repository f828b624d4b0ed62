"""Tables and figures of the probe of weights."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from mechint import figures
from mechint.probe import Report
from probes._weights import circuits
from probes._weights.circuits import Heads
from probes._weights.composition import KINDS, HeadComposition

MOST_DRAWN = 128
"""Tokens that are drawn."""


def sizes(heads: Heads) -> dict[str, list[float]]:
    """Columns of the table of heads: norms of the circuits, and over how many directions they are
    spread, (Σ s²)² / Σ s⁴ of the singular values.
    """
    columns: dict[str, list[float]] = {}
    for name, circuit in (("QK", heads.qk), ("OV", heads.ov)):
        squared = circuit.S.square()
        columns[f"{name} norm"] = squared.sum(-1).sqrt().tolist()
        spread = squared.sum(-1).square() / squared.square().sum(-1).clamp_min(1e-150)
        columns[f"{name} effective rank"] = spread.tolist()
    return columns


def draw_circuits(report: Report, heads: Heads, composed: HeadComposition | None) -> None:
    """The full OV circuit of the head that copies most, the QK circuits of a head, and z of all
    pairs.
    """
    subject = report.subject
    head = heads.names.index(report.metrics.get("copying.head", heads.names[0]))
    unembed = circuits.unembedding(subject)
    if unembed is not None:
        embed = circuits.embedding(subject)[:MOST_DRAWN]
        full = embed @ heads.v[head] @ heads.o[head] @ unembed[:, :MOST_DRAWN]
        report.figure("ov", _circuit(full, f"OV circuit of {heads.names[head]}", "class"))
    asking = composed.best("K")[1] if composed is not None else head
    tokens = circuits.embedding(subject)[:MOST_DRAWN]
    full = tokens @ heads.q[asking] @ heads.k[asking].T @ tokens.T
    report.figure("qk", _circuit(full, f"QK circuit of {heads.names[asking]}", "key's token"))
    if composed is not None:
        report.figure("composition", _composition(heads, composed))


def _circuit(full: Tensor, title: str, columns: str) -> figures.Figure:
    return figures.heatmap(
        full,
        title=title,
        x_title=columns,
        y_title="token",
        z_title="entry (score or logit, up to the norms' scale)",
        diverging=True,
        caption="A bright diagonal is a head that copies, or matches, what it reads.",
    )


def _composition(heads: Heads, composed: HeadComposition) -> figures.Figure:
    readers = [index for index in range(len(heads.names)) if np.isfinite(_column(composed, index))]
    writers = [index for index, row in enumerate(composed.z["K"]) if bool(np.isfinite(row).any())]
    z = np.concatenate([composed.z[kind][np.ix_(writers, readers)] for kind in KINDS], 1)
    return figures.heatmap(
        z,
        title="What heads read overlaps with what others write",
        x=[f"{heads.names[index]} {kind}" for kind in KINDS for index in readers],
        y=[heads.names[index] for index in writers],
        x_title="reader and how it reads",
        y_title="writer",
        z_title="composition score (standard deviations from turned heads)",
        diverging=True,
        caption="Bright cells are pairs that overlap beyond the subspace that all heads share.",
    )


def _column(composed: HeadComposition, index: int) -> float:
    column = composed.z["K"][:, index]
    return float(np.nanmax(column)) if bool(np.isfinite(column).any()) else float("nan")
