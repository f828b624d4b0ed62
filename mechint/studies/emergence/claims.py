"""The claims of the emergence paper, and how each is judged.

A direction is learned at the first step at which its alignment passes THRESHOLD. Fits use the
directions, and the steps, that the theory of `tasks.single_index` says lie well inside the run,
never those that happened to be learned: a fit over what has been learned so far is censored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mechint.studies.core.claims import Criterion, Finding, Part, Replaced, claim
from mechint.studies.core.evidence import MIN_RUNS, every, mean_within
from mechint.studies.core.study import Runs
from mechint.studies.emergence import measures as measured
from mechint.studies.emergence.claims_search import search_time
from mechint.studies.emergence.measures import LOST

REGIME = (
    "The theorem holds for P ≪ d^0.1 with neurons to spare; at P/d = 96/128 one growing direction "
    "collected a fifth of the neurons, which were then missing later. P = 96 in d = 16384, where "
    "d^0.1 is 2.6, lies outside of it too, by less."
)


def _per_beta(values: Mapping[float, Sequence[float]]) -> str:
    means = (f"β = {beta:g}: {np.mean(each):.3f}" for beta, each in values.items())
    return "; ".join(means)


@claim(
    "a",
    statement=(
        "On the population gradient, direction p emerges sharply at a time T_p ∝ p^β, at a fixed "
        "learning rate."
    ),
    paper="ηT_p ~ d^(k/2-1) p^β, by online SGD",
    criterion=Criterion(
        "For every β the 95% interval over seeds of the exponent of T_p over p lies within "
        "{margin:g} of β, and so does the mean with every direction that was not learned counted "
        "as learned at the last step; for the median direction of every run the rise of its "
        "alignment from 0.1 to 0.9 takes less than {rise:g} times the plateau before it. Control: "
        "at most {lost:.0%} of the directions are not learned.",
        margin=0.1,
        rise=1.0,
        lost=LOST,
    ),
    reason=(
        "T_p carries a factor ln(√(a_p/2)/n₀), which puts the theory's own exponent over the "
        "fitted directions, shown beside each fit, 0.01 to 0.02 below β at size laptop; the rest "
        "of the band is for which directions are fitted, a choice that moves the exponent by more "
        "(see Sensitivity); sharp means that most of the time nothing is seen."
    ),
    replaced=(
        Replaced(
            "For every β the exponent of T_p over p, averaged over seeds, lies within 0.1 of β; "
            "and for the median direction the rise of its alignment from 0.1 to 0.9 takes less "
            "time than the plateau before it (d = 128, P = 96).",
            "not reproduced",
            "0.977, 1.175, 1.536 for β = 0.75, 1, 1.5",
            REGIME + " Directions never learned were dropped from the fit without being counted.",
        ),
    ),
)
def emergence_times(runs: Runs, criterion: Criterion) -> Finding:
    """Exponent of the emergence times over p for each β, and how sharp the median rise is."""
    arms, margin = measured.mixtures(runs), criterion["margin"]
    fits = {beta: [measured.time_exponent(run) for run in group] for beta, group in arms.items()}
    bounds = {
        beta: [measured.bounded_time_exponent(run) for run in group] for beta, group in arms.items()
    }
    rises = [[measured.rise(run) for run in group] for group in measured.by_seed(arms)]
    theory = {beta: measured.predicted_exponent(group[0]) for beta, group in arms.items()}
    lost = {beta: [measured.censored(run) for run in group] for beta, group in arms.items()}
    of = {beta: len(measured.fitted(group[0])) for beta, group in arms.items()}
    parts = [
        mean_within(f"exponent, β = {beta:g}", each, beta - margin, beta + margin)
        for beta, each in fits.items()
    ]
    for beta, each in bounds.items():
        name = f"not learned at the last step, β = {beta:g}"
        inside = abs(float(np.mean(each)) - beta) <= margin and len(each) >= MIN_RUNS
        # a mean outside is no decision where its interval reaches inside
        met = inside or mean_within(name, each, beta - margin, beta + margin).met
        shown = f"{np.mean(each):.3g}, {sum(lost[beta])} directions not learned"
        parts.append(Part(name, met, shown, len(each)))
    sharp = f"rise over plateau {np.mean(np.concatenate(rises)):.2f} on average"
    flags = [all(one < criterion["rise"] for one in each) for each in rises]
    parts.append(every("sharp, at every β of a seed", flags, sharp))
    own = ", ".join(f"{each:.3f}" for each in theory.values())
    return Finding(
        parts,
        f"Exponents {_per_beta(fits)} (the theory's over the same directions: {own}); {sharp}; not "
        "learned: "
        + ", ".join(f"{sum(each)} of {of[beta] * len(each)}" for beta, each in lost.items())
        + ".",
        {
            "exponents": fits,
            "theory": theory,
            "counted at the end": bounds,
            "rise over plateau": rises,
            "lost": lost,
        },
        control=measured.left_over(arms, criterion["lost"]),
    )


@claim(
    "b",
    statement="On the population gradient, the loss falls as a power of time, t^((1-2β)/β).",
    paper="exponents -0.667, -1, -1.333 for β = 0.75, 1, 1.5, by online SGD",
    criterion=Criterion(
        "For every β the 95% interval over seeds of the exponent of the loss over time, the power "
        "law's missing tail Σ_{{p>P}} a_p² added, lies within {margin:.0%} of (1-2β)/β. Control: "
        "as in (a), {lost:.0%}.",
        margin=0.1,
        lost=LOST,
    ),
    reason=(
        "The same logarithms enter as in (a); without the tail a finite sum bends the curve down "
        "at its end."
    ),
    replaced=(
        Replaced(
            "For every β the exponent of the loss over time, the power law's missing tail added, "
            "lies within 10 % of (1-2β)/β (d = 128, P = 96).",
            "not reproduced",
            "-0.469, -0.738, -1.263 for β = 0.75, 1, 1.5",
            REGIME,
        ),
    ),
)
def loss_slope(runs: Runs, criterion: Criterion) -> Finding:
    """Exponent of the loss over time for each β, over seeds."""
    arms = measured.mixtures(runs)
    fits = {beta: [measured.loss_exponent(run) for run in group] for beta, group in arms.items()}
    wanted = {beta: (1 - 2 * beta) / beta for beta in fits}
    parts = []
    for beta, each in fits.items():
        ends = sorted(wanted[beta] * (1 + sign * criterion["margin"]) for sign in (-1, 1))
        parts.append(mean_within(f"exponent, β = {beta:g}", each, *ends))
    return Finding(
        parts,
        f"Exponents {_per_beta(fits)}.",
        {"exponents": fits, "predicted": wanted},
        control=measured.left_over(arms, criterion["lost"]),
    )


@claim(
    "c",
    statement=(
        "On the population gradient, a student of m neurons ends at a floor that falls as m^(1-2β)."
    ),
    paper="exponents -0.5, -1, -2 for β = 0.75, 1, 1.5, by online SGD",
    criterion=Criterion(
        "For every β the 95% interval over seeds of the exponent of the last loss (tail added) "
        "over m lies within {margin:.0%} of 1-2β. Control: at every width the loss fell by at "
        "most {fall:.0%} over the last fifth of the run, in the median run.",
        margin=0.2,
        fall=0.05,
    ),
    reason=(
        "A student of m neurons does not always spend one on each of the m largest directions, "
        "which costs more than a few per cent at small m; a loss that still falls is no floor."
    ),
    replaced=(
        Replaced(
            "For every β the exponent of the last loss (tail added) over m lies within 20 % of "
            "1-2β (m = 4 to 32, three seeds, d = 128).",
            "not reproduced",
            "-0.531 ± 0.274, -1.026 ± 0.474, -1.565 ± 0.657 for β = 0.75, 1, 1.5",
            "Three seeds gave a standard error of 0.16 to 0.38 against a band of 0.1 to 0.4, and "
            "the theorem's m is large: wider students, eight seeds, P = 3m.",
        ),
    ),
)
def width_floor(runs: Runs, criterion: Criterion) -> Finding:
    """Exponent of the last loss over the width for each β, over seeds."""
    parts, fits, falls = [], {}, []
    for beta in runs.values_of("beta", arm="floor"):
        fits[beta] = measured.floor_exponents(measured.floor_losses(runs, beta))
        wanted = 1 - 2 * beta
        ends = sorted(wanted * (1 + sign * criterion["margin"]) for sign in (-1, 1))
        parts.append(mean_within(f"exponent, β = {beta:g}", fits[beta], *ends))
        groups = measured.floor_runs(runs, beta).values()
        falls += [float(np.median([measured.last_fall(run) for run in group])) for group in groups]
    still = max(falls) <= criterion["fall"]
    return Finding(
        parts,
        f"Exponents {_per_beta(fits)}.",
        {"exponents": fits, "late fall": falls},
        control=Part("late fall", still, f"at most {max(falls):.1%}", min(p.n for p in parts)),
    )


@claim(
    "d",
    statement=(
        "On the population gradient, the smooth loss curve is the sum of the sharp transitions."
    ),
    paper="L(t) ≈ Σ_p a_p² [t < T_p], by online SGD",
    criterion=Criterion(
        "Over the fitted window Σ_{{p: T_p > t}} a_p², tail added, differs from the loss by a "
        "factor of at most {measured:g} at the median step with T_p measured, and of at most "
        "{predicted:g} with T_p predicted before the run; both for the upper end of the 95% "
        "interval over seeds. Control: as in (a), {lost:.0%}.",
        measured=1.25,
        predicted=1.5,
        lost=LOST,
    ),
    reason=(
        "Steps in place of smooth rises err by about one direction of those still to come. "
        "Measured times make this close to an identity; the prediction knows nothing of the run, "
        "leaves out how neurons compete, and a factor of 1.5 in the loss is one of at most 1.9 in "
        "time."
    ),
    replaced=(
        Replaced(
            "Over the fitted window Σ_{p: T_p > t} a_p², with T_p measured, differs from the loss "
            "by a factor of at most 1.25 at the median step.",
            "reproduced",
            "1.029, 1.031, 1.064 for β = 0.75, 1, 1.5",
            "With measured times alone it is close to an identity, and passed while hundreds of "
            "directions never emerged.",
        ),
    ),
)
def additive(runs: Runs, criterion: Criterion) -> Finding:
    """Median factor between the loss and the sum of steps, with measured and predicted times."""
    parts, values, arms = [], {}, measured.mixtures(runs)
    for beta, group in arms.items():
        times = {"measured": measured.emergence, "predicted": measured.predicted}
        for kind, of in times.items():
            factors = [measured.additive_factor(run, of(run)) for run in group]
            values.setdefault(kind, {})[beta] = factors
            parts.append(mean_within(f"{kind}, β = {beta:g}", factors, high=criterion[kind]))
    words = "; times ".join(f"{kind}: {_per_beta(each)}" for kind, each in values.items())
    control = measured.left_over(arms, criterion["lost"])
    return Finding(parts, f"Median factor, times {words}.", values, control=control)


CLAIMS = (emergence_times, loss_slope, width_floor, additive, search_time)
