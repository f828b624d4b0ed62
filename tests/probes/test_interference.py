"""Interference against one backward per example and group, and on streams whose injections are
known.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import ParameterError, UnknownNameError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._interference import Interference, cosines, group_gradients, groups_of, with_whole


def made(task: Any, seed: int = 0, **changes: Any) -> Subject:
    shape = {"d_model": 8, "n_heads": 2, "d_mlp": 12, "init_mode": "d_model"} | changes
    config = ModelConfig.for_task(task, **shape)
    return Subject(HookedTransformer(config, seed=seed).double(), task, n_examples=64)


def corpus(**changes: Any) -> Any:
    parameters = {
        "inject": "comparison",
        "inject_parameters": {"n": 6, "equals": False},
        "frequency": 0.5,
        "n_ctx": 8,
        "vocab_size": 64,
    }
    return TASKS["corpus"](**parameters | changes)


def backward(subject: Subject, loss: torch.Tensor) -> torch.Tensor:
    return torch.cat(
        [part.flatten() for part in torch.autograd.grad(loss, list(subject.model.parameters()))]
    )


def test_group_gradients_equal_one_backward_each() -> None:
    subject = made(TASKS["remainders"](p=5))
    data = subject.data
    groups = groups_of(subject.task, data)
    ours = group_gradients(subject, data, torch.stack(list(groups.values())))
    for i, (row, part) in enumerate(zip(ours, subject.task.output_slices.values(), strict=True)):
        loss = F.cross_entropy(
            subject.model(data.tokens)[:, -1, part], data.targets[:, -1, i], reduction="sum"
        )
        assert torch.allclose(row, backward(subject, loss), atol=1e-9)


def test_task_and_background_add_up_to_the_batch() -> None:
    subject = made(corpus())
    batch = subject.task.sample(64, 0, "test")
    names, weights = with_whole(subject.task, batch)
    assert names == ["batch", "task", "rises", "sums", "background"]
    gradients = group_gradients(subject, batch, weights)
    masks = torch.stack([batch.masks[name] for name in ("task", "rises", "sums")])
    if int(masks.sum(0).max()) <= 1:
        assert torch.allclose(gradients[0], gradients[1:].sum(0), atol=1e-9)
    logits = subject.logits(batch, at=None)
    outside = ~masks.any(0) & (batch.targets[..., 0] >= 0)
    assert float(weights[-1].sum()) == int(outside.sum())
    assert logits.shape[:2] == outside.shape


def test_cosines_by_numpy() -> None:
    a, b = (
        torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),
        torch.randn(2, 5, generator=torch.Generator().manual_seed(1)),
    )
    expected = [
        [np.dot(x, y) / np.linalg.norm(x) / np.linalg.norm(y) for y in b.numpy()] for x in a.numpy()
    ]
    assert np.allclose(cosines(a, b).numpy(), expected, atol=1e-6)
    assert torch.isnan(cosines(torch.zeros(1, 5), b)).all()


def test_corpus_batches_split_and_injections_show() -> None:
    subject = made(corpus(gap=2, frequency=0.4))
    result = Interference(batches=4, batch_size=8, null_samples=8, examples=32).run(subject, seed=0)
    table = result.tables["batches"].to_frame()
    assert (table.task_positions > 0).tolist() == [
        False,
        True,
        False,
        True,
    ]  # a burst every second batch
    assert table.task.isna().tolist() == [True, False, True, False]
    assert table.task[1] > table.background[1]
    assert result.metrics["cosine.task"] > result.metrics["cosine.background"]
    assert set(result.null) == {"cosine.batch", "cosine.task"}


# --- by the value of a variable -------------------------------------------------------------------
def two_operations() -> Subject:
    task = TASKS["listops-triplets"](n=2, operations=("MAX", "ADD"), excluded=2)
    subject = made(task, n_layers=1)
    return subject.with_data(task.examples())


def answer_gradients(subject: Subject) -> torch.Tensor:
    """(example, parameter) of the cross-entropy behind the =, by one plain backward each."""
    equals = subject.task.vocabulary.ids["="]
    rows = []
    for tokens in subject.data.tokens:
        at = tokens.tolist().index(equals)
        loss = F.cross_entropy(subject.model(tokens[None])[:, at], tokens[None, at + 1])
        rows.append(backward(subject, loss))
    return torch.stack(rows)


def test_values_of_a_variable_have_the_cosines_of_some_halves_of_their_inputs() -> None:
    """Whichever inputs were drawn as halves: the measured cosines are those of one of all 400 ways
    to halve the six training inputs of each operation.
    """
    subject = two_operations()
    result = Interference(variable="operation", null_samples=9).run(subject)
    table = result.tables["values"].to_frame()
    (row,), own = table.to_dict("records"), answer_gradients(subject)
    assert row["values"] == "MAX and ADD" and result.metrics["inputs_by_value"] == 6
    halves = []
    for inputs in subject.split["train"].split(6):  # those of MAX, then those of ADD
        every = [*itertools.combinations(inputs.tolist(), 3)]
        sums = torch.stack([own[list(some)].sum(0) for some in every])
        halves.append(F.normalize(torch.stack([sums, own[inputs].sum(0) - sums], 1), dim=2))
    within = [(pair[:, 0] * pair[:, 1]).sum(-1) for pair in halves]  # (way,)
    between = torch.einsum("ahp,bgp->ab", *halves) / 4
    error = (between - row["cosine"]).abs()
    error += (within[0] - row["halves of the first"]).abs()[:, None]
    error += (within[1] - row["halves of the second"]).abs()
    assert float(error.min()) < 1e-6 < float(error.quantile(0.01))


def test_alike_inputs_give_the_plain_cosine_and_no_finding() -> None:
    """Copies of one input of each operation have equal halves, permuted answers change nothing."""
    every = two_operations()
    subject = every.with_data(every.data[[3] * 4 + [11] * 4])
    result = Interference(variable="operation", null_samples=9).run(subject)
    a, b = answer_gradients(every)[[3, 11]]
    (row,) = result.tables["values"].to_frame().to_dict("records")
    assert row["cosine"] == pytest.approx(float(F.cosine_similarity(a, b, dim=0)), abs=1e-6)
    assert row["answers permuted"] == pytest.approx(row["cosine"])
    assert row["halves of the first"] == pytest.approx(1) == row["halves of the second"]
    assert {null.p_value for null in result.null.values()} == {1}


def test_a_variable_that_is_not_there_or_has_too_few_inputs() -> None:
    subject = two_operations()
    with pytest.raises(UnknownNameError, match="operation"):
        Interference(variable="op").run(subject)
    with pytest.raises(ParameterError, match="operation: 2 values of at least 3 inputs"):
        Interference(variable="operation").run(subject.with_data(subject.data[5:11]))


def test_silent_on_shuffled_labels_and_bad_input() -> None:
    subject = made(TASKS["comparison"](n=16, labels="shuffled"), n_layers=1)
    probe = Interference(batches=2, batch_size=32, null_samples=99, examples=128)
    assert probe.run(subject, seed=0).verdict != "yes"
    with pytest.raises(ParameterError, match="are too few for 200 batches"):
        Interference(batches=200).run(subject)


@pytest.mark.parametrize("frozen", ["blocks.0.attn.W_Q", ""])
def test_frozen_weights_are_asked_like_others(frozen: str) -> None:

    def measured(freeze: bool) -> tuple[dict[str, Any], list[bool]]:
        subject = planted.modular_addition(11, (2, 5), noise=0.05).subject
        for name, weight in subject.model.named_parameters():
            weight.requires_grad_(not (freeze and name.startswith(frozen)))
        before = [weight.requires_grad for weight in subject.model.parameters()]
        settings = {"examples": 32, "batches": 2, "batch_size": 8, "null_samples": 9}
        metrics = Interference(**settings).run(subject).metrics
        assert [weight.requires_grad for weight in subject.model.parameters()] == before
        return metrics, before

    (expected, _), (found, grads) = measured(False), measured(True)
    assert found == expected and not all(grads)
