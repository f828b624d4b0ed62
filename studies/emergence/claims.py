"""The claims of the emergence study."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mechint.studies.claims import ClaimTest, Sample, below, near, value_in
from mechint.studies.rows import NoRunsError, Row, Rows
from mechint.studies.statistics import Estimate, Planned, bootstrap, exponent, mean

BETAS = (0.75, 1.0, 1.5)
LOST = 0.1
"""Share of its fitted directions that a run may leave unlearned where times or losses are read."""


def of_mixtures(measure: Any, beta: float | None = None, estimator: Any = mean) -> dict[str, Any]:
    """A measure of mixtures, of one β or by seed of all; the control is that of times and losses,
    that few directions are not learned.
    """
    labels = {} if beta is None else {"beta": beta}
    lost = Sample("mixture", lambda row: row["lost"] / max(1, row["fitted"]), labels=labels)
    by = "seed" if beta is None else ""
    return {
        "samples": (Sample("mixture", measure, by, labels),),
        "estimator": estimator,
        "control": "at most 10% of the fitted directions are not learned",
        "beside": (lost,),
        "check": value_in(0, LOST, max),
    }


def widened(runs: Sequence[Row]) -> Estimate:
    """The mean exponent, its interval widened to the means of four fit windows."""
    found = mean([row["time_exponent"] for row in runs])
    windows = [float(np.mean([row["window"][w] for row in runs])) for w in runs[0]["window"]]
    ends = [found.low, found.high, *windows]
    return dataclasses.replace(found, low=min(ends), high=max(ends))


def by_window(rows: Rows, beta: float) -> str:
    """The exponents of the fit windows, and the theory's own."""
    runs = rows.where(arm="mixture", beta=beta)
    windows = (float(np.mean([row["window"][w] for row in runs])) for w in runs[0]["window"])
    theory = float(np.mean(runs.column("theory_exponent")))
    return f"by window {', '.join(f'{one:.2f}' for one in windows)}; the theory's own {theory:.3f}"


def times_claim(id: str, beta: float) -> ClaimTest:
    """Claim: T_p ∝ p^β at one β."""
    return ClaimTest(
        id,
        f"Direction p emerges at a time T_p ∝ p^{beta:g} at β = {beta:g}.",
        theirs=f"ηT_p ~ d^(k/2-1) p^β: exponent {beta:g}, by online SGD",
        statistic="exponent of T_p over p, its interval widened to the means of four fit windows,",
        bar=near(beta, 0.1),
        **of_mixtures(lambda row: row, beta, widened),
        note=lambda rows: by_window(rows, beta),
        planned=Planned(4, beta, 0.02),
    )


def loss_claim(id: str, beta: float) -> ClaimTest:
    """Claim: the loss is a power of time at one β."""
    slope = (1 - 2 * beta) / beta
    return ClaimTest(
        id,
        f"The loss falls as t^{slope:.3g} at β = {beta:g}.",
        theirs=f"t^((1-2β)/β): exponent {slope:.3g}, by online SGD",
        statistic="exponent of the loss over time, the power law's tail added,",
        bar=near(slope, abs(slope) / 10),
        **of_mixtures("loss_exponent", beta),
        planned=Planned(4, slope, 0.02),
    )


def floor_claim(id: str, beta: float) -> ClaimTest:
    """Claim: the floor of m neurons at one β."""
    slope, steep = 1 - 2 * beta, beta == 1.5
    fall = Sample("floor", lambda of: np.median(of.column("late_fall")), "width", {"beta": beta})
    return ClaimTest(
        id,
        f"A student of m neurons ends at a floor ∝ m^{slope:g} at β = {beta:g}.",
        theirs=f"m^(1-2β): exponent {slope:g}",
        statistic="exponent of the last loss over m, tail added, by seed,",
        bar=near(slope, abs(slope) / 5),
        samples=(Sample("floor", exponent_of("width", "floor"), "seed", {"beta": beta}),),
        estimator=mean,
        control="in the median run of every width the loss falls by at most 5% over its last fifth",
        beside=(fall,),
        check=value_in(-np.inf, 0.05, max),
        planned=Planned(24 if steep else 8, slope, {0.75: 0.05, 1.0: 0.125, 1.5: 0.42}[beta]),
        fresh=steep,
    )


def exponent_of(x: str, y: str) -> Callable[[Rows], float]:
    """The exponent of one measure over another, of the rows of a seed."""
    return lambda of: exponent(of.column(x), of.column(y))


def search_claim(k: int, statement: str, statistic: str, of: Any, **more: Any) -> ClaimTest:
    """Claim: a function of the dimensions and of their median search times at one information
    exponent, where the search is long enough to be timed.
    """
    labels = {"k": k}

    def by_dimension(cells: Sequence[Rows]) -> Estimate:
        d = [of[0]["d"] for of in cells]

        def value(*times: Sequence[float]) -> float:
            return of(d, [float(np.median(each)) for each in times])

        return bootstrap(value, *(cell.column("search_time") for cell in cells))

    return ClaimTest(
        f"e{k}",
        f"At information exponent {k} the search for a direction {statement}.",
        statistic=f"exponent over d of the median search time{statistic}, 64 runs a dimension, "
        "bootstrap,",
        samples=(Sample("search", lambda of: of, "d", labels),),
        estimator=by_dimension,
        control="every median search time is at least four steps between evaluations",
        beside=(
            Sample(
                "search",
                lambda of: float(np.median(of.column("search_time"))) / of[0]["every"],
                "d",
                labels,
            ),
        ),
        check=value_in(4, of=min),
        **more,
    )


def bend(d: Sequence[int], times: Sequence[float]) -> float:
    """The exponent between the two largest dimensions over that between the two smallest."""
    return exponent(d[-2:], times[-2:]) / exponent(d[:2], times[:2])


def online_claim(
    id: str, statement: str, measure: Callable[[Rows], float], **more: Any
) -> ClaimTest:
    """Claim about the samples until p is learned; the control is the remark's contrast, that at a
    fixed rate the same directions take samples ∝ p^β, β = 1.
    """
    return ClaimTest(
        id,
        statement,
        samples=(Sample("online", measure, "seed"),),
        estimator=mean_of_learned,
        control="at a fixed rate the exponent over the same directions is within 0.3 of 1",
        beside=(Sample(("online fixed", "online"), lambda row: row),),
        check=fixed_rate,
        **more,
    )


def own_target(of: Rows, name: str) -> list[float]:
    """A measure of the direction that each online run of a seed is to learn."""
    return [row[name][row["target"] - 1] for row in of]


def fixed_rate(runs: Sequence[Row]) -> Any:
    """The exponent of the samples over the directions at a fixed rate is near 1."""
    targets = sorted({row["target"] for row in runs if "target" in row})
    usual = [row["samples"] for row in runs if "target" not in row]
    fits = [exponent(targets, [samples[p - 1] for p in targets]) for samples in usual]
    return value_in(0.7, 1.3)(fits)


def mean_of_learned(fits: Sequence[float]) -> Estimate:
    """The mean of exponents; NoRunsError where a direction was not learned in the run."""
    if not np.isfinite(fits).all():
        raise NoRunsError("a direction was not learned within its online run")
    return mean(fits)


CLAIMS = (
    *(times_claim(f"a{i}", beta) for i, beta in enumerate(BETAS, 1)),
    ClaimTest(
        "a4",
        "Every direction emerges sharply, after a long plateau.",
        theirs="sharp transitions (figure)",
        statistic="rise (alignment 0.1 to 0.9) over plateau, median over directions, largest over "
        "β,",
        bar=below(0.5),
        **of_mixtures(lambda of: max(of.column("rise"))),
        planned=Planned(4, 0.1, 0.03),
    ),
    *(loss_claim(f"b{i}", beta) for i, beta in enumerate(BETAS, 1)),
    *(floor_claim(f"c{i}", beta) for i, beta in enumerate(BETAS, 1)),
    ClaimTest(
        "d",
        "The smooth loss is the sum of sharp transitions at predicted times.",
        theirs="L(t) ≈ Σ_p a_p² [t < T_p]",
        statistic="median factor between the loss and the sum, largest over β,",
        bar=below(1.5),
        **of_mixtures(lambda of: max(of.column("factor"))),
        planned=Planned(4, 1.15, 0.05),
    ),
    search_claim(
        2,
        "is logarithmic in d",
        " between the two largest dimensions over that between the two smallest",
        bend,
        theirs="k = 2 is the edge case",
        bar=below(0.8),
        fresh=True,
    ),
    *(
        search_claim(
            k,
            f"takes d^{k / 2 - 1:g}",
            "",
            exponent,
            theirs=f"d^(k/2-1): exponent {k / 2 - 1:g}",
            bar=near(k / 2 - 1, 0.15),
            planned=Planned(64, k / 2 - 1, 0.24),
        )
        for k in (3, 4)
    ),
    online_claim(
        "f1",
        "By online SGD at a rate ∝ a_p, direction p takes n ∝ p^(2β) samples, β = 1.",
        lambda of: exponent(of.column("target"), own_target(of, "samples")),
        theirs="n ~ p^(2β) d^(k-1) (remark on discretization): exponent 2",
        statistic="exponent over p = 2, 4, 8, 16 of the samples until p is learned at its own rate",
        bar=near(2.0, 0.3),
        planned=Planned(8, 2.0, 0.15),
    ),
    online_claim(
        "f2",
        "Over these samples the loss falls as n^((1-2β)/2β), β = 1.",
        lambda of: exponent(own_target(of, "samples"), own_target(of, "loss_then")),
        theirs="n^((1-2β)/2β) (remark on discretization): exponent -0.5, where t gives -1",
        statistic="exponent of the loss over the samples until p is learned, tail added,",
        bar=near(-0.5, 0.1),
        planned=Planned(8, -0.5, 0.05),
    ),
)
