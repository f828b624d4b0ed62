"""The capacity study's verdicts on planted outcomes, and its measures against the theory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mechint
import tasks
from studies.capacity.language import leading_r2
from studies.capacity.regressions import measure
from studies.rows import Rows
from tests.studies.planted import Cases, held, verdicts

WIDTHS, GAPS, ALPHAS = (4, 8), (1, 4, 16), ("alpha0.5", "alpha1.5")
STEPS = [0, 100, 200, 1000]


def plant(
    n: int = 8,
    utility: float = 0.99,
    other: float = 0.4,
    excess: float = 0.001,
    critical: int = 4,
    tie: float = 0.3,
    above: int = 0,
    early: int = 5,
    narrow_keeps: float = 0.1,
    wide_keeps: float = 0.9,
    allowed: float = 1.0,
    unclipped: float = 2.0,
    clipped: float = 2.0,
    random: float = 0.2,
    taught: bool = False,
    learns: bool = True,
    language: tuple[float, float, float, float] = (0.95, 0.6, 0.95, 0.9),
    gap_cost: tuple[float, float] = (0.3, 0.0),
    sums: int = 100,
    task: int = 2000,
    r2: tuple[float, float] = (0.0, 0.8),
    r2_start: float = -0.2,
    cosine: tuple[float, float] = (0.2, 0.1),
    own: float = 0.4,
    iia: float = 0.95,
    permuted: float = 0.6,
    equal: tuple[float, float] = (0.4, 0.0),
    compute: float = 0.2,
) -> Rows:
    """Rows of every arm. language: accuracy wide and narrow at the low frequency, then at the high
    one; gap_cost: what the largest gap takes narrow and wide; equal: accuracy that the wide model
    has more of at equal loss, rare and frequent; compute: loss that it has less of.
    """
    base = {"tie": tie, "excess": excess, "critical": [critical, 8]}
    cells = {"by_utility": utility, "by_frequency": other, "by_spectrum": other}
    along = {"rare_held": 100, "held_above": above, "held_early": early, "above": 9}
    costs = {"Adam, clipped": clipped, "Adam, batch size fixed": unclipped}

    def part(gap: int, width: int, seed: int) -> float:
        left = {4: narrow_keeps, 8: wide_keeps}[width]
        return float(np.interp(np.log2(gap), (0, 4), (1, left))) + 0.001 * seed

    def free(kept: float) -> float:
        return 4 * (1 if narrow_keeps < 0.9 else 1 + allowed * (kept - 1))

    def model(seed: int, frequency: float, gap: int, width: int) -> dict[str, Any]:
        rare, wider = frequency < 0.1, width == 32
        ahead = equal[not rare] * wider
        loses = gap_cost[wider] * (gap == 8)
        rise = [1.0 if step >= task else 0.5 + ahead * (step > 100) for step in STEPS]
        curve = {
            "step": STEPS,
            "task": [0.5, *rise[1:]],
            "sums": [0.5 if step < sums else 1.0 for step in STEPS],
            "task_loss": [1.0, 0.9, 0.8, 0.7 - compute * wider],
            "other_loss": [4.0, 3.0, 2.7 - 0.2 * wider, 2.5 - 0.3 * wider],
        }
        accuracy = language[2 * (not rare) + (not wider)] - loses + 0.001 * seed
        cosines = {"background": cosine[wider] + 0.001 * seed, "over_random": cosine[wider] * 10}
        search = {"iia": iia, "permuted": permuted}
        return {
            **{"arm": "language", "seed": seed, "frequency": frequency, "gap": gap, "width": width},
            **{"accuracy": accuracy, "curve": curve, "r2": r2[wider], "r2_untrained": r2_start},
            **{"parameters": 1000, "tokens": 64, "cosines": {**cosines, "task": own}},
            "interchange": {"rank of a": search, "rank of b": search},
        }

    return Rows(
        [
            {**row, "seed": seed}
            for seed in range(n)
            for row in (
                *(
                    {**base, **cells, **along, "arm": name, "width": width, "held": features}
                    for name in ("phase", "training", "staircase", "complexity", *ALPHAS)
                    for width, features in ((4, [1.0, 0.0]), (8, [1.0, 1.0]))
                ),
                *(
                    {
                        **{"arm": name, "gap": gap, "width": width, "held": [1.0, 4 * kept]},
                        "allowed": free(kept),
                    }
                    for name in ("retention", "weighted")
                    for gap in GAPS[name == "weighted" :]
                    for width in WIDTHS
                    for kept in (part(gap, width, seed),)
                ),
                *(
                    {"arm": "optimizer", "optimizer": name, "gap": gap, "held": [1.0, value]}
                    for name, cost in costs.items()
                    for gap, value in ((1, 4.0), (32, 4.0 - cost - 0.001 * seed))
                ),
                *(
                    {
                        **{"arm": "data", "factor": factor, "width": width, "critical": [4, 8]},
                        "held": [float(width >= 4), rare if width < 8 else float(learns)],
                        "random": random,
                    }
                    for factor, rare in ((1, 0.1), (10, 0.7 if taught else 0.1))
                    for width in (2, 3, *WIDTHS)
                ),
                *(
                    model(seed, frequency, gap, width)
                    for frequency in (0.03, 0.12)
                    for gap in (1, 8)
                    for width in (8, 32)
                ),
            )
        ]
    )


UNFINISHED = {"excess": 0.1}
FLAT = {"language": (0.6, 0.6, 0.6, 0.6)}
CASES: Cases = {
    "a1": ({"utility": 0.6}, UNFINISHED),
    "a2": ({"other": 0.95}, UNFINISHED),
    "a3": ({"other": 0.95}, UNFINISHED),
    "b1": ({"critical": 8}, UNFINISHED),
    "b2": ({"critical": 8}, UNFINISHED),
    "c": ({"above": 50}, {"early": 0}),
    "d1": ({"narrow_keeps": 0.9, "wide_keeps": 0.1}, None),
    "d2": ({"narrow_keeps": 0.95, "wide_keeps": 0.1, "allowed": 0.0}, None),
    "d3": ({"unclipped": 0.0}, {"clipped": 0.1}),
    "e1": ({"random": 0.05}, {"learns": False}),
    "e2": ({"taught": True}, {"learns": False}),
    "f1": ({"utility": 0.6}, UNFINISHED),
    "f2": ({"utility": 0.6}, UNFINISHED),
    "g": ({"language": (0.95, 0.95, 0.95, 0.6)}, FLAT),
    "g2": ({"gap_cost": (0.0, 0.05)}, FLAT),
    "g3": ({"sums": 900, "task": 100}, {"sums": 2000}),
    "h": ({"r2": (0.8, 0.4)}, {"r2_start": 0.7}),
    "i": ({"cosine": (0.1, 0.2)}, {"own": -0.1}),
    "j1": ({"iia": 0.62}, {"permuted": 0.3}),
    "j2": ({"iia": 0.62}, {"permuted": 0.3}),
    "k1": ({"equal": (-0.1, 0.0)}, FLAT),
    "k2": ({"equal": (0.0, 0.4)}, FLAT),
    "l": ({"compute": -0.2}, FLAT),
}
test_verdicts = verdicts("capacity", plant, CASES)


def test_a_width_between_two_equal_utilities_says_nothing_of_critical_widths() -> None:
    rows = [dict(row) for row in plant()]
    for row in rows:
        if row["arm"] == "phase" and row["width"] == 4:
            row["held"] = [0.0, 0.0]
    assert held("capacity", "b1", Rows(rows)).verdict == "refuted"
    for row in rows:
        if row["arm"] == "phase" and row["width"] == 4:
            row["tie"] = 0.01
    assert held("capacity", "b1", Rows(rows)).verdict == "supported"


def test_the_control_of_an_optimum_fails_on_untrained_encoders() -> None:
    """They hold as many features in all as they are wide, like every encoder."""
    task: Any = tasks.make("regression-mixture", n=16, n_tasks=2, rank=8, alpha=1.0, beta=0.7)
    found = []
    for width in (2, 8, 14):
        (run,) = mechint.train(task, {"width": width}, {"steps": 1, "batch_size": None})
        labels = {"arm": "staircase", "width": width}
        row = measure(run, labels)
        assert sum(row["held"]) == pytest.approx(width, abs=1e-3)
        found.append({**labels, "arm": "phase", "seed": 0, **row})
    assert held("capacity", "a1", Rows(found)).control.startswith("failed")


def test_a_trained_encoder_reaches_the_least_loss_and_the_utilities_order() -> None:
    task: Any = tasks.make("regression-mixture", n=8, n_tasks=2, rank=4, alpha=1.0, beta=0.7)
    (run,) = mechint.train(task, {"width": 3}, {"steps": 600, "batch_size": None})
    row = measure(run, {"arm": "training", "width": 3})
    assert row["excess"] < 0.02 and row["by_utility"] == 1.0
    assert np.round(row["held"]).tolist() == task.retained_features(3)
    assert row["held_above"] <= row["rare_held"] and row["held_early"] <= row["rare_held"]


def test_a_width_with_room_for_every_feature_has_no_least_loss() -> None:
    task: Any = tasks.make("regression-mixture", n=4, n_tasks=2, rank=1, alpha=1.0)
    (run,) = mechint.train(task, {"width": 2}, {"steps": 1, "batch_size": None})
    assert measure(run, {"arm": "staircase", "width": 2})["excess"] > 0.02


def test_leading_components_are_judged_on_what_is_left_out() -> None:
    """Against one regression for every example left out."""
    generator = np.random.default_rng(0)
    x = generator.standard_normal((20, 5)) * [5, 4, 1, 1, 1]
    y = x[:, 0] + 0.1 * generator.standard_normal(20)
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    design = np.concatenate([u[:, :2] * s[:2], np.ones((20, 1))], 1)
    errors = []
    for i in range(20):
        rest = np.arange(20) != i
        weights = np.linalg.lstsq(design[rest], y[rest], rcond=None)[0]
        errors.append(y[i] - design[i] @ weights)
    expected = 1 - np.sum(np.square(errors)) / ((y - y.mean()) ** 2).sum()
    assert leading_r2(x, y, 2) == pytest.approx(expected)
    assert leading_r2(generator.standard_normal((20, 5)), y, 2) < 0.5


def test_the_weight_of_a_burst_is_its_share_of_clipped_updates() -> None:
    """At gap 1 the prior; unclipped at fixed size as well."""
    from studies.capacity.regressions import rare_weight

    given = {"n": 8, "n_tasks": 2, "rank": 2, "alpha": 1.0, "beta": 0.7}
    train = {"steps": 4, "batch_size": 64, "clip": None}
    usual: Any = tasks.make("regression-mixture", **given)
    (run,) = mechint.train(usual, {"width": 2}, train)
    assert rare_weight(run) == pytest.approx(float(usual.priors[-1]))
    burst: Any = tasks.make("regression-mixture", **given, gap=4, normalization="fixed")
    (run,) = mechint.train(burst, {"width": 2}, train)
    assert rare_weight(run) == pytest.approx(float(burst.priors[-1]), rel=0.05)
