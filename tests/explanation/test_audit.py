"""An audit puts the right tests together: what is asked of which part, and when nothing is."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mechint.explanation import Explanation, _audit
from mechint.explanation._audit import (
    audit_of_branches,
    audit_on,
    carried,
    count_clear_errors,
    find_failing_class,
    find_unshown_part,
)
from mechint.explanation.functions import Function, ProgramVariable
from mechint.explanation.measure import MIN_INPUTS
from mechint.explanation.parts import Part
from mechint.explanation.rules import Inputs
from mechint.explanation.source_program import Condition, SourceProgram
from mechint.explanation.standing import Audit
from mechint.task import Program
from tests.explanation.stub import N, Stub, part, stub
from tests.explanation.test_gates import record


def bench_of(answer: Any = None, judged: int | None = None) -> Stub:
    """A bench that is fitted on what it judges, and whose sites hold nothing."""
    bench = stub(
        answer or (lambda own, edits: edits[0].new["sum"] if edits else own["sum"]), N, judged
    )
    object.__setattr__(bench, "fitted", bench.judged)
    bench.subject.activation = lambda hook, at: torch.zeros(N * N, 2)
    return bench


READS = part("sum", reads=True)


def kinds(explanation: Explanation, **more: Any) -> dict[str, list[Any]]:
    """Kind → its tests."""
    found: dict[str, list[Any]] = {}
    for test in audit_on(bench_of(**more), explanation).tests:
        found.setdefault(test.kind, []).append(test)
    return found


def explanation_of(*parts: Part, **more: Any) -> Explanation:
    return Explanation("e", stub().program, parts, **more)


def test_what_is_asked_of_a_part_goes_by_what_it_claims() -> None:
    """Match and completeness of one that reads the logits; scrubbing of it and of a whole site."""
    asked = {kind: len(tests) for kind, tests in kinds(explanation_of(READS)).items()}
    shared = {"faithfulness": 1, "interchange": 1}
    assert asked == {"match": 1, "causal scrubbing": 1, "completeness": 1, **shared}
    assert kinds(explanation_of(part("sum"))).keys() == shared.keys()
    assert kinds(explanation_of(part("sum", whole=True))).keys() == {
        "causal scrubbing",
        "interchange",
    }


def test_a_null_of_other_features_is_asked_where_there_are_some() -> None:
    whole = part("sum", whole=True)
    for spare, beside in (
        (None, False),
        (lambda sample: None, False),
        (lambda sample: explanation_of(whole), False),
        (lambda sample: explanation_of(READS), True),
    ):
        found = kinds(explanation_of(READS, spare=spare))
        for kind in ("match", "faithfulness", "interchange"):
            assert (found[kind][0].effect.baseline is not None) == beside


def test_few_inputs_are_untested_and_a_model_at_chance_is_refused() -> None:
    few = audit_on(bench_of(judged=MIN_INPUTS - 1), explanation_of(READS))
    assert (few.standing, few.tests, few.n) == ("untested", (), MIN_INPUTS - 1)
    assert audit_on(bench_of(judged=MIN_INPUTS), explanation_of(READS)).tests
    idle = bench_of(lambda own, edits: torch.zeros_like(own["sum"]))
    refused = audit_on(idle, explanation_of(READS))
    assert (refused.standing, refused.tests) == ("refused", ())
    assert "without its input" in refused.reason
    object.__setattr__(idle, "whole", True)  # what is counted whole needs no chance
    assert audit_on(idle, explanation_of(READS)).standing != "refused"
    one = bench_of(lambda own, edits: torch.zeros_like(own["sum"]))
    one.subject.targets.zero_()
    assert one.constant and audit_on(one, explanation_of(READS)).standing != "refused"


def test_a_program_of_a_task_that_fails_a_class_is_incomplete() -> None:
    """A model that adds one more where a is 3 follows an exchange of the sum all the same."""

    def answer(own: dict[str, Any], edits: list[Any]) -> Any:
        more = (own["a"] == 3).long() * odd
        return edits[0].new["sum"] if edits else (own["sum"] + more) % 25

    for odd, standing in ((1, "incomplete"), (0, "stands")):
        bench = stub(answer, 25)
        found = audit_on(bench, Explanation("e", bench.program, (part("sum"),)))
        assert found.standing == standing
        assert ("0 of 25 inputs with a == 3" in found.reason) == bool(odd)
    odd, bench = 1, stub(answer, 25)
    plain = explanation_of(part("sum"))
    assert find_failing_class(bench, plain) != ""
    unnamed = stub(lambda own, edits: (own["sum"] + ((own["a"] + own["sum"]) % 25 == 3)) % 25, 25)
    assert "25 of 625 inputs are clearly" in find_failing_class(unnamed, plain)
    none = Program("none", bench.program.steps, ((None,),))
    assert find_failing_class(bench.under(none), plain) == ""  # it gives no answer
    bench.__dict__["slices"] = [slice(0, 3), slice(3, 25)]
    assert find_failing_class(bench, plain) == ""
    still = stub(lambda own, edits: (own["sum"] + (own["a"] == 3)) % 25, 25)
    found = audit_on(still, Explanation("e", still.program, (part("sum"),)))
    assert found.standing == "wrong" and "a == 3" not in found.reason


@pytest.fixture
def sourced(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of the standings of two tests → the audit of a program over sources; what the
    functions that judge it besides say may be given.
    """

    def made(*standings: str, ambiguous: str = "", tables: Any = (), **said: Any) -> Audit:
        claims = [READS, part("a")]
        tests = [record(one, str(claim)) for one, claim in zip(standings, claims, strict=True)]
        given = {"source_tests": tests, "Sources": None, "find_failing_class": ""}
        for name, value in (
            given | {"find_untold_word": "", "find_unshown_part": ""} | said
        ).items():
            monkeypatch.setattr(_audit, name, lambda *_, value=value: value)
        function = SimpleNamespace(tables=tables)
        program: Any = SimpleNamespace(
            ambiguous={"L0H0": ambiguous}, otherwise=None, function=function
        )
        return audit_on(bench_of(), explanation_of(*claims, over_sources=program))

    return made


def test_what_the_prompts_do_not_tell_is_the_reason(sourced: Any) -> None:
    """Of a program over sources: where a claim is untested since two rules are the same here."""
    for first, second, standing in (
        ("untested", "untested", "untested"),
        ("stands", "untested", "superfluous"),
        ("stands", "stands", "stands"),
        ("wrong", "wrong", "wrong"),
    ):
        plain, found = (sourced(first, second, ambiguous=one) for one in ("", "it"))
        assert plain.standing == found.standing == standing and plain.reason != "it"
        assert (found.reason == "it") == (standing in ("untested", "superfluous"))


def test_a_program_that_would_stand_is_held_to_classes_and_words(sourced: Any) -> None:
    """What is wrong anyway has its own reason."""
    for name in ("find_failing_class", "find_unshown_part", "find_untold_word"):
        whole = "incomplete" if name == "find_failing_class" else "untested"
        for said, standing in (("stands", whole), ("wrong", "wrong")):
            found = sourced(said, said, **{name: "it"})
            assert found.standing == standing and (found.reason == "it") == (said == "stands")
    for visible, standing in ((torch.eye(3), "untested"), (torch.ones(3, 2), "stands")):
        some, tables = SimpleNamespace(visible=visible), {"TABLE": {}}  # of one token any is one
        assert sourced("stands", "stands", Sources=some, tables=tables).standing == standing
    assert sourced("stands", "stands", Sources=SimpleNamespace(visible=torch.eye(3))).tests


def test_errors_are_told_from_wavering_by_their_margin() -> None:
    """The right answers lead by 2, the wrong ones by a little more than half of that, or less."""
    n, own = 3000, torch.zeros(3000, dtype=torch.long)
    for lead, wrong, number in ((1.1, 15, 15), (1.1, 14, 0), (0.9, 900, 0)):
        right = torch.arange(n) >= wrong
        logits = torch.zeros(n, 3).where(
            torch.arange(3) > 0, right[:, None] * 2 + ~right[:, None] * lead
        )
        said = count_clear_errors(logits, right, own + ~right * 1)
        assert said.startswith(f"{number} of 3000") if number else not said
    right, noisy = torch.arange(n) >= 300, torch.stack([torch.full((n,), 1.1), own, own], 1)
    for wavering, said in ((900, True), (901, False)):  # three times as many waver
        noisy[right, 0] = 2.0
        noisy[300 : 300 + wavering, 0] = 0.9
        assert bool(count_clear_errors(noisy, right, own + ~right * 1)) == said
    for wrong, silent in ((9, -1), (10, -1), (10, 3)):  # half of a class of 20; no answer, and none
        right = torch.arange(300) >= wrong
        answers = own[:300].where(right, silent)
        assert bool(count_clear_errors(logits[-300:], right, answers)) == (wrong == 10)


@pytest.mark.parametrize("alone", [True, False])
def test_each_variable_is_shown_to_be_brought(alone: bool) -> None:
    """By an interchange of its own; by an ablation where it is all that matters."""
    program: Any = SimpleNamespace(
        alone=alone,
        variables=((ProgramVariable("v0", "t[0]"),), (ProgramVariable("v1", "max(t)"),))[
            : 2 - alone
        ],
        part_claims=lambda index: (f"part {index}",),
    )
    others = () if alone else ("part 1",)
    without = replace(record("stands", "part 0", *others), kind="faithfulness")
    first, second = (replace(without, kind="interchange", of=(f"part {i}",)) for i in (0, 1))
    assert ("t[0]" in find_unshown_part(program, [without])) == (not alone)
    assert find_unshown_part(program, [first, second]) == ""
    assert alone or "max(t)" in find_unshown_part(program, [without, first])
    for silent in ({"refutes": True}, {"verdict": "unclear"}, {"kind": "causal scrubbing"}):
        assert "t[0]" in find_unshown_part(program, [replace(first, **silent), second])


@pytest.mark.parametrize(
    ("first", "second", "said", "whole"),
    [
        ("stands", "stands", "", "stands"),
        ("stands", "stands", "a class", "incomplete"),
        ("superfluous", "stands", "a class", "incomplete"),
        ("stands", "wrong", "a class", "wrong"),
        ("untested", "stands", "a class", "untested"),
    ],
)
def test_branches_stand_as_the_worst_of_them_and_on_every_class(
    monkeypatch: pytest.MonkeyPatch, first: str, second: str, said: str, whole: str
) -> None:
    bench = bench_of()
    tokens, at = bench.subject.data.tokens, bench.subject.answer_positions
    function = Function("0", lambda values: torch.tensor(0), 1)
    one = SourceProgram(Inputs(tokens, at, True, N), {}, (), (), function, ())
    program = replace(one, where=Condition(0, (2,)), otherwise=one)
    asked, found = [], [Audit(explanation_of(READS), each, reason=each) for each in (first, second)]
    monkeypatch.setattr(_audit, "find_failing_class", lambda *given: said)
    monkeypatch.setattr(_audit, "audit_on", lambda *given: asked.append(given) or found.pop(0))
    made = audit_of_branches(bench, explanation_of(READS), program)
    worst = first if first != "stands" else second
    assert (made.standing, said in made.reason) == (whole, whole in ("stands", "incomplete"))
    assert whole == "incomplete" or made.reason.endswith(f": {worst}")
    tokens_of = [bench.tokens(inner.judged)[:, 0] for inner, _ in asked]
    assert bool((tokens_of[0] == 2).all()) and not bool((tokens_of[1] == 2).any())
    assert sum(map(len, tokens_of)) == len(bench.judged)


def test_blocks_carry_where_each_makes_the_change_that_is_predicted() -> None:
    claim = part("sum", blocks={"1": slice(0, 1), "2": slice(1, 2)}, reads=True)

    def tests(**verdicts: str) -> list[Any]:
        return [
            SimpleNamespace(kind="partial", target=name[1:], verdict=verdict)
            for name, verdict in verdicts.items()
        ]

    need = SimpleNamespace(kind="minimality", target="2", verdict="no")
    assert carried(claim, [*tests(_1="yes", _2="yes"), need])
    assert not carried(claim, tests(_1="yes", _2="unclear"))
    assert not carried(claim, tests(_1="yes"))
    assert not carried(part("sum", reads=True), [])
