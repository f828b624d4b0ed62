"""The published JSON schema of a result: what probes write fits, and it names every field."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator

from mechint.probe.results import SCHEMA, Effect, Finding, Null
from mechint.probe.text import VERDICTS
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


def test_the_schema_names_every_field() -> None:
    assert set(PUBLISHED["properties"]) == set(json.loads(example().to_json()))
    assert set(PUBLISHED["$defs"]["finding"]["properties"]) == set(Finding.__dataclass_fields__)
    assert set(PUBLISHED["$defs"]["null"]["properties"]) == {*Null.__dataclass_fields__, "z"}
    assert set(PUBLISHED["$defs"]["effect"]["properties"]) == set(Effect.__dataclass_fields__)
    assert PUBLISHED["properties"]["schema"]["enum"] == [SCHEMA]
    assert PUBLISHED["properties"]["verdict"]["enum"] == [*VERDICTS]
