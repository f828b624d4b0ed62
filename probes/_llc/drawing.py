"""The table and the figure of a run's chains."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.results import Figure, Table
from probes._llc.diagnostics import Chains

POINTS = 200
"""Points of a chain that are drawn."""


def table(chains: Chains, step_size: float) -> Table:
    """A row per chain."""
    rows = [("whole", step_size, trace) for trace in chains.whole]
    rows += [("half", step_size / 2, trace) for trace in chains.half]
    rows += [("held less", step_size, trace) for trace in chains.loose]
    kept = [trace[chains.burn_in :] for _, _, trace in rows]
    middle = len(kept[0]) // 2
    return Table(
        {
            "chain": list(range(1, len(rows) + 1)),
            "step": [kind for kind, _, _ in rows],
            "step_size": [size for _, size, _ in rows],
            "estimate": [float(draws.mean()) for draws in kept],
            "first_half": [float(draws[:middle].mean()) for draws in kept],
            "second_half": [float(draws[middle:].mean()) for draws in kept],
        },
        "one row per chain; its estimate alone is no result where the chains disagree",
    )


def figure(chains: Chains) -> Figure:
    """Running estimates of every chain, from the first step, burn-in included."""
    steps = chains.whole.shape[1]
    at = np.unique(np.linspace(0, steps - 1, min(POINTS, steps)).round().astype(int))
    width = max(1, steps // 20)
    kinds = {"chain": chains.whole, "half step": chains.half, "held less": chains.loose}
    curves = {
        f"{kind} {i + 1}": _smoothed(trace, width)
        for kind, traces in kinds.items()
        for i, trace in enumerate(traces)
    }
    return figures.lines(
        (at + 1).tolist(),
        {name: curve[at] for name, curve in curves.items()},
        title="Rise of the loss along each chain",
        x_title="step of the chain",
        y_title="nβ (L(w) − L(w*)), running mean (nats)",
        caption=(
            f"Means over {width} steps. Where all chains are level and agree after "
            f"{chains.burn_in} steps of burn-in, their height is the local learning coefficient."
        ),
    )


def _smoothed(trace: np.ndarray, width: int) -> np.ndarray:
    """(step,) mean of the last `width` values, of fewer at the beginning."""
    sums = np.concatenate([[0.0], np.cumsum(trace)])
    ends = np.arange(1, len(trace) + 1)
    starts = np.maximum(0, ends - width)
    return (sums[ends] - sums[starts]) / (ends - starts)
