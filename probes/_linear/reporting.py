"""Findings on the variables that are decodable linearly, tested together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from mechint.null import Null, family_wise, why_undecidable
from mechint.probe import Report
from mechint.results import Effect

LEAST = 0.5
"""Least selectivity of what is called decodable, as a share of what certainty has."""


@dataclass(frozen=True)
class Scored:
    """Place → score of the variable, of its control task, and the penalty; null (sample,) the best
    place of each shuffle; arrangements: in how many ways the values can be shuffled.
    """

    scores: dict[str, float]
    control: dict[str, float]
    ridge: dict[str, float]
    null: Float[np.ndarray, " sample"]
    arrangements: float


def above_shuffled(
    score: float, null: Float[np.ndarray, " sample"]
) -> tuple[float, Float[np.ndarray, " sample"]]:
    """A score and its null on a scale that variables share: 0 at the median shuffle, 1 where the
    score is 1.

    >>> round(above_shuffled(0.8, np.array([0.1, 0.2, 0.6]))[0], 12)
    0.75
    """
    median = float(np.median(null))
    span = max(1 - median, 1e-12)
    return (score - median) / span, (null - median) / span


def say(
    report: Report,
    scored: Mapping[str, Scored],
    certain: Mapping[str, float],
    selective: Mapping[str, bool],
    *,
    score: str,
    control: str,
    known: int,
) -> None:
    """Report the variable that is decoded best, tested against the best variable of each shuffle; a
    variable whose null cannot decide is left out of both and named as not asked.

    Args:
        certain: variable → the selectivity that certainty has; selective: variable → whether its
            control task tells computing from memorizing, as for one input token it does not.
        score: "accuracy" or "r2"; control: what was done to remove the mechanism, in words; known:
            variables of the task, probed or not.
    """
    metrics, level = report.metrics, report.probe.significance
    keys = {name: f"linear.{name}.{score}" for name in scored}
    skills = {
        name: metrics[f"linear.{name}.selectivity"] / certain[name]
        if selective[name]
        else above_shuffled(metrics[keys[name]], scored[name].null)[0]
        for name in scored
    }
    unsaid = {name: why_undecidable([report.nulls[key]], level) for name, key in keys.items()}
    told = [name for name in scored if unsaid[name] is None]
    pool = told or [max(skills, key=lambda name: np.nan_to_num(skills[name], nan=-np.inf))]
    scaled = [above_shuffled(metrics[keys[name]], scored[name].null) for name in pool]
    observed, null = np.array([one for one, _ in scaled]), np.stack([one for _, one in scaled])
    p_values = dict(zip(pool, family_wise(observed, null.max(0)), strict=True))
    decodable = {name: p_values[name] <= level and skills[name] > LEAST for name in pool}
    best = max(pool, key=lambda name: (decodable[name], skills[name]))
    report.update({"linear.best_variable": best, "linear.best_skill": skills[best]})
    metric, key, top = "linear.best_above_shuffled", keys[best], float(observed[pool.index(best)])
    searched = "place" if len(pool) == 1 else "place and variable"
    # any of the shuffled variables may reach what a perfect one reaches
    reached = sum(1 / scored[name].arrangements for name in pool)
    arrangements = 1 / reached if reached else math.inf
    how = f"{control}, the best {searched} of each"
    report.metric(metric, top, null=Null.sampled(metric, top, null.max(0), how, arrangements))
    accuracy = Effect(
        skills[best],
        label="selectivity" if selective[best] else "score above chance",
        baseline=0.0,
        baseline_label="control task" if selective[best] else "shuffled",
    )
    place = metrics[f"linear.{best}.best_at"]
    others = [name for name in pool if decodable[name] and name != best]
    report.metric("linear.decodable", [name for name in pool if decodable[name]])
    report.finding(
        f"{best!r} can be decoded linearly after {place}.",
        no=f"No variable can be decoded linearly; {best!r} comes nearest.",
        unclear=f"Whether {best!r} can be decoded linearly is unclear.",
        null=metric if told else key,
        effect=accuracy,
        least=LEAST,
        details={
            score: metrics[key],
            "selectivity": metrics[f"linear.{best}.selectivity"],
            "shuffled": report.nulls[key].mean,
            "variables probed": f"{len(pool)} of {known}",
            "decodable too": ", ".join(others) or "none",
        },
        caveat="" if selective[best] else "an input token, moved there: no control task applies",
        at_chance=True,
    )
    for name, reason in unsaid.items():
        if told and reason is not None:
            report.not_asked(repr(name), reason)
