"""The published form of a result: what probes write fits, and what does not is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mechint import planted
from mechint.errors import DataError
from mechint.registry import PROBES
from mechint.results import SCHEMA, STATUSES, Finding, Null, ProbeResult
from mechint.schema import probe_result_schema, validate
from tests.test_results import example

KEPT = Path(__file__).parent / "fixtures"


def test_what_a_result_writes_fits() -> None:
    data = json.loads(example().to_json())
    validate(data)
    validate(example().to_dict(arrays=False, figures=False))


@pytest.mark.parametrize("name", ["subspace", "lens", "fourier"])
def test_what_a_probe_writes_fits(name: str) -> None:
    probe = PROBES[name].from_dict(dict(PROBES[name].calibration().test_settings))
    models = [
        planted.bottleneck(width=4, n=12, n_tasks=3, rank=4),
        planted.modular_addition(11, (2, 3)),
    ]
    results = [
        probe.run(model.subject) for model in models if probe.applicable(model.subject) is None
    ]
    assert results
    for result in results:
        validate(json.loads(result.to_json()))


def test_results_written_before_the_schema_fit() -> None:
    old = json.loads(example().to_json())
    for name in ("schema", "status", "findings", "units"):
        del old[name]
    validate(old)
    assert ProbeResult.from_dict(old).status is None


def changed(path: str, value: Any) -> dict[str, Any]:
    data = json.loads(example().to_json())
    place = data
    *parents, last = path.split(".")
    for name in parents:
        place = place[name]
    place[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("schema", 3, r"result\.schema: 3: expected one of \[2\]"),
        ("status", "maybe", r"result\.status: 'maybe': expected one of"),
        ("finding", 1, r"result\.finding: 1: expected type string"),
        ("null.share.p_value", None, r"result\.null\.share\.p_value: None is of none"),
        ("null.share.samples", 1.5, r"result\.null\.share\.samples: 1\.5: expected type integer"),
        ("null.share.more", 1, r"result\.null\.share: 'more' is not known there"),
        ("tables.t.columns.k", "x", r"result\.tables\.t\.columns\.k: 'x': expected type array"),
        ("findings", [{"status": "found"}], r"result\.findings\[0\]: 'sentence' is missing"),
        ("figures.f", [], r"result\.figures\.f: \[\]: expected type object"),
    ],
)
def test_what_does_not_fit_is_named(path: str, value: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        validate(changed(path, value))


def test_the_schema_knows_every_field() -> None:
    """A field that is added to the classes has to be published."""
    schema = probe_result_schema()
    assert set(schema["properties"]) == set(example().to_dict())
    assert set(schema["$defs"]["finding"]["properties"]) == set(Finding.__dataclass_fields__)
    assert set(schema["$defs"]["null"]["properties"]) == {*Null.__dataclass_fields__, "z"}
    assert schema["properties"]["schema"]["enum"] == [SCHEMA]
    assert schema["properties"]["status"]["enum"] == [*STATUSES, None]
