"""Tasks on sequences: variables against plain recomputation."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from mechint.errors import NotApplicableError

# --- balanced brackets ----------------------------------------------------------------------------


def test_half_of_the_strings_are_balanced_and_padded_ones_are_read_at_their_start() -> None:
    task = tasks.make("balanced-brackets", length=20, shortest=6)
    batch = task.sample(2000, 0)
    balanced = batch.targets[:, 0, 0].double().mean()
    assert 0.47 < balanced < 0.58  # some of the others are balanced too
    lengths = (batch.tokens >= 3).sum(1)
    assert set(lengths.tolist()) == set(range(6, 21, 2))
    assert (batch.tokens.gather(1, lengths[:, None] + 1) == 2).all()


@pytest.mark.parametrize("variable", ["counts_equal", "never_negative"])
def test_one_condition_changes_while_the_other_stays(variable: str) -> None:
    task = tasks.make("balanced-brackets", length=16)
    pairs = task.counterfactuals(variable, 60, 0)
    other = ({"counts_equal", "never_negative"} - {variable}).pop()
    value_of = task.variables[other].value_of
    assert torch.equal(value_of(pairs.base.tokens), value_of(pairs.source.tokens))
    assert (value_of(pairs.base.tokens) == 1).all()  # else the answer could not change
    assert ((pairs.base.tokens != pairs.source.tokens).sum(1) <= 2).all()


# --- lists ----------------------------------------------------------------------------------------


def test_a_place_of_the_order_reaches_its_own_answer_alone() -> None:
    task = tasks.make("sorted-list", n=20, length=5)
    assert task.variables["smallest_2"].answers == (2,)
    pairs = task.counterfactuals("smallest_2", 30, 0)
    changed = (pairs.labels != pairs.base.targets)[..., 0]
    assert changed.nonzero()[:, 1].tolist() == [7] * 30
    with pytest.raises(NotApplicableError, match=r"smallest_0.* cannot depend"):
        task.counterfactuals("smallest_2", 4, 0, answer=0)
    for row in pairs.source.tokens.tolist():
        assert row[6:] == sorted(row[:5])


# --- palindromes, first unique, running sums ------------------------------------------------------


@settings(max_examples=20)
@given(st.lists(st.integers(1, 4), min_size=8, max_size=8))
def test_a_letter_set_to_be_repeated_is_passed_over(letters: list[int]) -> None:
    task = tasks.make("first-unique", n=4, length=8)
    tokens = torch.tensor([[0, *letters]])
    for letter in range(1, 5):
        variable = task.variables[f"repeated_{'abcd'[letter - 1]}"]
        for value in (0, 1):
            label = variable.label(tokens, torch.tensor([value]))[0, :, 0].tolist()
            unique = [x for x in letters if (letters.count(x) == 1 if x != letter else not value)]
            assert label[-1] == (unique or [0])[0]
            assert label[1:-1] == task.plain([0, *letters])[:-1] and label[0] == -1


@given(st.integers(0, 99), st.integers(0, 11), st.integers(1, 6))
def test_a_running_sum_set_by_hand_is_carried_on(seed: int, position: int, largest: int) -> None:
    task = tasks.make("running-sign", largest=largest, length=12)
    batch = task.sample(10, seed)
    variable = task.variables[f"total_{position}"]
    values = torch.arange(10) % variable.n_values
    labels = variable.label(batch.tokens, values)[..., 0]
    for tokens, value, row in zip(batch.tokens.tolist(), values.tolist(), labels, strict=True):
        steps = [token - largest for token in tokens]
        total = value - largest * (position + 1)
        later = itertools.accumulate([total, *steps[position + 1 :]])
        assert row[position:].tolist() == [(x > 0) - (x < 0) + 1 for x in later]
    changed = variable.change(batch.tokens, values)  # type: ignore[misc]
    assert torch.equal(variable.value_of(changed), values)


@pytest.mark.parametrize("labels", ["true", "shuffled"])
@pytest.mark.parametrize(
    ("name", "parameters"),
    [("balanced-brackets", {"length": 6}), ("palindromes", {"n": 2, "half_length": 3})],
)
def test_few_inputs_are_split_so_that_no_split_has_a_single_answer(
    name: str, parameters: dict[str, int], labels: str
) -> None:
    task = tasks.make(name, labels=labels, **parameters)
    drawn = [task.sample(400, 0, split).tokens.tolist() for split in ("train", "test")]
    for rows in (*drawn, task.sample(400, 0, "validation").tokens.tolist()):
        assert {task.plain(row)[0] for row in rows} == {0, 1}
    train, test = (set(map(tuple, rows)) for rows in drawn)
    assert not train & test


# --- repeated tokens ------------------------------------------------------------------------------
@given(st.integers(0, 99), st.booleans())
def test_copies_are_found_where_they_were_put(seed: int, distinct: bool) -> None:
    task = tasks.make("repeated-tokens", n=60, length=6, copies=3, context=40, distinct=distinct)
    batch = task.sample(8, seed)
    starts = task.starts(batch.tokens)
    for tokens, row in zip(batch.tokens, starts.tolist(), strict=True):
        pieces = {tuple(tokens[start : start + 6].tolist()) for start in row}
        assert len(pieces) == 1 and all(b - a >= 6 for a, b in itertools.pairwise(row))
    positions, targets = batch.answers.positions, batch.answers.targets[..., 0]
    assert positions.shape == (8, 10) and torch.equal(
        batch.tokens.gather(1, positions + 1), targets
    )


def test_a_token_of_the_piece_is_changed_in_every_copy() -> None:
    task = tasks.make("repeated-tokens", n=12, length=5, copies=3)
    pairs = task.counterfactuals("token_2", 40, 0)
    first = pairs.source.tokens[:, :5]
    assert torch.equal(pairs.source.tokens, first.repeat(1, 3))
    assert torch.equal(first[:, 2], pairs.values)
    assert all(len(set(row)) == 5 for row in first.tolist())  # still distinct
    assert pairs.variable.answers == (1, 5)


def test_answers_of_compiled_programs_are_named() -> None:
    task = tasks.make("rasp", length=3)
    assert task.answer_names == ("answer_0", "answer_1", "answer_2")
