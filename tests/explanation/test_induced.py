"""Programs that nobody told: those of shipped, published and planted models, held against solvers
written by hand, and models that have none.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import mechint
from mechint import planted
from mechint.cli import main
from mechint.config import ModelConfig
from mechint.explanation import Audit, explain
from mechint.explanation.functions import (
    Fitting,
    Function,
    ProgramVariable,
    best_function,
    products,
    tables,
)
from mechint.explanation.rules import Inputs, rules_for
from mechint.explanation.source_program import Condition, SourceProgram
from mechint.explanation.sources import Group
from mechint.groups.finite import parse
from mechint.models import build
from mechint.models.members import of_member
from mechint.registry import EXPLANATIONS
from mechint.subject import Subject
from tests.explanation.test_forgeries import Head, by_hand, copies, empty, rows_of

SHIPPED = Path(__file__).parents[2] / "examples" / "models"
CHECKPOINTS = Path(os.environ.get("MECHINT_PUBLISHED", "published"))
ZOO = CHECKPOINTS / "hf-zoo"
published = pytest.mark.usefixtures("published")


def draws(n: int, make: Callable[[np.random.Generator], list[int]], seed: int = 0) -> list[Any]:
    """n prompts."""
    draw = np.random.default_rng(seed)
    return [{"prompt": [int(x) for x in make(draw)]} for _ in range(n)]


def explained(model: Any, prompts: list[Any]) -> tuple[Subject, Audit]:
    subject = mechint.load(model, data=prompts)
    return subject, explain(subject)[0]


def explained_all(model: Any, prompts: list[Any]) -> list[Audit]:
    return explain(mechint.load(model, data=prompts))


def agreement(subject: Subject, found: Audit, solver: Callable[[list[int]], int | None]) -> float:
    """Share of prompts on which the written file says what a solver says."""
    names: dict[str, Any] = {"__name__": "found"}
    exec(found.explanation.to_python(subject), names)
    rows = subject.data.tokens.tolist()
    ends = subject.answer_positions.tolist()
    prompts = [row[: end + 1] for row, end in zip(rows, ends, strict=True)]
    return float(np.mean([names["answer"](t) == solver(t) for t in prompts]))


def numbers(draw: np.random.Generator, n: int) -> list[int]:
    return draw.permutation(150)[:n].tolist()


# --- what stands ----------------------------------------------------------------------------------
def test_the_largest_of_a_list() -> None:
    """The shipped model, asked by prompts as if its task were unknown."""
    prompts = draws(1200, lambda draw: draw.integers(0, 16, 4).tolist())
    subject, found = explained(SHIPPED / "maximum.pt", prompts)
    assert (found.standing, found.explanation.family) == ("stands", "induced")
    assert found.explanation.name == "answer = max(t)"
    assert [str(one) for one in found.explanation.routes] == ["L0H0 attends to the largest token"]
    assert agreement(subject, found, max) == 1.0
    program = found.explanation.program
    tokens = subject.data.tokens[:50]
    assert torch.equal(program.run(tokens)["answer"], tokens.amax(1))
    swapped = program.run(tokens, {"v0": torch.full((50,), 3)})
    assert swapped["answer"].unique().tolist() == [3]
    assert found.value("moved key") > 0.8 and found.to_dict()["program"].startswith("v0 = max(t)")


def sums(tens: bool) -> list[Any]:
    """Two numbers of two digits; behind the mark the tens of their sum, where the units follow."""

    def prompt(draw: np.random.Generator) -> list[int]:
        a, b = draw.integers(0, 50, 2)
        return [a // 10, a % 10, 10, b // 10, b % 10, 11, *([] if tens else [(a + b) // 10])]

    return draws(2500, prompt)


def last_of_a_set() -> tuple[Any, list[Any], str, Any]:
    """A head that prefers three of six tokens, and of these the last."""
    n, ctx, some = 6, 8, (1, 3, 4)
    scores, places = [400.0 * (i in some) for i in range(n)], range(0, 10 * ctx + 1, 10)
    one = Head([*scores, 0.0], list(places), torch.eye(n + 1))
    rows = rows_of(5, n, ctx)[:1200]
    rows[:, 0] = torch.tensor(some)[torch.arange(1200) % 3]
    prompts = [{"prompt": row} for row in rows.tolist()]
    model = by_hand(n + 1, ctx + 1, [one], direct=copies(0, n))
    return model, prompts, "in {1, 3, 4}", lambda t: next(x for x in t[::-1] if x in some)


def place_of_the_end() -> tuple[Any, list[Any], str, Any]:
    """A model that answers by the position of its last token alone."""
    model = empty(d_model=3, n_heads=1, d_head=2, d_mlp=1, d_vocab=6, d_vocab_out=3, n_ctx=12)
    model.pos_embed.W_pos[:] = torch.eye(3).repeat(4, 1).roll(-1, 0)
    model.unembed.W_U[:] = 30 * torch.eye(3)
    prompts = draws(1500, lambda draw: draw.integers(0, 5, draw.integers(5, 12)).tolist())
    return model, prompts, "answer = len(t) % 3", lambda t: len(t) % 3


def places_before_the_end() -> tuple[Any, list[Any], str, Any]:
    """A head that reads the two tokens before the last one, in prompts of several lengths."""
    n, ctx = 6, 10
    model = empty(
        d_model=2 * n + ctx, n_heads=1, d_head=ctx, d_mlp=1, d_vocab=n, d_vocab_out=n, n_ctx=ctx
    )
    model.embed.W_E[:, :n] = torch.eye(n)
    model.pos_embed.W_pos[:, n : n + ctx] = torch.eye(ctx)
    attention = model.blocks[0].attn
    attention.W_K[0, n : n + ctx] = torch.eye(ctx)
    attention.W_Q[0, n + 1 : n + ctx] = 30 * (torch.eye(ctx) + torch.eye(ctx).roll(-1, 1))[:-1]
    attention.W_V[0, :n, :n] = 3.0 ** torch.arange(n) * torch.eye(n)
    attention.W_O[0, :n, n + ctx :] = torch.eye(n)
    model.unembed.W_U[n + ctx :] = torch.eye(n)
    prompts = draws(1500, lambda draw: [0, *draw.integers(0, 5, draw.integers(4, 9)), 5])
    return model, prompts, "max(t[-3], t[-2])", lambda t: max(t[-3:-1])


DIGITS, TENS = SHIPPED / "digits.pt", "(10 * t[0] + t[1] + 10 * t[3] + t[4]) // 10"
STANDS: dict[str, Callable[[], tuple[Any, list[Any], str, Any]]] = {
    "tens, with a carry, that a second layer reads at a constant token": lambda: (
        DIGITS, sums(True), TENS, lambda t: (10 * t[0] + t[1] + 10 * t[3] + t[4]) // 10
    ),
    "units that a second layer reads": lambda: (
        DIGITS, sums(False), "(t[1] + t[4]) % 10", lambda t: (t[1] + t[4]) % 10
    ),
    "the last of a set": last_of_a_set,
    "a place modulo a number": place_of_the_end,
    "places counted back from the end": places_before_the_end,
}  # fmt: skip
"""Model, prompts, what its program says, and a solver."""


@pytest.mark.parametrize("what", STANDS)
def test_what_stands_gives_the_answers_of_a_solver(what: str) -> None:
    model, prompts, said, solver = STANDS[what]()
    subject, found = explained(model, prompts)
    assert found.standing == "stands" and said in found.explanation.name
    assert agreement(subject, found, solver) == 1.0


@published
@pytest.mark.full
def test_a_list_is_sorted_by_its_first_and_its_next_answers() -> None:
    """Any answer is asked, the first and the end included."""

    def prompt(draw: np.random.Generator) -> list[int]:
        values = numbers(draw, int(draw.integers(1, 40)))
        return [150, *values, 151, *sorted(values)[: int(draw.integers(0, len(values) + 1))]]

    def following(t: list[int]) -> int:
        given = t.index(151)
        return [*sorted(t[1:given]), 152][len(t) - given - 1]

    subject, found = explained(ZOO / "sort-1l1h256d3lr01drop", draws(3000, prompt))
    assert found.standing == "stands" and "if t[-1] == 151 else" in found.explanation.name
    assert agreement(subject, found, following) == 1.0


@published
def test_a_member_of_a_set_of_symbols(tmp_path: Path) -> None:
    """The symbols that may follow in (10)*: 0 after 1, and 1 after 0 and at the start."""
    path = ZOO / "bce_tomita2-1l1h16d3lr00drop"
    prompts = draws(1500, lambda d: [2, *d.integers(0, 2, int(d.integers(8, 13))).tolist()])
    model = mechint.load(path).model
    for symbol in (0, 1):
        subject = mechint.load(of_member(model, symbol), data=prompts)
        found = explain(subject)[0]
        assert found.standing == "stands"
        assert agreement(subject, found, lambda t, symbol=symbol: int(t[-1] != symbol)) == 1.0
    data = tmp_path / "p.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in prompts))
    command = ["explain", str(path), "--data", str(data), "--member", "0", "--json"]
    audits = json.loads(CliRunner().invoke(main, command).stdout)["audits"]
    assert (audits[0]["standing"], audits[0]["name"]) == ("stands", "answer = t[-1]")
    refused = CliRunner().invoke(main, [*command[:-2], "9"])
    assert refused.exit_code != 0 and "0 to 5" in refused.output


def test_idle_layers_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shipped model with four layers behind it that write nothing."""
    own = {
        name: one.detach()
        for name, one in mechint.load(SHIPPED / "maximum.pt").model.named_parameters()
    }
    deep = empty(**{**vars(mechint.load(SHIPPED / "maximum.pt").model.config), "n_layers": 5})
    deep.load_state_dict(own, strict=False)
    prompts = draws(1200, lambda draw: draw.integers(0, 16, 4).tolist())
    (found,) = explained_all(deep, prompts)
    assert (found.standing, found.explanation.name) == ("stands", "answer = max(t)")
    held = vars(EXPLANATIONS["induced"])["propose"].__globals__  # of the module that is used
    monkeypatch.setitem(held, "MAX_LAYERS", 0)
    (found,) = explained_all(deep, prompts)
    assert found.standing == "refused" and "heads of 1 layers matter" in found.reason


# --- what does not --------------------------------------------------------------------------------
def test_it_is_asked_last_and_by_name() -> None:
    """Where a family that knows the task's program stands, it is not asked, but by name."""
    known = planted.modular_addition(13, (2, 5)).subject
    assert "induced" not in {one.explanation.family for one in explain(known)}
    subject = mechint.load(SHIPPED / "induction.pt")
    (found,) = explain(subject, family="induced")
    assert found.standing in ("stands", "unclear")  # of 512 prompts
    assert "earlier equal pair" in str(found.explanation.routes[0])


# --- rules of one's own ---------------------------------------------------------------------------
def test_rules_say_the_keys_that_their_python_says() -> None:
    """Every token rule brings what its expression gives, on prompts with marks and repeats."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(6, (60, 9), generator=draw)
    tokens[:, 0], tokens[:, 5] = 7, 8
    inputs = Inputs(tokens, torch.full((60,), 8), True, 9)
    assert inputs.structural.tolist() == [7, 8]

    def last(found: Any) -> Any:
        return max(enumerate(found), default=(0, None), key=lambda one: one[0])[1]

    names: dict[str, Any] = {
        "operands": lambda t: [x for x in t if x < 7],
        "last": last,
        "either": lambda a, b: b if a is None else a,
    }
    tried = 0
    for rule in rules_for(inputs):
        if rule.kind != "token" or not rule.python:
            continue
        found = rule.token(tokens, inputs.at).tolist()
        for row, token in zip(tokens.tolist(), found, strict=True):
            try:
                said = eval(rule.python, {**names, "t": row})
            except IndexError:
                continue
            if "t[t[" in rule.python and token == -1:
                continue  # a position behind the answer
            assert (-1 if said is None else said) == token, (rule.name, row)
            tried += 1
    assert tried > 800


# --- products -------------------------------------------------------------------------------------
def half_of(table: np.ndarray, seed: int = 0) -> Fitting:
    """Answers to a random half of all pairs."""
    pairs = np.argwhere(table >= 0)
    x, y = np.random.default_rng(seed).permutation(pairs)[: len(pairs) // 2].T
    given = {"a": torch.from_numpy(x), "b": torch.from_numpy(y)}
    answers = torch.from_numpy(table[x, y])
    tokens = torch.stack([*given.values()], 1)
    inputs = Inputs(tokens, torch.ones(len(tokens), dtype=torch.long), True, len(table))
    names = (ProgramVariable("a", "t[0]"), ProgramVariable("b", "t[1]"))
    return Fitting(names, given, answers, inputs, len(x))


@pytest.mark.parametrize(
    "solver",
    [
        lambda a, b, c: int(a % 2 == b % 2),
        lambda a, b, c: 17 if a == b else c,
        lambda a, b, c: 3 if a == b else a + 1,  # counting up to a token
    ],
)
def test_functions_of_three_tokens_hold_on_the_half_that_was_not_fitted(solver: Any) -> None:
    rows = torch.cartesian_prod(torch.arange(16), torch.arange(16), torch.arange(4))
    answers = torch.tensor([solver(*row) for row in rows.tolist()])
    half = torch.from_numpy(np.random.default_rng(0).permutation(1024)[:512])
    inputs = Inputs(rows[half], torch.full((512,), 2), True, 16)
    variables = tuple(ProgramVariable(name, name) for name in "abc")
    values = dict(zip("abc", rows.T, strict=True))
    fitted = {name: value[half] for name, value in values.items()}
    function, fit = best_function(Fitting(variables, fitted, answers[half], inputs, 512))
    assert function is not None and fit == 1.0
    assert torch.equal(function.compute(values), answers)
    names = [dict(zip("abc", row, strict=True)) | function.tables for row in rows[:200].tolist()]
    assert [eval(function.python, one) for one in names] == answers[:200].tolist()


def test_a_count_modulo_a_number_goes_on_beyond_the_counts_that_were_seen() -> None:
    rows = torch.randint(0, 3, (600, 9), generator=torch.Generator().manual_seed(0))
    count = torch.nn.functional.one_hot(rows, 3).sum(1)
    inputs = Inputs(rows, torch.full((600,), 8), True, 3)
    bag = ProgramVariable("bag", "Counter(t)", "bag")
    function, fit = best_function(Fitting((bag,), {"bag": count}, count[:, 1] % 3, inputs, 600))
    assert function is not None and fit == 1.0
    more = torch.tensor([[4, n, 1] for n in range(30)])
    assert function.compute({"bag": more}).tolist() == [n % 3 for n in range(30)]


def test_a_product_modulo_a_prime_is_completed_with_its_zero() -> None:
    table = np.outer(np.arange(11), np.arange(11)) % 11
    (found,) = products(half_of(table))
    every = torch.cartesian_prod(torch.arange(11), torch.arange(11))
    said = found.compute({"a": every[:, 0], "b": every[:, 1]})
    assert torch.equal(said, torch.from_numpy(table.flatten()))
    assert "a and b in a group of 10 elements and the zero 0" in found.words
    table[0, 3] = 4
    assert not list(products(half_of(table)))  # 0 times 3 is no 0


def test_a_table_of_a_group_is_completed_and_no_other_one() -> None:
    table, draw = parse("D6").table, np.random.default_rng(1)
    names = draw.permutation(len(table))
    renamed = names[table][np.ix_(names.argsort(), names.argsort())]
    (found,) = products(half_of(renamed))
    every = torch.cartesian_prod(*[torch.arange(len(table))] * 2)
    said = found.compute({"a": every[:, 0], "b": every[:, 1]})
    assert torch.equal(said, torch.from_numpy(renamed.flatten()))
    program = SourceProgram(half_of(renamed).inputs, {}, (), (), found, ())
    assert "a group of 12 elements" in program.title and "144" not in program.title
    wrong = renamed.copy()
    wrong[[0, 1]] = wrong[[1, 0]]  # a square of another kind
    for other in (wrong, draw.integers(0, 12, (12, 12))):
        assert not list(products(half_of(other)))


@pytest.mark.parametrize(("natural", "found"), [(127, 0), (128, 1)])
def test_a_table_has_half_as_many_rows_as_inputs_at_most(natural: int, found: int) -> None:
    """However many composed inputs show its cells: of 64 pairs with random answers."""
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8)).repeat(6, 1)
    answers = torch.randint(8, (8, 8), generator=torch.Generator().manual_seed(0))
    given = {"a": pairs[:, 0], "b": pairs[:, 1]}
    inputs = Inputs(pairs[:natural], torch.ones(natural, dtype=torch.long), True, 8)
    names = (ProgramVariable("a", "t[0]"), ProgramVariable("b", "t[1]"))
    fitting = Fitting(names, given, answers[pairs[:, 0], pairs[:, 1]], inputs, natural)
    assert sum(fitting.fit(one) == 1.0 for one in tables(fitting)) == found


def test_a_title_defines_the_names_that_it_has() -> None:
    rows = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    inputs = Inputs(rows, torch.ones(16, dtype=torch.long), True, 4)
    python = "min((x for x in operands(t) if x > t[-1]), default=None)"
    given = Group(("L0H0",), lambda tokens, at: {"v0": tokens[:, 0]}), ProgramVariable("v0", python)
    function = Function("{None: 3}.get(v0, v0)", lambda values: values["v0"], 1)
    one = SourceProgram(inputs, {}, (given[0],), ((given[1],),), function, ())
    other = SourceProgram(inputs, {}, (), (), Function("2", lambda v: torch.tensor(2), 1), ())
    both = SourceProgram(**{**vars(one), "where": Condition(0, (1,)), "otherwise": other})
    assert one.title == f"answer = {function.python}, v0 = {python}"
    assert both.title == f"answer = ({function.python}, v0 = {python}) if t[0] == 1 else 2"


@pytest.mark.full
def test_addition_from_prompts_alone_is_by_frequencies() -> None:
    """The program says what is computed, a family of the group how."""
    pairs = [{"prompt": [x, y, 29]} for x in range(29) for y in range(29)]
    by_family = {one.explanation.family: one for one in explained_all(SHIPPED / "clock.pt", pairs)}
    said = by_family["induced"]  # its four heads weigh tokens differently
    assert said.standing == "stands" and "% 29" in said.explanation.name
    found = by_family["frequencies"]
    assert (found.standing, found.explanation.name) == (
        "stands",
        "addition by frequencies 7, 9, 12",
    )


@pytest.mark.full
def test_a_product_from_prompts_alone_is_by_representations_or_by_rote() -> None:
    known = planted.group_product("S4", ("standard",), noise=0.01, rotation_seed=1).subject
    assert known.task is not None
    for model, families in (
        (known.model, {"induced", "representations", "bilinear"}),
        (planted.lookup_table(known.task).subject.model, {"induced"}),
    ):
        pairs = [{"prompt": row} for row in known.data.tokens.unique(dim=0).tolist()]
        found = explained_all(model, pairs)
        assert {one.explanation.family for one in found if one.standing == "stands"} == families
        program = next(one for one in found if one.explanation.family == "induced")
        names: dict[str, Any] = {"__name__": "found"}
        exec(program.explanation.to_python(mechint.load(model, data=pairs)), names)
        table = parse("S4").table
        answers = [names["answer"]([x, y, 24]) for x in range(24) for y in range(24)]
        assert answers == table.flatten().tolist()


def test_an_answer_to_one_token_is_a_table_of_it_whatever_the_model_does() -> None:
    """Random weights, asked at the first of three tokens, which is not the last of the input."""
    model = build(ModelConfig(d_model=32, n_heads=1, d_vocab=10, d_vocab_out=10, n_ctx=3), seed=1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(20)
    rows = itertools.product(range(10), range(5), range(3))
    _, found = explained(model.eval(), [{"prompt": list(row), "at": 0} for row in rows])
    assert found.standing == "untested" and "a table of 10 rows by (t[0])" in str(found.to_dict())
    assert "t[-1]" not in str(found.to_dict())
