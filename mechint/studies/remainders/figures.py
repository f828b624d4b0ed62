"""The figures and tables of the remainders study, from what it measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mechint import figures
from mechint.results import Figure, Table
from mechint.studies.core.study import Analysis
from mechint.studies.remainders.measures import (
    GENERALIZED,
    Measures,
    active_over_time,
    active_within,
    curves,
    listed,
    step_or_never,
)

ALTERED = {
    "no grokfast": "slow gradients not amplified",
    "no dropout": "nothing dropped",
    "masked": "the easy primes not asked for",
}
"""Arms that leave something out of the main one, and what."""


def draw(analysis: Analysis, study: Measures) -> None:
    """Add everything that can be drawn to `analysis`."""
    analysis.add_figure("accuracy", lambda: accuracy(study, "main"))
    analysis.add_figure("active frequencies", lambda: active(study))
    analysis.add_figure("spectrum", lambda: spectra(study))
    analysis.add_figure(
        "neurons", lambda: study.fourier(study.names("main")[0]).figures["neuron_images"]
    )
    analysis.add_figure("singular values", lambda: singular_values(study))
    analysis.add_figure("positions", lambda: positions(study))
    analysis.add_figure("attention", lambda: attention(study))
    analysis.add_figure("accuracy without the easy primes", lambda: accuracy(study, "masked"))
    altered = [arm for arm in ALTERED if study.trained(arm)]
    if altered:
        analysis.add_figure("what each arm learned", lambda: arms(study, altered))
    analysis.add_figure("gradients", lambda: gradients(study))
    analysis.add_table("onsets", lambda: onsets(study))


def accuracy(study: Measures, arm: str) -> Figure:
    """Held-out accuracy of every prime over the steps of the first run of `arm`."""
    name = study.names(arm)[0]
    found = study.curves(name)
    steps = next(iter(found.values()))[0]
    at = [i for i, step in enumerate(steps) if step > 0]  # a logarithmic axis has no 0
    order = sorted(study.onsets(name).items(), key=lambda item: (item[1], item[0]))
    passed = ", ".join(str(q) for q, step in order[:6] if math.isfinite(step))
    return figures.lines(
        [steps[i] for i in at],
        {f"mod {q}": [values[i] for i in at] for q, (_, values) in found.items()},
        title="Held-out accuracy, prime by prime" + ("" if arm == "main" else f" ({arm})"),
        x_title="step (log)",
        y_title="accuracy (0–1)",
        x_log=True,
        y_range=(0.0, 1.03),
        levels={"generalized": GENERALIZED},
        caption="One curve per prime, the darkest the smallest. "
        + (
            f"First half-way from chance to 1: {passed}."
            if passed
            else "None gets half-way from chance to 1."
        ),
        height=420,
    )


def active(study: Measures) -> Figure:
    """Number of active frequencies of the neurons over the checkpoints of the main runs, by both
    rules.
    """
    x, y = {}, {}
    for name in study.names("main"):
        steps, power = study.power(name)
        counts = {name: active_over_time(power), f"{name}, within": active_within(power)}
        for label, count in counts.items():
            x[label], y[label] = [max(step, 1) for step in steps], count
    last = listed(step_or_never(max(study.onsets(name).values())) for name in study.names("main"))
    return figures.lines(
        x,
        y,
        title="Active frequencies of the neurons",
        x_title="step (log; step 0 at 1)",
        y_title="frequencies above μ + 2σ",
        x_log=True,
        markers=True,
        caption=(
            "μ and σ over all frequencies and times, as in the authors' code, and within each "
            "checkpoint. In the paper the count spikes while the later primes generalize; here the "
            f"last of all primes gets half-way from chance to 1, run by run: {last}."
        ),
    )


def spectra(study: Measures) -> Figure:
    """Share of every frequency in the token embedding: remainders, addition, shuffled labels."""
    shares = {
        arm: study.fourier(study.names(arm)[0]).metrics["embedding.share"]
        for arm in ("main", "addition", "shuffled")
    }
    names = {"main": "remainders", "addition": "addition", "shuffled": "shuffled labels"}
    largest = listed(f"{names[arm]} {max(share.values()):.0%}" for arm, share in shares.items())
    return figures.lines(
        list(shares["main"]),
        {names[arm]: list(share.values()) for arm, share in shares.items()},
        title="Token embedding in the Fourier basis",
        x_title="frequency (cycles over p)",
        y_title="share of the embedding's energy (0–1)",
        markers=True,
        caption=(
            "Frequencies that an embedding stands on rise above the others; without any the line "
            f"is flat, at {1 / len(shares['main']):.0%}. Largest share of one: {largest}."
        ),
    )


def singular_values(study: Measures) -> Figure:
    """Singular values of the token embedding, remainders beside addition."""
    found = {
        "remainders": study.embedding(study.names("main")[0]).metrics,
        "addition": study.embedding(study.names("addition")[0]).metrics,
    }
    values = {name: np.array(metrics["svd.singular_values"]) for name, metrics in found.items()}
    ranks = "; ".join(
        (
            f"{name}: {metrics['svd.rank_50']} hold half of the variance, "
            f"{metrics['svd.rank_90']} hold 90%"
        )
        for name, metrics in found.items()
    )
    return figures.lines(
        {name: list(range(1, len(one) + 1)) for name, one in values.items()},
        {name: one / one[0] for name, one in values.items()},
        title="Singular values of the token embedding",
        x_title="rank",
        y_title="singular value (largest = 1)",
        markers=True,
        caption=f"The slower a curve falls, the more directions are in use. {ranks}.",
    )


def positions(study: Measures) -> Figure:
    """Coordinates of the two position embeddings against each other, remainders beside addition."""
    both: list[Any] = []
    for title, arm in (("remainders", "main"), ("addition", "addition")):
        weights = study.subject(study.names(arm)[0]).model.W_pos.detach().double().cpu().numpy()
        both += [(x, y, title) for x, y in zip(weights[0], weights[1], strict=True)]
    correlation = {
        arm: study.embedding(study.names(arm)[0]).metrics["position.correlation"]
        for arm in ("main", "addition")
    }
    return figures.scatter(
        [x for x, _, _ in both],
        [y for _, y, _ in both],
        groups=[title for _, _, title in both],
        title="Position embeddings of the two operands",
        x_title="coordinate of the first position",
        y_title="the same coordinate of the second position",
        equal=True,
        caption="One point per coordinate: on the rising diagonal where both positions have one "
        "embedding, on the falling one where they have opposed ones. Correlation: addition "
        f"{correlation['addition']:+.2f}, remainders {correlation['main']:+.2f}.",
    )


def attention(study: Measures) -> Figure:
    """Attention from the answer to the first digit over all inputs, one panel per head."""
    name = study.names("main")[0]
    pattern = study.digits(name)
    share = study.subject(name).task.grid  # type: ignore[union-attr]
    heads = {
        f"head {head}, mean {pattern[:, head, 0].mean():.2f}": pattern[:, head, 0].reshape(share)
        for head in range(pattern.shape[1])
    }
    return figures.image_grid(
        heads,
        title="Attention from the answer to x0",
        x_title="x1",
        y_title="x0",
        z_title="attention (0–1)",
        limits=(0.0, 1.0),
        caption=(
            "A panel of 1 is a head that looks at x0 alone whatever the input, one of 0 a head "
            "that never does; stripes follow the value of a digit."
        ),
    )


def arms(study: Measures, altered: Sequence[str]) -> Figure:
    """Held-out accuracy of every prime at the last step, in the first main run and in that of every
    arm of `altered`.
    """
    names = [study.names(arm)[0] for arm in ("main", *altered)]
    found = {name: study.final(name) for name in names}
    primes = list(found[names[0]])
    return figures.bars(
        [str(q) for q in primes],
        {name: [found[name].get(q, math.nan) for q in primes] for name in names},
        title="Held-out accuracy at the last step",
        x_title="prime",
        y_title="accuracy (0–1)",
        levels={"generalized": GENERALIZED},
        caption=f"{names[0]} leaves nothing out; "
        + "; ".join(f"{name}: {ALTERED[arm]}" for name, arm in zip(names[1:], altered, strict=True))
        + ".",
    )


def gradients(study: Measures) -> Figure:
    """The norms of the gradients of every weight over the checkpoints of the first main run."""
    from mechint.probe import run as probe

    result = probe(
        "gradients",
        study.subject(study.names("main")[0]),
        weights="log",
        checkpoints=16,
        permutations=3,
    )
    return result.figures["series"]


def onsets(study: Measures) -> Table:
    """Onset of each prime, and both accuracies at the end, run by run."""
    rows = []
    for arm in study.runs.values_of("arm"):
        if arm == "addition" or arm == "shuffled":
            continue
        for name in study.names(arm):
            first, final, train = (
                study.onsets(name),
                study.final(name),
                {q: values[-1] for q, (_, values) in curves(study.runs[name], "train").items()},
            )
            rows += [
                (name, q, first[q] if math.isfinite(first[q]) else "never", final[q], train[q])
                for q in first
            ]
    columns = (
        "run",
        "prime",
        "onset (step)",
        "held-out accuracy at the end",
        "training accuracy at the end",
    )
    return Table(
        {column: [row[i] for row in rows] for i, column in enumerate(columns)},
        "one row per run and prime; onset: half-way from chance to 1",
    )
