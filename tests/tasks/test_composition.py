"""Composition with hidden permutations against composing them one after the other."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

import tasks
from mechint.task import IGNORE


def test_a_variable_set_to_another_value_sends_x_on_from_there() -> None:
    task = tasks.make("composition", n=6, k=4, hops=(1, 2, 4))
    pairs = task.counterfactuals("2-hop of 3", 20, seed=0)
    hidden = task.permutations.tolist()
    for tokens, value, labels, own in zip(
        pairs.base.tokens, pairs.values.tolist(), pairs.labels, pairs.base.targets, strict=True
    ):
        sigma = (tokens % 6).view(4, 6).tolist()
        expected = own.clone()
        expected[3, 1] = value
        expected[3, 2] = sigma[3][hidden[3][sigma[2][hidden[2][value]]]]
        assert torch.equal(labels, expected)


@pytest.mark.parametrize(("n", "k"), [(2, 3), (2, 4), (3, 1), (4, 1), (3, 2)])
def test_few_inputs_are_split_with_none_left_out(n: int, k: int) -> None:
    task = tasks.make("composition", n=n, k=k, hops=(1,))
    seen = {
        split: {tuple(row) for row in task.sample(2000, 0, split).tokens.tolist()}
        for split in ("train", "validation", "test")
    }
    assert (
        sum(map(len, seen.values()))
        == len(set().union(*seen.values()))
        == {2: 2, 3: 6, 4: 24}[n] ** k
    )


def asked(task, step: int, batch_size: int = 400) -> list[float]:
    """Share of the training examples of batch `step` in which each hop is read."""
    batch = next(iter(task.stream("train", 0, batch_size, start=step)))
    return (batch.targets != IGNORE).any(1).double().mean(0).tolist()


def test_a_mixture_asks_one_hop_of_each_training_example() -> None:
    task = tasks.make("composition", weights=(0.5, 0.25, 0.25))
    assert asked(task, 0) == pytest.approx([0.5, 0.25, 0.25], abs=0.08)
    batch = next(iter(task.stream("train", 0, 64)))
    assert ((batch.targets != IGNORE).any(1).sum(-1) == 1).all()
    assert (next(iter(task.stream("test", 0, 64))).targets[:, 0] != IGNORE).all()


def test_stages_bring_the_hops_in() -> None:
    growing = tasks.make("composition", stages=(0, 10, 20))
    assert [asked(growing, step) for step in (9, 10, 20)] == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    one_by_one = tasks.make("composition", stages=(0, 10, 20), cumulative=False)
    assert [asked(one_by_one, step) for step in (9, 10, 20)] == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    mixed = tasks.make("composition", stages=(0, 10, 20), weights=(1.0, 3.0, 4.0))
    assert asked(mixed, 12) == pytest.approx([0.25, 0.75, 0], abs=0.08)


def test_the_stream_goes_on_where_it_was_entered() -> None:
    task = tasks.make("composition", weights=(1.0, 1.0, 1.0), stages=(0, 3, 5))
    whole = list(islice(task.stream("train", 2, 1000), 7))  # crosses a block
    later = list(islice(task.stream("train", 2, 1000, start=4), 3))
    assert all(
        torch.equal(a.targets, b.targets) and torch.equal(a.tokens, b.tokens)
        for a, b in zip(whole[4:], later, strict=True)
    )
