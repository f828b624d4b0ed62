"""How much an explanation accounts for: in verdicts, in tables, over the steps of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mechint
from mechint import planted
from mechint.account import NOT_ASKED, NOTHING, account_of, verdict_with_program
from mechint.account.account import analyze
from mechint.cli import main
from mechint.decide import Evidence
from mechint.explanation import Audit, Explanation, Part, explain
from mechint.explanation.explanation import program_text
from mechint.explanation.records import judge_r2
from mechint.explanation.text import audits_text, says, together
from mechint.interventions import Site
from mechint.report.page import page_of
from mechint.subject import Subject

MODELS = Path(__file__).parents[2] / "examples" / "models"


def addition() -> Subject:
    return planted.modular_addition(13, (2, 5), noise=0.05, rotation_seed=1, seed=1).subject


def audited(standing: str, logits: float | None) -> Audit:
    errors = np.full(400, logits or 0.0)
    found = Evidence.determination(errors, np.ones(400))
    match = judge_r2("match", "answer", ("answer",), found)
    tests = () if logits is None else (match,)
    return Audit(Explanation("e", addition().task.own_program), standing, tests)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize(
    ("audits", "ending"),
    [
        ([audited("stands", 0.034)], "; e explains 97% (≥96%) of its logits."),
        ([audited("incomplete", 0.2)], "; e (incomplete) explains 80% (≥80%) of its logits."),
        ([audited("wrong", 0.2)], "."),
        ([audited("refused", None), audited("wrong", 0.1)], "."),
        ([], "."),
    ],
)
def test_the_verdict_says_how_much_is_explained(audits: list[Audit], ending: str) -> None:
    held = [one.to_dict() for one in audits]
    assert verdict_with_program("It adds as a clock.", held) == f"It adds as a clock{ending}"


@pytest.mark.parametrize(
    ("standing", "share", "said"),
    [
        ("incomplete", 0.97, "E (incomplete), which explains 97%"),
        ("incomplete", 0.8, "No mechanism was found."),
        ("untested", 0.97, "Not tested: e."),
        ("unclear", 0.97, "May run: e."),
        ("wrong", 0.97, "No mechanism was found."),
    ],
)
def test_what_nothing_contradicts_is_named(standing: str, share: float, said: str) -> None:
    """A program that gives nearly all answers, or lacks a few inputs, is not none at all."""
    account = replace(account_of(addition(), {}), verdict=NOTHING)
    accounted = {"verb": "explains", "of": "answers", "share": share, "at_least": share, "how": ""}
    found = {**audited(standing, None).to_dict(), "family": "induced", "accounted": accounted}
    assert account.explained([found]).verdict.startswith(said)


def test_nothing_runs_in_part_where_no_test_passed() -> None:
    failed, passed = (audited("incomplete", error).to_dict()["tests"] for error in (0.9, 0.2))
    held = audited("incomplete", None).to_dict()
    for tests, words in ((failed, "NOT SHOWN TO RUN"), ([*failed, *passed], "RUNS IN PART")):
        assert says({**held, "tests": tests}) == words
        said = says({**held, "standing": "untested", "tests": tests})
        assert said == ("TESTED IN PART" if words == "RUNS IN PART" else "NOT TESTED")


def test_tests_in_one_line_say_in_which_features() -> None:
    swaps = [one for one in explain(addition())[0].tests if one.kind == "interchange"]
    assert len(swaps) > 2 and all("features 2, 5" in one.headline for one in swaps)
    said = together(swaps).headline
    assert said == "Swap x, y, both, answer in features 2, 5: the answer follows."


@pytest.mark.full
def test_tables_have_columns_of_the_best_explanation() -> None:
    subject = addition()
    rows = mechint.runs({"adds": subject, "untrained": subject.untrained(0)}).explain().rows()
    best = explain(subject)[0]
    assert rows[0]["explain.family"] == "frequencies" and rows[0]["explain.standing"] == "stands"
    assert rows[0]["explain.accounted"] == pytest.approx(best.value("match"))
    assert rows[1]["explain.standing"] == "refused" and rows[1]["explain.verdict"] == "no"
    assert rows[1].get("explain.accounted") is None


def test_another_answer_can_be_explained() -> None:
    """The tens of a sum need the carry of the ones; a claim is of one answer."""
    path = str(Path(__file__).parents[2] / "examples" / "models" / "digits.pt")
    claim = "L1 resid_post @ answer holds digit_1"
    command = ["explain", path, "--claim", claim, "--json", "--examples", "400"]
    audits = json.loads(CliRunner().invoke(main, [*command, "--answer", "-2"]).stdout)["audits"]
    assert audits[0]["standing"] in ("stands", "unclear", "incomplete")
    audits = json.loads(CliRunner().invoke(main, command).stdout)["audits"]
    assert audits[0]["standing"] in ("wrong", "untested")
    ran = CliRunner().invoke(main, [*command, "--answer", "all"])
    assert ran.exit_code != 0 and "expected a number" in ran.output


@pytest.mark.full
def test_the_report_begins_with_the_program(tmp_path: Path) -> None:
    page, path = tmp_path / "page.html", str(MODELS / "clock.pt")
    ran = CliRunner().invoke(main, ["explain", path, "--json", "--light", "--out", str(page)])
    assert ran.exit_code == 0, ran.output
    best, shown = json.loads(ran.stdout)["audits"][0], page.read_text()
    assert best["standing"] == "stands"
    assert f" explains {best['accounted']['share']:.0%} " in shown
    assert all(f"x token 0{end}" in shown for end in (":", "")) and best["name"] in shown


def test_where_no_probe_leads_the_program_is_the_verdict() -> None:
    subject = mechint.load(MODELS / "maximum.pt")
    account = analyze(subject)
    best = explain(subject)[0]
    assert not account.ranked and best.standing == "stands" and "largest token" in str(best)
    assert best.accounted is not None
    share = best.accounted.share
    name = best.explanation.name.lower()
    assert account.verdict.lower().startswith(f"{name}, which explains {share:.0%}")
    (told,) = json.loads(
        CliRunner().invoke(main, ["analyze", str(MODELS / "maximum.pt"), "--json"]).stdout
    )["accounts"]
    assert told["verdict"] == account.verdict
    assert told["audits"][0]["standing"] == "stands"


def test_an_explanation_joins_only_the_lead_of_its_own_mechanism() -> None:
    subject = addition()
    led, unled = analyze(subject, "fourier"), analyze(subject, "lens")
    found = replace(explain(subject, family="frequencies")[0], standing="stands")
    half = replace(found, standing="incomplete")
    other = replace(found, explanation=replace(found.explanation, family="routes"))
    assert led.ranked and not unled.ranked
    assert led.explained([half]).verdict != led.verdict == led.explained([other]).verdict
    assert unled.verdict == NOT_ASKED and unled.explained([half]).verdict == NOTHING
    assert unled.explained([found]).verdict not in (NOT_ASKED, NOTHING)


def test_programs_are_written_with_where_their_variables_live() -> None:
    task = addition().task
    assert task is not None and task.own_program is not None
    part = Part("answer", Site("blocks.0.hook_resid_post", "answer"), ("answer",))
    said = program_text(Explanation("e", task.own_program, (part,))).splitlines()
    assert said[0].startswith("answer of x, y") and said[1].strip() == f"at {part.site}"


@pytest.mark.full
def test_each_digit_of_a_sum_has_its_program_and_none_speaks_for_the_others() -> None:
    """The verdict, text and page name both."""
    subject = mechint.load(mechint.example("digits.pt"))
    found = explain(subject, answer="all")
    tens, units = found[:2]
    assert [one.scope.answers for one in found[:2]] == ["digit_1", "digit_0"]
    assert tens.standing == units.standing == "stands"
    account = account_of(subject, {}).explained(found)
    for name in ("igit_1 = ", "igit_0 = "):
        assert name in account.verdict and name in audits_text(found, "").plain
    assert account.program is None and len(account.programs) == 2 and not account.scope.answers
    titles = [one.title for one in page_of(account).sections]
    assert titles[:2] == ["explanation digit_1", "explanation digit_0"]


def test_an_answer_without_a_program_is_said_beside_one_that_has_one() -> None:
    made = planted.modular_addition(13, (2, 5)).subject
    held = explain(made, family="frequencies")[0].to_dict()
    first, second = ({**held, "scope": {**held["scope"], "answers": name}} for name in "ab")
    account = account_of(made, {}).explained([first, {**second, "standing": "wrong"}])
    assert "explains" in account.verdict and account.verdict.endswith("No program of b stands.")
    untried = {**second, "standing": "refused", "family": "none", "accounted": None}
    account = account_of(made, {}).explained([first, untried])
    assert account.verdict.endswith("None of b was tested.")
    alone = account_of(made, {}).explained([first])
    assert "No program" not in alone.verdict and alone.scope.answers == "a"
