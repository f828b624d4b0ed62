"""Figures of the Fourier probe."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from mechint import figures
from mechint.results import Figure, Table
from probes._fourier.neurons import Neurons
from probes._fourier.spectra import Spectrum


def spectrum(found: Spectrum, title: str, y_title: str) -> Figure:
    """Bars over the frequencies with the level of the key ones."""
    keys = ", ".join(map(str, found.keys)) or "none"
    return figures.bars(
        list(found.by_frequency),
        {"measured": found.values},
        title=title,
        x_title="frequency (cycles over the group)",
        y_title=y_title,
        levels={"key above": found.threshold},
        highlight=found.keys,
        caption=f"Key frequencies, above the dashed line: {keys}.",
    )


def neuron_images(grid: Neurons) -> Figure:
    """The strongest neuron of each of the strongest frequencies, over the input grid."""
    shown = list(grid.strongest.items())[:4]
    return figures.image_grid(
        {
            f"layer {layer}, neuron {neuron}: frequency {k}": image
            for k, (layer, neuron, image) in shown
        },
        title="The strongest neurons over the input grid",
        x_title="second operand",
        y_title="first operand",
        z_title="activation",
        caption=(
            "One neuron for each of the strongest frequencies: stripes of one period are a "
            "frequency, noise is none."
        ),
        columns=2,
    )


def residual(found: Mapping[str, Mapping[str, Spectrum]]) -> Figure:
    """Fourier modes of the answer after each layer."""
    shown = dict(list(found.items())[:8])
    hooks = list(next(iter(shown.values())))
    names = [
        "embedding" if hook.endswith("resid_pre") else f"layer {hook.split('.')[1]}"
        for hook in hooks
    ]
    return figures.bars(
        names,
        {name: [len(layers[hook].keys) for hook in hooks] for name, layers in shown.items()},
        title="Fourier modes in the residual stream, by answer",
        x_title="after",
        y_title="modes (frequencies above the null)",
        caption=(
            "How many frequencies of the answer the mean residual vector at the answer's position "
            "has, after each layer."
        ),
    )


def removal(table: Table, loss: float) -> Figure:
    """The loss without each part that was removed, on a logarithmic axis."""
    columns = table.columns
    names = [f"{a}: {b}" for a, b in zip(columns["part"], columns["removed"], strict=True)]
    return figures.bars(
        ["nothing", *names],
        {"loss": np.maximum([loss, *(loss + rise for rise in columns["rise"])], 1e-12)},
        title="Loss without a frequency",
        x_title="projected out",
        y_title="loss (nats)",
        y_log=True,
        caption="What the model needs is what the loss rises without; energy alone does not say.",
    )


def over_steps(table: Table, sigma: float) -> Figure:
    """Active and key frequencies over a run."""
    columns = table.columns
    return figures.lines(
        columns["step"],
        {name: columns[name] for name in list(columns)[1:]},
        title="Active frequencies over steps",
        x_title="step (optimizer steps)",
        y_title="frequencies (number)",
        markers=True,
        caption=(
            f"Active: amplitude above mean + {sigma:g} standard deviations over the frequencies; "
            "key: above the null."
        ),
    )


def shares_over_steps(table: Table) -> Figure:
    """Which frequencies appear in the embedding, and when."""
    frequencies = [name for name in table.columns if name != "step"]
    return figures.heatmap(
        [table.columns[name] for name in frequencies],
        x=[str(step) for step in table.columns["step"]],
        y=frequencies,
        title="Frequencies appearing in the embedding",
        x_title="step (optimizer steps)",
        y_title="frequency (cycles over the group)",
        z_title="share of energy (0–1)",
        caption="One column per checkpoint: a bright row is a frequency that the embedding keeps.",
    )
