"""Results: JSON and back, the null's arithmetic, and the views."""

from __future__ import annotations

import dataclasses
import json
import math
import statistics

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mechint.probe.results import (
    Effect,
    Figure,
    Finding,
    Null,
    PaperClaim,
    ProbeResult,
    Scope,
    Table,
    to_jsonable,
)


def example() -> ProbeResult:
    return ProbeResult(
        probe="fourier",
        question="Which frequencies?",
        metrics={"key": [16, 30], "share": {"16": 0.348}, "weird <b>": math.inf},
        null={"share": Null("share", 0.3, 0.1, 0.0, 0.005, "untrained <weights>", 199)},
        tables={
            "t": Table({"k": [1, 2], "s": [0.1, 0.2]}, "one row a frequency", {"k": "cycles per p"})
        },
        arrays={"a": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.array([1 + 2j])},
        figures={"f": Figure("sentence", "Heads", "Nothing.")},
        provenance={"seed": 0},
        findings=(
            Finding(
                "Two.",
                "yes",
                alpha=0.01,
                tested=("share",),
                effect=Effect(math.inf),
                scope=Scope(9, components=(2, 8)),
            ),
        ),
        units={"share": "1"},
    )


def test_a_result_read_back_is_equal() -> None:
    """Keys of mappings are text there, as JSON has them."""
    metrics = {"share": {2: 0.5, np.int64(3): 0.5}, "numbers": (np.float32(0.5), math.nan)}
    result = dataclasses.replace(
        example(), metrics=metrics, arrays={"a": np.array([math.nan, 1.0]), "b": np.zeros((0, 2))}
    )
    back = ProbeResult.from_json(result.to_json())
    assert back == result and back.metrics["share"] == {"2": 0.5, "3": 0.5}
    for name, other in (
        ("arrays", {"a": np.array([math.nan, 2.0]), "b": np.zeros((0, 2))}),
        ("arrays", {}),
        ("metrics", {**metrics, "share": {"2": 0.5}}),
        ("lead", "Three."),
        ("figures", {}),
    ):
        assert dataclasses.replace(result, **{name: other}) != back
    assert result != "a result" and result != result.to_dict()


def test_json_of_another_schema_is_refused() -> None:
    old = {**json.loads(example().to_json()), "schema": 2}
    with pytest.raises(ValueError, match="schema 2; expected 3"):
        ProbeResult.from_dict(old)


def test_brief_form_has_neither_arrays_nor_figures() -> None:
    brief = example().to_dict()
    assert "arrays" not in brief and "figures" not in brief
    assert brief["null"]["share"]["z"] == "inf"
    json.dumps(brief, allow_nan=False)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=50), st.floats(-100, 100))
def test_sampled_null_by_hand(values: list[float], observed: float) -> None:
    null = Null.sampled("m", observed, values, "how")
    slack = 1e-6 * max(map(abs, [*values, observed]))  # ties within rounding count
    low, high = (sum(value >= observed + one for value in values) for one in (slack, -slack))
    assert (1 + low) <= null.p_value * (1 + len(values)) * (1 + 1e-12) <= (1 + high) * (1 + 1e-9)
    assert null.mean == pytest.approx(sum(values) / len(values), abs=1e-9)
    assert null.std == pytest.approx(statistics.stdev(values), abs=1e-9)
    assert 0 < null.p_value <= 1
    if null.std > 1e-6:
        assert null.z == pytest.approx((observed - null.mean) / null.std)


@pytest.mark.parametrize(
    "null",
    [
        Null.sampled("m", math.nan, [0.1, 0.1], "how"),
        Null.sampled("m", 0.5, [math.nan] * 9, "how"),
        Null("m", 0.5, 0.1, math.nan, 0.1, "how"),
    ],
)
def test_what_is_not_a_number_has_no_z(null: Null) -> None:
    assert math.isnan(null.z) and null.to_dict()["z"] == "nan"
    assert math.isnan(Null.from_dict(null.to_dict()).z)


def test_views() -> None:
    result = example()
    frame = result.to_frame().set_index("metric")
    assert frame.loc["share", "p_value"] == 0.005
    assert result.tables["t"].to_frame()["s"].tolist() == [0.1, 0.2]
    page = result._repr_html_()
    assert "weird &lt;b&gt;" in page and "<td>0.005</td>" in page


def test_plain_values() -> None:
    value = {1: torch.tensor([1.5]), "x": (np.float64(2), {3}, math.nan), "n": None}
    assert to_jsonable(value) == {"1": [1.5], "x": [2.0, [3], "nan"], "n": None}


def test_claim_round_trip() -> None:
    claim = PaperClaim("s", "a", "st", "p", "o", "supported", 1.5, (1.0, 2.0), 3)
    assert PaperClaim(**json.loads(json.dumps(claim.to_dict()))).to_dict() == claim.to_dict()
