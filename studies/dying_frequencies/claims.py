"""The claims of the study of frequencies that die: both are ours."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from mechint.studies.claims import ClaimTest, Sample, above, at_least, below, every, interval_above
from mechint.studies.dying_frequencies.measures import STEPS
from mechint.studies.rows import Row
from mechint.studies.statistics import Bar, bootstrap

ENOUGH, LEAST = 10, 0.8
"""Models without which nothing is judged; least norm of the other frequencies over the losers'."""


def forked(row: Row) -> bool:
    """Return whether a model has losers, and others of about their norm."""
    return "taken" in row and row["taken"]["share"] >= LEAST


def slower(name: str) -> Sample:
    """Logarithm of the steps without some frequencies over those without as much of others; a fork
    that does not get there counts as STEPS.
    """

    def ratio(row: Row) -> float:
        return math.log(min(STEPS, row["taken"][name]) / min(STEPS, row["taken"]["others"]))

    return Sample("addition", ratio, only=forked)


geometric_mean = partial(bootstrap, lambda logs: float(np.exp(np.mean(logs))))


def claim(id: str, statement: str, bar: Bar) -> ClaimTest:
    """A claim about the steps that training takes without the frequencies that die."""
    return ClaimTest(
        id,
        statement,
        "ours",
        "steps to 0.95 without the frequencies that die over those without as much of others, "
        "from the step at which they are largest, geometric mean over models, bootstrap,",
        bar,
        f"at least {ENOUGH} models; without the winners the same is above 1.25",
        (slower("losers"),),
        geometric_mean,
        every(at_least(ENOUGH), interval_above(1.25, geometric_mean)),
        (slower("losers"), slower("winners")),
        own=True,
    )


CLAIMS = (
    claim("a", "Frequencies that die are a scaffold: without them sums take longer.", above(1.25)),
    claim("b", "Frequencies that die are rivals: without them sums come sooner.", below(0.8)),
)
