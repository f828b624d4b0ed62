"""The gates of an audit, each clause alone: inputs on which only that clause decides, no model."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from mechint.decide import Decision, Evidence, Null, Skill
from mechint.decide.words import STANDINGS
from mechint.explanation import Explanation
from mechint.explanation.checks import attention
from mechint.explanation.checks.attention import (
    FOLLOWS,
    STAYS,
    copied,
    draw_other_keys,
    find_apart_from_place,
    route,
)
from mechint.explanation.checks.blocks import blocks
from mechint.explanation.checks.finer import beyond, classify_values, finer, is_linear
from mechint.explanation.checks.logits import match, program_answers, right_answer
from mechint.explanation.checks.parts import (
    SETTLING_PAIRS,
    causal_scrubbing,
    completeness,
    exchange_rest,
    exchanging,
    faithfulness,
    interchanges,
    settles,
)
from mechint.explanation.parts import Copy, Part, Route
from mechint.explanation.records import LOST, PARTIAL, Test, judge_block, judge_r2, judge_share
from mechint.explanation.sources import Measured
from mechint.explanation.standing import Standing, combine, judge, standing_of
from mechint.interventions import Site
from mechint.probe.results import Scope
from mechint.task import Program, Step
from tests.explanation.stub import HERE, N, Stub, addition, part, stub

SKILL = Skill(0.9, 0.1, 5000)  # nine tenths of the way from chance: 0.82, half: 0.5


def share(
    value: float, n: int = 5000, null: float | None = None, skill: Skill = SKILL, **more: Any
) -> Test:
    other = None if null is None else Evidence.share(round(null * n), n)
    found = Evidence.share(round(value * n), n)
    return judge_share("interchange", "target", ("claim",), found, skill, null=other, **more)


# --- shares ---------------------------------------------------------------------------------------
NEAR = Skill(0.16, 0.11, 5000)  # doing nothing keeps 84% of the raw accuracy
CHANCE = Skill(0.11, 0.11, 5000)


@pytest.mark.parametrize(
    ("more", "standings"),
    [
        ({}, {0.85: "stands", 0.82: "unclear", 0.80: "incomplete"}),
        ({}, {0.52: "incomplete", 0.48: "wrong"}),
        ({"null": 0.48}, {0.85: "stands"}),
        ({"null": 0.50}, {0.85: "unclear"}),
        ({"null": 0.53}, {0.85: "incomplete"}),
        ({"null": 0.86}, {0.85: "wrong"}),
        ({"null": 0.70}, {0.70: "wrong"}),
        ({"null": 0.69}, {0.70: "incomplete"}),
        ({"skill": NEAR}, {0.135: "incomplete", 0.11: "wrong"}),
        ({"skill": NEAR, "n": 750}, {0.148: "unclear"}),
        ({"skill": CHANCE}, {1.0: "unclear"}),
        ({"n": 23}, {1.0: "unclear"}),
        ({"n": 24}, {1.0: "stands"}),
        ({"n": 0}, {0.0: "untested"}),
        # up to 15% of what the model has may be left
        ({"of": "lost"}, {0.19: "stands", 0.22: "unclear", 0.25: "wrong"}),
        ({"of": "moved", "null": 0.08}, {0.78: "stands", 0.75: "unclear", 0.72: "incomplete"}),
        ({"of": "moved", "null": 0.10}, {0.78: "unclear"}),
        ({"of": "moved", "null": 0.12}, {0.78: "incomplete"}),
    ],
)
def test_a_share_is_taken_above_chance_and_has_a_null(
    more: dict[str, Any], standings: dict[float, str]
) -> None:
    bounds = {"lost": {"bound": LOST}, "moved": {"bound": FOLLOWS, "null_bound": STAYS}}
    given = {name: one for name, one in more.items() if name != "of"}
    for value, standing in standings.items():
        assert share(value, **given, **bounds.get(more.get("of", ""), {})).standing == standing


def test_what_is_kept_is_above_chance_of_the_models_own() -> None:
    found = share(0.5, n=100)
    assert found.kept == pytest.approx((0.5, (Evidence.share(50, 100).low - 0.1) / 0.8))
    assert share(0.11, skill=NEAR).kept[0] == 0.0
    assert share(1.0, skill=CHANCE).kept is None and share(0.0, n=0).kept is None


# --- R² -------------------------------------------------------------------------------------------
def of(value: float, n: int = 400) -> Evidence:
    """R² of a value on n inputs, with hardly any spread."""
    return Evidence.determination(np.full(n, 1 - value), np.ones(n))


@pytest.mark.parametrize(
    ("value", "null", "rival", "standing"),
    [
        (0.8, 0.1, 0.5, "stands"),
        (0.8, 0.1, None, "stands"),
        (0.52, None, None, "stands"),
        (0.48, None, None, "incomplete"),
        (0.48, None, 0.1, "incomplete"),
        (0.8, 0.39, None, "stands"),
        (0.8, 0.41, None, "incomplete"),
        (0.8, 0.1, 0.79988, "stands"),
        (0.8, 0.1, 0.79992, "wrong"),
        (0.8, 0.1, 0.9, "wrong"),
    ],
)
def test_a_match_beats_the_right_answer_and_twice_its_null(
    value: float, null: float | None, rival: float | None, standing: str
) -> None:
    more = {
        name: None if one is None else of(one) for name, one in (("null", null), ("rival", rival))
    }
    assert judge_r2("match", "x", ("claim",), of(value), **more).standing == standing


def test_a_match_asks_the_near_end() -> None:
    errors = np.random.default_rng(0).exponential(0.42, 100)
    found = Evidence.determination(errors, np.ones(100))
    assert found.low < 0.5 < found.value
    for some in (found, of(0.9, n=20)):
        assert judge_r2("match", "x", ("claim",), some).standing == "unclear"
    assert (PARTIAL.value, PARTIAL.side) == (0.5, "above")


# --- needs ----------------------------------------------------------------------------------------
def need(lost: float, ratio: float | None = None, spare: int = 12, reached: int = 0) -> Test:
    n = 1000
    dropped = Evidence.ratio(np.r_[np.ones(round(lost * n)), np.zeros(n - round(lost * n))])
    if ratio is None:
        return judge_block("5", ("claim",), dropped)
    draw = np.random.default_rng(1).uniform(0.9, 1.1, n)
    sizes = [2.0] * reached + [0.5] * (spare - reached)
    rank = Null.sampled("effect", 1.0, sizes, "spare blocks")
    return judge_block("5", ("claim",), dropped, (Evidence.ratio(ratio * draw, np.ones(n)), rank))


@pytest.mark.parametrize(
    ("lost", "given", "standing"),
    [
        (0.0, {"ratio": 5.0}, "stands"),
        (0.0, {"ratio": 5.0, "spare": 9}, "stands"),
        (0.0, {"ratio": 5.0, "spare": 8}, "unclear"),  # p = 1/9 at best
        (0.0, {"ratio": 5.0, "spare": 2}, "unclear"),  # p = 1/3 at best: passed once
        (0.0, {"ratio": 1.2}, "stands"),
        (0.0, {"ratio": 0.9, "reached": 1}, "needless"),
        (0.0, {"ratio": 0.9}, "needless"),  # no larger than the largest spare one
        (0.0, {"ratio": 1.0}, "unclear"),
        (0.1, {"ratio": 0.9, "reached": 3}, "stands"),  # no larger, yet answers are lost without it
        (0.1, {"ratio": 5.0}, "stands"),
        (0.1, {}, "stands"),
        (0.0, {}, "unclear"),  # no spare block, and no answer lost
        (0.004, {"ratio": 0.9}, "unclear"),
        (0.006, {}, "unclear"),
        (0.03, {}, "stands"),
    ],
)
def test_a_block_is_needed_by_rank_or_by_loss(
    lost: float, given: dict[str, Any], standing: str
) -> None:
    found = need(lost, **given)
    assert found.standing == standing
    assert ("needed" in found.headline) == (lost > 0 or standing != "stands")


def test_half_of_a_percent_of_the_answers_is_a_loss() -> None:
    """Beyond it with the whole interval, up to it with the whole interval, or about it."""
    cases = {(0.0055, 0.007): "stands", (0.0035, 0.0045): "needless", (0.0045, 0.0055): "unclear"}
    for ends, standing in cases.items():
        lost = Evidence(value=sum(ends) / 2, n=1000, given=ends)
        found = judge_block("5", ("claim",), lost, ranked(0.9))
        assert found.standing == standing
    assert judge_block("5", (), Evidence.share(20, 20)).standing == "unclear"


# --- exchanges ------------------------------------------------------------------------------------
def follows(own: dict[str, Any], edits: list[Any]) -> Any:
    """A model that answers by what is edited."""
    return edits[0].new["sum"] if edits else own["sum"]


def idle(own: dict[str, Any], edits: list[Any]) -> Any:
    """A model on which an edit has no effect."""
    return own["sum"]


def asked(made: Any, bench: Stub, *parts: Part, nulls: Sequence[Part] = ()) -> list[Test]:
    """The tests that `made` makes of parts under the program of a bench."""
    explanation = Explanation("e", bench.program, parts)
    return made(bench, explanation, bench.fits(parts), bench.fits(nulls))


def test_exchanges_count_where_the_answer_changes() -> None:
    """A model on which an edit has no effect gives none of the answers of other inputs, and keeps
    its own; one that follows gives all.
    """
    for model, given in ((idle, 0.0), (follows, 1.0)):
        bench = stub(model)
        for made, exchange in (
            (faithfulness, exchange_rest(bench)),
            (interchanges, exchanging(bench, ["sum"])),
        ):
            (test,) = asked(made, bench, part("sum"))
            old, new = exchange.old["sum"], exchange.new["sum"]
            assert torch.equal(exchange.counted, old != new)
            assert torch.equal(exchange.labels[:, 0], new) and test.of == (str(part("sum")),)
            assert (test.value, test.n) == (given, int((old != new).sum()))
            assert test.standing == ("stands" if given else "wrong")
        left = completeness(bench, bench.fit(part("sum")))
        assert (left.value, left.standing) == (1 - given, "stands" if given else "wrong")
        assert left.n < len(bench.judged) and not bool(exchange_rest(bench).counted.all())


def test_a_null_of_fits_is_asked_where_it_is_given() -> None:
    """Under the null's fits, too, the answers come: then they say nothing. A whole site takes the
    rows of its source, and has none.
    """
    for made in (faithfulness, interchanges):
        (without,) = asked(made, stub(follows), part("sum"))
        (beside,) = asked(made, stub(follows), part("sum"), nulls=[part("sum")])
        assert (without.standing, beside.standing) == ("stands", "wrong")
    bench = stub(lambda own, edits: (edits[0].new["a"] + own["b"]) % N if edits else own["sum"])
    (test,) = asked(interchanges, bench, part("a", whole=True))
    assert test.value == 1.0 and test.effect.baseline is None


def test_few_inputs_are_paired_with_several_others() -> None:
    bench = stub(judged=25)
    assert len(exchange_rest(bench).base) == 150  # 128 at least
    assert len(exchanging(bench, ["a"]).base) == 8 * 25
    # 400 changed answers are looked for, by two others of 321 inputs, by one of 481
    assert [len(exchanging(stub(n=n), ["a"]).base) for n in (18, 22)] == [2 * 321, 481]
    a, b, _ = addition().steps
    product = Step("sum", N, lambda tokens, a, b: a * b % N, ("a", "b"))
    one = exchanging(stub(program=Program("product", (a, b, product), (("sum",),))), ["a"])
    assert torch.equal(one.counted, one.labels[:, 0] != one.old["sum"])
    assert bool(one.counted.any()) and not bool(one.counted.all())


def test_variables_are_exchanged_at_the_depths_that_hold_them() -> None:
    """Each alone, and the inputs of one depth jointly; a null of what was fitted is asked."""
    bench, late = stub(follows), Site("blocks.1.hook_resid_post", "answer")
    for parts, where in (
        (
            (part("a"), part("b"), replace(part("sum"), site=late)),
            [("a", HERE), ("b", HERE), ("a and b", HERE), ("sum", late)],
        ),
        ((part("a"), replace(part("b"), site=late)), [("a", HERE), ("b", late)]),
    ):
        found = asked(interchanges, bench, *parts)
        assert [(one.target, one.where) for one in found] == [(a, str(b)) for a, b in where]
    whole = replace(part("a", whole=True), site=Site(HERE.hook, 0))
    (test,) = asked(interchanges, bench, part("a"), whole, nulls=[part("a")])
    assert test.effect.baseline is not None


def test_faithfulness_is_asked_of_what_settles_the_answer() -> None:
    """Found on inputs: a step may read tokens beside its parents. One variable of two does not
    settle; a part that changes nothing is not tested by another.
    """
    bench = stub(follows)
    a, b, total = bench.program.steps
    bit = Step("bit", 2, lambda tokens: tokens[:, 0] % 2, positions=(0,))
    hidden = Step("sum", N, lambda tokens, a: (a + tokens[:, 1]) % N, ("a",))
    assert settles(bench, {"a", "b"}) and settles(bench, {"sum"}) and not settles(bench, {"a"})
    assert not settles(bench.under(Program("hidden", (a, hidden), (("sum",),))), {"a"})
    more = bench.under(Program("more", (a, b, total, bit), (("sum",),)))
    (test,) = asked(faithfulness, more, part("sum"), part("bit"))
    assert test.of == (str(part("sum")),)
    for alone in (part("a"), part("sum", whole=True)):
        assert asked(faithfulness, bench, alone) == []
    (test,) = asked(faithfulness, bench, part("a"), part("b"))
    assert test.of == (str(part("a")), str(part("b")))
    for n, words in ((8, "in features 1, 2, 3, 4, 5, 6, 7, 8."), (9, "in 9 features.")):
        blocks = {str(i): slice(i, i + 1) for i in range(1, n + 1)}
        (test,) = asked(faithfulness, bench, part("sum", blocks=blocks))
        assert test.headline.endswith(words)
    assert SETTLING_PAIRS == 100


def test_a_part_is_not_told_of_by_another_that_holds_its_variable() -> None:
    """Two sites of one hook, exchanged together: where one alone does it, where both have to be
    exchanged, and where either does it.
    """
    parts = (part("sum"), replace(part("sum"), site=Site(HERE.hook, 0)))
    rules: list[tuple[Any, int]] = [
        (lambda sites: HERE in sites, 1),
        (lambda sites: len(sites) == 2, 2),
        (lambda sites: len(sites) > 0, 2),
    ]
    for rule, told in rules:
        bench = stub(
            lambda own, edits, rule=rule: (
                edits[0].new["sum"] if rule({one.fit.part.site for one in edits}) else own["sum"]
            )
        )
        for made in (faithfulness, interchanges):
            (test,) = asked(made, bench, *parts)
            assert test.value == 1.0 and test.of == tuple(map(str, parts[:told]))


def test_causal_scrubbing_only_refutes() -> None:
    bench = stub(lambda own, edits: (edits[0].new["sum"] + 1) % N if edits else own["sum"])
    whole = part("sum", whole=True)
    for some, own, of_claim in ((bench, "wrong", "wrong"), (stub(), "stands", "untested")):
        found = causal_scrubbing(some, whole)
        assert (found.standing, standing_of(str(whole), [found]).standing) == (own, of_claim)
    assert causal_scrubbing(bench, part("a", "b", name="both", whole=True)).standing == "untested"


# --- logits ---------------------------------------------------------------------------------------
def test_the_right_answer_is_a_rival_with_its_best_constant() -> None:
    """Of logits that are a constant times the right answer nothing is left to another program."""
    bench = stub(n=7, judged=40)
    object.__setattr__(bench, "fitted", torch.arange(9, 49))
    assert right_answer(bench).value == pytest.approx(1.0)
    values = Part("sum", part("sum").site, ("sum",), lambda v: torch.eye(7).double()[v["sum"]])
    found = match(bench, bench.fit(values), None)
    assert found.value == pytest.approx(1.0) and found.standing == "wrong"
    assert found.effect.baseline is None and found.details
    fit = bench.fit(values)
    # where its blocks carry it, features that contain the right answer need not exceed it
    assert match(bench, fit, None, carried=True).standing == "stands"
    beside = match(bench, fit, fit, carried=True)
    assert beside.standing == "incomplete" and beside.effect.baseline is not None
    other = Part("a", values.site, ("a",), lambda v: torch.eye(7).double()[v["a"]])
    assert match(bench, bench.fit(other), None, carried=True).details


def test_the_answers_of_a_program_are_its_own_or_those_of_the_logits_it_reads() -> None:
    """Features that do not tell 3 from 4 give one of them; without features it is what it says."""
    bench = stub(n=7, judged=40)
    object.__setattr__(bench, "fitted", torch.arange(9, 49))
    rows, table = torch.arange(49), torch.eye(7).double()
    own = bench.values(rows)["sum"]
    assert torch.equal(program_answers(bench, rows, None), own)
    assert torch.equal(program_answers(bench, rows, lambda v: table[v["sum"]]), own)
    found = program_answers(bench, rows, lambda v: table[torch.where(v["sum"] == 3, 4, v["sum"])])
    wrong = (found != own).nonzero().flatten()
    assert len(set(own[wrong].tolist())) == 1 and set(own[wrong].tolist()) <= {3, 4}


# --- attention ------------------------------------------------------------------------------------
def test_other_keys_are_other_keys() -> None:
    """Where other inputs have other keys, these are taken: of 0 and 5 half the time."""
    bench = stub()
    every = torch.arange(len(bench.judged))
    for keys in (0 * every, every % 6, 5 * (every % 2)):
        other = draw_other_keys(bench, keys, torch.full_like(keys, 5))
        assert not bool((other == keys).any()) and bool(((other >= 0) & (other <= 5)).all())
    assert 0.55 < float(torch.isin(other, torch.tensor([0, 5])).float().mean())


def first() -> Program:
    """The first of two tokens."""
    a, b, _ = addition().steps
    return Program("first", (a, b, Step("sum", N, lambda tokens, a: a, ("a",))), (("sum",),))


def test_a_route_is_held_to_the_named_key() -> None:
    """A model that answers with the token that its one head attends to, as it is made to."""

    def answer(own: dict[str, Any], edits: list[Any]) -> Any:
        if not edits:
            return own["a"]
        return torch.where(edits[0].value[:, 1, 0].argmax(1) == 0, own["a"], own["b"])

    bench = stub(answer, program=first())
    pattern = torch.tensor([[[1.0, 0.0], [0.9, 0.1]]]).repeat(N * N, 1, 1, 1)
    bench.subject.activation = lambda hook: pattern
    for key, standing in ((0, "stands"), (1, "wrong")):
        claim = Route("goes", 0, (0,), lambda tokens, values, key=key: tokens[:, 0] * 0 + key)
        found, most = route(bench, claim)
        assert (most.kind, most.standing, most.refutes) == ("attention", standing, True)
        assert (found.kind, found.standing, found.of) == ("path patching", standing, (str(claim),))
        assert found.value + found.effect.baseline > 1
    (told,) = route(bench, Route("the same", 0, (0,)))
    assert (told.kind, told.value, told.of) == ("attention", 1.0, ())
    assert told.headline == "Attention of L0H0 may be that of any other input."


@pytest.mark.parametrize("place", [0, 1])
def test_a_key_is_held_to_each_class_of_the_first_and_last_token(place: int) -> None:
    """Inputs of one token of 25, whose attention goes elsewhere."""
    bench = stub(lambda own, edits: own["sum"] if edits else own["a"], 25, program=addition(25))
    away = (bench.subject.data.tokens[:, place] == 7)[:, None]
    pattern = torch.where(away, torch.tensor([0.1, 0.9]), torch.tensor([0.9, 0.1]))
    bench.subject.activation = lambda hook: pattern[:, None, None].expand(-1, 1, 2, 2)
    claim = Route("goes", 0, (0,), lambda tokens, values: tokens[:, 0] * 0)
    every, alone = (one for one in route(bench, claim) if one.kind == "attention")
    assert (every.standing, alone.standing, alone.n) == ("stands", "wrong", 25)


def test_a_key_is_held_to_inputs_that_tell_it_from_a_place() -> None:
    """The larger of two tokens is the first on half of the inputs: the others tell, where many.
    Three inputs in five attend most to the first, where three in four are asked for.
    """
    first = torch.arange(N * N)[:, None] % 5 < 3
    pattern = torch.where(first, torch.tensor([0.9, 0.1]), torch.tensor([0.1, 0.9]))

    def larger(tokens: Any, values: Any) -> Any:
        return tokens.argmax(1)

    for judged, refutes in ((None, False), (27, True)):
        bench = stub(idle, judged=judged)
        bench.subject.activation = lambda hook: pattern[:, None, None].expand(-1, 1, 2, 2)
        claim = Route("goes", 0, (0,), larger)
        found, every, apart = route(bench, claim)
        tokens = bench.tokens(bench.judged)
        several = find_apart_from_place(bench, claim, larger(tokens, {}))
        assert several is not None and apart.n == int(several.sum()) < every.n == len(tokens)
        assert found.refutes == refutes == (apart.n < 24)
    fixed = Route("goes", 0, (0,), lambda tokens, values: tokens[:, 0] * 0)
    bench = replace(bench, judged=torch.arange(N * N))
    _, most = route(bench, fixed)
    assert most.standing == "incomplete"


def test_a_copy_moves_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """By counts of a model that gives the token at the key, and follows it so and so often."""
    bench = stub(program=first())
    tokens = bench.tokens(bench.judged)
    claim = Copy(Route("goes", 0, (0,), lambda tokens, values: tokens[:, 0] * 0))
    for own, hits, stays, said in (
        (tokens[:, 0], 600, 20, ["stands", "stands"]),
        (tokens[:, 1], 600, 20, ["wrong", "stands"]),
        (tokens[:, 0], 400, 20, ["stands", "incomplete"]),
        (tokens[:, 0], 600, 80, ["stands", "incomplete"]),
    ):
        measured = Measured(hits, 600, stays, 600)
        monkeypatch.setattr(attention, "moved_key", lambda *given, found=measured: found)
        at = torch.ones(len(own), dtype=torch.long)
        sources: Any = SimpleNamespace(tokens=tokens, own=own, at=at)
        assert [one.standing for one in copied(bench, claim, sources)] == said


# --- what a variable is known up to ---------------------------------------------------------------
def reading(compute: Any) -> Program:
    """The sum of b and what is computed of a."""
    a = Step("a", N, lambda tokens: tokens[:, 0], positions=(0,))
    b = Step("b", N, lambda tokens: tokens[:, 1], positions=(1,))
    total = Step("sum", N, lambda tokens, a, b: (compute(a) + b) % N, ("a", "b"))
    return Program("reading", (a, b, total), (("sum",),))


@pytest.mark.parametrize(
    ("compute", "told", "known"),
    [
        (lambda a: a, N, ""),
        (lambda a: a % 3, 3, "up to mod 3"),
        (lambda a: a // 3, 3, "up to 3 classes of its 9 values"),
        (lambda a: 0 * a, 1, "up to 1 classes of its 9 values"),
    ],
)
def test_a_variable_is_known_up_to_what_answers_tell(compute: Any, told: int, known: str) -> None:
    (found,) = finer(stub(program=reading(compute)), [part("a", whole=True)])
    assert (found.kind, found.standing) == ("resolution", "stands")
    assert (found.value, found.n, found.caveat) == (told, N, known)


def test_a_name_of_the_answer_is_untested_and_the_answer_itself_is_not_asked() -> None:
    a, b, total = stub().program.steps
    named = Step("c", N, total.compute, ("a", "b"))
    answer = Step("sum", N, lambda tokens, c: c, ("c",))
    bench = stub(program=Program("named", (a, b, named, answer), (("sum",),)))
    for whole in (True, False):
        (found,) = finer(bench, [part("c", whole=whole)])
        assert found.standing == "untested" and found.reason.endswith("these are sum")
    asked = [part("sum"), part("a", "b", name="both"), part("a", blocks={"1": slice(0, 2)})]
    assert not list(finer(bench, asked))


def test_what_brings_its_keys_side_by_side_is_read_linearly(monkeypatch: Any) -> None:
    """Features, and a head that may attend as in any other input."""
    for verdict in ("yes", "no"):
        made = [SimpleNamespace(verdict=verdict)]
        monkeypatch.setattr("mechint.explanation.checks.finer.route", lambda *_, made=made: made)
        whole = part("a", whole=True)
        of_head = replace(whole, site=Site.of("head", 0, "answer", (0,)))
        assert is_linear(stub(), of_head) == (verdict == "yes")
        assert is_linear(stub(), replace(part("a"), site=of_head.site))
        assert is_linear(stub(), part("a")) and not is_linear(stub(), whole)


def test_a_site_holds_a_variable_beyond_the_answer() -> None:
    """A site that holds the answer alone reads the variable no better than chance among inputs
    with one answer; it can only refute.
    """
    bench = stub()
    object.__setattr__(bench, "fitted", bench.judged)
    for held, value, standing in (("a", 1.0, "stands"), ("sum", 1 / N, "wrong")):

        def activation(site: Any, rows: Any, held: str = held) -> Any:
            return torch.nn.functional.one_hot(bench.values(rows)[held], N).double()

        object.__setattr__(bench, "activation", activation)
        found = beyond(bench, part("a"), classify_values(bench, "a"))
        assert found.value == pytest.approx(value, abs=0.05) and found.standing == standing
        assert found.refutes and found.chance == pytest.approx(1 / N, abs=0.01)


# --- blocks ---------------------------------------------------------------------------------------
def seen_blocks(
    *parts: Part, spare: Any = None, answer: Any = None
) -> tuple[list[Any], list[list[tuple[str, Any]]]]:
    """The tests of blocks of parts, the last of which reads; and the edits of each forward."""
    edited: list[list[tuple[str, Any]]] = []

    def follows(own: dict[str, Any], edits: list[Any]) -> Any:
        if edits:
            edited.append([(one.fit.part.name, one.columns) for one in edits])
        if not edits or answer is None:
            return edits[0].new["sum"] if edits else own["sum"]
        return answer(own, edits)

    bench = stub(follows)
    explanation = Explanation("e", bench.program, parts, spare_blocks=spare)
    fits = [bench.fit(one) for one in parts if one.features is not None]
    return list(blocks(bench, explanation, fits[-1], fits)), edited


def cut(*names: str) -> dict[str, slice]:
    return {name: slice(2 * i, 2 * i + 2) for i, name in enumerate(names)}


def test_each_block_is_exchanged_where_it_is() -> None:
    """Of the answer's blocks those of the inputs are exchanged there, too; every one is asked for
    its need, and those of the inputs alone, too; one alone is the whole part, and is not.
    """
    a = part("a", blocks=cut("1", "3"))
    plain = part("b", name="plain")
    reads = part("sum", blocks=cut("1", "2"), reads=True)
    found, _ = seen_blocks(a, plain, reads)
    told = [(one.kind, one.target, one.of) for one in found]
    assert told == [
        ("partial", "1", (str(reads),)),
        ("minimality", "1", (str(reads),)),
        ("minimality", "2", (str(reads),)),
        ("minimality", "3", (str(a),)),
    ]
    one = part("sum", blocks=cut("1"), reads=True)
    assert seen_blocks(one)[0] == []
    assert seen_blocks(part("a", blocks=cut("3")), one)[0] == []
    alike, _ = seen_blocks(replace(a, blocks=cut("1", "2")), reads)
    assert [one.target for one in alike] == ["1", "1", "2", "2"]


def test_a_block_is_exchanged_in_the_parts_that_have_it_with_their_variables() -> None:
    """Two parts of one input, one with the block: by the other input nothing changes."""
    a = part("a", name="one", blocks=cut("1", "3"))
    also = part("a", name="two", blocks=cut("1", "4"))
    reads = part("sum", blocks=cut("1"), reads=True)

    def answer(own: dict[str, Any], edits: list[Any]) -> Any:
        there = {2, 3} <= set(torch.arange(4)[edits[0].columns].tolist())
        return (edits[0].new["a"] + own["b"]) % N if there else own["sum"]

    found, edited = seen_blocks(a, part("b"), also, reads, answer=answer)
    assert [one.target for one in found] == ["3", "4"]
    # of the answers of a exchanged alone all are lost without columns 2 and 3 of the first part
    assert [one.value for one in found] == [1.0, 0.0]
    assert [[name for name, _ in edits] for edits in edited[:3]] == [["one"], *[["one", "two"]] * 2]


def test_a_block_is_ranked_among_spare_ones() -> None:
    claim = part("sum", blocks=cut("1", "2", "3"), reads=True)
    found, _ = seen_blocks(claim, spare=lambda one, name: [one.features] * 9)
    assert [one.null for one in found] == ["spare blocks, 9"] * 3
    assert [list(one.details.values()) for one in found] == [[1.0]] * 3
    assert [one.null for one in seen_blocks(claim)[0]] == [None] * 3


# --- standings ------------------------------------------------------------------------------------
def record(standing: str, *claims: str, kind: str = "interchange", refutes: bool = False) -> Test:
    verdict: Any = {"stands": "yes", "incomplete": "no", "wrong": "no"}.get(standing, standing)
    false = standing == "wrong"
    found, said = Evidence.share(5, 10), Decision(verdict, standing)
    return Test.made(kind, "target", claims, said, found, contradicts=false, refutes=refutes)


def test_a_claim_is_what_its_worst_test_says() -> None:
    order = ("wrong", "incomplete", "unclear", "stands", "untested")
    for names in itertools.product(order, repeat=3):
        tests = [record(name, "claim", "other") for name in names]
        assert standing_of("claim", tests).standing == min(names, key=order.index)
        assert standing_of("a third", tests).standing == "untested"
    found = standing_of("claim", [record("stands", "claim"), record("wrong", "claim")])
    assert found.reason == "interchange of target: wrong"


def test_a_block_that_is_not_needed_speaks_against_the_whole() -> None:
    changed = judge_r2("partial", "5", ("claim",), of(0.1), bound=PARTIAL)
    idle = judge_block("5", ("claim",), Evidence.ratio(np.zeros(900)), ranked(0.5))
    assert (changed.standing, idle.standing) == ("incomplete", "needless")
    good = record("stands", "claim")
    assert standing_of("claim", [good, changed, idle]).standing == "stands"
    assert standing_of("claim", [good, changed]).standing == "incomplete"
    used = judge_block("5", ("claim",), Evidence.share(90, 900))
    assert standing_of("claim", [good, changed, used]).standing == "incomplete"
    alike = replace(record("wrong", "claim"), target="5")
    assert standing_of("claim", [good, alike, idle]).standing == "wrong"


def ranked(ratio: float) -> tuple[Evidence, Null]:
    draw = np.random.default_rng(1).uniform(0.9, 1.1, 900)
    null = Null.sampled("effect", 1.0, [0.5] * 12, "spare blocks")
    return Evidence.ratio(ratio * draw, np.ones(900)), null


def test_an_explanation_is_what_its_worst_claim_is() -> None:
    order = ("wrong", "incomplete", "unclear", "untested", "stands")
    for claims in itertools.product(order, repeat=2):
        worst = min(claims, key=order.index)
        standing = "superfluous" if {*claims} == {"stands", "untested"} else worst
        assert combine([Standing(one, one) for one in claims], [])[0] == standing


def test_blocks_that_are_not_shown_to_be_needed_are_superfluous() -> None:
    held = [Standing("sum", "stands")]
    for found, words in ((need(0.0, 0.9), "not needed"), (need(0.0), "not shown to be needed")):
        assert combine(held, [found]) == ("superfluous", f"{words}: 5")
    assert combine(held, [need(0.03)])[0] == "stands"


def test_the_claims_of_an_explanation_are_all_that_it_says() -> None:
    """Attention that may be any other's is told, and claims nothing."""
    route = Route("attends to the first token", 0, (1,), lambda tokens, values: tokens[:, 0])
    alike = Route("attention is the same", 0, (0,))
    explanation = Explanation("e", stub().program, (part("a"),), (route, alike))
    found = judge(stub(), explanation, [record("wrong", kind="attention")])
    assert [one.claim for one in found.claims] == [str(part("a")), str(route)]
    assert found.standing == "untested"


def test_of_equal_shares_the_least_certain_is_said() -> None:
    """Of a branch with few inputs, behind one with many."""
    tests = [share(0.9, n=n) for n in (5000, 30, 900)]
    made = judge(stub(), Explanation("e", stub().program), tests).accounted
    assert made is not None and made.at_least == min(one.kept[1] for one in tests if one.kept)


def test_a_name_says_which_answer_it_is_of() -> None:
    found = judge(stub(), Explanation("answer = a", stub().program), [])
    for name in ("answer", "x"):
        scope = Scope(answers="" if name == "answer" else name)
        assert replace(found, scope=scope).to_dict()["name"] == f"{name} = a"


def test_the_value_of_a_kind_is_the_least_favorable() -> None:
    tests = [share(value) for value in (0.9, 0.7)]
    tests += [replace(share(value, bound=LOST), kind="completeness") for value in (0.1, 0.3)]
    found = judge(stub(), Explanation("e", stub().program), tests)
    assert (found.value("interchange"), found.value("completeness")) == (0.7, 0.3)
    assert math.isnan(found.value("faithfulness")) and math.isnan(found.value("match"))


def shares(claims: tuple[str, ...] = ("claim",), **kept: float) -> list[Test]:
    """Shares of a kind each, by what is kept above chance."""
    named = {kind.replace("_", " "): one for kind, one in kept.items()}
    found = {kind: Evidence.share(round(8000 * one + 1000), 10_000) for kind, one in named.items()}
    return [judge_share(kind, "x", claims, one, SKILL) for kind, one in found.items()]


def matched(value: float, decision: Decision | None = None, kind: str = "match") -> Test:
    found = judge_r2(kind, "x", ("claim",), of(value))
    return found if decision is None else replace(found, verdict=decision.verdict)


UNTESTED = Decision("untested", "the right answer")


@pytest.mark.parametrize(
    ("tests", "said"),
    [
        ([matched(0.8), matched(0.6), matched(0.1, UNTESTED)], ("explains logits", 0.6)),
        (
            [*shares(interchange=0.3), matched(0.8), matched(0.2, kind="partial")],
            ("explains logits", 0.8),
        ),
        ([*shares(interchange=0.3), matched(0.8, UNTESTED)], ("keeps above chance, under", 0.3)),
        (
            shares(interchange=0.9, path_patching=0.2, faithfulness=0.1),
            ("keeps above chance, under interchange", 0.9),
        ),
        (shares(path_patching=0.7, faithfulness=0.1), ("keeps above chance, with this", 0.7)),
        (shares(coverage=0.9, path_patching=0.5, interchange=0.2), ("explains answers", 0.5)),
        (shares(coverage=0.8, composed_inputs=0.9), ("explains answers", 0.8)),
        (
            shares(coverage=0.9, composed_inputs=0.8, causal_scrubbing=0.2),
            ("explains answers", 0.8),
        ),
        ([*shares((), interchange=0.9), *shares(faithfulness=0.1)], None),
        ([share(1.0, skill=Skill(0.11, 0.11, 5000))], None),
        ([], None),
    ],
)
def test_a_headline_names_the_least_of_what_was_counted(
    tests: list[Any], said: tuple[str, float] | None
) -> None:
    """Logits before answers, programs that compute them before what is kept; of that with what
    was exchanged. A program that computes ranks before one that does not, of one standing.
    """
    explanation = Explanation("e", stub().program, (part("a"),))
    found = judge(stub(), explanation, tests)
    made = found.accounted
    assert (made is None) == (said is None) == (found.to_dict()["accounted"] is None)
    if made is not None and said is not None:
        words = [made.verb, made.of if made.verb == "explains" else made.how]
        assert " ".join(words).startswith(said[0]) and made.share == pytest.approx(said[1])
        assert made.of == "logits" or made.how.startswith("above chance")
        mixed = any(
            t.kind == "composed inputs" and t.kept[0] <= made.share for t in tests if t.kept
        )
        assert ("mixed inputs" in made.how) == mixed
    first = "keeps" if said is None else " ".join(said[0].split()[:2])
    kind = 3 if said is None else {"explains logits": 0, "explains answers": 1}.get(first, 2)
    place = list(STANDINGS).index(found.standing)
    assert found.rank == (place, kind, pytest.approx(0.0 if said is None else -said[1]))


def test_a_test_is_a_finding_with_its_numbers() -> None:
    """As JSON and back; the null and the right answer stand beside, and what decided a block."""
    kinds = [
        share(0.9, null=0.2),
        judge_r2("match", "x", ("claim",), of(0.8), rival=of(0.2)),
        need(0.0, 5.0),
    ]
    for one in kinds:
        assert Test.from_dict(one.to_dict()) == one and one.to_dict()["standing"] == "stands"
    assert kinds[0].effect.baseline == 0.2 and kinds[0].least == pytest.approx(0.82)
    assert list(kinds[1].details.values()) == [pytest.approx(0.2)]
    assert kinds[2].p_value == pytest.approx(1 / 13) and need(0.5).p_value is None
    claim = judge(stub(), Explanation("e", stub().program), kinds).tests[0]
    assert str(claim.scope) == f"on {len(stub().judged)} inputs drawn"


def test_a_name_of_the_answer_is_untested_whatever_else_stands() -> None:
    finer = record("untested", "claim", kind="resolution", refutes=True)
    assert standing_of("claim", [share(0.85), finer]).standing == "untested"
    assert standing_of("claim", [share(0.1), finer]).standing == "wrong"
    mod = replace(record("stands", "claim", kind="resolution", refutes=True), caveat="up to mod 3")
    assert standing_of("claim", [share(0.85), mod]) == Standing("claim", "stands", "", mod.caveat)
    assert standing_of("claim", [mod]).standing == "untested"
