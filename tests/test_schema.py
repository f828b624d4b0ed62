"""The published JSON schema of a result: what probes write fits, and it names every field."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from mechint import planted
from mechint.probe.results import SCHEMA, Effect, Finding, Null
from mechint.probe.text import VERDICTS
from mechint.registry import PROBES
from tests.test_results import example

PUBLISHED: dict[str, Any] = json.loads(
    files("mechint").joinpath("schemas/probe-result.json").read_text(encoding="utf-8")
)


def errors(data: Any) -> list[str]:
    return [error.message for error in Draft202012Validator(PUBLISHED).iter_errors(data)]


def test_results_fit_and_other_values_do_not() -> None:
    data = json.loads(example().to_json())
    assert errors(data) == []
    assert errors(data | {"verdict": "maybe"}) and errors(data | {"schema": SCHEMA + 1})


@pytest.mark.parametrize("name", ["subspace", "fourier"])
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
        assert errors(json.loads(result.to_json())) == []


def test_the_schema_names_every_field() -> None:
    assert set(PUBLISHED["properties"]) == set(example().to_dict())
    assert set(PUBLISHED["$defs"]["finding"]["properties"]) == set(Finding.__dataclass_fields__)
    assert set(PUBLISHED["$defs"]["null"]["properties"]) == {*Null.__dataclass_fields__, "z"}
    assert set(PUBLISHED["$defs"]["effect"]["properties"]) == set(Effect.__dataclass_fields__)
    assert PUBLISHED["properties"]["schema"]["enum"] == [SCHEMA]
    assert PUBLISHED["properties"]["verdict"]["enum"] == [*VERDICTS]
