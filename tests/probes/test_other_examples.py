"""Probes on examples that `with_data` gave: in another order, some of them, or one class alone."""

from __future__ import annotations

import pytest
import torch

import probes
from mechint import planted
from mechint.subject import Subject
from mechint.task import Batch
from probes._llc.sampler import training_data
from probes.operands import operand_positions
from tests.differences import differences


@pytest.fixture(scope="module")
def addition() -> Subject:
    return planted.modular_addition(11, (2, 3)).subject


def shuffled(subject: Subject) -> Subject:
    order = torch.randperm(len(subject.data), generator=torch.Generator().manual_seed(0))
    return subject.with_data(subject.data[order])


def test_no_split_is_named_on_examples_in_another_order(addition: Subject) -> None:
    for other in (shuffled(addition), addition.with_data(addition.data[:40])):
        metrics = probes.progress(other, samples=9).metrics
        assert "loss.all" in metrics and "loss.train" not in metrics
        assert training_data(other, "train") is other.data
    train = training_data(addition, "train")
    assert addition.split is not None
    assert torch.equal(train.tokens, addition.data.tokens[addition.split["train"]])


def test_the_rest_of_a_probe_stays_where_the_grid_is_left_out(addition: Subject) -> None:
    other, few = shuffled(addition), addition.with_data(addition.data[:40])
    whole, found = (probes.fourier(one, permutations=499).metrics for one in (addition, other))
    assert found["logits.key_frequencies"] == whole["logits.key_frequencies"]
    for one in (other, few):
        assert "logits.key_frequencies" in probes.fourier(one).metrics
        found = probes.attention(one, untrained=0).metrics["operand.attention"]
        assert operand_positions(one) == (0, 1)
        pattern = one.activation("blocks.0.attn.hook_pattern")[:, :, -1, :2].double().mean(0)
        assert torch.allclose(torch.tensor([*found.values()]).double(), pattern, atol=1e-6)


def test_examples_without_the_answer_do_not_hide_it(addition: Subject) -> None:
    """Every second example is given a second answer, the same one."""
    tokens, targets = addition.data.tokens, addition.data.targets.clone()
    have = torch.arange(121) % 2 == 0
    targets[have, 1, 0] = targets[have, 2, 0]
    all_of_them, those = Batch(tokens, targets), Batch(tokens[have], targets[have])
    results = [
        probes.linear(addition.with_data(data), answer=1, permutations=199)
        for data in (all_of_them, those)
    ]
    assert not list(differences("linear", results[1].metrics, results[0].metrics, 1e-4, 1e-6))
    assert results[0].finding == results[1].finding
    assert results[0].verdict == results[1].verdict == "yes"
