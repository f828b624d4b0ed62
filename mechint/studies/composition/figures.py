"""The figures and tables of the composition study."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.errors import TrainingError, counted
from mechint.results import Figure, Table
from mechint.studies.composition.measures import (
    LEARNED,
    Measures,
    accuracies,
    in_order,
    pattern_targets,
    solved,
    steps_of,
)
from mechint.studies.core.study import Analysis, mean_and_spread, task_of

PATTERNED = ("attention-only", "attention-only-copy", "mixture")
"""Arms whose attention is drawn."""


def draw(analysis: Analysis, study: Measures) -> None:
    """Add every figure and table."""
    for arm, readout in (("mixture", "staged"), ("mixture-last", "last layer")):
        name = f"Accuracy per hop, {readout}"
        analysis.add_figure(name, lambda arm=arm, readout=readout: hops(study, arm, readout))
    analysis.add_figure("With and without easier data", lambda: arms(study))
    analysis.add_figure("First-layer attention", lambda: attention(study))
    analysis.add_figure("Hop length of every layer", lambda: patterns(study))
    analysis.add_sensitivity("Readout, start and mixture", lambda: outcomes(study))
    analysis.add_table("Attention patterns", lambda: pattern_table(study))


def _chance(study: Measures, arm: str) -> dict[str, float]:
    return {"chance": 1 / task_of(study.group(arm)[0]).n}


def hops(study: Measures, arm: str, readout: str) -> Figure:
    """Accuracy of every hop over the steps of a mixture arm."""
    x, y, of = {}, {}, {}
    for hop in study.hops:
        for seed, run in enumerate(study.group(arm)):
            name = f"{hop}-hop" if seed == 0 else f"{hop}-hop, seed {seed}"
            x[name], y[name], of[name] = steps_of(run), accuracies(run, hop), f"{hop}-hop"
    return figures.lines(
        x,
        y,
        groups=of,
        title=f"Mixture, readout: {readout}",
        x_title="step",
        y_title="test accuracy (0–1)",
        y_range=(0, 1),
        levels=_chance(study, arm),
        caption=(
            "Test accuracy of every hop over the steps of mixture training, every example asking "
            f"all hops, one curve per seed. {_order(study.learning_steps(arm), study.hops)}"
        ),
    )


def _order(steps: Sequence[Sequence[float]], hops: Sequence[int]) -> str:
    """How many runs learned each hop, and how many of those with all of them in order."""
    each = ", ".join(
        f"{hop}-hop in {sum(map(math.isfinite, column))} of {counted(len(column), 'run')}"
        for hop, column in zip(hops, zip(*steps, strict=True), strict=True)
    )
    ordered = f", {sum(map(in_order, steps))} of them from easy to hard" if solved(steps) else ""
    all_ = f"all hops in {solved(steps)} of {counted(len(steps), 'run')}"
    return f"At {LEARNED:g}: {each}; {all_}{ordered}."


def arms(study: Measures) -> Figure:
    """Accuracy on k hops with and without easier data, one readout for all."""
    x, y, of = {}, {}, {}
    for arm in ("mixture-last", "curriculum-last", "direct"):
        for seed, run in enumerate(study.group(arm)):
            name = arm if seed == 0 else f"{arm}, seed {seed}"
            x[name], y[name], of[name] = steps_of(run), accuracies(run, study.k), arm
    caption = (
        f"Test accuracy on {study.k} hops, read after the last layer in every arm: with easier "
        "data, with easier data first, and alone."
    )
    style: dict[str, Any] = {
        "x_title": "step",
        "y_title": "test accuracy (0–1)",
        "y_range": (0, 1),
        "levels": _chance(study, "direct"),
        "groups": of,
    }
    return figures.lines(x, y, title="With and without easier data", caption=caption, **style)


def attention(study: Measures) -> Figure:
    """First-layer attention of the first attention-only run that learned every hop, or else of the
    first one, beside the hidden permutations.
    """
    study.group("attention-only")  # raises where there is none
    learned = study.that_learned("attention-only")
    name = (learned or study.names("attention-only"))[0]
    run = study.runs[name]
    subject = run.subject(n_examples=64)
    pattern = subject.activation("blocks.0.attn.hook_pattern").mean(0)[0]
    targets = pattern_targets(run, subject.data.tokens[:1], 1)[0].tolist()
    task = task_of(run)
    names = [f"({p // task.n + 1},{p % task.n + 1})" for p in range(task.n_ctx)]
    looking, avoiding = (
        ", ".join(f"{share:.2f}" for share in of[0]) for of in study.blocks(name, 1)
    )
    caption = (
        f"Mean attention of the only head of layer 1 of {name}, "
        + ("which learned every hop" if learned else "where no run of the arm learned every hop")
        + "; circles mark (i, π_i(j)), the hidden permutations. Share of queries with their "
        f"largest weight there, block by block: {looking}; with their least weight of the block "
        f"there: {avoiding}. Either tells the value of a permutation, and a block may use either."
    )
    titles: dict[str, Any] = {
        "title": "First-layer attention against π",
        "x_title": "attended position (i, j)",
        "y_title": "query position (i, j)",
    }
    return figures.heatmap(
        pattern,
        x=names,
        y=names,
        z_title="attention (0–1)",
        caption=caption,
        rings=list(enumerate(targets)),
        **titles,
    )


def patterns(study: Measures) -> Figure:
    """Share of queries that follow the construction, layer by layer."""
    layers = range(1, len(study.hops) + 1)
    series = {
        arm: [
            float(np.mean([study.followed(name, layer) for name in study.that_learned(arm)]))
            for layer in layers
        ]
        for arm in PATTERNED
        if study.that_learned(arm)
    }
    counts = ", ".join(f"{arm} {len(study.that_learned(arm))}" for arm in PATTERNED)
    caption = (
        f"Runs that learned every hop ({counts}): share of queries that follow the construction, "
        "layer 1 to (i, π_i(j)), layer l+1 to (i + 2^(l-1), hop(j)), by their largest weight or by "
        "their least within the target's block, whichever their block of queries has more of."
    )
    return figures.bars(
        [f"layer {layer}" for layer in layers],
        series,
        title="Hop length of every layer",
        x_title="layer",
        y_title="share of queries (0–1)",
        caption=caption,
    )


def outcomes(study: Measures) -> Table:
    """What every arm learned."""
    rows = []
    for arm in study.runs.values_of("arm"):
        try:
            steps = study.learning_steps(arm)
        except TrainingError:  # an arm that failed leaves the others their rows
            continue
        if not steps:
            continue
        median = float(np.median([max(row) for row in steps]))
        rows.append(
            (
                arm,
                study.runs.labels[study.runs.names(arm=arm)[0]]["readout"],
                f"{solved(steps)} of {len(steps)}",
                f"{median:.0f}" if math.isfinite(median) else "not learned",
                mean_and_spread(study.last(arm)),
            )
        )
    columns = ("arm", "readout", "runs that learned all", "median step", "last accuracy on k hops")
    caption = (
        "Every arm: staged or last readout, a small start (N(0, 0.02) weights), one hop asked per "
        "example, as the source has it, in place of all."
    )
    return Table({name: [row[i] for row in rows] for i, name in enumerate(columns)}, caption)


def pattern_table(study: Measures) -> Table:
    """Attention of every layer against the construction, runs that learned all hops."""
    rows = []
    for arm in PATTERNED:
        names = study.that_learned(arm)
        for layer in range(1, len(study.hops) + 1) if names else ():
            shares = [study.pattern(name, layer) for name in names]
            both = [
                mean_and_spread([of(name, layer) for name in names])
                for of in (study.avoided, study.followed)
            ]
            largest = mean_and_spread([share for share, _ in shares])
            weight = mean_and_spread([mass for _, mass in shares])
            rows.append((arm, layer, largest, weight, *both))
    columns = (
        "arm",
        "layer",
        "largest weight on target",
        "mean weight",
        "least weight on target",
        "largest or least, block by block",
    )
    caption = (
        "The head of each layer that follows the construction most (uniform attention has "
        "1/(kN)); the share of queries which give the target's block more than 1/k of their "
        "weight and the target the least of it; and the share with the one or the other, "
        "whichever their block has more of."
    )
    return Table({name: [row[i] for row in rows] for i, name in enumerate(columns)}, caption)
