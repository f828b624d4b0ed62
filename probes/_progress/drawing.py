"""The table of losses, the figures and the sentence of the progress measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.results import Table


def loss_table(measures: Mapping[str, Any]) -> Table:
    """A row per loss that was measured (nats)."""
    rows = [name for name in measures if "loss" in name and not isinstance(measures[name], dict)]
    return Table(
        {"loss": rows, "value": [measures[name] for name in rows]},
        "one row per loss: variant and split",
        {"value": "nats"},
    )


def excluded_losses(measures: Mapping[str, Any], keys: Sequence[int]) -> Any:
    """The loss (nats) without each key frequency, without all of them, and of them alone."""
    each = measures["excluded_loss.each.all"]
    names = ["none", *(f"frequency {k}" for k in keys), "all keys", "all but keys"]
    values = [
        measures["loss.all"],
        *(each[k] for k in keys),
        measures["excluded_loss.all"],
        measures["restricted_loss.all"],
    ]
    return figures.bars(
        names,
        {"loss": np.maximum(values, 1e-12)},
        title="Loss with frequencies taken out",
        x_title="taken out of the logits",
        y_title="loss (nats)",
        y_log=True,
        caption=(
            "The loss of the logits without the waves of one key frequency or of all, and of the "
            "waves of all keys alone."
        ),
    )


def over_steps(table: Table) -> Any:
    """The losses (nats) over the checkpoints of the run."""
    shown = [
        name
        for name in ("loss.train", "loss.test", "restricted_loss.all", "excluded_loss.train")
        if name in table.columns
    ]
    return figures.lines(
        table.columns["step"],
        {name: np.maximum(table.columns[name], 1e-12) for name in shown},
        title="Progress measures over steps",
        x_title="step (optimizer steps)",
        y_title="loss (nats)",
        y_log=True,
        markers=True,
        caption=(
            "The restricted loss is that of the key frequencies' waves alone, the excluded loss "
            "that of the logits without them."
        ),
    )


def sentences(
    metrics: Mapping[str, Any], keys: Sequence[int], key_by_rule: Sequence[int]
) -> tuple[str, str]:
    """What is said where the frequencies looked at are key and shown to be, and where not."""
    if not keys:
        nothing = (
            "The logits have no key frequency: there is nothing to restrict the loss of "
            f"{metrics['loss.all']:.2g} nats to."
        )
        return nothing, nothing
    words, ruled = (", ".join(map(str, some)) for some in (keys, key_by_rule))
    losses = (
        f"the loss of the logits is {metrics['loss.all']:.2g} nats, of these waves alone "
        f"{metrics['restricted_loss.all']:.2g}, of the logits without them "
        f"{metrics['excluded_loss.all']:.2g}"
    )
    share = f"{metrics['trigonometric_share']:.1%} of the logits' variance"
    return (
        f"The waves of frequencies {words} explain {share}; {losses}.",
        f"The waves of frequencies {words} explain {share}; of all frequencies key by the "
        f"rule of the probe fourier: {ruled or 'none'}; {losses}.",
    )
