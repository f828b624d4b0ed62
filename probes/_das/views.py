"""The DAS probe's sentence, table and figures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.probe import Report
from mechint.results import Null, Table
from probes._das.drawing import LEAST_EXAMPLES
from probes._das.search import Cell


def say(
    report: Report, best: Cell, found: Sequence[Cell], threshold: float, most_input: float
) -> None:
    """The findings: which subspace holds the variable, or what it is that answers instead."""
    metrics = report.metrics
    verdict = best.verdict(threshold, most_input)
    unused = metrics.get("iia_row_space", best.iia) < threshold <= best.iia
    name = metrics["variable"]
    article = "An" if best.dimension in (8, 11, 18) else "A"
    where = f"{article} {best.dimension}-dimensional subspace of {best.where}"
    minimal = ""
    if not math.isnan(best.full_swap_minimal):
        minimal = f" ({best.full_swap_minimal:.1%} where the source differs in {name} alone)"
    numbers = (
        f"swapping it gives the counterfactual answer on {best.iia:.1%} of "
        f"{metrics['pairs_held_out']} held-out pairs{_of_examples(metrics)}, random subspaces "
        f"{metrics['iia_random']:.1%}, the whole activation {best.full_swap:.1%}"
        f"{minimal}, mean differences "
        f"{metrics['iia_mean_difference']:.1%}, arbitrary labels {metrics['iia_arbitrary']:.1%}"
    )
    if "iia_untrained" in metrics:
        numbers += f", the untrained model {metrics['iia_untrained']:.1%}"
    nulls = ["iia", "iia_norm_matched", "iia_above_arbitrary", "iia_above_untrained"]
    carried = metrics["inputs_carried_at"]
    also = _also([one for one in metrics["held_at"] if one != best.where])
    question = f"whether a subspace holds {name}"
    if metrics.get("examples_held_out", LEAST_EXAMPLES) < LEAST_EXAMPLES:
        report.metric("found", False)
        report.abstain(
            f"{metrics['examples_held_out']} examples are held out, and {LEAST_EXAMPLES} of them "
            f"tell pairs from chance; give more, a third is held out. {where}: {numbers}",
            question,
        )
        return
    text = f"{where} holds {name}{_as_far_as(metrics)}{also}: {numbers}."
    if carried:
        text += f" {', '.join(carried[:4])} carries the inputs it is computed from."
    status = report.finding(
        text,
        question=question,
        otherwise=_otherwise(name, where, numbers, best, metrics, verdict, unused, threshold),
        holds=verdict == "holds" and not unused,
        null=[one for one in nulls if one in report.nulls],
        effect=best.iia,
        least=threshold - 1e-9,
        n=metrics["pairs_held_out"],
        causal=True,
    )
    report.metric("found", status == "yes")


def _of_examples(metrics: Mapping[str, Any]) -> str:
    """Of which examples the held-out pairs are, where these are a sample."""
    if "examples_held_out" not in metrics:
        return ""
    text = f" of {metrics['examples_held_out']} examples that it was not trained on"
    if metrics["counterfactuals_apart"]:
        return text
    return f"{text} (counterfactuals of these among those that it was)"


def _as_far_as(metrics: Mapping[str, Any]) -> str:
    """What an interchange cannot show of the variable, since no answer does."""
    groups, values = metrics["values_told_apart"], metrics["values"]
    if groups == values:
        return ""
    return f" as far as answers tell its {values} values apart, in {groups} groups"


def _also(sites: Sequence[str]) -> str:
    """Where other subspaces do as well, whose nulls nobody has drawn."""
    if not sites:
        return ""
    some = f"{', '.join(sites[:4])}{' …' if len(sites) > 4 else ''}"
    return f" (others, of {some}, reach the threshold, not held against controls)"


def _otherwise(
    name: str,
    where: str,
    numbers: str,
    best: Cell,
    metrics: Mapping[str, Any],
    verdict: str,
    unused: bool,
    threshold: float,
) -> str:
    if verdict.startswith("carries"):
        itself, means = "", ""  # without means per value nothing tells whether it is there as well
        if not math.isnan(best.value_means):
            itself = f", not {name} itself"
            means = f", and their means per value give {best.value_means:.1%} of the answers"
        return (
            f"{where} carries the inputs that {name} is computed from{itself}: its coordinates "
            f"vary {best.input_share:.0%} as much among inputs that share the value as among all"
            f"{means}; {numbers}."
        )
    if verdict == "holds more":
        return (
            f"{where} holds more than {name}: its coordinates vary {best.input_share:.0%} as much "
            "among inputs that share the value as among all, though their means per value give "
            f"{best.value_means:.1%} of the answers, too; {numbers}."
        )
    if verdict == "holds" and unused:
        return (
            f"{where} gives the answers of {name} through directions that nothing reads: "
            f"{metrics['null_space_share']:.0%} of it lies in the null space of its readers, and "
            f"the part they read gives {metrics['iia_row_space']:.1%}; {numbers}."
        )
    if verdict == "full swap fails":
        return (
            f"{where} gives the answers of {name}, but the swap of the whole activation does not, "
            f"so that the rest of it undoes or replaces what the subspace says; {numbers}."
        )
    one = f"{where[0].lower()}{where[1:]}"
    if verdict == "holds":  # of the nulls one is not beaten
        return f"What holds {name} is not told from chance: the one chosen is {one}; {numbers}."
    if metrics["held_at"]:
        return (
            f"{where}, chosen on training pairs to hold {name}, falls short of the threshold, "
            f"{threshold:g}, on held-out pairs{_also(metrics['held_at'])}: {numbers}."
        )
    text = f"No subspace tried holds {name}; the one chosen on training pairs is {one}: {numbers}."
    if best.full_swap_fails(threshold):
        text += " Even the swap of the whole activation does not give the answers."
    return text


def sweep_table(found: Sequence[Cell], threshold: float, most_input: float) -> Table:
    """A row per site and dimension: interchange accuracies, share of the inputs, verdict."""
    columns: dict[str, Sequence[Any]] = {
        "hook": [one.hook for one in found],
        "pos": ["answer" if one.place[1] is None else one.place[1] for one in found],
        "dimension": [one.dimension for one in found],
        "iia": [one.iia for one in found],
        "iia_train": [one.trained for one in found],
        "iia_random": [one.random for one in found],
        "iia_full_swap": [one.full_swap for one in found],
        "iia_full_swap_minimal": [one.full_swap_minimal for one in found],
        "input_share": [one.input_share for one in found],
        "iia_value_means": [one.value_means for one in found],
        "verdict": [one.verdict(threshold, most_input) for one in found],
    }
    units = {name: "share of pairs" for name in columns if name.startswith("iia")}
    return Table(
        columns,
        (
            "One row per site and dimension; iia on held-out pairs, iia_random the mean of 5 "
            "random subspaces; iia_full_swap_minimal with sources that differ in the variable "
            "alone; input_share: variance of the coordinates among inputs that share "
            "the variable's value, over their whole variance; where that is large, "
            "iia_value_means swaps in the coordinates' means per value; verdict: by iia, "
            "input_share, these and full swap, without the controls."
        ),
        units,
    )


MOST_SITES = 16
"""Sites in the figure of the search, the best ones."""


def sweep_figure(found: Sequence[Cell], null: Null, metrics: Mapping[str, Any]) -> Any:
    """The best dimension of every site, beside the controls."""
    sites: dict[str, Cell] = {}
    for one in found:
        if one.where not in sites or one.iia > sites[one.where].iia:
            sites[one.where] = one
    shown = sorted(sites.values(), key=lambda one: -one.iia)[:MOST_SITES]
    series = {
        "found subspace": [one.iia for one in shown],
        "random subspace": [one.random for one in shown],
        "whole activation": [one.full_swap for one in shown],
    }
    levels = {"arbitrary labels": metrics["iia_arbitrary"]}
    if "iia_untrained" in metrics:
        levels["untrained model"] = metrics["iia_untrained"]
    return figures.bars(
        [f"{one.where}, {one.dimension} dim." for one in shown],
        series,
        title=f"Interchange of {metrics['variable']}",
        x_title="site and dimension of its best subspace",
        y_title="interchange intervention accuracy (0–1)",
        levels=levels,
        null=(null.mean, null.mean - 2 * null.std, null.mean + 2 * null.std),
        horizontal=True,
        caption=(
            "How often swapping the subspace swaps the answer. A variable held by a subspace "
            "scores far above random subspaces, the untrained model and arbitrary labels."
        ),
    )


WINDOWS = 60
"""Points of the curve of the search, each the mean of as many steps."""


def loss_figure(best: Cell) -> Any:
    """The loss of the search in means over windows, and whether it settled."""
    parts = np.array_split(
        np.asarray(best.losses, dtype=np.float64), min(WINDOWS, len(best.losses))
    )
    means = [float(part.mean()) for part in parts]
    last, before = np.mean(means[-6:]), np.mean(means[-12:-6] or means)
    still = abs(before - last) > 0.05 * max(abs(float(before)), 1e-9)
    words = "it still changed at the end" if still else "it has settled"
    step = len(best.losses) / len(parts)
    return figures.lines(
        [round((i + 0.5) * step, 1) for i in range(len(parts))],
        {"training pairs": means},
        title=f"Search at {best.where}",
        x_title="step",
        y_title="cross-entropy of the counterfactual label (nats)",
        bands={"training pairs": ([p.min() for p in parts], [p.max() for p in parts])},
        caption=(
            f"The search for the best subspace, from {means[0]:.3g} to {means[-1]:.3g} nats; "
            f"{words}."
            + (f" Means of {step:.0f} steps, the band from least to largest." if step > 1 else "")
        ),
    )
