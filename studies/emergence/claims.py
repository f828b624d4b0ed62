"""The claims of the emergence study."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mechint.studies.claims import ClaimTest, Found, PositiveControl, below, claim, near
from mechint.studies.rows import NoRunsError, Rows
from mechint.studies.statistics import Estimate, Planned, bootstrap, exponent, mean

BETAS = (0.75, 1.0, 1.5)
LOST = 0.1
"""Share of its fitted directions that a run may leave unlearned where times or losses are read."""


def few_lost(rows: Rows) -> PositiveControl:
    """The control of what is read from times or losses."""
    worst = max(row["lost"] / max(1, row["fitted"]) for row in rows)
    return PositiveControl(worst <= LOST, f"at most {worst:.1%} of the directions not learned")


def times_claim(id: str, beta: float) -> ClaimTest:
    """Claim: T_p ∝ p^β at one β."""

    @claim(
        id,
        f"Direction p emerges at a time T_p ∝ p^{beta:g} at β = {beta:g}.",
        theirs=f"ηT_p ~ d^(k/2-1) p^β: exponent {beta:g}, by online SGD",
        statistic="exponent of T_p over p, its interval widened to the means of four fit windows,",
        bar=near(beta, 0.1),
        control="at most 10% of the fitted directions are not learned",
        planned=Planned(4, beta, 0.02),
    )
    def judge(rows: Rows) -> Found:
        runs = rows.where(arm="mixture", beta=beta)
        found = mean(runs.column("time_exponent"))
        windows = {w: float(np.mean([row["window"][w] for row in runs])) for w in runs[0]["window"]}
        ends = [found.low, found.high, *windows.values()]
        wide = dataclasses.replace(found, low=min(ends), high=max(ends))
        by_window = ", ".join(f"{value:.2f}" for value in windows.values())
        theory = float(np.mean(runs.column("theory_exponent")))
        note = f"by window {by_window}; the theory's own {theory:.3f}"
        return Found(wide, few_lost(runs), note)

    return judge


def loss_claim(id: str, beta: float) -> ClaimTest:
    """Claim: the loss is a power of time at one β."""
    slope = (1 - 2 * beta) / beta

    @claim(
        id,
        f"The loss falls as t^{slope:.3g} at β = {beta:g}.",
        theirs=f"t^((1-2β)/β): exponent {slope:.3g}, by online SGD",
        statistic="exponent of the loss over time, the power law's tail added,",
        bar=near(slope, abs(slope) / 10),
        control="at most 10% of the fitted directions are not learned",
        planned=Planned(4, slope, 0.02),
    )
    def judge(rows: Rows) -> Found:
        runs = rows.where(arm="mixture", beta=beta)
        return Found(mean(runs.column("loss_exponent")), few_lost(runs))

    return judge


def floor_claim(id: str, beta: float) -> ClaimTest:
    """Claim: the floor of m neurons at one β."""
    slope, steep = 1 - 2 * beta, beta == 1.5

    @claim(
        id,
        f"A student of m neurons ends at a floor ∝ m^{slope:g} at β = {beta:g}.",
        theirs=f"m^(1-2β): exponent {slope:g}",
        statistic="exponent of the last loss over m, tail added, by seed,",
        bar=near(slope, abs(slope) / 5),
        control="in the median run of every width the loss falls by at most 5% over its last fifth",
        planned=Planned(24 if steep else 8, slope, {0.75: 0.05, 1.0: 0.125, 1.5: 0.42}[beta]),
        fresh=steep,
    )
    def judge(rows: Rows) -> Found:
        runs = rows.where(arm="floor", beta=beta)
        fits = [exponent(of.column("width"), of.column("floor")) for of in runs.by("seed").values()]
        fall = max(float(np.median(of.column("late_fall"))) for of in runs.by("width").values())
        return Found(mean(fits), PositiveControl(fall <= 0.05, f"at most {fall:.1%}"))

    return judge


@claim(
    "a4",
    "Every direction emerges sharply, after a long plateau.",
    theirs="sharp transitions (figure)",
    statistic="rise (alignment 0.1 to 0.9) over plateau, median over directions, largest over β,",
    bar=below(0.5),
    control="at most 10% of the fitted directions are not learned",
    planned=Planned(4, 0.1, 0.03),
)
def sharp(rows: Rows) -> Found:
    runs = rows.where(arm="mixture")
    return Found(mean([max(of.column("rise")) for of in runs.by("seed").values()]), few_lost(runs))


@claim(
    "d",
    "The smooth loss is the sum of sharp transitions at predicted times.",
    theirs="L(t) ≈ Σ_p a_p² [t < T_p]",
    statistic="median factor between the loss and the sum, largest over β,",
    bar=below(1.5),
    control="at most 10% of the fitted directions are not learned",
    planned=Planned(4, 1.15, 0.05),
)
def additive(rows: Rows) -> Found:
    runs = rows.where(arm="mixture")
    factors = [max(of.column("factor")) for of in runs.by("seed").values()]
    return Found(mean(factors), few_lost(runs))


def medians(rows: Rows, k: int) -> tuple[dict[int, list[float]], PositiveControl]:
    """Dimension → search times at one information exponent; the control, that the search is long
    enough to be timed.
    """
    cells = rows.where(arm="search", k=k).by("d")
    times = {d: of.column("search_time") for d, of in cells.items()}
    looks = min(float(np.median(times[d])) / of[0]["every"] for d, of in cells.items())
    return times, PositiveControl(looks >= 4, f"at least {looks:.1f}")


@claim(
    "e2",
    "At information exponent 2 the search for a direction is logarithmic in d.",
    theirs="k = 2 is the edge case",
    statistic="exponent over d of the median search time between the two largest dimensions over "
    "that between the two smallest, 64 runs a dimension, bootstrap,",
    bar=below(0.8),
    control="every median search time is at least four steps between evaluations",
    fresh=True,
)
def logarithmic(rows: Rows) -> Found:
    times, control = medians(rows, 2)
    d = sorted(times)

    def bend(*groups: Sequence[float]) -> float:
        at = [float(np.median(each)) for each in groups]
        return exponent(d[-2:], at[-2:]) / exponent(d[:2], at[:2])

    return Found(bootstrap(bend, *(times[one] for one in d)), control)


def search_claim(id: str, k: int) -> ClaimTest:
    """Claim: the search time at one information exponent above 2."""
    wanted = k / 2 - 1

    @claim(
        id,
        f"At information exponent {k} the search for a direction takes d^{wanted:g}.",
        theirs=f"d^(k/2-1): exponent {wanted:g}",
        statistic="exponent over d of the median search time, 64 runs a dimension, bootstrap,",
        bar=near(wanted, 0.15),
        control="every median search time is at least four steps between evaluations",
        planned=Planned(64, wanted, 0.24),
    )
    def judge(rows: Rows) -> Found:
        times, control = medians(rows, k)

        def slope(*groups: Sequence[float]) -> float:
            return exponent(list(times), [float(np.median(each)) for each in groups])

        return Found(bootstrap(slope, *times.values()), control)

    return judge


def online_exponents(rows: Rows, name: str) -> list[float]:
    """Seed by seed, the exponent of a measure of the target direction over the target direction
    (samples) or over the samples (loss).
    """
    fits = []
    for of in rows.where(arm="online").by("seed").values():
        targets = of.column("target")
        samples = [row["samples"][row["target"] - 1] for row in of]
        losses = [row["loss_then"][row["target"] - 1] for row in of]
        fits.append(exponent(targets, samples) if name == "samples" else exponent(samples, losses))
    return fits


def fixed_rate(rows: Rows) -> PositiveControl:
    """At a fixed rate the same directions take samples ∝ p^β, β = 1: the remark's contrast."""
    targets = sorted(rows.where(arm="online").values_of("target"))
    fits = [
        exponent(targets, [row["samples"][p - 1] for p in targets])
        for row in rows.where(arm="online fixed")
    ]
    found = mean(fits)
    return PositiveControl(abs(found.value - 1) <= 0.3, f"at a fixed rate {found}")


@claim(
    "f1",
    "By online SGD at a rate ∝ a_p, direction p takes n ∝ p^(2β) samples, β = 1.",
    theirs="n ~ p^(2β) d^(k-1) (remark on discretization): exponent 2",
    statistic="exponent over p = 2, 4, 8, 16 of the samples until p is learned at its own rate",
    bar=near(2.0, 0.3),
    control="at a fixed rate the exponent over the same directions is within 0.3 of 1",
    planned=Planned(8, 2.0, 0.15),
)
def discretized_times(rows: Rows) -> Found:
    return Found(_finite(online_exponents(rows, "samples")), fixed_rate(rows))


@claim(
    "f2",
    "Over these samples the loss falls as n^((1-2β)/2β), β = 1.",
    theirs="n^((1-2β)/2β) (remark on discretization): exponent -0.5, where t gives -1",
    statistic="exponent of the loss over the samples until p is learned, tail added,",
    bar=near(-0.5, 0.1),
    control="at a fixed rate the exponent over the same directions is within 0.3 of 1",
    planned=Planned(8, -0.5, 0.05),
)
def discretized_loss(rows: Rows) -> Found:
    return Found(_finite(online_exponents(rows, "loss")), fixed_rate(rows))


def _finite(fits: Sequence[float]) -> Estimate:
    """The mean of exponents; NoRunsError where a direction was not learned in the run."""
    if not np.isfinite(fits).all():
        raise NoRunsError("a direction was not learned within its online run")
    return mean(fits)


CLAIMS = (
    *(times_claim(f"a{i}", beta) for i, beta in enumerate(BETAS, 1)),
    sharp,
    *(loss_claim(f"b{i}", beta) for i, beta in enumerate(BETAS, 1)),
    *(floor_claim(f"c{i}", beta) for i, beta in enumerate(BETAS, 1)),
    additive,
    logarithmic,
    *(search_claim(f"e{k}", k) for k in (3, 4)),
    discretized_times,
    discretized_loss,
)
