"""Attention: scores and nulls by loops, planted heads found, controls and untrained heads not."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from mechint.task import Batch
from probes._attention import scores
from probes._attention.scores import collect
from probes.operands import operand_positions

QUICK = {"samples": 499, "untrained": 0}


def score_by_loops(pattern: np.ndarray, tokens: np.ndarray, kind: str) -> list[float]:
    """Mean attention on the keys of a kind, query by query."""
    n, heads, ctx, _ = pattern.shape
    totals = []
    for head in range(heads):
        found = []
        for i, q in itertools.product(range(n), range(ctx)):
            keys = {
                "previous_token": [q - 1] if q else [],
                "same_token": [k for k in range(q) if tokens[i, k] == tokens[i, q]],
                "induction": [
                    k for k in range(1, ctx) if k - 1 < q and tokens[i, k - 1] == tokens[i, q]
                ],
            }[kind]
            if keys:
                found.append(sum(pattern[i, head, q, k] for k in keys))
        totals.append(float(np.mean(found)))
    return totals


def causal_weights(seed: int, n: int = 4, heads: int = 2, ctx: int = 7) -> np.ndarray:
    weights = np.tril(np.random.default_rng(seed).random((n, heads, ctx, ctx)))
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("kind", scores.KINDS)
def test_scores_are_means_over_queries(kind: str) -> None:
    tokens, pattern = np.random.default_rng(0).integers(0, 3, (4, 7)), causal_weights(0)
    hit = scores.targets(tokens, np.full(4, 7), kind)
    values, _ = scores.position_null(pattern, hit, True, 0, 1)
    assert values == pytest.approx(score_by_loops(pattern, tokens, kind), abs=1e-6)


def test_the_null_of_random_orders_has_the_mean_of_all_orders() -> None:
    """Over all orders of the allowed keys a query's score is its mean over these keys."""
    tokens, pattern = np.random.default_rng(1).integers(0, 3, (4, 6)), causal_weights(1, ctx=6)
    hit = scores.targets(tokens, np.full(4, 6), "same_token")
    _, null = scores.position_null(pattern, hit, True, 0, 4000)
    expected = np.zeros(2)
    for i, q in itertools.product(range(4), range(6)):
        expected += hit[i, q].sum() * pattern[i, :, q, : q + 1].mean(-1)
    assert null.mean(0) == pytest.approx(expected / hit.any(-1).sum(), abs=0.01)


def test_content_gains_are_differences_to_other_examples_by_brute_force() -> None:
    tokens, lengths = np.random.default_rng(5).integers(0, 3, (6, 7)), np.full(6, 7)
    weights = causal_weights(5, n=6)
    hit = scores.targets(tokens, lengths, "same_token")
    values, null = scores.content_null(scores.AttentionExamples(weights, hit, lengths), 9, 5)
    for head in range(2):
        own = sum((weights[i, head] * hit[i]).sum() for i in range(6)) / hit.any(-1).sum()
        every = sum((weights[i, head] * hit[j]).sum() for i in range(6) for j in range(6)) / (
            6 * hit.any(-1).sum()
        )
        assert values[head] == pytest.approx(own - every, abs=1e-6)
    assert null.shape == (5, 2)


def test_a_head_that_attends_and_does_not_copy_leads_to_no_verdict() -> None:
    """The plant with another token written by its induction head: attention is as before, answers
    are not those that followed earlier.
    """
    plant = planted.induction_head(n=10, length=5)
    layer, head = plant.truth["heads"]["induction"]
    model = copy.deepcopy(plant.subject.model)
    with torch.no_grad():
        into = model.weights()[f"blocks.{layer}.attn.W_V"][head]
        into[:10] = into[torch.arange(10).roll(1)]
    subject = Subject(model, plant.subject.task)
    result = probe.run("attention", subject, **QUICK)
    name = f"L{layer}H{head}"
    tokens, at = subject.data.tokens, subject.answer_positions
    given, shares = subject.logits().argmax(-1), list[float]()
    for i, q in enumerate(at.tolist()):
        last = tokens[i, q]
        earlier = {int(tokens[i, k]) for k in range(1, q) if tokens[i, k - 1] == last}
        shares.append(int(given[i]) in earlier)
    assert result.metrics["induction.heads"] == [name] and np.mean(shares) < 0.5
    assert result.metrics["induction.copied"] < 0.5 and result.lead == ""
    assert "mechanism" not in result.metrics
    (said,) = [one for one in result.findings if one.causal]
    assert said.verdict == "no"
    (named,) = [one for one in result.findings if name in one.headline]
    assert "is an induction head" not in named.headline


def test_a_sharp_head_does_not_hide_a_soft_one() -> None:
    """One head on the previous token by half, among heads whose random scores spread widely."""
    ctx, generator = 12, np.random.default_rng(0)
    soft = (
        0.5 * np.eye(ctx)[np.maximum(np.arange(ctx) - 1, 0)] + 0.5 / np.arange(1, ctx + 1)[:, None]
    )
    heads = [np.tril(soft)]
    for _ in range(6):
        heads.append(np.eye(ctx)[[generator.integers(0, q + 1) for q in range(ctx)]])
    weights = np.broadcast_to(np.stack(heads), (16, 7, ctx, ctx)).astype(np.float32)
    hit = scores.targets(np.zeros((16, ctx), int), np.full(16, ctx), "previous_token")
    values, null = scores.position_null(weights, hit, True, 0, 499)
    asked, subject = PROBES["attention"](), planted.modular_addition(5, (1,)).subject
    found = asked._exceeds(subject, values, null)  # type: ignore[attr-defined]
    assert found.tolist() == [True] + [False] * 6


def test_three_tokens_are_not_asked_about_kinds() -> None:
    plant = planted.modular_addition(11, (2, 5), rotation_seed=1)
    result = probe.run("attention", plant.subject, samples=499)
    assert {question for question, _ in result.not_asked} == {
        "previous token",
        "same token",
        "induction",
    }
    assert result.metrics["operand.heads"] == {"L0H0": 0, "L0H1": 1}
    assert result.metrics["operand.attention"]["L0H0"] == pytest.approx([1, 0], abs=1e-6)
    assert result.metrics["operand.preference"]["L0H1"] == pytest.approx(-1)
    (finding,) = result.findings
    assert finding.verdict == "yes" and finding.effect is not None and finding.effect.value > 0.9


def test_a_language_model_gets_repeated_random_tokens_of_its_vocabulary() -> None:
    """Texts without any repetition: induction scores are of tokens that the probe repeats."""
    plant = planted.induction_head(n=12, length=6)
    tokens = torch.stack([torch.randperm(12)[:6] for _ in range(4)])
    data = Batch(tokens, torch.full((4, 6, 1), -100))
    result = probe.run("attention", Subject(plant.subject.model, None, data=data), **QUICK)
    layer, head = plant.truth["heads"]["induction"]
    assert result.metrics["induction.heads"] == [f"L{layer}H{head}"]


def test_queries_in_the_padding_are_not_in_the_mean() -> None:
    task = TASKS["listops"]()
    config = ModelConfig(
        n_ctx=task.n_ctx, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab, n_heads=2, n_layers=2
    )
    subject = Subject(HookedTransformer(config), task, n_examples=24, chunk=5)
    lengths = subject.data.lengths
    assert lengths is not None and len(lengths.unique()) > 1
    found = collect(subject, np.arange(2))
    sums, counts = np.zeros(found.mean.shape), np.zeros(found.mean.shape[1])
    for i, length in enumerate(lengths.tolist()):
        one = subject.activation("blocks.1.attn.hook_pattern")[i].numpy()
        counts[:length] += 1
        sums[2:, :length] += one[:, :length]
    reached = np.maximum(counts, 1)[:, None]
    assert found.mean[2:] == pytest.approx((sums / reached)[2:], abs=1e-6)


def test_operand_positions_come_from_the_layout() -> None:
    """Operands of triplets stand behind a start token, a bracket and an operation."""
    task = TASKS["listops-triplets"](n=5, test_operation="MED")
    subject = Subject(HookedTransformer(ModelConfig.for_task(task, d_model=8, n_heads=1)), task)
    tokens, found = task.examples().tokens, operand_positions(subject)
    assert found is not None and len(found) == len(task.grid)
    for axis, position in enumerate(found):
        stride = int(np.prod(task.grid[axis + 1 :]))
        along = tokens[np.arange(task.grid[axis]) * stride, position]
        assert len(set(along.tolist())) == task.grid[axis]
    assert operand_positions(planted.modular_addition(7, (2,)).subject) == (0, 1)
    assert operand_positions(planted.induction_head(8, 6).subject) is None
