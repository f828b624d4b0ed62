"""The plan of a sweep: its groups, their names, and what is refused before anything trains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mechint.errors import ParameterError
from mechint.sweeps import parse_values, plan
from mechint.sweeps.planning import run_name, swept_values
from tests.sweeps.conftest import SMALL


def test_runs_that_can_be_one_ensemble_are_one_group() -> None:
    groups = plan(
        "modular-arithmetic", SMALL, {"seed": [0, 1, 2], "d_model": [8, 16], "lr": [1e-3, 2e-3]}
    )
    assert [len(group.runs) for group in groups] == [6, 6]
    wide = next(group for group in groups if group.runs[0]["d_model"] == 16)
    assert {
        (spec.train.seed, spec.model.d_model, spec.train.lr) for spec in wide.specs(Path("there"))
    } == {(seed, 16, lr) for seed in range(3) for lr in (1e-3, 2e-3)}
    assert len({spec.out for group in groups for spec in group.specs(Path("there"))}) == 12


def test_runs_are_called_by_what_sets_them_apart() -> None:
    (group,) = plan("modular-arithmetic", SMALL, {"seed": [3, 4], "lr": [1e-3]})
    assert group.run_ids == ["seed=3,lr=0.001", "seed=4,lr=0.001"]
    assert group.specs(Path("out"))[0].out == Path("out/seed=3,lr=0.001")


@pytest.mark.parametrize(
    ("over", "same"),
    [
        (
            {"lr": [1e-3, 2e-3], "train.lr": [1.0]},
            "lr=0.001,train.lr=1.0 and lr=0.002,train.lr=1.0",
        ),
        ({"seed": [1, 2], "train.seed": [3]}, "seed=1,train.seed=3 and seed=2,train.seed=3"),
        ({"lr": [1, 1.0]}, "lr=1 and lr=1.0"),
    ],
)
def test_one_run_under_two_names_is_refused(over: dict[str, list[float]], same: str) -> None:
    with pytest.raises(ParameterError, match=f"sweep: {same} are the same run"):
        plan("modular-arithmetic", SMALL, over)


def test_a_name_is_swept_once() -> None:
    assert swept_values(["seed=0:2", "lr=1e-3"]) == {"seed": [0, 1], "lr": [1e-3]}
    with pytest.raises(ParameterError, match=r"--over seed: is given twice; .*seed=0,1,5,6"):
        swept_values(["seed=0:2", "lr=1", "seed=5:7"])


VALUES = st.one_of(
    st.integers(-9, 99),
    st.floats(-1, 1),
    st.booleans(),
    st.none(),
    st.text(max_size=200),
    st.lists(st.one_of(st.integers(0, 9), st.text(max_size=4)), max_size=3),
)


@pytest.mark.full
@given(st.lists(VALUES, min_size=2, max_size=5))
def test_names_are_fit_for_directories_and_differ(values: list) -> None:
    names = {json.dumps(value): run_name({"x": value}) for value in values}
    assert len(set(names.values())) == len(names)
    for name in names.values():
        assert 0 < len(name) <= 120
        assert not set(name) & set("/\\\0\n :*?\"<>|'")
        assert name not in (".", "..")


def test_a_wrong_value_is_found_before_anything_is_trained() -> None:
    with pytest.raises(ParameterError, match="modular-arithmetic: p=1: expected 2 to 1024"):
        plan("modular-arithmetic", (), {"p": [5, 1]})
    with pytest.raises(ParameterError, match="train: lr='x': expected float"):
        plan("modular-arithmetic", (), {"lr": ["x"]})
    with pytest.raises(ParameterError, match=r"train: seed=0\.5: expected int"):
        plan("modular-arithmetic", (), {"seed": [0.5]})
    with pytest.raises(ParameterError, match="1,000,000 runs, expected at most 100,000"):
        plan("modular-arithmetic", (), {"seed": range(1000), "data_seed": range(1000)})


def test_values() -> None:
    assert parse_values("p=[[1, 2], 3]") == ("p", [[1, 2], 3])
    assert parse_values("x=none,1") == ("x", [None, 1])
    with pytest.raises(ParameterError, match="expected seed=0:3 for a range"):
        parse_values("seed=0-2")
    for wrong in ("p", "=1", "p=", "p=3:3", "seed=0,0", "seed=0:100000000000", "x=[1,[", "x=[1,1]"):
        with pytest.raises(ParameterError, match="--over"):
            parse_values(wrong)
    with pytest.raises(ParameterError, match="a number of thousands of digits"):
        parse_values("x=" + "9" * 5000)
    with pytest.raises(ParameterError, match="brackets that nest"):
        parse_values("x=" + "[" * 3000 + "]" * 3000)
