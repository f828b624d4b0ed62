"""Claims g to i of the capacity paper: language models with an injected task."""

from __future__ import annotations

import itertools

import numpy as np

from mechint.errors import TrainingError
from mechint.studies.capacity.language_measures import (
    LEARNED,
    OPERANDS,
    Measures,
    by_width,
    differences,
    place_of,
)
from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import NO_RUN, mean_within

SEEDS = (
    "At sizes laptop and overnight all seeds share one hidden order, one language and one split, "
    "so intervals hold initialization and batches only; at full each seed has its own."
)
"""What an interval over seeds of the language models says."""


@claim(
    "g",
    statement="Larger language models learn rarer tasks.",
    paper="Sec. 4: at equal frequency the larger model learns the injected task",
    criterion=Criterion(
        "Accuracy on held-out instances, mean over gaps, seed by seed: at the lowest frequency the "
        "widest model exceeds the narrowest by at least {gain:g}, and at no frequency does a width "
        "lie more than {fall:g} below the next narrower one, each by the 95% interval of its mean. "
        "Control: at the highest frequency the widest model learns it ({learned:g}).",
        gain=0.1,
        fall=0.05,
        learned=LEARNED,
    ),
    reason=(
        "0.1 is five times the spread of an accuracy over 512 prompts; 0.05 allows for seeds. "
        f"{SEEDS}"
    ),
    replaced=(
        Replaced(
            "At the lower frequency the widest model's accuracy on held-out instances, mean over "
            "gaps, exceeds the narrowest's by at least 0.1, and at neither frequency does it fall "
            "by more than 0.05 from one width to the next.",
            "reproduced",
            "0.62, 0.90, 0.94 at the lower frequency, widths 8, 16, 32",
            "Two seeds and no interval.",
        ),
    ),
)
def rarer_tasks(study: Measures, criterion: Criterion) -> Finding:
    """Differences of held-out accuracy between widths, paired by seed, at every frequency."""
    widths, frequencies = study.axis("width"), sorted(study.axis("frequency"))
    table = {
        frequency: [
            study.per_seed(study.accuracy, frequency=frequency, width=width) for width in widths
        ]
        for frequency in frequencies
    }
    rare = table[frequencies[0]]
    gain = differences(rare[-1], rare[0])
    parts = [mean_within("widest over narrowest, rarest", gain, low=criterion["gain"])]
    for frequency, row in table.items():
        for (a, b), (narrow, wide) in zip(
            itertools.pairwise(widths), itertools.pairwise(row), strict=True
        ):
            rise = differences(wide, narrow)
            name = f"width {b} over {a}, frequency {frequency:g}"
            parts.append(mean_within(name, rise, low=-criterion["fall"]))
    means = {f: [float(np.mean(list(each.values()))) for each in row] for f, row in table.items()}
    words = "; ".join(f"frequency {f:g}: {by_width(widths, row)}" for f, row in means.items())
    return Finding(
        parts,
        f"Held-out accuracy at {words}.",
        {"accuracies": means, "widths": widths},
        control=study.learned_where_frequent(),
    )


def none_learned(study: Measures, part: str, control: str) -> Finding | None:
    """The finding of a claim about the models that learned the task where of those that have
    finished none did: without its control. None where some did.

    Raises:
        TrainingError: no language model has finished.
    """
    if study.learned():
        return None
    if not study.names():
        raise TrainingError("no language model has finished")
    ours = f"no model reached an accuracy of {LEARNED} on held-out instances"
    return Finding([Part(part, None, NO_RUN, 0)], ours, control=Part(control, False, NO_RUN, 0))


@claim(
    "h",
    statement="Larger models have more of the task's features in their representation.",
    paper=(
        "Sec. 4: the hidden order is read by linear regression from the top principal components"
    ),
    criterion=Criterion(
        "At the site where distributed alignment search succeeds most often in the models that "
        "learned, operand by operand: at the lowest frequency the R² with which the rank is read "
        "from the top three principal components (each word left out in turn, mean over operands "
        "and gaps) is higher in the widest model than in the narrowest by at least {gain:g}, by "
        "the 95% interval over seeds. Control: it is positive in the widest model at the highest "
        "frequency.",
        gain=0.1,
    ),
    reason=(
        "The order must be looked for where it is: after block 0 operand a has been consumed. A "
        "representation without order has an R² of at most 0 when words are left out. "
        f"{SEEDS}"
    ),
    replaced=(
        Replaced(
            "At the lower frequency the R² with which the first operand's rank is read from the "
            "top three principal components after layer 1 is higher in the widest model than in "
            "the narrowest by at least 0.1.",
            "not reproduced",
            "-0.39, -0.30, -0.42 at the lower frequency, widths 8, 16, 32",
            "Read after block 0, where a full swap of operand a no longer changes the answer; "
            "entering it the order is the first principal component at width 32.",
        ),
    ),
)
def features(study: Measures, criterion: Criterion) -> Finding:
    """Difference in R² of the ranks between the widest and the narrowest model, paired by seed."""
    if none := none_learned(study, "R², widest over narrowest", "order is seen where frequent"):
        return none
    widths, frequencies = study.axis("width"), sorted(study.axis("frequency"))
    table = {
        frequency: [
            study.per_seed(study.order_r2, frequency=frequency, width=width) for width in widths
        ]
        for frequency in (frequencies[0], frequencies[-1])
    }
    gain = differences(table[frequencies[0]][-1], table[frequencies[0]][0])
    means = {f: [float(np.mean(list(each.values()))) for each in row] for f, row in table.items()}
    top = means[frequencies[-1]][-1]
    sites = {operand: study.site(operand) for operand in OPERANDS}
    words = "; ".join(f"frequency {f:g}: {by_width(widths, row)}" for f, row in means.items())
    return Finding(
        [mean_within("R², widest over narrowest", gain, low=criterion["gain"])],
        f"R² of the order in {', '.join(dict.fromkeys(map(place_of, sites.values())))}: {words}.",
        {"r2": means, "sites": sites},
        control=Part("order is seen where frequent", top > 0, f"{top:.2f}", len(gain)),
    )


@claim(
    "i",
    statement="In larger models the background's gradient interferes less with the task's.",
    paper=(
        "Sec. 4: high cosine at injections, near zero between them; in the smallest model "
        "background gradients collide with the task"
    ),
    criterion=Criterion(
        "Mean size of a batch's cosine with the task's reference gradient, over the random level "
        "√(2/πN) of N parameters, task neurons alone (one in eight), at checkpoints before the "
        "model learns the task (held-out accuracy {learned:g}): for background tokens the ratio of "
        "the widest to the narrowest model, on the conditions in which both have such checkpoints, "
        "lies below {ratio:g} over seeds, by its 95% interval, and the task tokens' signed cosine "
        "above {zero:g}. Control: as in (g).",
        learned=LEARNED,
        ratio=1.0,
        zero=0.0,
    ),
    reason=(
        "The paper's cosines oscillate from batch to batch, so that their mean is no size; a "
        "random cosine falls as the root of the parameters, so that the cosine itself, shown "
        "beside, falls by dimension alone; and once the task is learned background and task cancel "
        "whatever the width. "
        f"{SEEDS}"
    ),
    replaced=(
        Replaced(
            "The cosine of the background tokens' gradient with the task's reference gradient is "
            "nearer zero in the widest model than in the narrowest, on average and in most of the "
            "conditions; that of the task tokens is positive on average.",
            "not reproduced",
            "0.021, 0.019, 0.065 at widths 8, 16, 32",
            "The size of the mean signed cosine averages an oscillation to zero; read at the last "
            "checkpoint alone, over 16 neurons of every width, not over the random level.",
        ),
        Replaced(
            "the same ratio over all checkpoints but the first and the last, on average over all "
            "conditions",
            {"laptop": "underpowered", "overnight": "not reproduced"},
            "laptop 1.15 [0.71, 1.58]; overnight 2.34 [1.56, 3.11]",
            "The widest models learn a frequent task before the second checkpoint: what was said "
            "to be while they learned was after it, where background and task cancel.",
        ),
    ),
)
def interference(study: Measures, criterion: Criterion) -> Finding:
    """Ratio of cosine sizes between the widest and the narrowest model, over seeds."""
    pairs = study.comparable()
    if not pairs:
        raise TrainingError("no condition has checkpoints before its models learn the task")
    narrow, wide = (
        study.by_seed([pair[i] for pair in pairs], lambda name: study.cosines(name)["background"])
        for i in (0, 1)
    )
    models = list(dict.fromkeys(name for pair in pairs for name in pair))
    signed = study.by_seed(models, lambda name: study.cosines(name)["signed"])
    parts = (
        mean_within(
            "background, widest over narrowest",
            [wide[seed] / narrow[seed] for seed in narrow],
            high=criterion["ratio"],
        ),
        mean_within("task tokens, signed", list(signed.values()), low=criterion["zero"]),
    )
    raw = [float(np.mean([study.cosines(pair[i])["raw"] for pair in pairs])) for i in (0, 1)]
    ends = (min(study.axis("width")), max(study.axis("width")))
    means = [float(np.mean(list(each.values()))) for each in (narrow, wide)]
    ours = (
        f"Background's cosine over its random level: {by_width(ends, means)}, on {len(pairs)} "
        f"pairs of models; the cosine itself: {by_width(ends, raw, 3)}."
    )
    values = {"background": means, "raw": raw, "pairs": len(pairs), "task": signed}
    return Finding(parts, ours, values, control=study.learned_where_frequent())
