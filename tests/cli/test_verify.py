"""A result is run again from its JSON, and what was changed in it is named."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mechint.cli.explain import explain
from mechint.cli.verify import call_of, differences
from mechint.registry import PROBES
from mechint.registry.plugins import PLUGINS
from tests.cli.conftest import Command, invoke, one_line

PLUGIN = """
import mechint

@mechint.Probe.of(question="Is the embedding long?", null=mechint.untrained(99))
def length_here(subject):
    return subject.model.W_E.norm()
"""


@pytest.fixture(scope="module")
def made(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What the commands print on one model, with a plug-in's probe beside one of ours."""
    before = os.environ.get(PLUGINS)
    place = tmp_path_factory.mktemp("verify")
    (place / "mine_to_verify.py").write_text(PLUGIN)
    plugin = f"{place / 'mine_to_verify.py'}:length_here"

    def said(*words: object) -> Any:
        done = invoke(*words, planted)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    probes = ("analyze", "--probe", "fourier,length-here", "--set", "length-here.models=19")
    yield {
        "place": place,
        "plugin": plugin,
        "model": planted,
        "analyze": said(*probes, "--plugin", plugin, "--json"),
        "explain": said("explain", "--examples", "300", "--seed", "2", "--json"),
        "brief": said("analyze", "--probe", "fourier", "--brief"),
    }
    for name in {"length-here", "length-there"} & {*PROBES}:
        PROBES.remove(name)
    os.environ.pop(PLUGINS) if before is None else os.environ.update({PLUGINS: before})


def verified(mechint: Command, made: dict[str, Any], value: Any, *more: object) -> Any:
    file = made["place"] / "result.json"
    file.write_text(json.dumps(value))
    return mechint("verify", file, "--model", made["model"], "--plugin", made["plugin"], *more)


@pytest.mark.parametrize("kind", ["explain", "brief"])
def test_a_result_is_equal_to_itself(mechint: Command, made: dict[str, Any], kind: str) -> None:
    file = made["place"] / f"{kind}.json"
    file.write_text(json.dumps(made[kind]))
    done = mechint("verify", file, "--model", made["model"])
    assert done.exit_code == 0 and done.stdout.startswith("equal: "), done.output
    text = json.dumps(made[kind])
    assert len(text) < 2000 or kind == "explain"
    assert str(made["model"].parent) not in json.dumps(made[kind]["verify"])


def change(*keys: Any, to: Any) -> Callable[[Any], None]:
    def forge(value: Any) -> None:
        for key in keys[:-1]:
            value = value[key]
        value[keys[-1]] = to(value[keys[-1]]) if callable(to) else to

    return forge


RESULT = ("accounts", 0, "results", "fourier")
FORGED: dict[str, tuple[Callable[[Any], None], str]] = {
    "number": (change(*RESULT, "findings", 0, "p_value", to=0.003), "p_value: 0.003"),
    "metric": (
        change("accounts", 0, "results", "length-here", "metrics", "length-here", to=1.0),
        "length-here",
    ),
    "verdict": (change("accounts", 0, "verdict", to="It adds as a pizza."), "accounts[0].verdict"),
    "verdict of a finding": (change(*RESULT, "findings", 1, "verdict", to="no"), "'no' in the"),
    "number in words": (
        change(*RESULT, "findings", 0, "headline", to=lambda text: text.replace("10", "11")),
        "headline",
    ),
    "setting as told": (
        change(*RESULT, "provenance", "probe", "settings", "permutations", to=99),
        "permutations: 99",
    ),
    "dropped finding": (change(*RESULT, "findings", to=lambda some: some[:1]), "findings"),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forgery_is_named(made: dict[str, Any], name: str) -> None:
    forge, said = FORGED[name]
    value = copy.deepcopy(made["analyze"])
    assert not list(differences(value, made["analyze"]))
    forge(value)
    assert any(said in line for line in differences(value, made["analyze"]))


CALLS = {
    "digest": (change("verify", "files", 0, "sha256", to="0" * 64), "PATH ckpt.pt sha256 0000"),
    "setting": (change("verify", "options", "--set", to=["length-here.models=29"]), "models: 19"),
    "plug-in": (change("verify", "files", 1, "name", to="other.py:length_here"), "other.py"),
    "number": (change(*RESULT, "findings", 0, "p_value", to=0.003), "p_value: 0.003"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_command_names_a_forgery(mechint: Command, made: dict[str, Any], name: str) -> None:
    forge, said = CALLS[name]
    value = copy.deepcopy(made["analyze"])
    forge(value)
    done = verified(mechint, made, value)
    assert done.exit_code == 1 and done.stderr.startswith("mechint: differs: "), done.output
    assert said in done.stderr.splitlines()[0]


def test_an_option_of_zero_is_stated_and_a_default_is_not() -> None:
    line = ["model.pt", "--member", "0", "--seed", "0", "--examples", "3000"]
    with explain.make_context("explain", line):
        assert call_of([])["options"] == {"--member": 0}


def test_numbers_may_differ_by_a_thousandth_or_within_their_interval() -> None:
    here = {"value": 0.5, "interval": [0.4, 0.6], "p": 0.002, "loss": 3e-9, "text": "48% of 1,000"}
    near = {**here, "value": 0.41, "p": 0.0020001, "loss": 8e-9}
    assert not list(differences(near, here))
    far = {**here, "value": 0.39, "p": 0.003, "text": "47% of 1,000", "interval": None}
    assert len(list(differences(far, here))) == 4
    assert len(list(differences({"a": True, "b": 1, "c": "1"}, {"a": 1, "b": 1.0, "c": 1}))) == 2


def test_another_model_or_plug_in_is_not_run(mechint: Command, made: dict[str, Any]) -> None:
    file, other = made["place"] / "result.json", made["place"] / "other.pt"
    file.write_text(json.dumps(made["analyze"]))
    shutil.copy(made["model"], other)
    with other.open("ab") as end:
        end.write(b"\0")
    done = mechint("verify", file, "--model", other, "--plugin", made["plugin"])
    assert done.exit_code == 1 and "differs: PATH" in done.stderr and "not run" in done.stderr
    assert "give it by --plugin" in one_line(mechint("verify", file, "--model", made["model"]))
    changed = made["place"] / "more" / "mine_to_verify.py"
    changed.parent.mkdir(exist_ok=True)
    changed.write_text(PLUGIN.replace("length_here", "length_there"))
    done = mechint("verify", file, "--model", made["model"], "--plugin", f"{changed}:length_there")
    assert done.exit_code == 1 and "differs: --plugin" in done.stderr


@pytest.mark.parametrize(
    ("forge", "said"),
    [
        (change("verify", "command", to="train"), "says no call"),
        (change("verify", to=None), "says no call"),
        (change("verify", "options", "--out", to="x.html"), "no option that a file may give"),
        (change("verify", "options", "--plugin", to=["x.py:X"]), "no option that a file may"),
        (change("verify", "options", "--data", to="x"), "no option that a file may give"),
        (change("verify", "options", "--set", to=[{}]), "no option that a file may give"),
        (change("verify", "options", "--probe", to=["furier"]), "did you mean 'fourier'"),
        (change("verify", "files", to={}), "files, a list"),
        (change("verify", "files", to=[1]), "expected as, name, sha256"),
        (change("verify", "files", 0, "as", to="--out"), "expected as, name, sha256"),
    ],
)
def test_a_file_gives_no_other_call(
    mechint: Command, made: dict[str, Any], forge: Callable[[Any], None], said: str
) -> None:
    value = copy.deepcopy(made["analyze"])
    forge(value)
    assert said in one_line(verified(mechint, made, value))


def test_code_that_a_file_names_is_not_run(mechint: Command, made: dict[str, Any]) -> None:
    value = copy.deepcopy(made["explain"])
    evil = made["place"] / "evil.py"
    evil.write_text("raise SystemExit('ran')\n")
    value["verify"]["options"]["--claim"] = [f"{evil}:Claim"]
    assert "is code, which is not run" in one_line(verified(mechint, made, value))
    value["verify"]["files"].append({"as": "--plugin", "name": "evil.py", "sha256": "0" * 64})
    value["verify"]["options"].pop("--claim")
    done = verified(mechint, made, value)
    assert done.exit_code == 1 and "ran" not in done.output
