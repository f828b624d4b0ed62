"""The joint-training study's verdicts on planted outcomes, and its measures against brute force."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest

from mechint.groups.layouts import beyond_isotropy
from studies.joint_training import structure
from studies.joint_training.measures import parity_separation
from studies.rows import Rows
from tests.studies.planted import Cases, check, verdicts

SIZES = tuple(np.geomspace(100, 6400, 19).round(3).tolist())
SEEDS = 6
UNITS = (1, 3, 7, 9)

POINTS = {
    **{"MED": 300, "ADD": 2600, "ADD in MAX+MED+ADD": 600, "ADD in ADD+PROD": 600},
    **{"OP": 2600, "OP in OP+OP_TOP+OP_BOTTOM": 400, "MED, no steps": 1300},
}
"""Arm → parameters at which it is half learned."""
PAIRS = ("ADD", "OP", "ADD in MAX+MED+ADD", "ADD in ADD+PROD", "OP in OP+OP_TOP+OP_BOTTOM")


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
    even: bool = True,
    ratio: tuple[float, float] = (1.2, 0.8),
    curriculum: float = 0.98,
    beside: float = 0.3,
    known: float = 0.97,
    without: float = 0.2,
    falls: str = "",
    sizes_alone: Mapping[int, float] = {16: 0.0, 32: 0.3, 64: 0.33},
    sizes_mixed: Mapping[int, float] = {8: 0.5, 16: 0.8, 32: 1.0},
    products: float = 0.1,
    units: tuple[int, ...] = UNITS,
    noise_alone: float = 2.0,
    noise_mixed: float = 0.2,
    products_ordered: bool = True,
    line: tuple[float, ...] = (0.1, 0.8, 0.9),
    pairs: tuple[float, float] = (0.5, 0.8),
) -> Rows:
    """Rows of every arm; shares of runs for `mixture` and `alone`, accuracies else."""
    rows: list[dict[str, Any]] = []
    digits, draw, few_runs = np.arange(10), np.random.default_rng(1), n < SEEDS
    similar = np.outer(digits % 2 - 0.5, digits % 2 - 0.5) if even else np.eye(10)
    noise = np.random.default_rng(0).standard_normal((n, 10, 10)) * 1e-3
    ready, kept = {"MAX": known, "MED": known}, {"init": "normal", "width": 64}

    def run(arm: str, seed: int, accuracy: float, **more: Any) -> None:
        rows.append({"arm": arm, "seed": seed, "accuracy": accuracy, "steps": 5000, **more})

    def by_size(
        name: str, width: int, share: float, best: float, layout: Any, noise: float
    ) -> None:
        first = ratio if name == "MAX+MED+ADD" else (1.0, 1.0)
        for seed in range(3 * n):
            rows_of = layout(seed)[:, None] * np.ones(8) + noise * draw.standard_normal((10, 8))
            beyond, spread = beyond_isotropy(rows_of).tolist(), 0.1 * np.sin(seed)
            run(
                f"triplets {name}, by size",
                seed,
                best if (seed + 0.5) / (3 * n) < share else 0.1,
                width=width,
                parameters=width**2,
                beyond_isotropy=beyond,
                similarity=beyond,
                line=[[0, 100, 200], list(line)],
                curve=[[100, 200, 300], [0.1, 0.3, 0.6]],
                ratios={"L0 attention": first[0] + spread, "L0 MLP": first[1] + spread},
            )

    for arm, at in {**POINTS, **(points or {})}.items():
        for size, seed in product(SIZES[::4] if few_runs else SIZES, range(min(n, SEEDS))):
            learned = 1 / (1 + (at / size) ** 4) * (arm != falls or size < max(SIZES))
            run(arm, seed, learned, parameters=size, width=size)
    for seed in range(n):
        more, ones = seed < mixture * n, seed < alone * n
        at = (4000.0 if slow else 1000.0) if seed < (2 if few_get_there else n) else np.inf
        best = mixed if more else low
        run("triplets MAX+MED+ADD, early stop", seed, best, **kept, by_operation=ready)
        run("triplets ADD, early stop", seed, solving if ones else low, **kept)
        run("triplets MAX+MED+ADD", seed, 0.95 if more else low, **kept, solved_at=at)
        run("triplets ADD", seed, 0.95 if ones else low, **kept, solved_at=4500.0)
        for width, value in ((16, few), (64, wide)):
            run("triplets 300 each of MAX+MED+ADD", seed, value, init="normal", width=width)
        for arm in ("ADD in ADD+PROD", "ADD in MAX+MED+ADD", "ADD"):
            run(arm, seed, 0.95, similarity=(similar + noise[seed]).tolist())
        for width in (24, 48):
            run("curriculum", seed, curriculum, width=width, proficiency=ready)
            run("ADD beside the curriculum", seed, beside, width=width)
        run("ADD, no steps", seed, without)
        for name in PAIRS:
            at, size = pairs[" in " in name] + 0.01 * np.sin(seed), 100 if " in " in name else 205
            run(f"{name}, one width", seed, at, parameters=size)
    for width, share in sizes_alone.items():
        copy = lambda seed: np.argsort(digits * units[seed % len(units)] % 10) - 4.5  # noqa: E731
        by_size("ADD", width, share, 0.95, copy, noise_alone)
    for width, share in sizes_mixed.items():
        by_size("MAX+MED+ADD", width, share, 0.95, lambda _: digits - 4.5, noise_mixed)
    order = digits % 2 if products_ordered else np.array([1, 4, 9, 0, 6, 3, 8, 2, 7, 5]) / 3
    by_size("ADD+PROD", 32, 1.0, products, lambda _: 4.0 * order, 0.2)
    return Rows(rows)


def pair(first: str, second: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The transition points of two arms the other way round; and the first arm's largest models do
    worse, where the control of a ratio must fail.
    """
    return {"points": {first: POINTS[second], second: POINTS[first]}}, {"falls": first}


MIXTURE = {"mixture": 0.0}
LARGE = {
    "sizes_alone": {16: 0.9, 32: 0.95, 64: 1.0},
    "sizes_mixed": {8: 0.0, 16: 0.05, 32: 0.3},
}
NEVER = {"sizes_alone": dict.fromkeys((16, 32, 64), 0.0)}
WORSE = {"pairs": (0.8, 0.5)}
CASES: Cases = {
    "b1": pair("ADD", "ADD in MAX+MED+ADD"),
    "b2": pair("ADD", "ADD in ADD+PROD"),
    "e1": ({"mixture": 0.7, "alone": 1.0}, MIXTURE),
    "e2": ({"mixed": 0.6}, {"known": 0.5}),
    "e3": ({"solving": 0.98, "low": 0.8}, {"alone": 0.0, "low": 0.5}),
    "e5": ({"mixture": 0.7, "alone": 1.0}, MIXTURE),
    "e6": ({"few": 0.2}, {"wide": 0.3}),
    "f": pair("OP", "OP in OP+OP_TOP+OP_BOTTOM"),
    "g1": ({"even": False}, None),
    "g2": ({"even": False}, None),
    "g3": ({"even": False}, None),
    "i1": ({"curriculum": 0.3}, {"known": 0.5}),
    "i2": ({"curriculum": 0.3}, {"known": 0.5}),
    "k1": ({"without": 0.8}, None),
    "k2": pair("MED, no steps", "MED"),
    "p": ({"slow": True}, {"few_get_there": True}),
    "t1": (LARGE, {"sizes_alone": {16: 0.0, 32: 0.3, 64: 0.2}}),
    "t2": (LARGE, {**NEVER, "sizes_mixed": dict.fromkeys((8, 16, 32), 0.0)}),
    "t3": (
        {"sizes_alone": {16: 0.0, 32: 0.1, 64: 0.9}},
        {"sizes_mixed": dict.fromkeys((8, 16, 32), 0.8)},
    ),
    "t4": ({"products": 0.95}, NEVER),
    "r1": ({"units": (1,)}, {"sizes_alone": {16: 0.0, 32: 0.1, 64: 0.3}}),
    "r2": ({"noise_mixed": 1e3}, None),
    "r3": ({"noise_mixed": 8.0, "noise_alone": 0.1}, None),
    "r4": ({"products_ordered": False}, {"products": 0.7}),
    "r5": ({"line": (0.1, 0.2, 0.4)}, {"line": (0.7, 0.8, 0.9)}),
    "r6": ({"products_ordered": False}, None),
    "u1": ({"ratio": (0.8, 0.8)}, None),
    "u2": ({"ratio": (1.2, 1.2)}, None),
    "n1": (WORSE, None),
    "n2": (WORSE, None),
    "n3": (WORSE, None),
}


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted curves are exact: a few draws of the bootstrap tell as much as hundreds."""
    monkeypatch.setattr(structure, "ORDERS", 99)
    monkeypatch.setattr(structure, "PERMUTATIONS", 39)
    monkeypatch.setattr(structure, "FITTINGS", 20)
    monkeypatch.setattr(structure, "DRAWS", 60)


test_verdicts = pytest.mark.full(verdicts("joint-training", plant, CASES))


@pytest.mark.parametrize("id", ["e1", "e3", "i1", "p", "t2", "r5"])
def test_verdicts_of_triplets_and_curricula(id: str) -> None:
    check("joint-training", id, plant, CASES)


def test_parity_separates_a_matrix_of_parity_and_no_other() -> None:
    even = np.arange(10) % 2 == 0
    noise = 0.01 * np.random.default_rng(0).standard_normal((10, 10))
    share, component, p = parity_separation(np.outer(even - 0.5, even - 0.5) + noise, 5, 199)
    assert share > 0.9 and component == 1 and p <= 0.05
    ordered = -np.abs(np.subtract.outer(np.arange(10), np.arange(10))).astype(float)
    assert parity_separation(ordered, 1, 199)[2] > 0.05
