"""The figures and tables of the joint-training study, from what it measured."""

from __future__ import annotations

import numpy as np

from mechint import figures
from mechint.errors import DataError
from mechint.results import Figure, Table
from mechint.studies.core.study import Analysis, mean_and_spread
from mechint.studies.joint_training.measures import (
    MIXTURES,
    Measures,
    held,
    last,
    reached,
    solved,
    steps_in_words,
    table_of,
)

CURVES = {
    "addition": ("ADD", "ADD in ADD+PROD", "ADD in MAX+MED+ADD"),
    "two hard operations": ("ADD, n = 19", "ADD in ADD+PROD, n = 19"),
    "operations alone": ("MAX", "MIN", "MED", "PROD", "NADD", "ADD"),
    "products": ("PROD prime", "PROD prime in MAX+PROD"),
    "permutation blocks": ("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
    "random tables": ("ADD", "ADD, even table", "ADD, uneven table"),
}
"""Transition curves drawn together: title → arms, of which those with finished runs are shown."""


def draw(analysis: Analysis, study: Measures) -> None:
    """Add everything that can be drawn at the size."""
    for name, arms in CURVES.items():
        if not any(study.runs.names(arm=arm) for arm in arms):
            continue  # not of this size
        title = f"Transition to learning: {name}"
        analysis.add_figure(
            f"transition: {name}", lambda arms=arms, title=title: transitions(study, arms, title)
        )
    analysis.add_figure("triplets", lambda: outcomes(study))
    analysis.add_figure("operations while a mixture trains", lambda: mixture(study))
    for arm in (*MIXTURES, "ADD") if study.size != "laptop" else ():
        analysis.add_figure(f"components, {arm}", lambda arm=arm: components(study, arm))
        analysis.add_figure(f"similarity, {arm}", lambda arm=arm: similarity(study, arm))
    analysis.add_sensitivity("initialization", lambda: initialization(study))
    analysis.add_table("triplets", lambda: triplet_table(study))
    analysis.add_table("nested expressions", lambda: nested_table(study))


def transitions(study: Measures, arms: tuple[str, ...], title: str) -> Figure:
    """Accuracy at the last step over parameters, one point per run, with the logistic curve of
    every arm and its band.
    """
    there = [arm for arm in arms if study.runs.finished(arm=arm)]
    if len(there) < 2:
        raise DataError(f"of {', '.join(arms)} fewer than two have finished runs to compare")
    fitted = {arm: study.transition(arm) for arm in there}
    sizes = np.geomspace(
        min(one.parameters.min() for one in fitted.values()),
        max(one.parameters.max() for one in fitted.values()),
        80,
    )
    return figures.fits(
        {arm: (one.parameters, one.accuracies) for arm, one in fitted.items()},
        {arm: (sizes, *one.curve(sizes)) for arm, one in fitted.items()},
        title=title,
        x_title="parameters (log)",
        y_title="accuracy at the last step (0–1)",
        x_log=True,
        y_range=(-0.03, 1.03),
        levels={"50%": 0.5, "80%": 0.8},
        caption=(
            "One point per run, one logistic curve per arm with its 95% band; where a curve "
            f"crosses a dashed line is its transition. {study.describe(*there)}."
        ),
    )


def outcomes(study: Measures) -> Figure:
    """Accuracy on held-out sums at the last step, one point per seed, arm by arm."""
    arms = ("MAX+MED+ADD", "300 each of MAX+MED+ADD", "ADD")
    arms += tuple(f"{arm}, early stop" for arm in ("MAX+MED+ADD", "ADD"))
    found = {arm: [last(run) for run in study.triplets(arm)] for arm in arms}
    names = {
        arm: f"{arm}, {solved(values)} of {len(values)} solved" for arm, values in found.items()
    }
    return figures.scatter(
        [value for values in found.values() for value in values],
        [names[arm] for arm, values in found.items() for _ in values],
        groups=[arm for arm, values in found.items() for _ in values],
        title=f"Held-out sums of triplets, {study.widest('ADD')} wide",
        x_title="accuracy at the last step (0–1)",
        y_title="trained on",
        caption=(
            "One point per seed: sums beside other operations, with all their triplets or as many "
            "in all as sums alone have, and sums alone; to the end or with the paper's early stop."
        ),
        height=360,
    )


def mixture(study: Measures) -> Figure:
    """Held-out accuracy of every operation over the steps of the mixture, and of sums trained
    alone.
    """
    runs, alone = study.triplets("MAX+MED+ADD"), study.triplets("ADD")
    steps = max(([row["step"] for row in run.metrics] for run in (*runs, *alone)), key=len)
    curves = {
        name: held(runs, f"test.greedy.accuracy.{name}", len(steps))
        for name in ("MAX", "MED", "ADD")
    }
    curves["ADD alone"] = held(alone, "test.greedy.accuracy", len(steps))
    return figures.lines(
        steps,
        {name: values.mean(0) for name, values in curves.items()},
        bands={name: (values.min(0), values.max(0)) for name, values in curves.items()},
        title="Every operation while the mixture trains",
        x_title="step",
        y_title="accuracy on held-out triplets (0–1)",
        y_range=(0.0, 1.03),
        caption=(
            "Means over seeds, from the least to the best seed shaded; a run that has learned "
            "ends, and its last value is drawn on. ADD alone is trained on its own."
        ),
    )


def components(study: Measures, arm: str) -> Figure:
    """Principal components of the values' similarity, averaged over the models of an arm that
    learned, colored by parity.
    """
    result = study.layout(arm)
    if result is None:
        raise DataError(f"no run of {arm} learned ADD; there is no embedding to average")
    scores, share = result.arrays["components"], result.metrics["parity.separation"]
    first = int(result.metrics["parity.component"]) - 1
    other = 1 if first == 0 else 0
    values = list(range(len(scores)))
    return figures.scatter(
        scores[:, first],
        scores[:, other],
        groups=["even" if value % 2 == 0 else "odd" for value in values],
        text=[str(value) for value in values],
        labels=True,
        title=f"Averaged embedding of models that learned {arm}",
        x_title=f"component {first + 1}",
        y_title=f"component {other + 1}",
        caption=(
            "Principal components of the similarity matrix, averaged over "
            f"{len(study.learned(arm))} models. {share:.0%} of component {first + 1} lies between "
            f"even and odd (p = {result.null['parity.separation'].p_value:.2g})."
        ),
    )


def similarity(study: Measures, arm: str) -> Figure:
    """The similarity of the values, averaged over the models of an arm that learned."""
    result = study.layout(arm)
    if result is None:
        raise DataError(f"no run of {arm} learned ADD; there is no embedding to average")
    return figures.heatmap(
        result.arrays["similarity"],
        title=f"Averaged similarity of the values, {arm}",
        x_title="value",
        y_title="value",
        z_title="correlation (−1 … 1)",
        diverging=True,
        limits=(-1, 1),
        annotate=False,
        square=True,
        caption=(
            "Diagonal bands mean that similarity depends on the difference of two values, a "
            "checkerboard is parity, a bright diagonal blur is order."
        ),
    )


def initialization(study: Measures) -> Table:
    """The weights' initial distribution, which the paper does not state: N(0, 0.02) against
    PyTorch's default.
    """
    rows = []
    for init, name in (("normal", "N(0, 0.02)"), ("torch", "PyTorch's default")):
        for arm in ("MAX+MED+ADD", "ADD"):
            values = [last(run) for run in study.triplets(arm, init=init)]
            share = f"{solved(values)} of {len(values)}"
            rows.append((name, arm, mean_and_spread(values), share))
    columns = ("initial weights", "trained on", "held-out sums at the last step", "solved")
    return Table(table_of(columns, rows), f"triplets, {study.widest('ADD')} wide")


def triplet_table(study: Measures) -> Table:
    """Accuracy at the last step and first step solved on triplets, one row per arm and width."""
    rows = []
    for label in study.runs.values_of("arm"):
        if not label.startswith("triplets "):
            continue
        arm = label.removeprefix("triplets ")
        for width in study.widths(arm):
            found = study.runs.finished(arm=label, width=width, init="normal")
            if found:
                values, first = [last(run) for run in found], [reached(run) for run in found]
                mean = float(np.mean(values))
                rows.append((arm, width, len(values), mean, solved(values), steps_in_words(first)))
    columns = ("arm", "width", "runs", "mean accuracy", "solved", "first step solved")
    return Table(table_of(columns, rows), "triplets at the last step, one row per arm and width")


def nested_table(study: Measures) -> Table:
    """Accuracy at the last step on nested expressions, one row per arm and width that has
    finished runs.
    """
    rows = []
    for arm in study.runs.values_of("arm"):
        for width in study.runs.values_of("width", arm=arm):
            values = study.accuracies(arm, width)
            if values and not arm.startswith("triplets "):
                shown = ", ".join(f"{value:.2f}" for value in values)
                rows.append(
                    (arm, width, len(values), float(np.mean(values)), solved(values), shown)
                )
    if not rows:
        raise DataError("no run on nested expressions has finished at this size")
    columns = ("arm", "width", "runs", "mean accuracy", "solved", "every run")
    caption = "what each arm is judged by, at the last step, one row per arm and width"
    return Table(table_of(columns, rows), caption)
