"""Verdicts of the study of when sums are solved, on planted outcomes, and its curves."""

from __future__ import annotations

import math

import pytest

from mechint.studies.rows import Rows
from mechint.studies.whether_not_when.claims import ALONE, CONSTANT, MIXTURE, WIDTHS
from mechint.studies.whether_not_when.figures import draw, unsolved
from mechint.studies.whether_not_when.plan import SOLVED, plan
from tests.studies.planted import Cases, held, verdicts


def plant(
    n: int = 24,
    mixture: float = 0.95,
    alone: float = 0.4,
    ratio: float = 1.0,
    torch: float = 0.2,
    late: float = 1.0,
    widths: tuple[int, ...] = WIDTHS,
) -> Rows:
    """Runs of both arms at every width: the shares that solve, and the factor between their times;
    torch: the mixture's share from PyTorch's initialization; late: the factor of the times alone at
    a constant rate.
    """
    of = {
        ("normal", MIXTURE): (mixture, ratio),
        ("normal", ALONE): (alone, 1.0),
        ("torch", MIXTURE): (torch, ratio),
        ("torch", ALONE): (alone, 1.0),
    }
    return Rows(
        [
            {
                **{"arm": f"{arm}{rate}", "seed": seed, "init": init, "width": width},
                **{"steps": 20_000 if rate else 5000},
                "solved_at": (late if rate and arm == ALONE else factor) * (1000 + 20 * (seed % 5))
                if seed < share * n
                else math.inf,
            }
            for width in widths
            for rate in ("", CONSTANT)
            for (init, arm), (share, factor) in of.items()
            for seed in range(n)
        ]
    )


NONE, ALL = {"mixture": 0.0, "alone": 0.0, "torch": 0.0}, {"mixture": 1.0, "alone": 1.0}
CASES: Cases = {
    "a1": ({"mixture": 0.1, "alone": 0.9}, NONE),
    "a2": ({"mixture": 0.1, "alone": 0.9}, ALL),
    "b1": ({"ratio": 0.5}, {"alone": 0.08}),
    "b2": ({"ratio": 2.0}, {"alone": 0.08}),
    "c1": ({"torch": 1.0, "alone": 0.3}, NONE),
    "c2": ({"torch": 1.0, "alone": 0.3}, NONE),
    "d1": ({"mixture": 0.1, "alone": 0.9}, NONE),
    "d2": ({"late": 6.0, "alone": 0.9}, NONE),
    "d3": ({"torch": 1.0, "alone": 0.3}, NONE),
}
test_verdicts = verdicts("whether-not-when", plant, CASES)


def test_a_width_that_is_not_trained_leaves_the_claim_over_widths_open() -> None:
    wide = plant(widths=(64,))
    assert held("whether-not-when", "a1", wide).verdict == "supported"
    assert held("whether-not-when", "a2", wide).verdict == "not run"


def test_a_share_that_rises_does_not_make_those_that_solve_faster() -> None:
    found = held("whether-not-when", "b1", plant(mixture=1.0, alone=0.2))
    assert found.verdict == "supported" and found.value == pytest.approx(1.0, abs=0.05)


def test_curves_of_survival_are_counts() -> None:
    times = [300.0, 100.0, math.inf, 300.0]
    x, y = unsolved(times, 500.0)
    for step in (50.0, 200.0, 400.0):
        at = max(i for i, corner in enumerate(x) if corner <= step)
        assert y[at] == pytest.approx(sum(time > step for time in times) / 4)
    figure, other, _ = draw(plant(widths=(16, 32, 64))).values()
    assert len(figure.plots) == len(other.plots) == 3
    assert "64 wide: 23 of 24 against 10 of 24 solve" in figure.plots[0].y.title


def test_the_widest_runs_of_sums_alone_are_those_of_the_half_learned_study() -> None:
    from mechint.studies.half_learned.plan import plan as other

    ours = {one.name: one.spec for one in plan("fresh")}
    shared = [one for one in other("fresh") if one.labels["arm"] == ALONE]
    assert shared and all(ours[one.name] == one.spec for one in shared)
    assert SOLVED == 0.9
