"""Tasks and probes made of a function keep the contracts, and are what a class would be."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

import mechint
import tasks
from mechint import Need, Probe, Subject, Task, planted
from mechint.cli import main
from mechint.errors import MechintError, ParameterError
from mechint.planted import library
from mechint.registry import PROBES, TASKS
from mechint.registry.plugins import PLUGINS
from mechint.system.parallel import run_jobs
from mechint.testing import check_task, probe_checks

UNEQUAL = [[a, b] for a in range(6) for b in range(6) if a != b]
MADE: dict[str, Callable[[], Any]] = {
    "sum": lambda: Task.of(inputs=(7, 7), answer=lambda a, b: (a + b) % 7),
    "bits": lambda: Task.of(inputs=(2, 2), answer=operator.xor),
    "largest": lambda: Task.of(inputs=(4, 4, 3), answer=max, name="largest"),
    "rows": lambda: Task.of(inputs=UNEQUAL, answer=lambda a, b: a < b),
}


@pytest.mark.parametrize("name", MADE)
def test_a_task_of_a_function_keeps_the_contract(name: str) -> None:
    check_task(MADE[name]())


@pytest.mark.parametrize(("operation", "symbol"), [("add", 1), ("subtract", -1)])
def test_it_is_the_task_that_a_class_is(operation: str, symbol: int) -> None:
    own = Task.of(inputs=(7, 7), answer=lambda x, y: (x + symbol * y) % 7)
    known = tasks.modular_arithmetic(p=7, operation=operation)
    assert own.examples().tokens.equal(known.examples().tokens)
    assert own.examples().targets.equal(known.examples().targets)
    assert own.chance == known.chance and own.class_names == known.class_names
    assert own.symmetry == known.symmetry and own.outputs[0].group == known.outputs[0].group
    tokens = torch.tensor([[3, 5, 7], [1, 1, 7]])
    assert own.run(tokens, {"x": 4})["answer"].equal(known.run(tokens, {"x": 4})["answer"])
    assert list(own.variables) == list(known.variables)


def test_what_is_no_product_has_no_group() -> None:
    assert Task.of(inputs=(5, 5), answer=lambda a, b: a * b % 5).symmetry is None
    assert Task.of(inputs=(5, 5), answer=min).symmetry is None
    shuffled = MADE["sum"]().control("shuffled")
    assert shuffled.symmetry is None and shuffled.chance == MADE["sum"]().chance


def test_controls_take_a_task_of_a_function() -> None:
    task = MADE["sum"]()
    (memorized,) = library.lookup(task).values()
    assert memorized(0).accuracy() == {"answer": 1.0}
    (shuffled,) = library.shuffled(task).values()
    right = shuffled(3).targets[:, 0] == task.examples().targets[:, -1, 0]
    assert shuffled(3).accuracy() == {"answer": 1.0} and right.float().mean() < 0.5


@pytest.mark.parametrize(
    ("inputs", "answer", "said"),
    [
        ((2, 2), lambda a: a, r"answer\(0, 0\): TypeError"),
        ((2, 2), lambda a, b: a - b, r"answer\(0, 1\): got -1; expected a number from 0"),
        ((2, 2), lambda a, b: a / 2, r"answer\(0, 0\): got 0.0"),
        ((), max, "expected sizes, or rows of tokens"),
        ((0, 2), max, "expected sizes"),
        ([[0, 1], [1]], max, "distinct rows of tokens, of one length"),
        ([[0, 1], [0, 1]], max, "distinct rows"),
        ([["a", "b"]], max, "distinct rows of tokens"),
    ],
)
def test_inputs_and_answers_that_are_none(inputs: Any, answer: Any, said: str) -> None:
    with pytest.raises(ParameterError, match=said) as raised:
        Task.of(inputs=inputs, answer=answer)
    assert "\n" not in str(raised.value)


def test_a_worker_takes_what_is_registered() -> None:
    with pytest.raises(MechintError, match="a worker cannot take what neither") as raised:
        list(run_jobs(print, [(MADE["sum"](),)], 2))
    assert "\n" not in str(raised.value)


# --- probes ---------------------------------------------------------------------------------------
@Probe.of(
    question="Is some token's embedding shorter than in untrained models?",
    null=mechint.untrained(199),
    needs=[Need.EMBEDDING],
)
def shortfall(subject: Subject) -> Any:
    lengths = subject.model.W_E.norm(dim=1)
    return 1 - lengths.min() / lengths.mean()


SUBJECT = planted.modular_addition(11, (2, 3)).subject


@pytest.mark.parametrize("check", list(probe_checks(shortfall, SUBJECT)), ids=str)
def test_a_probe_of_a_function_keeps_the_contract(check: Callable[[], None]) -> None:
    check()


def test_its_numbers_are_those_of_the_function() -> None:
    result = shortfall.run(SUBJECT, seed=5)
    null = result.null["shortfall"]
    samples = [float(shortfall_of(SUBJECT.untrained(5 + i))) for i in range(199)]
    assert null.observed == pytest.approx(float(shortfall_of(SUBJECT)), abs=1e-6)
    assert null.mean == pytest.approx(sum(samples) / 199, abs=1e-6)
    assert null.p_value == (1 + sum(one >= null.observed for one in samples)) / 200
    # "=" has no embedding in this plant: nothing is shorter
    assert result.verdict == "yes" and null.observed == pytest.approx(1.0)
    assert shortfall.run(SUBJECT.untrained(999)).verdict == "no"


def shortfall_of(subject: Subject) -> Any:
    lengths = subject.model.W_E.detach().norm(dim=1)
    return 1 - lengths.min() / lengths.mean()


def test_a_number_below_zero_can_exceed_its_null() -> None:
    @Probe.of(question="Is it above untrained models?", null=mechint.untrained(99))
    def minus_length(subject: Subject) -> float:
        return -subject.model.W_E.norm().item()

    smaller = SUBJECT.untrained(0)
    with torch.no_grad():
        smaller.model.W_E.mul_(0.5)
    assert minus_length.run(smaller).verdict == "yes"
    account = mechint.analyze(smaller, minus_length, "norms")
    assert list(account.results) == ["minus-length", "norms"]


def test_both_are_plug_ins_of_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS, "[]")
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = tmp_path / "short_forms_of_mine.py"
    file.write_text(
        "import mechint\n"
        "least = mechint.Task.of(inputs=(5, 5), answer=lambda a, b: min(a, b), name='least')\n"
        "@mechint.Probe.of(question='Is it long?', null=mechint.untrained(2))\n"
        "def length(subject):\n"
        "    return subject.model.W_E.norm()\n"
    )
    plugins = [word for name in ("least", "length") for word in ("--plugin", f"{file}:{name}")]
    run, out = CliRunner(), str(tmp_path / "runs")
    small = ["--set", "steps=3", "--set", "d_model=8", "--set", "n_heads=1"]
    done = run.invoke(main, ["train", "least", "--seeds", "0:2", "--out", out, *small, *plugins])
    assert done.exit_code == 0, done.output
    command = ["table", out, "--probe", "length", "--workers", "2", "--json", *plugins]
    done = run.invoke(main, command)
    assert done.exit_code == 0 and done.stdout.count('"length.length"') == 2, done.output
    done = run.invoke(main, ["probes", "length", *plugins])
    assert "Is it long?" in done.output
    TASKS.remove("least")
    PROBES.remove("length")
