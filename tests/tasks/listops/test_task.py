"""ListOps: what it writes, solves, holds out and streams, against readings of the text that share
no code with it.
"""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.errors import DataError
from mechint.task import IGNORE
from tasks._listops.task import ListOps

SYMBOLS = {"+": "MAX", "-": "MIN", "/": "MED", "%": "ADD", "*": "PROD", "~": "NADD"}


def value_of(name: str, x: list[int], n: int) -> int:
    product = 1
    for factor in x:
        product = product * factor % n
    alternating = sum(value if place % 2 == 0 else -value for place, value in enumerate(x))
    return {
        "MAX": max(x),
        "MIN": min(x),
        "MED": int(statistics.median(x)),
        "ADD": sum(x) % n,
        "PROD": product,
        "NADD": alternating % n,
    }[name]


def parse(text: str, task: ListOps) -> list | int:
    """A tree [name, operand, …] of an expression by recursive descent."""
    characters = list(text)

    def expression() -> list | int:
        first = characters.pop(0)
        if first != "(":
            return task.notation.values.index(first)
        tree: list = [SYMBOLS[characters.pop(0)]]
        while characters[0] != ")":
            tree.append(expression())
        characters.pop(0)
        return tree

    tree = expression()
    assert not characters, text
    return tree


def solve(tree: list | int, n: int, seen: list[tuple[str, ...]]) -> int:
    """Value of a tree; the operands of every bracket, solved, go to `seen`."""
    if isinstance(tree, int):
        return tree
    operands = [solve(child, n, seen) for child in tree[1:]]
    seen.append(tuple(operands))
    return value_of(tree[0], operands, n)


def steps_of(text: str, task: ListOps) -> list[str]:
    """The steps of a text, the expression first, without start, end and value."""
    return text.removeprefix("s").split("=")[0].split(">")


def shape(tree: list | int) -> tuple[int, int]:
    """Depth of nesting and most operands of a bracket."""
    if isinstance(tree, int):
        return 0, 0
    below = [shape(child) for child in tree[1:]]
    return 1 + max(depth for depth, _ in below), max(
        len(tree) - 1, *(operands for _, operands in below)
    )


grammars = st.fixed_dictionaries(
    {
        "n": st.sampled_from([2, 3, 7, 10, 20, 26, 40]),
        "operations": st.lists(
            st.sampled_from(list(SYMBOLS.values())), min_size=1, max_size=6, unique=True
        ).map(tuple),
        "operands": st.integers(1, 5),
        "depth": st.integers(1, 4),
        "chain_of_thought": st.booleans(),
        "loss_on": st.sampled_from(["answer", "output", "all"]),
        "excluded_seed": st.integers(0, 9),
    }
)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    parameters=grammars,
    split=st.sampled_from(["train", "validation", "test"]),
    seed=st.integers(0, 1000),
)
def test_every_text_is_right_and_keeps_the_split(parameters, split, seed):
    task = ListOps(**parameters)
    held_out, length = (
        {tuple(pattern) for pattern in task.tables()["excluded"]},
        task.pattern_length,
    )
    batch = task.sample(12, seed, split)
    for tokens, targets in zip(batch.tokens, batch.targets, strict=True):
        text = task.text(tokens)
        first, *rest = steps_of(text, task)
        tree, seen = parse(first, task), []
        assert text.removesuffix("e").endswith(
            f"={task.notation.values[solve(tree, task.n, seen)]}"
        )
        depth, operands = shape(tree)
        assert depth <= task.depth and operands <= task.operands
        # every step replaces the bracket that opens last by its value, and nothing else
        for before, after in itertools.pairwise([first, *rest]):
            opening = before.rindex("(")
            closing = before.index(")", opening)
            inner = solve(parse(before[opening : closing + 1], task), task.n, [])
            assert after == before[:opening] + task.notation.values[inner] + before[closing + 1 :]
        assert bool(rest) == task.chain_of_thought and ("(" not in rest[-1] if rest else True)
        # held-out tuples: none among consecutive operands in training, at least one whole bracket
        # in test
        windows = {
            bracket[i : i + length] for bracket in seen for i in range(len(bracket) - length + 1)
        }
        if split == "test":
            assert any(bracket in held_out for bracket in seen)
        else:
            assert not windows & held_out
        assert task.brute_force(tokens.tolist()) == targets.tolist()
        assert task.tokens_of(text) == tokens.tolist()


@pytest.mark.full
@settings(max_examples=15, deadline=None)
@given(parameters=grammars, seed=st.integers(0, 1000))
def test_targets_are_the_next_characters_of_the_part_asked_for(parameters, seed):
    task = ListOps(**parameters)
    batch = task.sample(6, seed, "train")
    for tokens, targets, length in zip(
        batch.tokens, batch.targets[..., 0], batch.lengths, strict=True
    ):
        characters = [task.vocabulary.tokens[token] for token in tokens]
        mark = {
            "all": 0,
            "answer": characters.index("="),
            "output": next(i for i, character in enumerate(characters) if character in ">="),
        }[task.loss_on]
        for place in range(task.n_ctx):
            expected = tokens[place + 1] if mark <= place < length - 1 else IGNORE
            assert targets[place] == expected
        assert (tokens[length - 1 :] == task.notation.end_token).all()


def test_texts_of_the_source():
    task = ListOps(operations=("MAX", "MIN", "ADD"), min_operands=2)
    assert task.solution(task.tokens_of("s(%12(%34))>(%127)>0=0e")) == ["(%12(%34))", "(%127)", "0"]
    plain = ListOps(operations=("MAX", "MIN", "ADD"), chain_of_thought=False)
    tokens = plain.tokens_of("s(+3(-749))=4e")
    assert [
        plain.vocabulary.tokens[target]
        for (target,) in plain.brute_force(tokens)
        if target != IGNORE
    ] == ["4", "e"]
    assert ListOps(n=26).vocabulary.tokens[:26] == tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    assert len(set(ListOps(n=226).vocabulary.tokens)) == ListOps(n=226).d_vocab >= 226


@pytest.mark.full
@pytest.mark.parametrize("n", [2, 3])
def test_held_out_and_trained_triplets_partition_all(n):
    task = ListOps(n=n, operands=3, min_operands=3, depth=1, excluded=n, operations=("ADD",))
    triplets = {
        split: {task.text(tokens)[3:6] for tokens in task.sample(1500, 0, split).tokens}
        for split in ("train", "test")
    }
    everything = {"".join(digits) for digits in itertools.product("0123456789"[:n], repeat=3)}
    assert (
        triplets["test"] == {"".join(map(str, pattern)) for pattern in task.tables()["excluded"]}
        and len(triplets["test"]) == n
    )
    assert triplets["train"] == everything - triplets["test"]


def test_a_fixed_training_set_is_repeated():
    task = ListOps(train_examples=100)
    texts = [
        task.text(tokens)
        for batch in itertools.islice(task.stream("train", 0, 10), 30)
        for tokens in batch.tokens
    ]
    assert (
        len(set(texts)) <= 100
        and sorted(texts[:100]) == sorted(texts[100:200])
        and texts[:100] != texts[100:200]
    )


def test_the_ramp_goes_from_the_mixture_to_its_operation_and_never_mixes_them():
    task = ListOps(operations=("MAX", "MED"), ramp_operation="ADD", ramp_start=20, ramp_steps=40)
    share = []
    for batch in itertools.islice(task.stream("train", 0, 64), 70):
        found = [
            {character for character in task.text(tokens) if character in SYMBOLS}
            for tokens in batch.tokens
        ]
        assert all(operations == {"%"} or operations <= {"+", "/"} for operations in found)
        share.append(np.mean([operations == {"%"} for operations in found]))
    assert not any(share[:20]) and all(value == 1 for value in share[60:])
    assert (
        np.abs(np.array(share[20:60]) - np.arange(40) / 40).mean() < 0.06
    )  # three binomial standard errors of one batch
    assert all("%" in task.text(tokens) for tokens in task.sample(20, 0).tokens)


def test_chance_is_the_most_frequent_answer():
    task = ListOps(operations=("ADD",), loss_on="answer")
    assert (
        abs(task.answer_chance.accuracy - 0.1) < 0.02
        and abs(task.answer_chance.loss - np.log(10)) < 0.01
    )
    # half of what is predicted is the end, the other half a digit
    assert task.chance["token"].accuracy == pytest.approx(0.5)
    assert task.chance["token"].loss == pytest.approx(np.log(2) + task.answer_chance.loss / 2)
    maximum = ListOps(
        operations=("MAX",), depth=1, operands=3, min_operands=3, excluded=1
    ).answer_chance
    assert maximum.accuracy == 1


@pytest.mark.parametrize(
    "text",
    ["s(%12(%34)>7=7e", "s(?12)=3e", "s12=3e", "s(%)=0e", "s(%1x)=2e", "s" + "(%12)" * 20 + "e"],
)
def test_texts_that_are_no_expression_are_refused(text):
    task = ListOps()
    with pytest.raises(DataError, match="text"):
        task.solution(task.tokens_of(text))


def test_tables_are_what_labels_follow():
    task = ListOps(addition="shuffled", operations=("ADD",), depth=1)
    table = task.tables()["ADD"]
    for tokens in task.sample(50, 0).tokens:
        first, *rest, value = (
            int(character)
            for character in task.text(tokens).split(">")[0] + task.text(tokens)[-2]
            if character.isdigit()
        )
        for operand in rest:
            first = table[first][operand]
        assert first == value
    assert set(ListOps(answers="random").tables()) == {"excluded", *SYMBOLS.values()}
    assert set(ListOps(algebra="permutation-blocks").tables()) == {
        "excluded",
        "elements",
        "OP",
        "OP_TOP",
        "OP_BOTTOM",
    }
