"""Rival programs: told apart on inputs, by interchanges, or said to be undecided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import mechint
from mechint import planted
from mechint.cli import main
from mechint.decide.intervals import wilson
from mechint.errors import ParameterError
from mechint.explanation import rivals, site
from mechint.explanation.measure import Bench
from mechint.subject import Subject
from mechint.task import Program, Step

MODELS = Path(__file__).parents[2] / "examples" / "models"


def token_at(place: int) -> Program:
    """Answers with the number at a position."""
    step = Step("number", 16, lambda tokens: tokens[:, place])
    return Program(f"number {place}", (step,), (("number",),))


def maximum() -> tuple[Subject, Program]:
    subject = mechint.load(MODELS / "maximum.pt")
    assert subject.task is not None and subject.task.own_program is not None
    return subject, subject.task.own_program


def test_inputs_on_which_programs_differ_tell_them_apart() -> None:
    """By hand: the rows whose last number is not the largest, and the model's argmax there."""
    subject, own = maximum()
    found = rivals(subject, token_at(3), own)
    assert found.verdict == "maximum" and found.where == "inputs" and not found.next
    assert str(found).startswith("told apart: maximum; on ")
    tokens = Bench.of(subject, own).subject.data.tokens.unique(dim=0)
    apart = tokens[:, 3] != tokens.amax(1)
    with torch.no_grad():
        answered = subject.model(tokens[apart])[:, -1].argmax(1)
    best, other = found.scores
    assert best.n == other.n == int(apart.sum())
    assert best.hits == int((answered == tokens[apart].amax(1)).sum())
    assert other.hits == int((answered == tokens[apart, 3]).sum())
    assert best.interval == wilson(best.hits, best.n) and best.interval[0] > other.interval[1]


def test_programs_that_fit_alike_are_undecided_and_further_inputs_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    subject, _ = maximum()
    found = rivals(subject, token_at(0), token_at(1))
    assert found.verdict == "undecided" and str(found).startswith("cannot tell: number 0")
    first, second = (one.interval for one in found.scores)
    assert first[0] <= second[1] and second[0] <= first[1]
    assert subject.task is not None
    more, _, said = found.next[0].partition("  # ")
    tokens = subject.task.tokens_of(said.removesuffix(" tells them apart"))
    assert tokens[0] != tokens[1] and more.startswith("--examples ")
    # none that were looked at
    bench = Bench.of(subject, subject.task.programs["maximum"])
    seen = subject.data[torch.cat([bench.fitted, bench.judged])]
    monkeypatch.setattr(type(subject.task), "sample", lambda *given: seen)
    assert not rivals(subject, token_at(0), token_at(1)).next


def sums() -> tuple[Subject, Program, Program]:
    """Addition, and two programs that compute the sum: of "used" the answer follows from it, of
    "idle" from the operands.
    """
    subject = planted.modular_addition(13, (2, 5)).subject
    assert subject.task is not None and subject.task.own_program is not None
    x, y, answer = subject.task.own_program.steps
    total = Step("total", 13, lambda tokens, x, y: (x + y) % 13, ("x", "y"))
    follows = Step("answer", 13, lambda tokens, total: total, ("total",))
    used = Program("used", (x, y, total, follows), (("answer",),))
    return subject, used, Program("idle", (x, y, total, answer), (("answer",),))


def test_an_interchange_tells_programs_apart_that_answer_alike() -> None:
    subject, used, idle = sums()
    held = site("L0 resid_post @ answer").holds("total").part(used)
    found = rivals(subject, idle, used, parts=[held])
    assert found.verdict == "used" and found.where == f"interchanges of {held}"
    assert found.scores[0].hits == found.scores[0].n > 60
    without = rivals(subject, idle, used)
    assert without.verdict == "undecided" and not without.scores
    assert not without.next  # no input tells them apart


def test_parts_of_what_one_program_has_or_that_hold_something_else_tell_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what a part with features holds is edited, not its whole site exchanged."""
    subject, used, idle = sums()
    assert subject.task is not None and subject.task.own_program is not None
    held = site("L0 resid_post @ answer").holds("total").part(used)
    for programs, part in (
        ((used, subject.task.own_program), held),
        ((used, idle), replace(held, variables=("x", "y"))),
        ((used, idle), replace(held, name="other", variables=("other",))),
    ):
        found = rivals(subject, *programs, parts=[part])
        assert found.verdict == "undecided" and not found.scores
    monkeypatch.setattr(Bench, "exchange", None)
    assert rivals(subject, idle, used, parts=[held]).verdict == "used"
    monkeypatch.undo()
    assert rivals(subject, idle, used, parts=[replace(held, features=None)]).verdict == "used"


def test_an_edit_without_effect_is_no_evidence() -> None:
    """Where nothing is held, the program by which nothing changes would fit."""
    subject, used, idle = sums()
    nowhere = site("L0 resid_post @ 0").holds("total").part(used)
    assert rivals(subject, idle, used, parts=[nowhere]).verdict == "undecided"


def test_the_command_shows_rivals_under_the_audits() -> None:
    command = ["explain", str(MODELS / "maximum.pt"), "--claim", "L0 resid_post @ answer holds max"]
    ran = CliRunner().invoke(main, command)
    assert "(the same answers on all" in ran.output
    made = json.loads(CliRunner().invoke(main, [*command, "--json"]).stdout)["rivals"]
    assert made["verdict"] == "undecided" and not made["next"]


def test_one_program_has_no_rival() -> None:
    subject, own = maximum()
    with pytest.raises(ParameterError, match="two programs"):
        rivals(subject, own)
    with pytest.raises(ParameterError, match="got 0"):
        rivals(Subject(subject.model, None, data=subject.data))
