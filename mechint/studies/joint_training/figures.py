"""The figures and tables of the joint-training study, from what it measured."""

from __future__ import annotations

import math

import numpy as np

from mechint import figures
from mechint.errors import DataError
from mechint.results import Figure, Table
from mechint.studies.core.study import Analysis, mean_and_spread
from mechint.studies.joint_training.measures import MIXTURES, Measures, last, reached, solved

NESTED = {
    "addition": ("ADD", "ADD in ADD+PROD", "ADD in MAX+MED+ADD", "ADD in ADD+NADD"),
    "operations alone": ("MAX", "MIN", "MED", "PROD", "NADD", "ADD"),
    "products": ("PROD prime", "PROD prime in MAX+PROD"),
    "permutation blocks": ("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
    "random tables": ("ADD", "ADD, even table", "ADD, uneven table"),
}
"""Transition curves drawn together at size full: title → arms."""


def draw(book: Analysis, study: Measures) -> None:
    """Add everything that can be drawn to `book`."""
    if study.size == "full":
        for name, arms in NESTED.items():
            book.draw(
                f"transition: {name}",
                lambda arms=arms, name=name: transitions(
                    study, arms, f"Transition to learning: {name}"
                ),
            )
    else:
        book.draw(
            "transition",
            lambda: transitions(
                study, ("ADD", "MAX+MED+ADD"), "Transition to learning on triplets"
            ),
        )
    book.draw("triplets", lambda: outcomes(study))
    book.draw("operations while a mixture trains", lambda: mixture(study))
    for arm in (*MIXTURES, "ADD"):
        book.draw(f"components of {arm}", lambda arm=arm: components(study, arm))
        book.draw(f"similarity in {arm}", lambda arm=arm: similarity(study, arm))
    for kind in ("attention", "feed-forward"):
        book.draw(f"norm ratios, {kind}", lambda kind=kind: densities(study, kind))
    book.vary("initialisation", lambda: initialisation(study))
    book.tabulate("arms", lambda: summary(study))
    book.tabulate("norm ratios", lambda: ratios(study))


def transitions(study: Measures, arms: tuple[str, ...], title: str) -> Figure:
    """Accuracy at the last step over parameters, a point a run, with the logistic curve of every
    arm and its band.
    """
    fitted = {arm: study.transition(arm) for arm in arms}
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
            "A point a run, a logistic curve an arm with its 95% band; where a curve crosses a "
            "dashed line is its transition. "
        )
        + "; ".join(f"{arm}: {study.words(arm)}" for arm in arms)
        + ".",
    )


def outcomes(study: Measures) -> Figure:
    """Accuracy on held-out sums at the last step, a point a seed, arm by arm."""
    found = {
        arm: [last(run) for run in study.triplets(arm)]
        for arm in ("MAX+MED+ADD", "ADD+PROD", "ADD", "shuffled MAX+MED+ADD")
    }
    names = {
        arm: f"{arm}, {solved(values)} of {len(values)} solved" for arm, values in found.items()
    }
    return figures.scatter(
        [value for values in found.values() for value in values],
        [names[arm] for arm, values in found.items() for _ in values],
        groups=[arm for arm, values in found.items() for _ in values],
        title=f"Held-out sums of triplets, {study.width} wide",
        x_title="accuracy at the last step (0–1)",
        y_title="trained on",
        caption=(
            "One point a seed. Sums are solved beside other operations, where the same 900 "
            "triplets of sums alone do not suffice in the same steps."
        ),
        height=320,
    )


def mixture(study: Measures) -> Figure:
    """Held-out accuracy of every operation over the steps of the mixture, and of sums trained
    alone.
    """
    runs = study.triplets("MAX+MED+ADD")
    steps = [row["step"] for row in runs[0].metrics]
    curves = {
        name: np.array(
            [[row[f"test.greedy.accuracy.{name}"] for row in run.metrics] for run in runs]
        )
        for name in ("MAX", "MED", "ADD")
    }
    alone = np.array(
        [[row["test.greedy.accuracy"] for row in run.metrics] for run in study.triplets("ADD")]
    )
    curves["ADD alone"] = alone
    return figures.lines(
        steps,
        {name: values.mean(0) for name, values in curves.items()},
        bands={name: (values.min(0), values.max(0)) for name, values in curves.items()},
        title="Every operation while the mixture trains",
        x_title="step",
        y_title="accuracy on held-out triplets (0–1)",
        y_range=(0.0, 1.03),
        caption=(
            "Means over seeds, from the least to the best seed shaded. MAX comes first, ADD last; "
            "ADD alone is trained on its own."
        ),
    )


def components(study: Measures, arm: str) -> Figure:
    """Principal components of the values' similarity, averaged over the models of an arm that
    learned, coloured by parity.
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
        caption="Principal components of the similarity matrix, averaged over "
        f"{len(study.learned(arm))} models. "
        f"{share:.0%} of component {first + 1} lies between even and odd (p = "
        f"{result.null['parity.separation'].p_value:.2g}).",
    )


def similarity(study: Measures, arm: str) -> Figure:
    """The similarity of the values, averaged over the models of an arm that learned."""
    result = study.layout(arm)
    if result is None:
        raise DataError(f"no run of {arm} learned ADD; there is no embedding to average")
    return figures.heatmap(
        result.arrays["similarity"],
        title=f"Averaged similarity of the values in {arm}",
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


def densities(study: Measures, kind: str) -> Figure:
    """Densities of the norm ratio of the last layer of `kind`, mixture and sums alone, from the
    first pair of seeds.
    """
    shown = study.pairs()[0].figures[kind]
    names = {"subject": "mixture", "other": "ADD alone"}
    data = [
        {
            **trace,
            "name": next(
                (label for key, label in names.items() if str(trace["name"]).startswith(key)),
                trace["name"],
            ),
        }
        for trace in shown.spec["data"]
    ]
    caption = (
        f"How much the last {kind} layer changes what it is given, on all sums of triplets, "
        "first pair of seeds; the table has every pair."
    )
    return Figure({**shown.spec, "data": data}, caption)


def ratios(study: Measures) -> Table:
    """How the norm ratios of mixture and sums alone differ, one row a pair of seeds and
    sublayer.
    """
    rows = [
        {"pair": seed, **row}
        for seed, result in enumerate(study.pairs())
        for row in _rows(result.tables["comparison"])
    ]
    return Table(
        {name: [row[name] for row in rows] for name in rows[0]},
        "norm ratios, mixture against ADD alone on all sums: one row a pair of seeds and sublayer",
    )


def _rows(table: Table) -> list[dict[str, object]]:
    return [
        dict(zip(table.columns, row, strict=True))
        for row in zip(*table.columns.values(), strict=True)
    ]


def initialisation(study: Measures) -> Table:
    """The weights' initial distribution, which the paper does not state: N(0, 0.02) against
    PyTorch's default.
    """
    rows = []
    for init in ("normal", "torch"):
        for arm in ("MAX+MED+ADD", "ADD"):
            names = study.runs.names(arm=study.prefix + arm, width=study.width, init=init)
            values = [last(study.runs[name]) for name in names]
            if values:
                rows.append(
                    (
                        "N(0, 0.02)" if init == "normal" else "PyTorch's default",
                        arm,
                        mean_and_spread(values),
                        f"{solved(values)} of {len(values)}",
                    )
                )
    columns = ("initial weights", "trained on", "held-out sums at the last step", "solved")
    return Table(
        {column: [row[i] for row in rows] for i, column in enumerate(columns)},
        f"triplets, {study.width} wide",
    )


def summary(study: Measures) -> Table:
    """Accuracy at the last step and first step solved, one row an arm and width."""
    rows = []
    for arm in study.runs.values_of("arm"):
        for width in study.runs.values_of("width", arm=arm, init="normal"):
            found = study.runs.select(arm=arm, width=width, init="normal")
            values, steps = (
                [study.judged(run, "") for run in found],
                [reached(run) for run in found],
            )
            first = ", ".join(f"{step:g}" if math.isfinite(step) else "never" for step in steps)
            rows.append((arm, width, len(values), float(np.mean(values)), solved(values), first))
    columns = (
        "arm",
        "width",
        "runs",
        "mean accuracy at the last step",
        "solved",
        "first step solved",
    )
    return Table(
        {column: [row[i] for row in rows] for i, column in enumerate(columns)},
        "one row an arm and width",
    )
