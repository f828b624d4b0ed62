"""Tests of a program over sources, clause by clause, from counts that are given."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from mechint.explanation.checks import composed, words
from mechint.explanation.functions import Function
from mechint.explanation.records import Test
from mechint.explanation.sources import EMBEDDING, Measured

N, EXACT = 100, 10**6
GOOD = Measured(990_000, EXACT, 100_000, EXACT, 0.1)
MEASURES = ("kept_without", "routed", "reads", "swapped", "scrubbed", "moved_key")


def of(share: float, null: float | None = None) -> Measured:
    """A count with hardly any interval, chance being .1."""
    counted = (None, 0) if null is None else (round(null * EXACT), EXACT)
    return Measured(round(share * EXACT), EXACT, *counted, 0.1)


def rule(**more: Any) -> SimpleNamespace:
    """The largest of four tokens, or what else is said of it."""
    made = {
        "kind": "token",
        "fixed": False,
        "shift": 0,
        "weights": None,
        "key": lambda tokens, at: tokens[:, :4].argmax(1),
        "keys": lambda tokens, at: torch.ones_like(tokens).bool(),
        "pattern": lambda tokens, at: torch.ones_like(tokens).float() / 5,
    }
    return SimpleNamespace(**{**made, **more})


def group(*sources: str, keys: tuple[int, ...] = (), mask: Any = None) -> SimpleNamespace:
    return SimpleNamespace(sources=sources, keys=keys, mask=mask)


def program(
    groups: tuple[Any, ...] = (group("L0H0"),), heads: dict[str, Any] | None = None, **more: Any
) -> Any:
    """The token that the head of the first group brings."""
    heads = {"L0H0": rule()} if heads is None else heads
    made = {
        "groups": groups,
        "heads": heads,
        "variables": tuple(
            [
                SimpleNamespace(name=f"v{i}{j}", python=f"v{i}{j}")
                for j in range(max(len(one.keys), 1))
            ]
            for i, one in enumerate(groups)
        ),
        "function": Function("v00 or v20", lambda values: values["v00"], 1),
        "inputs": SimpleNamespace(
            own=lambda tokens, at: tokens[:, -1],
            is_operand=lambda tokens, at: torch.ones_like(tokens).bool(),
            d_vocab=7,
        ),
        "rest": (),
        "alone": len(groups) == 1,
        "fixed": [head for head, one in heads.items() if one.fixed],
        "ambiguous_claims": set[str](),
        "answer": lambda tokens, at: tokens[:, 0],
        "right": lambda tokens, at, own: tokens[:, 0] == own,
        "values": lambda tokens, at: {f"v{i}0": tokens[:, i] for i in range(len(groups))},
        "part_claims": lambda i=None: tuple(
            f"part {k}" for k in range(len(groups)) if i in (None, k)
        ),
        "route_claims": lambda named=None: tuple(
            f"route {h}" for h in heads if h in (named or heads)
        ),
    }
    return SimpleNamespace(**{**made, **more})


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function of a program and the counts → the tests of each kind, and what was asked."""

    def made(given: Any, *, tokens: Tensor | None = None, **counts: Any) -> Any:
        measures = dict[str, Mock]()
        for name in MEASURES:
            count = counts.get(name, GOOD)
            several = {"side_effect" if isinstance(count, list) else "return_value": count}
            measures[name] = Mock(**several)
            monkeypatch.setattr(composed, name, measures[name])
        monkeypatch.setattr(composed, "composed", lambda *_: GOOD)
        tokens = torch.arange(N * 5).reshape(N, 5) % 7 if tokens is None else tokens
        own = counts.get("own", tokens[:, 0])

        class Given(SimpleNamespace):
            def __len__(self) -> int:
                return N

        sources, several = (
            Given(
                tokens=tokens.repeat(times, 1),
                at=torch.full((times * len(tokens),), 4),
                own=own.repeat(times),
                names=("embedding", "L0H0", "L0H1"),
                visible=(torch.arange(5) < counts.get("visible", 5)).expand(times * N, 5),
                restricted=lambda head, keys: keys.float(),
            )
            for times in (1, counts.get("times", 1))
        )
        sources.repeated = Mock(return_value=several)
        found: dict[str, list[Test]] = {}
        for test in composed.source_tests(sources, given):
            found.setdefault(test.kind, []).append(test)
        asked = {name: [one.args[1:] for one in m.call_args_list] for name, m in measures.items()}
        asked["repeated"] = [one.args[0] for one in sources.repeated.call_args_list]
        return SimpleNamespace(tests=found, asked=asked)

    return made


@pytest.mark.parametrize(
    ("kind", "name", "bound"),
    [
        ("path patching", "routed", 0.9),
        ("interchange", "swapped", 0.9),
        ("causal scrubbing", "scrubbed", 0.9),
        ("moved key", "moved_key", 0.75),
        ("faithfulness", "kept_without", 0.96),
        ("path patching", "reads", 0.9),
    ],
)
def test_each_count_has_its_bound_above_chance(
    told: Any, kind: str, name: str, bound: float
) -> None:
    """A hundredth beside it; of its null half may be reached, but where there is none."""
    fixed = {"L0H0": rule(fixed=True)} if name == "reads" else None
    given = program(heads=fixed, rest=("L0H1",))
    for more, standing in ((0.01, "stands"), (-0.01, "incomplete")):
        at = 0.1 + 0.9 * (bound + more)
        null = [of(at), of(0.2)] if kind == "faithfulness" else of(at, 0.2)
        test = told(given, **{name: null}).tests[kind][-1]
        assert test.standing == standing
    for null, standing in ((0.54, "stands"), (0.56, "incomplete")):
        count = [of(0.99), of(null)] if kind == "faithfulness" else of(0.99, null)
        test = told(given, **{name: count}).tests[kind][-1]
        assert test.standing == ("stands" if kind == "causal scrubbing" else standing)


def test_coverage_is_of_the_models_own_answers(told: Any) -> None:
    tokens = torch.arange(N * 5).reshape(N, 5) % 7
    for own, standing in ((tokens[:, 0], "stands"), (tokens[:, 1], "wrong")):
        (test,) = told(program(), own=own).tests["coverage"]
        assert (test.standing, test.refutes) == (standing, True)
        assert test.of == ("part 0", "route L0H0")


def test_what_the_prompts_do_not_tell_is_not_claimed(told: Any) -> None:
    """A test of unknown claims alone can only refute."""
    given = program(ambiguous_claims={"route L0H0"})
    found = told(given).tests
    assert found["coverage"][0].of == ("part 0",)
    (route,) = found["path patching"]
    assert route.of == ("route L0H0",) and route.refutes and found["interchange"][0].of


def test_a_token_that_is_the_same_everywhere_is_irrelevant_to_nothing(told: Any) -> None:
    """What is exchanged for the same can only refute; and the null exchanges what is used."""
    same = torch.zeros(N, 5).long()
    varied = torch.arange(N * 5).reshape(N, 5) % 7
    for rest, tokens, refutes in (
        ((EMBEDDING,), same, True),
        ((EMBEDDING,), varied, False),
        (("L0H1",), same, False),
    ):
        found = told(program(rest=rest), tokens=tokens, kept_without=[of(0.99), of(0.2)])
        (test,) = found.tests["faithfulness"]
        assert test.refutes == refutes and [one[0] for one in found.asked["kept_without"]] == [
            rest,
            ["L0H0"],
        ]
    assert "faithfulness" not in told(program()).tests


def test_edits_of_several_heads_say_that_they_are_together(told: Any) -> None:
    for rest, heads, name, together in (
        (("L0H1",), {"L0H0": rule()}, "route L0H0", False),
        (
            ("L0H1", EMBEDDING),
            {"L0H0": rule(), "L1H0": rule()},
            "attention of L0H0, L1H0 as named",
            True,
        ),
    ):
        found = told(program(heads=heads, rest=rest))
        (faithful,), (patched,) = found.tests["faithfulness"], found.tests["path patching"]
        assert patched.target == name and set(found.asked["repeated"]) == {1000}
        for test in (faithful, patched):
            assert test.scope.components == (len(rest), 3) and test.scope.together == together


def test_routes_without_a_null_can_only_refute(told: Any) -> None:
    for measured, refutes in ((of(0.99, 0.2), False), (of(0.99), True)):
        (test,) = told(program(), routed=measured).tests["path patching"]
        assert test.refutes == refutes
    (test,) = told(program(), routed=[of(0.99, 0.2), of(0.5, 0.9)]).tests["path patching"]
    assert (test.value, test.effect.baseline) == (0.99, 0.9)  # that of several others of each
    assert "path patching" not in told(program(heads={})).tests


def test_heads_of_which_all_keys_are_named_are_not_tested(told: Any) -> None:
    """By weights of their own they attend as they do: nothing is edited; others decide alone."""
    named, free = rule(fixed=True, weights="own"), rule()
    found = told(program(heads={"L0H0": named}))
    (test,) = found.tests["path patching"]
    assert test.verdict == "untested" and test.of == ("route L0H0",)
    assert not found.asked["routed"] and not found.asked["reads"]
    (test,) = told(program(heads={"L0H0": named, "L1H0": free})).tests["path patching"]
    assert test.verdict == "yes" and test.of == ("route L1H0",)
    (test,) = told(program(), visible=1).tests["path patching"]
    assert test.verdict == "untested"
    some = rule(fixed=True, weights="own", keys=lambda tokens, at: tokens > 2)
    assert len(told(program(heads={"L0H0": some})).tests["path patching"]) == 2


def test_heads_that_read_fixed_positions_read_no_other(told: Any) -> None:
    """With others beside them these may keep the answer; groups of heads of layer 0 are claimed."""
    fixed, free = rule(fixed=True), rule()
    groups = (group("L0H0"), group("L1H0"), group("L0H0", EMBEDDING))
    every = {"L0H0": fixed, "L1H0": fixed}
    test = told(program(groups, every)).tests["path patching"][-1]
    assert test.of == ("route L0H0", "route L1H0", "part 0")
    assert not test.refutes and test.effect.baseline is not None
    test = told(program(groups, every), reads=of(0.99)).tests["path patching"][-1]
    assert test.refutes
    test = told(program(groups, {"L0H0": fixed, "L1H0": free})).tests["path patching"][-1]
    assert test.refutes and test.effect.baseline is None
    assert test.target == "L0H0: the named keys alone"
    assert len(told(program()).tests["path patching"]) == 1


def test_keys_that_hold_one_token_in_all_inputs_are_not_shown_to_be_unread(told: Any) -> None:
    """As that of "=": a head of the first layer brings the same from there, whatever the input."""
    tokens = torch.arange(N * 5).reshape(N, 5) % 7
    tokens[:, 3:] = torch.tensor([5, 6])
    for named, layer, verdict in ((3, 0, "untested"), (2, 0, "yes"), (3, 1, "yes")):
        some = rule(fixed=True, keys=lambda t, at, n=named: (torch.arange(5) < n).expand_as(t))
        heads = {f"L{layer}H0": some}
        routes, read = told(program(heads=heads), tokens=tokens).tests["path patching"]
        assert (routes.verdict, read.verdict) == ("yes", verdict)


def test_interchanges_are_of_groups_keys_or_halves(told: Any) -> None:
    """Of one group alone a whole interchange follows from coverage; few changes are none."""
    keyed, halved = group("L0H1", keys=(1, 3)), group("L0H2", mask=lambda tokens, at: tokens > 0)
    found = told(program((group("L0H0"), keyed, halved)))
    assert [one.target for one in found.tests["interchange"]] == [
        "v00",
        "v10",
        "v11",
        "half of v20",
    ]
    assert [one[3] for one in found.asked["swapped"]] == [None, 1, 3, None]
    assert {one[-1] for one in found.asked["swapped"]} == {1000}
    named = [SimpleNamespace(name=one, python=one) for one in ("v00", "unused", "v20")]
    (test,) = told(program(variables=(named,), alone=False)).tests["interchange"]
    assert test.target == "v00, v20 together"
    for one, refutes in ((group("L0H0"), [True]), (keyed, [False] * 2), (halved, [False])):
        tests = told(program((one,), alone=True)).tests["interchange"]
        assert [test.refutes for test in tests] == refutes
    assert not any(test.refutes for test in found.tests["interchange"])
    for n, standing in ((1, "untested"), (2, "unclear")):
        (test,) = told(program(), swapped=Measured(n, n)).tests["interchange"]
        assert test.standing == standing


def test_few_right_answers_are_wrong_where_a_constant_gives_them_all(told: Any) -> None:
    """A constant has all of them, so that none above it can be right; but some are wrong."""
    for right, standing in ((0, "wrong"), (N, "unclear")):
        tokens = torch.zeros(N, 5).long() + (torch.arange(N)[:, None] >= right)
        (test,) = told(program(), tokens=tokens, own=torch.zeros(N).long()).tests["coverage"]
        assert test.standing == standing and test.value == right / N


def test_a_key_is_moved_where_a_token_rule_names_it(told: Any) -> None:
    """To operands whose tokens were brought on three inputs or more; decides of one group alone."""
    tokens = torch.zeros(N, 5).long()
    tokens[:, 0] = torch.tensor([5, *[1] * 2, *[2] * 3, *[3] * 94])
    tokens[:, 1:] = torch.tensor([1, 2, 3, 5])
    for times in (1, 2):  # pairs with several others are no more inputs
        found = told(program(), tokens=tokens, times=times)
        heads, key, free = found.asked["moved_key"][0][:3]
        assert heads == ["L0H0"] and torch.equal(key, tokens[:, :4].argmax(1).repeat(times))
        assert free[50].tolist() == [True, False, True, True, False]
    (test,) = found.tests["moved key"]
    assert test.of == ("part 0",)
    assert "moved key" not in told(program((group("L0H0"), group("L0H1")))).tests
    for other in (rule(kind="bag"), rule(fixed=True)):
        assert "moved key" not in told(program(heads={"L0H0": other})).tests
    assert "moved key" not in told(program((group("L0H1"),))).tests


def test_a_token_beside_its_key_stands_where_keys_are(told: Any) -> None:
    """Of keys at positions 1 and 2, and none on some inputs, no other place may be moved to."""
    key = torch.tensor([1, 2] * 49 + [-1] * 2)
    shifted = rule(shift=1, key=lambda tokens, at: key)
    tokens = torch.zeros(N, 5).long()
    free = told(program(heads={"L0H0": shifted}), tokens=tokens).asked["moved_key"][0][2]
    assert free[0].tolist() == [False, True, True, False, False]
    everywhere = told(program(), tokens=tokens).asked["moved_key"][0][2]
    assert bool(everywhere.all())


def test_a_null_is_asked_where_the_program_says_something_else() -> None:
    """By hand, of heads made to attend to the second token, and a bag to the next three."""
    tokens = torch.tensor([[1, 2, 3, 4, 0], [1, 1, 3, 4, 0], [5, 2, 2, 2, 0]])
    sources: Any = SimpleNamespace(tokens=tokens, at=torch.full((3,), 4))
    second = {"L0H0": torch.nn.functional.one_hot(torch.ones(3, dtype=torch.long), 5).float()}

    def silent(at: int) -> Function:
        return Function("v00", lambda values: values["v00"].where(values["v00"] != at, -1), 1)

    def counts(tokens: Tensor, at: Tensor) -> dict[str, Tensor]:
        return {"v00": torch.nn.functional.one_hot(tokens[:, :4], 7).sum(1)}

    def most(values: Any) -> Tensor:
        return values["v00"].argmax(1)

    bag = {"heads": {"L0H0": rule(kind="bag")}, "values": counts}
    three = {"L0H0": torch.tensor([0.0, 1, 1, 1, 0]).expand(3, 5)}
    for given, patterns, said in (
        (program(), second, [True, False, True]),
        (program(heads={"L0H0": rule(shift=1)}), second, [True, True, True]),
        (program(), {}, [False, False, False]),
        (program(function=silent(2)), second, [False, False, False]),
        (program(function=silent(1)), second, [False, False, True]),
        (program(heads={"L0H0": rule(weights="own")}), second, [True] * 3),
        (program((group("L0H0", keys=(1, 3)),)), second, [True] * 3),
        (program(**bag, function=Function("v00", most, 1)), three, [True, False, False]),
    ):
        assert composed.says_otherwise(sources, given, patterns).tolist() == said
    sources.tokens, sources.at = torch.tensor([[2, 2, 5, 5, 0]]), torch.tensor([4])
    given = program(**bag, function=Function("v00", most, 1))
    assert bool(composed.says_otherwise(sources, given, {"L0H0": three["L0H0"][:1]}))


@pytest.mark.parametrize(
    ("differ", "wrong", "more", "begins"),
    [
        (0, 0, {}, ""),
        (15, 7, {}, "few"),
        (19, 3, {}, "few"),  # 16 of 19, .62 at least
        (19, 0, {}, ""),
        (20, 9, {}, ""),  # one in fifty is not few
        (25, 12, {}, ""),
        (15, 7, {"tells": False}, ""),
        (15, 7, {"other": "bag"}, ""),
        (15, 7, {"kept": 0.1, "kind": "bag"}, ""),
        (15, 7, {"kept": 0.1, "weights": "own"}, ""),
        (25, 12, {"kept": 0.59}, "L0H0"),
        (25, 12, {"kept": 0.61}, ""),
    ],
)
def test_a_word_is_held_on_few_inputs_and_on_changed_prompts(
    monkeypatch: pytest.MonkeyPatch, differ: int, wrong: int, more: dict[str, Any], begins: str
) -> None:
    """Of 1000 inputs those on which another rule brings another token; attention that is kept."""
    every = torch.arange(1000)
    first, other = (
        rule(
            name=name,
            kind=more.get(kind, "token"),
            weights=more.get("weights"),
            token=lambda tokens, at, n=n: (every < n).long(),
            tells=lambda other: more.get("tells", True),
        )
        for name, kind, n in (("one", "kind", 0), ("another", "other", differ))
    )
    sources: Any = SimpleNamespace(tokens=every[:, None], at=0 * every, own=every)
    sources.among = lambda cut: sources
    given = program(heads={"L0H0": first}, right=lambda tokens, at, own: every >= wrong)
    changed = SimpleNamespace()
    monkeypatch.setattr(words, "rules_for", lambda inputs: [other])
    monkeypatch.setattr(words, "change_prompts", lambda *given: [("one repeat more", changed)])
    kept = torch.tensor(more.get("kept", 1.0))
    monkeypatch.setattr(
        words, "named_attention", lambda one, *given: kept if one is changed else torch.tensor(1.0)
    )
    said = words.find_untold_word(sources, given)
    assert said.startswith(begins) and bool(said) == bool(begins)
