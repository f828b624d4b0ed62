"""Attention: scores by loops, planted heads found and named, silence of untrained heads, the
composition's target.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject
from probes.attention import Patterns
from probes.attention import scores as patterns
from probes.attention.patterns import kept_rows


def by_loops(pattern: np.ndarray, tokens: np.ndarray, kind: str) -> list[float]:
    """Mean attention on the keys of a kind, query by query."""
    n, heads, ctx, _ = pattern.shape
    totals = []
    for head in range(heads):
        scores = []
        for i in range(n):
            for q in range(ctx):
                keys = {
                    "previous_token": [q - 1] if q else [],
                    "same_token": [k for k in range(q) if tokens[i, k] == tokens[i, q]],
                    "induction": [
                        k for k in range(1, ctx) if k - 1 < q and tokens[i, k - 1] == tokens[i, q]
                    ],
                }[kind]
                if keys:
                    scores.append(sum(pattern[i, head, q, k] for k in keys))
        totals.append(float(np.mean(scores)))
    return totals


@pytest.mark.parametrize("kind", patterns.SCORES)
def test_scores_are_means_over_queries(kind: str) -> None:
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 3, (4, 7))
    pattern = generator.random((4, 2, 7, 7))
    hit = patterns.targets(tokens, np.full(4, 7), kind)
    assert patterns.mass(pattern, hit) == pytest.approx(by_loops(pattern, tokens, kind))


def test_nothing_beyond_an_examples_length_is_hit() -> None:
    hit = patterns.targets(np.zeros((1, 5), int), np.array([3]), "same_token")
    assert hit[0, :3, :3].sum() == 3 and not hit[0, 3:].any() and not hit[0, :, 3:].any()


def test_shuffled_keys_keep_causality() -> None:
    for order in patterns.shuffled_keys(6, True, 0, 5):
        assert all(
            sorted(order[q, : q + 1]) == list(range(q + 1))
            and list(order[q, q + 1 :]) == list(range(q + 1, 6))
            for q in range(6)
        )


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_induction_heads_are_named(noise: float) -> None:
    plant = planted.induction_head(seed=3, noise=noise, rotation_seed=1)
    result = probe.run("attention", Subject(plant.subject.model, plant.subject.task, n_examples=64))
    for kind in ("previous token", "induction"):
        layer, head = plant.truth["heads"][kind]
        assert result.metrics[f"{kind.replace(' ', '_')}.heads"] == [f"L{layer}H{head}"]
    assert result.metrics["same_token.heads"] == []
    assert result.null["induction.largest"].p_value == 0.001
    assert "view" in result.figures["patterns"].spec and "operands" not in result.figures
    assert ProbeResult.from_json(result.to_json()).to_json() == result.to_json()


def test_planted_heads_look_at_one_operand_each() -> None:
    result = probe.run("attention", planted.modular_addition(11, (2, 5), rotation_seed=1).subject)
    assert result.metrics["operand.heads"] == {"L0H0": 0, "L0H1": 1}
    assert result.metrics["operand.attention"]["L0H0"] == pytest.approx([1, 0], abs=1e-6)
    assert result.metrics["operand.preference"]["L0H1"] == pytest.approx(-1)
    assert result.null["operand.largest_preference"].p_value < 0.05 and "operands" in result.figures


def test_composition_attends_from_each_place_to_its_hidden_image() -> None:
    plant = planted.composition(n=4, k=2)
    result = probe.run(
        "attention", Subject(plant.subject.model, plant.subject.task, n_examples=128)
    )
    layer, head = plant.truth["heads"]["hop 1"]
    name = f"L{layer}H{head}"
    assert result.metrics["target.heads"] == [name] and result.metrics["target.argmax"][name] == 1
    pattern = result.arrays["pattern"][0]
    hidden = plant.subject.task.tables()["permutations"]
    assert np.mean(
        [pattern[i * 4 + j, i * 4 + hidden[i][j]] for i in range(2) for j in range(4)]
    ) == pytest.approx(result.metrics["target.mass"][name])
    assert "The stated target is followed by" in result.finding


def test_a_stated_target_is_held_against_the_heads() -> None:
    plant = planted.induction_head(n=8, length=4)
    target = tuple(max(q - 1, -1) for q in range(8))
    metrics = probe.run(
        "attention", Subject(plant.subject.model, plant.subject.task, n_examples=16), target=target
    ).metrics
    assert metrics["target.heads"] == metrics["previous_token.heads"]
    with pytest.raises(NotApplicableError, match="one for each of 8 positions"):
        probe.run("attention", plant.subject, target=(0, 1))


def test_untrained_heads_are_called_nothing() -> None:
    task = TASKS["modular-arithmetic"](p=11)
    for seed in range(5):
        model = HookedTransformer(
            ModelConfig(n_layers=2, d_model=16, n_heads=4, d_vocab=12, d_vocab_out=11),
            seed=seed + 1000,
        )
        metrics = probe.run("attention", Subject(model, task)).metrics
        assert (
            not any(metrics[f"{kind}.heads"] for kind in patterns.SCORES)
            and metrics["operand.heads"] == {}
        )


def test_small_memory_and_double_precision_change_nothing() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.1).subject
    expected = probe.run("attention", plant).metrics["operand.attention"]
    small = Subject(plant.model, plant.task, memory=5000, chunk=7)
    assert {
        k: v for k, v in probe.run("attention", small).metrics["operand.attention"].items()
    } == {k: pytest.approx(v) for k, v in expected.items()}
    plant.model.double()
    found = probe.run("attention", Subject(plant.model, plant.task)).metrics["operand.attention"]
    assert found == {k: pytest.approx(v, abs=1e-6) for k, v in expected.items()}
    assert torch.get_default_dtype() == torch.float32


def test_the_null_of_random_orders_by_brute_force() -> None:
    generator = np.random.default_rng(1)
    tokens = generator.integers(0, 3, (4, 6))
    weights = np.tril(generator.random((4, 2, 6, 6)))
    weights /= weights.sum(-1, keepdims=True)
    found = collected(weights, tokens)
    for kind in patterns.SCORES:
        _, null = patterns.score(found, kind, 0, 7)
        hit = patterns.targets(tokens, np.full(4, 6), kind)
        for value, order in zip(null, patterns.shuffled_keys(6, True, 0, 7), strict=True):
            moved = np.take_along_axis(hit, np.broadcast_to(order, hit.shape), 2)
            assert value == pytest.approx(patterns.mass(weights, moved).max())


def collected(weights: np.ndarray, tokens: np.ndarray) -> Patterns:
    n, heads, ctx, _ = weights.shape
    names = [f"L0H{head}" for head in range(heads)]
    none = np.zeros((heads, 0, 0), np.float32)
    mean = weights.mean(0)
    return Patterns(names, mean, mean, none, weights.astype(np.float32), tokens, np.full(n, ctx))


def test_soft_heads_are_named() -> None:
    """A planted induction head whose attention is mixed with two uniform parts in three."""
    plant = planted.induction_head(n=24, length=16, seed=3, rotation_seed=1)
    subject = Subject(plant.subject.model, plant.subject.task, n_examples=64)
    layer, head = plant.truth["heads"]["induction"]

    def soften(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        uniform = (pattern > -1).float().tril()
        return pattern / 3 + 2 / 3 * uniform / uniform.sum(-1, keepdim=True)

    hook = f"blocks.{layer}.attn.hook_pattern"
    subject.model.add_hook(hook, soften, is_permanent=True)
    result = probe.run("attention", subject)
    subject.model.reset_hooks(including_permanent=True)
    assert 0.3 < result.metrics["induction.score"][f"L{layer}H{head}"] < 0.5
    assert result.metrics["induction.heads"] == [f"L{layer}H{head}"]
    assert f"Induction heads: L{layer}H{head}" in result.finding


def test_three_soft_heads_are_named_beside_a_uniform_one() -> None:
    """All heads of the layer but the last give a third of the planted head's attention."""
    plant = planted.induction_head(n=40, length=16, n_heads=4, seed=3, rotation_seed=1)
    subject = Subject(plant.subject.model, plant.subject.task, n_examples=64)
    layer, head = plant.truth["heads"]["induction"]

    def soften(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        uniform = torch.ones_like(pattern).tril()
        uniform = uniform / uniform.sum(-1, keepdim=True)
        share = torch.tensor([0.34, 0.34, 0.34, 0.0]).view(4, 1, 1)
        return share * pattern[:, head : head + 1] + (1 - share) * uniform

    subject.model.add_hook(f"blocks.{layer}.attn.hook_pattern", soften, is_permanent=True)
    result = probe.run("attention", subject)
    subject.model.reset_hooks(including_permanent=True)
    soft = [f"L{layer}H{one}" for one in range(3)]
    assert result.metrics["induction.heads"] == soft
    assert all(0.3 < result.metrics["induction.score"][name] < 0.45 for name in soft)
    assert result.metrics["same_token.heads"] == []
    assert result.null["induction.largest"].p_value == 0.001


def test_three_tokens_have_too_few_orders() -> None:
    """Six orders of two and three keys cannot decide at .002: no word is said about heads."""
    task = TASKS["modular-arithmetic"](p=11)
    model = HookedTransformer(ModelConfig(n_heads=1, d_vocab=12, d_vocab_out=11))
    result = probe.run("attention", Subject(model, task), untrained=0)
    assert result.status == "abstains"
    assert "have only 6 orders, too few for a null at p ≤ 0.002" in result.finding
    assert "No head looks" not in result.finding


def test_scores_look_at_inputs_from_the_whole_grid() -> None:
    """The first rows of the grid all have the first operand 0."""
    task = TASKS["modular-arithmetic"](p=31)
    subject = Subject(HookedTransformer(ModelConfig(d_vocab=32, d_vocab_out=31)), task)
    rows = kept_rows(subject, 32, 0)
    assert len(set(subject.data.tokens[torch.from_numpy(rows), 0].tolist())) > 15


def test_as_many_samples_as_asked_for() -> None:
    plant = planted.induction_head(n=8, length=4)
    subject = Subject(plant.subject.model, plant.subject.task, n_examples=16)
    result = probe.run("attention", subject, samples=600)
    assert result.null["induction.largest"].samples == 600
    few = probe.run("attention", subject, samples=50)
    assert "50 null samples of induction.largest give no p below 0.02" in few.finding
