"""Models and prompts that are made to be explained wrongly: no false program of them stands."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import mechint
from benchmarks.induced import build
from mechint.explanation import Audit, explain
from mechint.explanation.checks.words import change_prompts
from mechint.explanation.functions import Function, ProgramVariable
from mechint.explanation.measure import failing_class, is_population
from mechint.explanation.rules import Inputs, Rule
from mechint.explanation.source_program import Condition, SourceProgram
from mechint.explanation.sources import Group, Sources
from mechint.models.transformer import HookedTransformer
from tests.explanation.test_forgeries import empty

Draw = Callable[[np.random.Generator], Sequence[int]]
N, CTX = 8, 4
"""Symbols, and how many stand before the mark."""


def asked(model: HookedTransformer, draw: Draw, n: int = 1600) -> tuple[Any, Audit]:
    generator = np.random.default_rng(0)
    rows = [{"prompt": [*map(int, draw(generator)), N]} for _ in range(n)]
    subject = mechint.load(model, data=rows)
    return subject, explain(subject)[0]


def numbers(draw: np.random.Generator) -> list[int]:
    return draw.integers(0, N, CTX).tolist()


def agreement(found: Audit, subject: Any, model: HookedTransformer, rows: torch.Tensor) -> float:
    """Share of prompts on which the written program gives the model's answers."""
    names: dict[str, Any] = {"__name__": "found"}
    exec(found.explanation.to_python(subject), names)
    with torch.no_grad():
        own = model(rows)[:, -1].argmax(1).tolist()
    return float(
        np.mean([names["answer"](t) == a for t, a in zip(rows.tolist(), own, strict=True)])
    )


def random_rows(seed: int = 9) -> torch.Tensor:
    rows = torch.randint(N, (500, CTX + 1), generator=torch.Generator().manual_seed(seed))
    rows[:, -1] = N
    return rows


TABLE = torch.randint(N, (N, N), generator=torch.Generator().manual_seed(3)).tolist()
"""Answers without a rule."""


def cancelling() -> HookedTransformer:
    """Two heads write the first number with opposite signs, and the third head the answer."""
    model = build(N, CTX, (0, 0, 2), noise=0.0)
    attention, out = model.blocks[0].attn, N + CTX + 3
    with torch.no_grad():
        attention.W_O[1] = -attention.W_O[0]
        model.unembed.W_U[out : out + N] *= 4
    return model


def place_of_the_largest() -> HookedTransformer:
    """The head looks for the largest number and brings its position: the answer is no number."""
    model = build(N, CTX, ("largest",))
    with torch.no_grad():
        value = model.blocks[0].attn.W_V
        value[0, N : N + CTX, :CTX] = torch.eye(CTX)
        value[0, :N, :] *= 0
    return model


def table(a: int, b: int) -> int:
    """A sum on some pairs, and random on the others."""
    return (a + b) % N if (a + 2 * b) % 3 else TABLE[a][b]


def sums_alone(draw: np.random.Generator) -> list[int]:
    return next(row for row in iter(lambda: numbers(draw), []) if (row[0] + 2 * row[2]) % 3)


def mostly_falling(draw: np.random.Generator, share: float = 0.97) -> list[int]:
    row = sorted(numbers(draw), reverse=True)
    return row if draw.random() < share else row[::-1]


def tied(place: int, to: int, plus: int = 0) -> Draw:
    """The number at a place tells that at another."""

    def made(draw: np.random.Generator) -> list[int]:
        row = numbers(draw)
        row[place] = (row[to] + plus) % N
        return row

    return made


def of_equal(a: int, b: int) -> int:
    return a if a == b else (a + b) % N


def falling(draw: np.random.Generator) -> list[int]:
    return mostly_falling(draw, 1.0)


CASES: dict[str, tuple[Callable[[], HookedTransformer], Draw, str]] = {
    "random answers to pairs": (
        lambda: build(N, CTX, (0, 2), lambda a, b: TABLE[a][b]), numbers, "a table of 64 rows"
    ),
    "one in eight is answered by another place": (
        lambda: build(N, CTX, (0, 2), lambda a, b: b if a == 5 else a), numbers, "a table of 64"
    ),
    "a sum on the pairs that are asked": (
        lambda: build(N, CTX, (0, 2), table), sums_alone, "a table of"
    ),
    "a product of one that tells the other": (
        lambda: build(N, CTX, (0, 1), lambda a, b: (a * b) % N), tied(1, 0, 1), "a table of"
    ),
    "the first, mostly the largest": (lambda: build(N, CTX, (0,)), mostly_falling, "answer = t[0]"),
    "the last, which the first equals": (
        lambda: build(N, CTX, (CTX - 1,)), tied(0, CTX - 1), f"answer = t[{CTX - 1}]"
    ),
    "two heads of one token, either enough": (
        lambda: build(N, CTX, (1, 1)), numbers, "answer = t[1]"
    ),
    "two tokens always equal": (lambda: build(N, CTX, (0, 1), of_equal), tied(1, 0), ""),
    "two tokens equal in falling lists": (
        lambda: build(N, CTX, ("largest", 0), of_equal), falling, ""
    ),
    "heads that cancel": (cancelling, numbers, ""),
    "a key by size, read by place": (place_of_the_largest, numbers, ""),
    "a mean, but for ties a majority": (lambda: build(N, CTX, ("all",)), numbers, ""),
}  # fmt: skip
"""Model, prompts that do not tell what it does, and the program that stands; "" where none may."""


@pytest.mark.parametrize("what", CASES)
def test_what_stands_is_right_of_other_prompts_too(what: str) -> None:
    made, draw, name = CASES[what]
    subject, found = asked(model := made(), draw)
    assert (found.standing == "stands") == bool(name), found.reason
    if name:
        assert name in found.explanation.name
        assert agreement(found, subject, model, random_rows()) == 1.0
    elif "equal" in what:
        assert "the same on all prompts" in found.reason


@pytest.mark.parametrize(
    ("words", "fails", "sums"),
    [
        ("23 inputs with t[0] == 5 are", lambda a, b: a == 5, False),
        ("23 inputs with t[0] == t[-2] are", lambda a, b: a == b, False),
        ("of 528 inputs are clearly", lambda a, b: (a + 2 * b) % 23 == 3, True),
    ],
)
def test_a_class_that_is_answered_otherwise_is_named(words: str, fails: Any, sums: bool) -> None:
    """The sum, but for one of the symbols at the first place, or two equal ones, of which answers
    have no rule; or where it is another one, so that no class has a name.
    """
    draw, n = random.Random(1), 23
    odd = [draw.randrange(n) for _ in range(n)]

    def answer(a: int, b: int) -> int:
        return odd[b] if fails(a, b) and not sums else (a + b + (fails(a, b) and sums)) % n

    rows = [{"prompt": [a, b, n]} for a in range(n) for b in range(n) if (a, b) != (1, 2)]
    found = explain(mechint.load(build(n, 2, (0, 1), answer), data=rows))[0]
    assert found.standing == "incomplete" and words in found.reason


def test_a_head_that_attends_elsewhere_only_may_attend() -> None:
    """Nine tenths of its attention is on the mark, which brings nothing."""
    model = build(N, CTX, ("largest",), noise=0.0)
    with torch.no_grad():
        mark, attention = N + CTX + 2, model.blocks[0].attn
        attention.W_Q /= 2  # scores of 6 from one number to the next
        attention.W_K[0, mark, 0] = N + 0.3
        model.unembed.W_U *= 1e22
    found = asked(model, numbers)[1]
    (route,) = found.explanation.routes
    assert found.standing == "stands" and str(route) == "L0H0 may attend to the largest token"


def test_an_equal_token_is_put_behind_the_last_one() -> None:
    """So that the last equal token is another one."""
    rows = np.random.default_rng(0).integers(0, 5, (300, 6))
    rows[:, 5] = rows[:, 1]
    subject = mechint.load(build(5, 6, (1,)), data=[{"prompt": row} for row in rows.tolist()])
    program = SourceProgram(
        Inputs(subject.data.tokens, subject.answer_positions, True, 6),
        {}, (), (), Function("0", lambda values: torch.tensor(0), 1), (),
    )  # fmt: skip
    words, changed = next(change_prompts(Sources(subject), program, 0))
    assert words.startswith("its last token")
    old, new = subject.data.tokens[:, :5], changed.tokens[:, :5]
    own = subject.data.tokens[:, 5:]
    last = torch.arange(5).where(old == own, -1).amax(1)
    moved = torch.arange(5).where(new == own, -1).amax(1)
    assert bool((moved > last)[last < 4].all()) and bool(((old != new).sum(1) <= 1).all())
    weights, lengths = torch.ones_like(subject.data.targets), torch.full((300,), 6)
    for given in (None, lengths):  # and one token more, where the model takes seven
        data = replace(subject.data, weights=weights.float(), lengths=given)
        *_, (words, changed) = change_prompts(Sources(subject.with_data(data)), program, 0)
        assert words == "one token more" and bool((changed.tokens[:, 6:] == own).all())
        longer = changed.subject.data.lengths
        assert (longer is None) == (given is None) and (longer is None or bool((longer == 7).all()))


def test_a_rule_tells_a_place_from_what_stands_there() -> None:
    place, marked, size = (
        Rule("", "", lambda t, at: t, **given) for given in ({"fixed": True}, {"place": True}, {})
    )
    assert size.tells(place) and marked.tells(size) and not marked.tells(place)


def test_a_position_is_not_one_that_a_constant_token_names() -> None:
    """The mark that answers is token 4, and the head attends to position 4."""
    rows = np.random.default_rng(0).integers(0, 4, (900, 6)).tolist()
    found = explain(mechint.load(build(4, 6, (4,)), data=[{"prompt": [*r, 4]} for r in rows]))[0]
    assert (found.standing, found.explanation.name) == ("stands", "answer = t[4]")
    assert any("one length" in note for note in found.explanation.notes)
    assert str(found.explanation.routes[0]) == "L0H0 attends to position 4"


def test_a_class_is_named_where_it_is_certain() -> None:
    right = torch.arange(600) % 20 != 7
    classes = {"the symbol {}": torch.arange(600) % 20, "length {}": torch.arange(600) % 2}
    assert failing_class(right, classes).endswith("with the symbol 7 are answered as it says")
    few = {words: held[:380] for words, held in classes.items()}
    assert failing_class(right[:380], few) == ""  # 19 inputs of it
    some = torch.arange(600) % 20 == 7
    for share, failing in ((40, True), (60, False)):  # its upper bound is above three quarters
        part = right | (some & (torch.arange(600) % share != 7))
        assert bool(failing_class(part, classes)) == failing
        assert failing_class(part, classes, 0.5) == ""
    flags = torch.stack([some, ~some], 1)
    assert "0 of 30 inputs with number 0 " in failing_class(right, {"number {}": flags})
    large = torch.arange(600) < 300
    assert failing_class(right & (large | (torch.arange(600) % 5 > 0)), {"{}": large}) != ""


@pytest.mark.parametrize("first", [True, False])
def test_classes_with_rules_of_their_own_are_branches(first: bool) -> None:
    """The sum, but for one of the symbols at a place, where another rule holds."""
    n = 29

    def answer(a: int, b: int) -> int:
        switch, other = (a, b) if first else (b, a)
        return (3 * other) % n if switch == 5 else (a + b) % n

    model = build(n, 2, (0, 1), answer, noise=0.0)
    rows = [{"prompt": [a, b, n]} for a in range(n) for b in range(n)]
    subject = mechint.load(model, data=rows)
    found = explain(subject)[0]
    program = found.explanation.over_sources
    assert found.standing == "stands" and program is not None and len(program.branches) == 2
    assert f"t[{int(not first)}] == 5" in found.explanation.name
    tokens, at = subject.data.tokens, subject.answer_positions
    names: dict[str, Any] = {"__name__": "found"}
    exec(found.explanation.to_python(subject), names)
    said = torch.tensor([names["answer"](row) for row in tokens.tolist()])
    own = torch.tensor([answer(a, b) for a, b in tokens[:, :2].tolist()])
    assert torch.equal(said, own) and torch.equal(program.answer(tokens, at), own)
    assert {one.target.rpartition(" ")[2] for one in found.tests} == {"5", "elsewhere"}


def test_branches_are_written_in_python() -> None:
    """In one line, with parentheses where the first has a condition, and as a file; a constant that
    the other branch gives, too, is none.
    """
    tokens = torch.cartesian_prod(*[torch.arange(3)] * 2)
    inputs = Inputs(tokens, torch.ones(9, dtype=torch.long), True, 3)
    last = Group(("embedding",), lambda t, at: {"t[-1]": t[:, 1]})
    variables = ((ProgramVariable("t[-1]", "t[-1]"),),)

    def program(python: str, compute: Any) -> SourceProgram:
        return SourceProgram(inputs, {}, (last,), variables, Function(python, compute, 1), ())

    one = program("1 if t[-1] < 1 else 2", lambda v: torch.where(v["t[-1]"] < 1, 1, 2))
    zero, own = program("0", lambda v: 0 * v["t[-1]"]), program("t[-1]", lambda v: v["t[-1]"])
    ones = replace(inputs, tokens=tokens[tokens[:, 1] == 1], at=inputs.at[:3])
    first, second = (
        SourceProgram(ones, {}, (), (), Function(str(c), lambda v, c=c: torch.tensor(c), 1), ())
        for c in (1, 2)
    )
    start, end = Condition(0, (2,)), Condition(-1, (1,))
    for branch, where, rest, lines in (
        (one, start, zero, 3),
        (zero, start, one, 3),
        (zero, start, zero, 1),
        (first, end, own, 1),
        (second, end, own, 3),
    ):
        both = replace(branch, where=where, otherwise=rest)
        said = [eval(both.title.removeprefix("answer = "), {"t": row}) for row in tokens.tolist()]
        assert said == both.answer(tokens, inputs.at).tolist() and len(both.lines()) == lines
        assert said == both.run_python(tokens, inputs.at).tolist()


def test_one_answer_to_all_is_told_as_such() -> None:
    model = build(N, CTX, (0, 2), lambda a, b: 5)
    subject, found = asked(model, numbers)
    assert found.standing == "stands"
    assert found.explanation.name == "answer = 5, for all of these inputs"
    assert agreement(found, subject, model, random_rows()) == 1.0
    assert {one.kind for one in found.tests} == {"coverage", "composed inputs"}


@pytest.mark.parametrize("wrong", [0, 1])
def test_a_population_is_counted_whole(wrong: int) -> None:
    """Every pair: one cell that is another is one of 64 too many."""
    model = build(N, 2, (0, 1), lambda a, b: (a + b + wrong * (a == b == 3)) % N)
    rows = [{"prompt": [a, b, N]} for a in range(N) for b in range(N)]
    found = explain(mechint.load(model, data=rows))[0]
    if not wrong:
        assert found.standing == "stands" and found.n == N * N
        (covered,) = (one for one in found.tests if one.kind == "coverage")
        assert (
            covered.effect.interval == (1.0, 1.0)
            and covered.scope.drawn is None
            and covered.n == N * N
        )
    assert wrong == (found.standing != "stands")
    sample = explain(mechint.load(model, data=rows[1:]))[0]
    assert sample.n == (N * N - 1) - min((N * N - 1) // 2, N * N - 1 - 24)


def test_populations_are_all_combinations_of_each_length() -> None:
    rows, lengths = [], []
    for n in range(4):
        for tail in itertools.product((0, 1), repeat=n):
            rows.append([2, *tail, *[0] * (3 - n)])
            lengths.append(n + 1)
    tokens, ends = torch.tensor(rows), torch.tensor(lengths)
    assert is_population(tokens, ends)
    for gone in (1, 5, 14):
        kept = torch.arange(len(rows)) != gone
        assert not is_population(tokens[kept], ends[kept])
    apart = torch.tensor([[0, 9, 9], [1, 2, 9], [3, 4, 5]])  # one row of each length
    assert not is_population(apart, torch.tensor([1, 2, 3]))


def test_a_tied_answer_is_any_of_those_that_are_tied() -> None:
    counts = torch.tensor([[2, 1, 0], [1, 1, 0], [0, 3, 3], [0, 0, 2]])
    made = Function(
        "most_common(bag)",
        lambda v: v["bag"].argmax(1),
        2,
        tops=lambda v: v["bag"] == v["bag"].amax(1, keepdim=True),
    )
    values, answers = {"bag": counts}, torch.tensor([0, 1, 0, 7])
    assert made.gives(values, answers).tolist() == [True, True, False, False]
    assert made.strict(values).tolist() == [0, -1, -1, 2]
    bag = Group(("L0H0",), lambda t, at: {"bag": torch.nn.functional.one_hot(t, 3).sum(1)})
    for rows, words in (([[0, 0], [1, 1]], ""), ([[0, 0], [0, 1]], ", but for ties")):
        inputs = Inputs(torch.tensor(rows), torch.ones(2, dtype=torch.long), True, 3)
        variable = ProgramVariable("bag", "Counter(t)", "bag")
        program = SourceProgram(inputs, {}, (bag,), ((variable,),), made, ())
        assert program.title == f"answer = most_common(Counter(t)){words}"


def copying(places: torch.Tensor, n: int = 12) -> HookedTransformer:
    """A model of one head that attends from a place to another, and copies the token there."""
    ctx, width = len(places), n + len(places)
    shape = {"d_model": width, "d_head": width, "n_ctx": ctx, "d_vocab": n, "d_vocab_out": n}
    model = empty(n_heads=1, attn_only=True, **shape)
    model.embed.W_E[:, :n] = model.unembed.W_U[:n] = torch.eye(n)
    model.pos_embed.W_pos[:, n:] = torch.eye(ctx)
    attention = model.blocks[0].attn
    attention.W_Q[0, n:, n:], attention.W_K[0, n:, n:] = 200 * places, torch.eye(ctx)
    attention.W_V[0, :n, :n], attention.W_O[0, :n, :n] = torch.eye(n), 30 * torch.eye(n)
    return model


@pytest.mark.parametrize("back", [True, False])
def test_a_place_is_told_by_a_longer_prompt(back: bool) -> None:
    """Prompts of one length do not tell the fourth token from the one two back; the model does."""
    places = torch.zeros(8, 8)
    for query in range(2, 8):
        places[query, query - 2 if back else 3] = 1
    model = copying(places)
    draw = np.random.default_rng(3)
    rows = [{"prompt": one} for one in np.unique(draw.integers(0, 12, (900, 6)), axis=0).tolist()]
    found = explain(mechint.load(model, data=rows))[0]
    assert found.explanation.name == "answer = t[3]"
    assert found.standing == ("untested" if back else "stands")
    assert ("one token more" in found.reason) == back
