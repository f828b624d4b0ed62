"""Runs of the emergence study: sums of single-index functions.

The population gradient never leaves the span of the P directions and the m neurons' starts: d in
the ten thousands costs P + m coordinates (`mechint.models.two_layer.reduced_draws`). P is far above
the theorem's d^0.1. Runs on fresh batches test the talk's remark on discretization.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.studies.emergence.claims import CLAIMS
from mechint.studies.emergence.figures import draw
from mechint.studies.emergence.measures import measure
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study, arm

SEED = 3000

SIZES: Mapping[str, Mapping[str, Any]] = {
    "smoke": {
        **{"d": 64, "floor_d": 64, "seeds": 1, "floor_seeds": 1, "search_seeds": 2},
        "mixtures": {1.0: (6, 300)},
        "floors": {1.0: ((2, 4), 300)},
        "dimensions": (16, 64),
        "searches": {2: 300, 3: 300, 4: 300},
        "online": {2: 60, 4: 60},
    },
    "laptop": {
        **{"d": 16_384, "floor_d": 4096, "seeds": 4, "floor_seeds": 8, "search_seeds": 64},
        "mixtures": {0.75: (96, 6000), 1.0: (96, 15_000), 1.5: (32, 28_000)},
        "floors": {
            **{0.75: ((16, 32, 64), 6000), 1.0: ((16, 32, 64), 12_000)},
            1.5: ((8, 16, 32), 28_000),
        },
        "dimensions": (256, 1024, 4096, 16_384),
        "searches": {2: 240, 3: 2400, 4: 12_000},
        "online": {2: 1500, 4: 4000, 8: 14_000, 16: 50_000},
    },
    "fresh": {
        **{"floor_d": 4096, "floor_seeds": 24, "search_seeds": 64},
        "mixtures": {},
        "floors": {1.5: ((8, 16, 32), 28_000)},
        "dimensions": (256, 1024, 4096, 16_384),
        "searches": {2: 240},
        "online": {},
    },
    "overnight": {
        **{"d": 65_536, "floor_d": 16_384, "seeds": 4, "floor_seeds": 8, "search_seeds": 64},
        "mixtures": {0.75: (192, 20_000), 1.0: (192, 60_000), 1.5: (64, 160_000)},
        "floors": {
            **{0.75: ((16, 32, 64, 128), 20_000), 1.0: ((16, 32, 64, 128), 48_000)},
            1.5: ((8, 16, 32, 64), 160_000),
        },
        "dimensions": (256, 1024, 4096, 16_384, 65_536),
        "searches": {2: 240, 3: 4800, 4: 48_000},
        "online": {2: 1500, 4: 4000, 8: 14_000, 16: 50_000},
    },
}
ONLINE_RATE = 0.02
"""Learning rate per amplitude a_p / a_1 of the direction that an online run is to learn."""

ONLINE: Mapping[str, Any] = {"d": 64, "n_directions": 24, "beta": 1.0}


def descent(
    steps: int, looks: int = 400, batch_size: int | None = None, lr: float = 0.1
) -> dict[str, Any]:
    """Gradient descent, on the exact population loss unless a batch size is given."""
    given = {"steps": steps, "batch_size": batch_size, "lr": lr, "checkpoints": "last"}
    return {**given, "evaluate_every": max(1, steps // looks)}


def plan(size: str) -> list[PlannedRun]:
    """Mixtures at every β, students too narrow for their directions, single directions at every
    (k, d) with seeds of their own, and online runs at rates in proportion to a_p.
    """
    budget, start = SIZES[size], FRESH if size == "fresh" else SEED
    smoke, fixed = size == "smoke", ("online fixed", "online-fixed", {})
    online = [
        *([(*fixed, 60 if smoke else 8000, 0.01)] if budget["online"] else ()),
        *(
            ("online", f"online-p{target}", {"target": target}, steps, ONLINE_RATE / target)
            for target, steps in budget["online"].items()
        ),
    ]
    cells = [
        *(
            (
                *("mixture", f"mixture-beta{beta:g}", {"beta": beta}, SEED, budget["seeds"]),
                {"d": 4 * n, "n_directions": n, "beta": beta},
                {"width": 3 * n, "init_norm": 0.02, "ambient": budget["d"]},
                descent(steps),
            )
            for beta, (n, steps) in budget["mixtures"].items()
        ),
        *(  # one ensemble a β: coordinates to spare are directions of no amplitude
            (
                *("floor", f"floor-beta{beta:g}-width{width}", {"beta": beta, "width": width}),
                *(start, budget["floor_seeds"]),
                {"d": 4 * max(widths), "n_directions": 3 * max(widths), "beta": beta},
                {
                    **{"width": width, "neurons": max(widths), "init_norm": 0.02},
                    "ambient": budget["floor_d"],
                },
                descent(steps),
            )
            for beta, (widths, steps) in budget["floors"].items()
            for width in widths
        ),
        *(
            (
                *("search", f"search-k{k}-d{d}", {"k": k, "d": d}),
                *(10 * start + (10 * k + cell) * 64, budget["search_seeds"]),
                {"d": 9, "n_directions": 1, "hermite": (0.0,) * k + (1.0,)},
                {"width": 8, "init_norm": 1e-2, "ambient": d},
                descent(steps, looks=1200),
            )
            for k, steps in budget["searches"].items()
            for cell, d in enumerate(budget["dimensions"])
        ),
        *(
            (
                *(name, folder, labels, SEED, 1 if smoke else 8, ONLINE),
                {"width": 144, "init_norm": 0.02},
                descent(steps, batch_size=64, lr=lr),
            )
            for name, folder, labels, steps, lr in online
        ),
    ]
    return [
        one
        for name, folder, labels, first, n, task, model, train in cells
        for one in arm(
            *(name, "single-index", range(first, first + n), task, model, train),
            folder=folder,
            **labels,
        )
    ]


STUDY = Study(
    name="emergence",
    title="Emergence and scaling laws for SGD learning",
    paper=(
        "Ren, Nichani, Wu and Lee 2025, Emergence and scaling laws for SGD learning (slides, "
        "Part I)"
    ),
    summary=(
        "A two-layer network learns a sum of single-index functions whose strengths fall as a "
        "power law. Every direction shows a long plateau and a sharp end, at a time that its "
        "strength sets. Added up, these transitions give a loss that falls as a smooth power law "
        "of time and of width."
    ),
    here="population gradient, P = 96, d = 16,384; online SGD, P = 24, d = 64",
    there="online SGD, P ≪ d^0.1",
    claims=CLAIMS,
    sentences=(
        Sentence(
            "direction p emerges sharply at a time ∝ p^β",
            ("a2", "a1", "a3", "a4"),
        ),
        Sentence(
            "steps add up to a loss that falls as a power of time",
            ("b2", "b1", "b3", "d"),
        ),
        Sentence(
            "the loss at a width falls as a power of the width",
            ("c2", "c1", "c3"),
        ),
        Sentence(
            "the search takes d^(k/2-1) at k = 3 and 4",
            ("e3", "e4"),
        ),
        Sentence("the search is logarithmic at k = 2", ("e2",)),
        Sentence(
            "online SGD takes p^(2β) samples",
            ("f1", "f2"),
            regime="online SGD, P = 24, d = 64",
        ),
    ),
    costs={"laptop": 0.3, "fresh": 0.1, "overnight": 6},
    plan=plan,
    measure=measure,
    draw=draw,
)
