"""Settings: types, ranges, JSON and ``--set``."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import shlex

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mechint.cli.common import seeds_of
from mechint.config import (
    ModelConfig,
    Settings,
    TrainConfig,
    assign,
    assignment,
    parse_assignment,
    setting,
)
from mechint.config.settings import set_options
from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.registry import PROBES, TASKS
from mechint.sweeps.planning import parse_values


@dataclasses.dataclass(frozen=True)
class Example(Settings):
    """Settings of every kind."""

    n: int = setting(3, "a count", low=1, high=9)
    rate: float = setting(0.5, "a share", low=0, high=1)
    maybe: int | None = setting(None, "a count or none", low=0)
    kind: str = setting("a", "a name", choices=("a", "b"))
    flag: bool = setting(False, "yes or no")
    several: tuple[int, ...] = setting((1, 2), "numbers", low=0)
    kinds: tuple[str, ...] | None = setting(None, "names", choices=("a", "b"))
    nested: tuple[tuple[int, ...], ...] | None = setting(None, "rows")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"n": 1.5}, "Example: n=1.5: expected int"),
        ({"n": True}, "Example: n=True: expected int"),
        ({"n": 0}, "Example: n=0: expected 1 to 9"),
        ({"n": 10}, "Example: n=10: expected 1 to 9"),
        ({"rate": "half"}, "Example: rate='half': expected float"),
        ({"rate": 1.0001}, "Example: rate=1.0001: expected 0 to 1"),
        ({"rate": math.nan}, "Example: rate=nan: expected 0 to 1"),
        ({"maybe": -1}, "Example: maybe=-1: expected 0 to 1,000,000"),
        ({"kind": "c"}, "Example: kind='c': expected one of a, b"),
        ({"kinds": ("a", "c")}, "Example: kinds=('a', 'c'): expected some of a, b"),
        ({"flag": 1}, "Example: flag=1: expected bool"),
        ({"several": (1, -1)}, "Example: several=(1, -1): expected 0 to 1,000,000"),
        ({"several": ("x",)}, "Example: several=('x',): expected tuple[int, ...]"),
    ],
)
def test_wrong_values_are_named(values: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError) as error:
        Example(**values)  # type: ignore[arg-type]
    assert str(error.value) == message


def test_values_are_fitted_to_their_type() -> None:
    made = Example.from_dict({"rate": 1, "several": [3, 4], "nested": [[1], [2, 3]]})
    assert isinstance(made.rate, float)
    assert made.several == (3, 4)
    assert made.nested == ((1,), (2, 3))
    assert hash(made) == hash(Example.from_dict(made.to_dict()))


@given(
    st.builds(
        Example,
        n=st.integers(1, 9),
        rate=st.floats(0, 1),
        maybe=st.none() | st.integers(0, 1000),
        kind=st.sampled_from("ab"),
        flag=st.booleans(),
        several=st.lists(st.integers(0, 1000)).map(tuple),
    )
)
def test_json_and_options_round_trip(made: Example) -> None:
    assert Example.from_dict(json.loads(json.dumps(made.to_dict()))) == made
    texts = shlex.split(" ".join(set_options(made.to_dict())))
    assert texts[::2] == ["--set"] * (len(texts) // 2)
    assert Example.from_dict(assign(texts[1::2], {"example": Example})["example"]) == made


WORDS = st.text() | st.sampled_from(["none", "None", "True", "null", "3", " a", "[1]", "[" * 2000])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS


@given(SCALARS.filter(lambda one: one not in (math.inf, -math.inf)) | st.lists(WORDS))
@example("9" * 5000)
def test_an_assignment_reads_back_as_what_was_written(value: object) -> None:
    name, read = parse_assignment(assignment("x", value))
    assert (name, type(read), read) == ("x", type(value), value)


def test_a_range_of_integers_is_read_alike_wherever_one_is_given() -> None:
    assert seeds_of(":3") == seeds_of("0:3") == (0, 1, 2)
    assert parse_values("seed=:3") == parse_values("seed=0:3") == ("seed", [0, 1, 2])
    assert parse_values("x=-2:1") == ("x", [-2, -1, 0])
    for text in ("-2:1", "3:", ":", "1:2:3", "0:" + "9" * 30):
        with pytest.raises(ParameterError, match=r"--seeds .*: expected"):
            seeds_of(text)


def test_an_unknown_field_gets_the_nearest_one() -> None:
    with pytest.raises(
        UnknownNameError, match="unknown Example parameter 'rates'; did you mean 'rate'"
    ):
        Example.from_dict({"rates": 1})


def test_describe_gives_every_field_its_range() -> None:
    rows = {row["name"]: row for row in Example.describe()}
    assert rows["n"]["range"] == "1 … 9"
    assert rows["maybe"]["range"] == "0 … 1,000,000"
    assert rows["kind"]["range"] == "a, b"
    assert rows["maybe"]["type"] == "int or none"


def test_assign_sorts_by_owner() -> None:
    values = assign(
        ["n_layers=2", "lr=2e-3", "model.act_fn=gelu", "task.n=4"],
        {"task": Example, "model": ModelConfig, "train": TrainConfig},
    )
    assert values == {
        "task": {"n": 4},
        "model": {"n_layers": 2, "act_fn": "gelu"},
        "train": {"lr": 2e-3},
    }


def test_assign_takes_a_probe_with_a_dot_in_its_name() -> None:
    targets = {"norms": PROBES["norms"], "their.norms": PROBES["norms"]}
    values = assign(["their.norms.null_models=9", "norms.null_models=7"], targets)
    assert values == {"norms": {"null_models": 7}, "their.norms": {"null_models": 9}}


def test_assign_refuses_what_two_share_and_what_none_has() -> None:
    targets = {"model": ModelConfig, "train": TrainConfig}
    with pytest.raises(
        ParameterError, match=r"^--set eps: several have it; write model\.eps or train\.eps$"
    ):
        assign(["eps=1"], targets)
    with pytest.raises(
        UnknownNameError, match="unknown parameter 'n_layer'; did you mean 'n_layers'"
    ):
        assign(["n_layer=1"], targets)
    with pytest.raises(UnknownNameError, match="unknown train parameter 'd_model'"):
        assign(["train.d_model=1"], targets)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("x=none", None),
        ("x=true", True),
        ("x=1", 1),
        ("x=1e3", 1000.0),
        ("x=a=b", "a=b"),
        ("x=NaN", "NaN"),
        ("x=", ""),
    ],
)
def test_assignments_are_read_as_json_or_text(text: str, value: object) -> None:
    assert parse_assignment(text) == ("x", value)


@pytest.mark.parametrize("text", ["p", "=3", " =3"])
def test_assignments_need_a_name(text: str) -> None:
    with pytest.raises(ParameterError, match="expected name=value"):
        parse_assignment(text)


def test_model_config_fills_in_and_checks() -> None:
    assert (ModelConfig(d_model=64, n_heads=4).d_head, ModelConfig(d_model=64).d_mlp) == (16, 256)
    assert ModelConfig(d_model=64, n_heads=4).scale == 4.0
    assert ModelConfig(n_layers=2, n_loops=3).depth == 6
    with pytest.raises(ParameterError, match="d_model=65 does not divide into n_heads=4"):
        ModelConfig(d_model=65)
    with pytest.raises(ParameterError, match="sizes that add up to d_vocab_out=113"):
        ModelConfig(output_sizes=(100, 12))
    with pytest.raises(ParameterError, match="read_layers"):
        ModelConfig(read_layers=(2,))


@pytest.mark.parametrize("name", sorted(TASKS))
def test_a_used_task_goes_to_another_process_by_its_fields(name: str) -> None:
    task = TASKS[name]()
    assert task.chance is not None  # which computes and keeps things
    again = pickle.loads(pickle.dumps(task))
    assert again == task and again.to_dict() == task.to_dict()
    assert again.chance == task.chance


def test_a_list_is_written_with_commas_or_as_json() -> None:
    from mechint.registry import TASKS

    targets = {"task": TASKS["listops"], "train": TrainConfig}
    for text in ("operations=MAX,MED", 'operations=["MAX","MED"]'):
        assert assign([text], targets)["task"]["operations"] == ["MAX", "MED"]
    assert assign(["operations=MAX"], targets)["task"]["operations"] == ["MAX"]
    assert assign(["weights=1,0.5"], targets)["task"]["weights"] == [1, 0.5]
    assert assign(["weights=2"], targets)["task"]["weights"] == [2]
    assert assign(["weights=none"], targets)["task"]["weights"] is None
    assert assign(["addition=a,b"], targets)["task"]["addition"] == "a,b"


# --- every field of every settings class ----------------------------------------------------------
def all_settings() -> list[type[Settings]]:
    from mechint.models.linear_bottleneck import LinearBottleneckConfig
    from mechint.models.two_layer import TwoLayerConfig
    from mechint.registry import PROBES

    named = [registry[name] for registry in (TASKS, PROBES) for name in sorted(registry)]
    return [ModelConfig, TrainConfig, LinearBottleneckConfig, TwoLayerConfig, *named]


HOSTILE = {"10^9": 10**9, "-10^9": -(10**9), "-1.5": -1.5, "5,000 digits": 10**4999}
NOT_NUMBERS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


@pytest.mark.parametrize("cls", all_settings(), ids=lambda cls: cls.label())
def test_every_field_has_both_bounds(cls: type[Settings]) -> None:
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        low, high = field.metadata.get("low"), field.metadata.get("high")
        for name, value in {**HOSTILE, **NOT_NUMBERS}.items():
            within = low is not None and high is not None and low <= value <= high
            for wrapped in (value, (value,), ((value,),)):
                if within and wrapped is value:
                    continue
                try:
                    cls.from_dict({field.name: wrapped})
                except MechintError as error:
                    text = str(error)
                    assert len(text) < 500 and "\n" not in text, (field.name, name)
                else:
                    assert within, f"{field.name} takes {name}"


@pytest.mark.parametrize("value", ["x" * 20_000, ["x"] * 20_000, [0] * 20_000])
@pytest.mark.parametrize(
    "cls", [ModelConfig, TrainConfig, *(TASKS[name] for name in sorted(TASKS))]
)
def test_long_values_are_refused_in_short_lines(cls: type[Settings], value: object) -> None:
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        with pytest.raises(MechintError) as error:
            cls.from_dict({field.name: value})
        assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "p=" + "9" * 5000,
            "--set 'p': a number of thousands of digits, or brackets that nest too deep",
        ),
        (
            "p=" + "[" * 5000,
            "--set 'p': a number of thousands of digits, or brackets that nest too deep",
        ),
        ("p=" + "[" * 70 + "]" * 70, "--set 'p': lists and mappings nest deeper than 64 levels"),
    ],
)
def test_numbers_and_brackets_without_end(text: str, message: str) -> None:
    with pytest.raises(ParameterError) as error:
        parse_assignment(text)
    assert str(error.value) == message
