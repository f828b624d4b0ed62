"""Interference against one backward per example and group, and on streams whose injections are
known.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import probes
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import ParameterError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import Null
from mechint.subject import Subject
from probes._interference import Interference, TaskGradients, cosines, groups_of, with_whole


def made(task: Any, seed: int = 0, **changes: Any) -> Subject:
    sizes = tuple(output.n_classes for output in task.outputs)
    shape: dict[str, Any] = {
        "d_model": 8,
        "n_heads": 2,
        "d_mlp": 12,
        "init_mode": "d_model",
        "output_sizes": sizes,
    } | changes
    config = ModelConfig(
        n_ctx=task.n_ctx, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab_out, **shape
    )
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


def test_example_gradients_equal_one_backward_each() -> None:
    subject = made(TASKS["comparison"](n=6), n_layers=2, normalization_type="LN")
    data = subject.data[:9]
    ours = torch.cat([*TaskGradients(subject).of_examples(data)])
    for row, tokens, targets in zip(ours, data.tokens, data.targets, strict=True):
        loss = F.cross_entropy(subject.model(tokens[None])[0, -1:], targets[-1])
        assert torch.allclose(row, backward(subject, loss), atol=1e-10)


def test_group_gradients_equal_one_backward_each() -> None:
    subject = made(TASKS["remainders"](p=5))
    data = subject.data
    groups = groups_of(subject.task, data)
    ours = TaskGradients(subject).of_groups(data, torch.stack(list(groups.values())))
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
    gradients = TaskGradients(subject).of_groups(batch, weights)
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
    assert type(result).from_json(result.to_json()).metrics.keys() == result.metrics.keys()


def test_parts_without_gradients_have_no_least_cosine(monkeypatch: Any) -> None:
    """Zero gradients have no cosine: neither 1 nor nan is said of them."""
    subject, probe = (
        made(corpus()),
        Interference(batches=2, batch_size=8, null_samples=99, examples=32),
    )
    seen = probe.run(subject, seed=0)
    matrix = seen.arrays["groups"]
    off = matrix[~np.eye(len(matrix), dtype=bool)]
    assert seen.metrics["between_groups.least"] == pytest.approx(np.nanmin(off))
    batches = Interference._batches

    def silent(self: Any, *given: Any) -> Any:
        *others, total = batches(self, *given)
        return *others, 0 * total

    monkeypatch.setattr(Interference, "_batches", silent)
    result = probe.run(subject, seed=0)
    assert not [name for name in result.metrics if name.startswith("between_groups")]


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


def test_labels_like_permuted_ones_teach_as_often_as_p_says(monkeypatch: Any) -> None:
    """By cosines drawn alike: 37% of means over 128 batches had p ≤ 0.01."""
    generator = np.random.default_rng(0)

    def permuted(self: Any, gradients: Any, direction: Any, batch: Any, draws: Any) -> torch.Tensor:
        return torch.from_numpy(generator.standard_normal((len(draws), 1)))

    monkeypatch.setattr(Interference, "_permuted", permuted)
    monkeypatch.setattr("probes._interference.probe.rng", lambda *key: None)  # a million take long
    probe, hits, empty = Interference(batches=32, null_samples=99), 0, None
    for seed in range(400):
        null = probe._null(empty, empty, [empty] * 32, seed)[:, 0]  # type: ignore[arg-type]
        observed = generator.standard_normal(32).mean()
        hits += Null.sampled("cosine.batch", observed, null, "permuted").p_value <= 0.0101
    assert hits <= 11  # 4 expected


def test_a_float32_model_at_a_small_loss_has_the_cosines_of_its_double() -> None:
    """In float32 1 − softmax of a right answer is a multiple of 6e-8: gradients at a loss of 1e-7
    were rounding, and batches that teach were said to teach nothing.
    """
    subject = planted.modular_addition(11, (2, 5), noise=0.1).subject
    with torch.no_grad():
        subject.model.unembed.W_U.mul_(11 / float(margins(subject).min()))
    subject.model.float()
    data, other = subject.data[:32], subject.data[32:96]
    weights = (data.targets != -1).float()[None], (other.targets != -1).float()[None]
    gradients = TaskGradients(subject)
    found = cosines(gradients.of_groups(data, weights[0]), gradients.of_groups(other, weights[1]))

    exact = subject.with_model(copy.deepcopy(subject.model).double())

    def loss(batch: Any) -> torch.Tensor:
        return F.cross_entropy(exact.model(batch.tokens)[:, -1], batch.targets[:, -1, 0])

    assert 1e-8 < loss(subject.data).item() < 1e-6
    of = [backward(exact, loss(batch)) for batch in (data, other)]
    assert found.item() == pytest.approx(F.cosine_similarity(*of, 0).item(), abs=1e-3)


def margins(subject: Subject) -> torch.Tensor:
    """By how much each right logit exceeds the largest wrong one."""
    logits, answers = subject.logits().detach(), subject.targets[:, :1]
    return (logits.gather(1, answers) - logits.scatter(1, answers, -torch.inf).amax(1, True))[:, 0]


def test_batches_that_raise_the_loss_do_not_teach_although_most_of_them_point_down() -> None:
    """One pair of a lookup table writes its answer −100 times as strongly: its batch has by far the
    largest gradient, and points up.
    """
    task = TASKS["modular-arithmetic"](p=11)
    subject = planted.lookup_table(task, seed=0).subject
    reference, batches = Interference()._data(subject, 0)
    wrong = int((subject.data.tokens == batches[0].tokens[0]).all(1).nonzero()[0])
    with torch.no_grad():
        subject.model.unembed.W_U.mul_(0.05)
        subject.model.weights()["blocks.0.mlp.W_out"][wrong] *= -100
    result = probes.run("interference", subject)
    assert result.metrics["cosine.batch"] > 0.5 and result.metrics["cosine.mean_gradient"] < 0
    assert result.verdict == "no"

    def loss(data: Any) -> torch.Tensor:
        return F.cross_entropy(subject.model(data.tokens)[:, -1], data.targets[:, -1, 0])

    step = torch.stack([backward(subject, loss(batch)) for batch in batches]).mean(0)
    together = torch.nn.functional.cosine_similarity(step, backward(subject, loss(reference)), 0)
    assert result.metrics["cosine.mean_gradient"] == pytest.approx(float(together), abs=1e-3)
    (finding,) = result.findings
    assert finding.effect is not None  # it decides here
    assert finding.effect.value == pytest.approx(float(together), abs=2e-3)
    with torch.no_grad():
        before, start = float(loss(reference)), 0
        for parameter in subject.model.parameters():
            part = step[start : start + parameter.numel()].view_as(parameter)
            parameter.sub_(1e-4 * part)
            start += parameter.numel()
        assert float(loss(reference)) > before
