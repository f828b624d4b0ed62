"""The golden guard: training and probes give the numbers recorded in curves.json and probes.json.

Recorded names must still be there, with their values to floating-point tolerance; new names are
welcome. A failure after a refactor means that behavior changed. make.py says when to record anew.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from mechint.system.jsonable import to_jsonable
from tests.differences import differences, report
from tests.golden import cases
from tests.marks import full_where

HERE = Path(__file__).parent
CURVES = to_jsonable(json.loads((HERE / "curves.json").read_text(encoding="utf-8")))
PROBES = to_jsonable(json.loads((HERE / "probes.json").read_text(encoding="utf-8")))

SLOW = {
    "listops, packed rows, layer norm, dropout",
    "weights on planted induction",
    "das on planted order",
    "norms on planted doubling",
    "circuits on planted induction",
    "neurons on planted product",
}

CURVE_RTOL, CURVE_ATOL = 1e-4, 1e-6
ACCURACY_ATOL = 0.05
"""Rounding may turn an answer that is nearly a tie: one or two of the few examples evaluated."""

PROBE_RTOL = 1e-3


def test_every_case_is_recorded() -> None:
    assert set(CURVES) == set(cases.RUNS)
    assert set(PROBES) == set(cases.MEASUREMENTS)


@pytest.mark.parametrize("name", full_where(SLOW, CURVES))
def test_training_gives_the_recorded_curves(name: str) -> None:
    new, lines = to_jsonable(cases.curves(name)), []
    for seed, rows in CURVES[name].items():
        assert len(new[seed]) == len(rows), f"{name} / {seed}: another number of evaluations"
        for old_row, new_row in zip(rows, new[seed], strict=True):
            where = f"{name} / {seed} / step {old_row['step']}"
            for metric, value in old_row.items():
                atol = ACCURACY_ATOL if "accuracy" in metric else CURVE_ATOL
                lines += differences(where, {metric: value}, new_row, CURVE_RTOL, atol)
    assert not lines, report(lines)


@pytest.mark.parametrize("name", full_where(SLOW, PROBES))
def test_probes_give_the_recorded_metrics(name: str) -> None:
    metrics, nulls, verdict = map(to_jsonable, cases.measure(name))
    old, atol = PROBES[name], cases.MEASUREMENTS[name].atol
    lines = list(differences(f"{name} / metrics", old["metrics"], metrics, PROBE_RTOL, atol))
    for metric, null in old["nulls"].items():
        where, found = f"{name} / null of {metric}", nulls.get(metric, {})
        # a sampled p-value counts samples, of which rounding may turn one that is nearly a tie
        for key, value in null.items():
            drawn = null["samples"] if key == "p_value" else 0
            slack = max(atol, 1.01 / (1 + drawn)) if drawn else atol
            lines += differences(where, {key: value}, found, PROBE_RTOL, slack)
    if verdict != old["verdict"]:
        lines.append(f"{name} / verdict: recorded {old['verdict']!r}, got {verdict!r}")
    assert not lines, report(lines)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ({"loss": 1.0}, {"loss": 1.0 + 1e-7, "extra": 3.0}, ""),
        ({"loss": math.nan}, {"loss": math.nan}, ""),
        ({"loss": math.inf}, {"loss": -math.inf}, "run / loss: recorded inf, got -inf"),
        ({"loss": math.nan}, {"loss": 1.0}, "run / loss: recorded nan, got 1.0"),
        ({"loss": 1.0}, {}, "run / loss: recorded, but missing now"),
        ({"loss": 1.0}, {"loss": 1.1}, "run / loss: recorded 1.0, got 1.1"),
        ({"heads": ["L0H1"]}, {"heads": ["L0H2"]}, "run / heads[0]: recorded 'L0H1', got 'L0H2'"),
        ({"found": True}, {"found": 1}, "run / found: recorded True, got 1"),
        ({"count": 3}, {"count": 4}, "run / count: recorded 3, got 4"),
    ],
)
def test_the_comparison_itself(old: Any, new: Any, message: str) -> None:
    lines = list(differences("run", old, new, CURVE_RTOL, CURVE_ATOL))
    assert len(lines) == bool(message)
    assert not message or lines[0].startswith(message)
