"""Claims k and l of the capacity paper: what language models of different widths do at equal loss,
and for equal compute.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from mechint.errors import TrainingError
from mechint.studies.capacity.language_measures import (
    LEARNED,
    Measures,
    accuracy_at_loss,
    by_width,
    compute_to_learn,
    differences,
)
from mechint.studies.core.claims import Criterion, Finding, Replaced, claim
from mechint.studies.core.evidence import mean_within

NIGHT = ("overnight", "full")


@claim(
    "k",
    statement=(
        "At equal language-modeling loss, sizes lie on one curve while the task is frequent and "
        "part, smaller ones first, when it is rare."
    ),
    paper="Sec. 4, loss analysis",
    criterion=Criterion(
        "At the steps where each run first reaches the narrowest model's last loss, by 95% "
        "intervals over seeds: accuracies of neighboring widths differ by at most {alike:g} at the "
        "highest frequency, and at the lowest the widest lies at least {apart:g} above the "
        "narrowest. Control: as in (g).",
        alike=0.1,
        apart=0.1,
    ),
    reason="Needs models whose losses overlap, and enough training that they do.",
    sizes=NIGHT,
    replaced=(
        Replaced(
            "accuracies of neighboring widths differ by at most 0.1 at the higher frequency; at "
            "the lower frequency the narrowest lies at least 0.1 below the widest",
            "not tested",
            "not measured",
            "Means of few seeds without intervals.",
        ),
    ),
)
def equal_loss(study: Measures, criterion: Criterion) -> Finding:
    """Differences of accuracy between widths where their losses are equal, paired by seed."""
    widths, frequencies = study.axis("width"), sorted(study.axis("frequency"))
    at = {}
    for frequency in (frequencies[-1], frequencies[0]):
        narrow = study.names(frequency=frequency, width=widths[0])
        if not narrow:
            raise TrainingError("no language model of the narrowest width has finished")
        level = max(float(study.runs[name].final["test.loss"]) for name in narrow)

        def accuracy(name: str, level: float = level) -> float:
            return accuracy_at_loss(study.runs[name], level)

        at[frequency] = [
            study.per_seed(accuracy, frequency=frequency, width=width) for width in widths
        ]
    frequent, rare = at[frequencies[-1]], at[frequencies[0]]
    alike = criterion["alike"]
    parts = [
        mean_within(f"width {b} over {a}, frequent", differences(wide, narrow), -alike, alike)
        for (a, b), (narrow, wide) in zip(
            itertools.pairwise(widths), itertools.pairwise(frequent), strict=True
        )
    ]
    apart = differences(rare[-1], rare[0])
    parts.append(mean_within("widest over narrowest, rare", apart, low=criterion["apart"]))
    means = {f: [float(np.mean(list(each.values()))) for each in row] for f, row in at.items()}
    words = "; ".join(f"frequency {f:g}: {by_width(widths, row)}" for f, row in means.items())
    control = study.learned_where_frequent()
    return Finding(parts, f"Accuracy at equal loss, {words}.", {"accuracies": means}, "", control)


@claim(
    "l",
    statement="For rare tasks larger models need less compute, 6 × parameters × tokens.",
    paper="Sec. 4: compute-optimal size grows as the task gets rarer",
    criterion=Criterion(
        "At the lowest frequency, seed by seed over gaps: the compute at which a held-out accuracy "
        "of {learned:g} is first reached is lower in the widest than in the narrowest width of "
        "which every run gets there, by the 95% interval of the mean log ratio. Control: as in "
        "(g).",
        learned=LEARNED,
    ),
    reason="Compute to a fixed accuracy is what the paper compares; never reached has no ratio.",
    sizes=NIGHT,
    replaced=(
        Replaced(
            "At the lower frequency the compute at which a held-out accuracy of 0.9 is first "
            "reached falls from the narrowest to the widest model that does.",
            "not tested",
            "not measured",
            "Medians of few seeds without an interval.",
        ),
    ),
)
def less_compute(study: Measures, criterion: Criterion) -> Finding:
    """Log ratio of the compute to a fixed accuracy, widest over narrowest width, by seed; of no
    run where fewer than two widths get there.
    """
    frequency, spent = min(study.axis("frequency")), {}
    for width in study.axis("width"):
        spent[width] = study.per_seed(
            lambda name: math.log(compute_to_learn(study.runs[name])),
            frequency=frequency,
            width=width,
        )
    reached = [width for width, each in spent.items() if math.isfinite(sum(each.values()))]
    ratios = differences(spent[reached[-1]], spent[reached[0]]) if len(reached) > 1 else []
    words = ", ".join(
        f"{math.exp(float(np.mean(list(each.values())))):.2g} FLOP at width {width}"
        if width in reached
        else f"not in every run at width {width}"
        for width, each in spent.items()
    )
    return Finding(
        [mean_within("log compute, widest over narrowest", ratios, high=0.0)],
        f"Compute until {LEARNED:.0%} on the rarest task: {words}.",
        {"log compute": spent},
        control=study.learned_where_frequent(),
    )
