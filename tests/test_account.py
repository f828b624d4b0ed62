"""Accounts: the verdict from leads, evidence in order, text within any width, one JSON shape."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import mechint
from mechint import planted
from mechint.account import (
    NOT_ASKED,
    NOTHING,
    UNDECIDED,
    Account,
    Quality,
    account_of,
    accounts_json,
    quality_of,
    verdict_of,
)
from mechint.account.terminal import account_text, comparison_text, quality_text
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.models.transformer import HookedTransformer
from mechint.probe.results import Effect, Finding, ProbeResult, Scope, Table
from mechint.probe.text import MAX_LAYERS, full_text, head_lines, sparkline
from mechint.registry import PROBES, TASKS


def result(
    probe: str, *findings: Finding, lead: str = "", rank: int = 0, **parts: object
) -> ProbeResult:
    return ProbeResult(
        probe,
        f"What does {probe} ask?",
        {},
        findings,
        lead=lead,
        lead_rank=rank,
        **parts,  # type: ignore[arg-type]
    )


YES = Finding("The model adds.", "yes", Effect(5.5, "nats", "loss", 0.01), 0.002, "shuffled, 499")
NO = Finding("No head copies.", "no", p_value=0.4, null="renamed classes, 99")
UNCLEAR = Finding("Whether it copies is unclear.", "unclear", reason="nine examples are too few")


def account(**results: ProbeResult) -> Account:
    verdict, scope, caveat = verdict_of(results)
    quality = (Quality("answer", 0.999, 0.01, 0.003, 4.7, 12769, 0.998, True),)
    return Account(
        *(
            "Addition mod 113, one layer",
            "runs/demo",
            verdict,
            quality,
            caveat,
            1800,
            226816,
            results,
        ),
        scope=scope,
    )


@pytest.mark.parametrize("steps", [True, False])
def test_the_title_says_where_the_steps_to_the_answer_are_given(steps: bool) -> None:
    task = TASKS["listops"].from_dict({"n": 20, "depth": 2, "chain_of_thought": steps})
    config = ModelConfig(n_ctx=task.n_ctx, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab)
    subject = mechint.Subject(HookedTransformer(config), task, n_examples=16)
    (one,) = quality_of(subject)
    assert one.steps == steps and ("right steps" in quality_text([one])[0]) == steps


def test_accuracy_of_a_model_against_its_own_answers_is_not_shown() -> None:
    model = mechint.load(mechint.example("maximum.pt")).model
    rows = [{"prompt": [a, b, 3, 0]} for a in range(16) for b in range(16)]
    stated = [{**row, "answer": max(row["prompt"])} for row in rows]
    for data, n in ((rows, 0), (stated, 1)):
        assert len(quality_of(mechint.load(model, data=data))) == n


def test_a_program_that_is_unclear_is_not_one_that_was_not_found() -> None:
    """No mechanism was found where it was looked for in vain."""
    account = Account("A model", "", NOTHING)
    audit: dict[str, Any] = {"standing": "unclear", "name": "answer = t[0]", "short": ""}
    audit |= {"family": "induced"}
    audit |= {"scope": {"answers": ""}, "reason": "23 judged inputs, 24 needed", "tests": []}
    assert account.explained([audit]).verdict == "May run: answer = t[0]."
    assert "23 judged inputs" in account.explained([{**audit, "standing": "untested"}]).limits
    assert account.explained([{**audit, "standing": "wrong"}]).verdict == NOTHING


def test_no_mechanism_has_its_reason_where_none_was_looked_for_or_one_runs_in_part() -> None:
    """Above programs of which one runs in part, or a refusal, it read as a search in vain."""
    account = Account("A model", "", NOTHING)
    shared = {"short": "", "accounted": None, "tests": [{"standing": "stands", "of": ["a"]}]}
    refused = {"standing": "refused", "family": "none", "name": "none", "reason": "at chance"}
    partly = {"standing": "incomplete", "family": "induced", "name": "a = t[1]", "reason": "few"}
    held = [
        {**one, **shared, "scope": {"answers": name}}
        for one, name in ((refused, "a"), (refused, "b"), (partly, "b"))
    ]
    wrong = {**held[2], "standing": "wrong"}
    for audits, limits in (
        (held[:1], "a: at chance"),
        (held[:2], "a: at chance; likewise 1 other answer"),
        ([held[0], held[2]], "runs in part: a = t[1]"),
        ([held[1], wrong], ""),
    ):
        found = account.explained(audits)
        assert (found.verdict, found.limits) == (NOTHING, limits)
    led = replace(account, verdict="It needs L0H0.", caveat="of a")
    assert led.explained(held[:1]).limits == "of a"


def test_the_lead_of_highest_rank_is_the_verdict() -> None:
    scope = Scope(drawn=512, components=(3, 14), together=True)
    caveat = Finding("The model adds as a clock.", "yes", caveat="of the units", scope=scope)
    narrow = replace(YES, scope=Scope(drawn=99, answers="units"))
    aside = replace(YES, scope=Scope(drawn=9))
    results = {
        "low": result("low", aside, lead="It has circles.", rank=20),
        "high": result("high", caveat, lead="It adds as a clock.", rank=90),
        "beside": result("beside", narrow, replace(aside, verdict="no"), lead="It adds.", rank=80),
    }
    assert verdict_of(results) == ("It adds as a clock.", scope, "of the units")
    also = replace(narrow, scope=Scope(drawn=99, answers="units"), headline="The units are added.")
    both = {**results, "high": result("high", caveat, also, lead="It adds as a clock.", rank=90)}
    assert verdict_of(both)[1] == replace(scope, drawn=99, answers="units")
    assert verdict_of({"one": result("one", YES)})[0] == NOT_ASKED  # a description alone
    needed = replace(YES, causal=True)
    unled = {"a": result("a", Finding("It has circles.", "yes"), rank=9), "b": result("b", needed)}
    assert verdict_of(unled)[0] == YES.headline
    led = {"a": result("a", YES, rank=9), "b": result("b", YES, lead="It adds.", rank=1)}
    assert verdict_of(led)[0] == "It adds." and account(**led).evidence[0][0] == "b"
    assert verdict_of({"one": result("one", NO, rank=60)})[0] == NOTHING
    assert verdict_of({"one": result("one", NO, rank=9)})[0] == NOT_ASKED  # it names no mechanism
    assert verdict_of({"one": result("one", UNCLEAR)})[0] == UNDECIDED


def test_evidence_takes_the_first_of_every_probe_before_second_ones() -> None:
    second = Finding("It has circles.", "yes")
    made = account(
        a=result("a", YES, second, rank=1), b=result("b", YES, rank=5), c=result("c", NO)
    )
    assert [(name, one.headline) for name, one in made.evidence] == [
        ("b", YES.headline),
        ("a", YES.headline),
        ("a", second.headline),
    ]
    assert made.findings("no") == [("c", NO)] and made.findings("unclear") == []


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_text_fits_the_width_and_thirty_lines_and_breaks_no_word(width: int) -> None:
    words = "The second harmonics of the key frequencies are needed by the logits"
    long = [Finding(f"{words} {i}.", "yes", YES.effect, 0.002, "shuffled, 499") for i in range(9)]
    made = account(
        fourier=result("fourier", *long, lead="It adds as a clock, with six frequencies.", rank=80),
        attention=result("attention", NO, UNCLEAR, not_asked=(("induction", "three tokens"),)),
    )
    lines = account_text(made, width).plain.splitlines()
    assert max(map(len, lines)) <= width and len(lines) <= 30
    text = " ".join(" ".join(lines).split())
    assert made.verdict.upper() in text and words in text and "induction" in text
    head = text.partition(made.verdict.upper())[0].split()
    assert len(head) <= 40
    placed = {"path": "a-long-name/" * 30, "next": ("mechint table runs --over-steps",) * 3}
    said = {"warnings": ("held-out answers are unknown " * 3,), "assumed": {"act_fn": "relu"}}
    more = replace(made, **placed, **said)  # type: ignore[arg-type]
    assert len(account_text(more, width).plain.splitlines()) <= 30


def test_a_summary_is_a_strip_and_a_small_table() -> None:
    made = result(
        "fourier",
        YES,
        lead="It adds.",
        rank=80,
        arrays={"strip": np.array([0.0, 1.0, 0.5])},
        tables={"summary": Table({"frequency": [3, 8], "energy": ["60%", "40%"]}, "")},
    )
    text = account_text(account(fourier=made)).plain
    assert sparkline([0.0, 1.0, 0.5]) in text and "60%" in text


@given(st.integers(1, 40), st.integers(1, 30), st.integers(60, 160), st.integers(0, 99))
def test_numbers_of_heads_are_a_table(n_layers: int, n_heads: int, width: int, seed: int) -> None:
    """Within any width; in full every number, otherwise the largest, whatever its sign."""
    values = np.random.default_rng(seed).normal(size=(n_layers, n_heads))
    values[0, 0] = np.nan
    largest = "·" if values.size == 1 else f"{values.flat[np.nanargmax(np.abs(values))]:.2f}"
    full = "\n".join(head_lines(values, "moved", width))
    some = "\n".join(head_lines(values, "moved", width, MAX_LAYERS))
    assert largest in some and "·" in full
    assert all(f"{value:.2f}" in full.split() for value in values[~np.isnan(values)])
    assert all(len(line) <= width for line in (full + "\n" + some).splitlines())
    assert sum(line.split()[0][0] == "L" for line in some.splitlines()[1:]) <= MAX_LAYERS + 1


def test_heads_of_a_probe_are_below_the_verdict() -> None:
    made = result(
        "heads",
        YES,
        lead="It.",
        rank=80,
        arrays={"by_head": np.array([[0.1, 0.2], [0.75, np.nan]])},
    )
    lines = account_text(account(heads=made)).plain.splitlines()
    assert any(line.split() == ["L1", "0.75", "·"] for line in lines)


def test_a_comparison_says_both_verdicts_first() -> None:
    pizza = account(p=result("p", YES, lead="It adds as a pizza.", rank=9))
    clock = account(p=result("p", YES, lead="It adds as a clock.", rank=9))
    first, second, *rest = comparison_text([pizza, clock]).plain.splitlines()
    assert "PIZZA" in first and "CLOCK" in second and len(rest) < 20


def test_a_named_probe_that_does_not_apply_is_not_asked() -> None:
    """It costs one line, and nothing where no other was named."""
    subject = planted.modular_addition(13, (2, 5)).subject
    made = mechint.analyze(subject, "norms", "irreps", settings={"norms": {"null_models": 19}})
    assert list(made.results) == ["norms"]
    run = mechint.Subject(subject.model, subject.task, provenance={"step": 9})
    tests = [one.test for one in (*made.quality, *quality_of(run))]  # of a run's split alone
    assert tests == [None, 1.0]
    (reason,) = (why for why, names in made.not_asked.items() if "irreps" in names)
    assert reason == PROBES["irreps"].from_dict({}).applicable(subject)
    with pytest.raises(NotApplicableError, match="irreps"):
        mechint.analyze(subject, "irreps")


@pytest.mark.full
def test_real_results_have_an_account_in_one_json_shape() -> None:
    subject = planted.modular_addition(13, (2, 5), noise=0.02, rotation_seed=1).subject
    made = mechint.analyze(subject, "norms", "fourier")
    assert made.title == "Addition mod 13, one layer" and made.quality[0].accuracy == 1.0
    assert made.verdict and len(made.verdict.split()) <= 15
    data = json.loads(json.dumps(accounts_json([made]), allow_nan=False))
    shape = {
        "type": "object",
        "required": ["schema", "accounts"],
        "properties": {"schema": {"const": 3}, "accounts": {"type": "array"}},
    }
    jsonschema.validate(data, shape)
    (one,) = data["accounts"]
    assert {"path", "title", "quality", "verdict", "results", "audits"} <= set(one)
    kept = one["results"]["norms"]["provenance"]
    assert kept["probe"]["name"] == "norms" and not set(kept) & set(one["provenance"])
    assert {**one["provenance"], **kept} == made.results["norms"].to_dict()["provenance"]
    for found in one["results"]["fourier"]["findings"]:
        assert {"headline", "verdict", "effect", "p_value"} <= set(found)
    assert made.verdict.upper() in made._repr_html_()
    assert "fourier" in full_text(made.results).plain
    assert account_of(subject, {}).verdict == NOT_ASKED


def test_evidence_that_bears_on_the_verdict_comes_first() -> None:
    """A significant dimension count neither leads nor stands among what decides."""
    subject = planted.modular_addition(13, (2, 5), noise=0.05, rotation_seed=1).subject
    account = mechint.analyze(subject, "embedding", "fourier", "clock-pizza")
    names = [name for name, _ in account.evidence]
    deciding = names[: account.bearing]
    assert deciding and names[0] == "clock-pizza" and "embedding" not in deciding
    assert set(names[account.bearing :]) <= {"embedding"}
    lines = str(account).splitlines()
    assert lines.index("  also seen") < next(
        i for i, one in enumerate(lines) if "✓ embedding" in one
    )
