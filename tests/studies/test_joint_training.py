"""The joint-training study's verdicts on planted outcomes, and its measures against brute force."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from mechint.run_table.transitions import fit_transition
from studies.joint_training import claims
from studies.joint_training.claims import CELLS, CLAIMS
from studies.joint_training.measures import parity_separation
from studies.rows import Rows
from tests.studies.planted import Cases, check, held

SIZES = (100, 200, 400, 800, 1600, 3200, 6400)
SEEDS = 4

POINTS = {
    **{"MAX": 150, "MED": 300, "ADD": 2600, "NADD": 2600, "PROD": 300, "PROD prime": 2600},
    **{"ADD in MAX+MED+ADD": 600, "ADD in ADD+PROD": 600, "PROD prime in MAX+PROD": 600},
    **{"NADD in NADD+PROD": 600, "ADD, n = 19": 1000, "ADD in ADD+PROD, n = 19": 1000},
    **{"shuffled ADD, n = 26": 600, "shuffled ADD in MAX+MED+ADD, n = 26": 1300},
    **{"OP": 2600, "OP in OP+OP_TOP+OP_BOTTOM": 400, "MED, no steps": 1300},
    **{"ADD, n = 10": 300, "ADD, n = 26": 1300},
    **{"ADD, uneven table": 600, "ADD, even table": 2600},
    **{name: 200 * 1.3 ** (int(name[0]) - 3) * 1.9 ** (int(name[-1]) - 3) for name in CELLS},
}
"""Arm → parameters at which it is half learned."""


def plant(
    n: int = 24,
    points: dict[str, float] | None = None,
    mixture: float = 1.0,
    alone: float = 0.2,
    low: float = 0.3,
    mixed: float = 0.98,
    solving: float = 0.95,
    few: float = 0.8,
    wide: float = 0.9,
    slow: bool = False,
    few_get_there: bool = False,
    shuffled: float = 0.2,
    true: float = 0.95,
    even: bool = True,
    ratio: tuple[float, float] = (1.2, 0.8),
    ends: float = 0.99,
    curriculum: float = 0.98,
    beside: float = 0.3,
    known: float = 0.95,
    without: float = 0.2,
) -> Rows:
    """Rows of every arm; shares of runs for `mixture` and `alone`, accuracies else."""
    rows: list[dict[str, Any]] = []

    def run(arm: str, seed: int, accuracy: float, **more: Any) -> None:
        rows.append({"arm": arm, "seed": seed, "accuracy": accuracy, "steps": 5000, **more})

    for arm, at in {**POINTS, **(points or {})}.items():
        for size in SIZES:
            for seed in range(min(n, SEEDS)):
                learned = 1 / (1 + (at / size) ** 4)
                run(arm, seed, learned, parameters=size, width=size)
    similar = np.outer(np.arange(10) % 2 - 0.5, np.arange(10) % 2 - 0.5) if even else np.eye(10)
    noise = np.random.default_rng(0).standard_normal((n, 10, 10)) * 1e-3
    for seed in range(n):
        kept = {"init": "normal", "width": 64}
        best = mixed if seed < mixture * n else low
        run("triplets MAX+MED+ADD, early stop", seed, best, **kept)
        solved = 0.95 if seed < alone * n else low
        run("triplets ADD, early stop", seed, solving if seed < alone * n else low, **kept)
        gets_there = seed < (2 if few_get_there else n)
        first = 4000.0 if slow else 1000.0
        late = {"init": "normal", "width": 64}
        run(
            "triplets MAX+MED+ADD",
            seed,
            0.95 if seed < mixture * n else low,
            **late,
            solved_at=first if gets_there else np.inf,
        )
        run("triplets ADD", seed, solved, **late, solved_at=4500.0)
        for width, value in ((16, few), (64, wide)):
            more = {"init": "normal", "width": width}
            run("triplets 300 each of MAX+MED+ADD", seed, value, **more)
        for arm in ("ADD in ADD+PROD", "ADD in MAX+MED+ADD", "ADD"):
            run(arm, seed, 0.95, similarity=(similar + noise[seed]).tolist())
        run("ADD in MAX+MED+ADD, n = 26", seed, true, width=96)
        run("shuffled ADD in MAX+MED+ADD, n = 26", seed, shuffled, width=96)
        sums = {"attention": [ratio[0], 0.5, 50], "MLP": [ratio[1], 0.5, 50]}
        same = {"attention": [1.0, 0.5, 50], "MLP": [1.0, 0.5, 50]}
        run("ADD in MAX+MED+ADD, three layers", seed, ends, ratios=sums)
        run("ADD, three layers", seed, ends, ratios=same)
        for width in (24, 48):
            ready = {"MAX": known, "MED": known}
            run("curriculum", seed, curriculum, width=width, proficiency=ready)
            run("ADD beside the curriculum", seed, beside, width=width)
        run("ADD, no steps", seed, without)
    return Rows(rows)


def swapped(first: str, second: str) -> dict[str, Any]:
    """The transition points of two arms the other way round."""
    return {"points": {first: POINTS[second], second: POINTS[first]}}


def beyond(arm: str) -> dict[str, Any]:
    """An arm that no size learns, where the control of a transition must fail."""
    return {"points": {arm: 1e9}}


def pair(first: str, second: str) -> tuple[dict[str, Any], dict[str, Any]]:
    return swapped(first, second), beyond(first)


MIXTURE = {"mixture": 0.0}
CASES: Cases = {
    "a1": pair("MED", "MAX"),
    "a2": pair("ADD", "MED"),
    "a3": pair("NADD", "MED"),
    "a4": pair("PROD prime", "PROD"),
    "b1": pair("ADD", "ADD in MAX+MED+ADD"),
    "b2": pair("ADD", "ADD in ADD+PROD"),
    "b3": pair("PROD prime", "PROD prime in MAX+PROD"),
    "b4": pair("NADD", "NADD in NADD+PROD"),
    "c": ({"points": {"ADD in ADD+PROD, n = 19": 300}}, beyond("ADD, n = 19")),
    "d1": ({"shuffled": 0.9}, {"true": 0.5}),
    "d2": pair("shuffled ADD, n = 26", "shuffled ADD in MAX+MED+ADD, n = 26"),
    "e1": ({"mixture": 0.7, "alone": 1.0}, MIXTURE),
    "e2": ({"mixed": 0.6}, None),
    "e3": ({"solving": 0.98, "low": 0.8}, {"alone": 0.0, "low": 0.5}),
    "e5": ({"mixture": 0.7, "alone": 1.0}, MIXTURE),
    "e6": ({"few": 0.2}, {"wide": 0.3}),
    "f": pair("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
    "g1": ({"even": False}, None),
    "g2": ({"even": False}, None),
    "g3": ({"even": False}, None),
    "h1": ({"ratio": (0.8, 0.8)}, {"ends": 0.5}),
    "h2": ({"ratio": (1.2, 1.2)}, {"ends": 0.5}),
    "i1": ({"curriculum": 0.3}, {"known": 0.5}),
    "i2": ({"curriculum": 0.3}, {"known": 0.5}),
    "j": (
        {
            "points": {
                name: 200 * 1.9 ** (int(name[0]) - 3) * 1.3 ** (int(name[-1]) - 3) for name in CELLS
            }
        },
        beyond(CELLS[0]),
    ),
    "k1": ({"without": 0.8}, None),
    "k2": pair("MED, no steps", "MED"),
    "l1": pair("ADD, n = 26", "ADD, n = 10"),
    "m1": ({"points": {"ADD, uneven table": 2600}}, beyond("ADD")),
    "m2": ({"points": {"ADD, even table": 300}}, beyond("ADD")),
    "p": ({"slow": True}, {"few_get_there": True}),
}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted curves are exact: a few draws of the bootstrap tell as much as hundreds."""
    monkeypatch.setattr(claims, "fit_transition", partial(fit_transition, bootstrap=20))
    monkeypatch.setattr(claims, "ORDERS", 99)


@pytest.mark.full
@pytest.mark.parametrize("id", [claim.id for claim in CLAIMS])
def test_verdicts(id: str) -> None:
    check("joint-training", id, plant, CASES)


@pytest.mark.parametrize("id", ["e1", "e3", "i1", "p"])
def test_verdicts_of_triplets_and_curricula(id: str) -> None:
    check("joint-training", id, plant, CASES)


def test_a_mixture_of_which_more_solve_is_not_therefore_faster() -> None:
    """The same times, and twice the share: speed is of those that solve."""
    rows = [dict(row) for row in plant()]
    for row in rows:
        if row["arm"] in ("triplets ADD", "triplets MAX+MED+ADD"):
            row["solved_at"] = 1000.0 + 10 * row["seed"]
            if row["arm"] == "triplets ADD" and row["seed"] % 2:
                row["solved_at"] = np.inf
    assert held("joint-training", "p", Rows(rows)).verdict == "refuted"


def test_parity_separates_a_matrix_of_parity_and_no_other() -> None:
    even = np.arange(10) % 2 == 0
    noise = 0.01 * np.random.default_rng(0).standard_normal((10, 10))
    share, component, p = parity_separation(np.outer(even - 0.5, even - 0.5) + noise, 5, 199)
    assert share > 0.9 and component == 1 and p <= 0.05
    ordered = -np.abs(np.subtract.outer(np.arange(10), np.arange(10))).astype(float)
    assert parity_separation(ordered, 1, 199)[2] > 0.05
