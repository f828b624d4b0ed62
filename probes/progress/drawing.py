"""The table of losses, the figures and the sentence of the progress measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.results import Null, Table


def loss_table(measures: Mapping[str, Any]) -> Table:
    rows = [name for name in measures if "loss" in name and not isinstance(measures[name], dict)]
    return Table(
        {"loss": rows, "value": [measures[name] for name in rows]},
        "one row a loss: variant and split",
        {"value": "nats"},
    )


def excluded_losses(measures: Mapping[str, Any], keys: Sequence[int]) -> Any:
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
            "A key frequency is needed when the loss rises without it; the keys suffice when it "
            "stays low with nothing but them."
        ),
    )


def over_steps(table: Table) -> Any:
    shown = [
        name
        for name in ("loss.train", "loss.test", "restricted_loss.all", "excluded_loss.train")
        if name in table.columns
    ]
    return figures.lines(
        table.columns["step"],
        {name: np.maximum(table.columns[name], 1e-12) for name in shown},
        title="Progress measures over steps",
        x_title="step (optimiser steps)",
        y_title="loss (nats)",
        y_log=True,
        markers=True,
        caption=(
            "The restricted loss falls before the test loss when the circuit forms; the excluded "
            "loss rises when it carries the training set."
        ),
    )


def finding(metrics: Mapping[str, Any], keys: Sequence[int], nulls: Mapping[str, Null]) -> str:
    if not keys:
        return (
            "The logits have no key frequency: there is nothing to restrict the loss of "
            f"{metrics['loss.all']:.2g} nats to."
        )
    words = ", ".join(map(str, keys))
    return (
        f"With the waves of frequencies {words} alone the loss is "
        f"{metrics['restricted_loss.all']:.2g} nats, without them "
        f"{metrics['excluded_loss.all']:.2g} "
        f"(of the model: {metrics['loss.all']:.2g}); they explain "
        f"{metrics['trigonometric_share']:.1%} of the logits' variance "
        f"({nulls['trigonometric_share'].p_text} against as many other frequencies)."
    )
