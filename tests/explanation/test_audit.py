"""An audit puts the right tests together: what is asked of which part, and when nothing is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mechint.explanation import Explanation, _audit
from mechint.explanation._audit import audit_on, carried
from mechint.explanation.measure import MIN_INPUTS
from mechint.explanation.parts import Part
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
    assert (refused.standing, refused.tests) == ("refused", ()) and "chance" in refused.reason


@pytest.mark.parametrize(
    ("standing", "unknown", "told"),
    [
        ("untested", True, True),
        ("superfluous", True, True),
        ("stands", True, False),
        ("wrong", True, False),
        ("untested", False, False),
    ],
)
def test_what_the_prompts_do_not_tell_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, standing: str, unknown: bool, told: bool
) -> None:
    """Of a program over sources: where a claim is untested since two rules are the same here."""
    claims = [READS, part("a")]
    said = {"superfluous": ("stands", "untested")}.get(standing, (standing, standing))
    tests = [record(one, str(claim)) for one, claim in zip(said, claims, strict=True)]
    monkeypatch.setattr(_audit, "source_tests", lambda *given: tests)
    monkeypatch.setattr(_audit, "Sources", lambda *given: None)
    monkeypatch.setattr(_audit, "failing_class_of", lambda *given: "")
    monkeypatch.setattr(_audit, "untold_word", lambda *given: "")
    ambiguous = {"L0H0": "two rules are the same"} if unknown else {}
    program: Any = SimpleNamespace(ambiguous=ambiguous, otherwise=None)
    found = audit_on(bench_of(), explanation_of(*claims, over_sources=program))
    assert found.standing == standing and [one.verdict for one in found.tests] == [
        one.verdict for one in tests
    ]
    assert (found.reason == "two rules are the same") == told


def test_a_program_that_fails_a_class_is_incomplete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it would stand; what is wrong anyway has its own reason."""
    monkeypatch.setattr(_audit, "Sources", lambda *given: None)
    monkeypatch.setattr(_audit, "failing_class_of", lambda *given: "0 of 30 inputs with t[0] == 1")
    for said, standing in (("stands", "incomplete"), ("wrong", "wrong")):
        tests = [record(said, str(READS))]
        monkeypatch.setattr(_audit, "source_tests", lambda *given, tests=tests: tests)
        program: Any = SimpleNamespace(ambiguous={}, otherwise=None)
        found = audit_on(bench_of(), explanation_of(READS, over_sources=program))
        assert found.standing == standing
        assert ("30 inputs" in found.reason) == (said == "stands")


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
