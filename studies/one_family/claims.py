"""The claims of the study of clock and pizza: all are ours."""

from __future__ import annotations

from typing import Any

from mechint.studies.claims import ClaimTest, Sample, above, below, control_of, every
from mechint.studies.one_family.measures import SOLVED
from mechint.studies.rows import Row
from mechint.studies.statistics import Bar, Planned

CONSTANT, FALLING, UNIFORM = "constant rate", "falling rate", "uniform attention"
KEPT, LOST = 0.9, 0.5
"""Share of a model's accuracy that is kept, and below which the sum of a wrong pair has to be."""


def solved(row: Row) -> bool:
    """Return whether a model answers held-out sums."""
    return row["accuracy"] >= SOLVED


def keeps(name: str) -> Any:
    """A function of a row: whether a replacement keeps KEPT of the accuracy."""
    return lambda row: row[name] >= KEPT


def claim(id: str, statement: str, arm: str, of: str, bar: Bar, expected: float) -> ClaimTest:
    """A claim about the models of an arm of which a replacement keeps the answers."""
    said = {"sum": "its best fit g(x) + g(y)", "rest": "that fit and the rest of another pair"}
    return ClaimTest(
        id,
        statement,
        "ours",
        f"share of the models at {SOLVED} held out that keep {KEPT} of their accuracy where what "
        f"the MLP reads is {said[of]}, fitted on half of the pairs, judged on the others,",
        bar,
        f"models of uniform attention keep it; with the second operand permuted at most {LOST} is "
        "left of any",
        (Sample(arm, keeps(of), only=solved),),
        check=every(control_of, control_of),
        beside=(
            Sample(UNIFORM, keeps(of), only=solved),
            Sample(arm, lambda row: row["permuted"] <= LOST, only=solved),
        ),
        planned=Planned(16, at=expected),
        own=True,
    )


CLAIMS = (
    claim(
        "a",
        "Mod 59, trained at a constant rate, a sum of one function of both operands is enough for "
        "the answers of most models.",
        CONSTANT,
        "sum",
        above(0.5),
        0.82,
    ),
    claim(
        "b",
        "Mod 31, trained at a falling rate, it is not enough for most models.",
        FALLING,
        "sum",
        below(0.5),
        0.03,
    ),
    claim(
        "c",
        "Mod 59, trained at a constant rate, most models use nothing but the sum.",
        CONSTANT,
        "rest",
        above(0.5),
        0.36,
    ),
    ClaimTest(
        "d",
        "In most models the frequencies that the embedding ends with are key before held-out sums "
        "are answered.",
        "ours",
        f"share of the models at {SOLVED} held out whose embedding has all its final key "
        "frequencies, for good, at no later step than that accuracy, mod 59 at a constant rate,",
        above(0.5),
        "every model has key frequencies, and not all of them at its first checkpoint",
        (Sample(CONSTANT, lambda row: row["key_at"] <= row["solved_at"], only=solved),),
        beside=(
            Sample(CONSTANT, lambda row: row["keys"] and not row["key_at_first"], only=solved),
        ),
        planned=Planned(16, at=0.87),
        own=True,
    ),
)
