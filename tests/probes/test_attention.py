"""Attention: scores by loops, planted heads found and named, silence of untrained heads, the
composition's target.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.models.transformer import HookedTransformer
from mechint.planted import library
from mechint.probe import Report
from mechint.registry import PROBES, TASKS
from mechint.results import Null, ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._attention import Patterns, content
from probes._attention import scores as patterns
from probes._attention.kinds import Rule, add_kind, add_target
from probes._attention.patterns import collect, kept_rows


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
    plant = planted.induction_head(n=8, length=8)
    target = tuple(max(q - 1, -1) for q in range(16))
    metrics = probe.run(
        "attention", Subject(plant.subject.model, plant.subject.task, n_examples=16), target=target
    ).metrics
    assert metrics["target.heads"] == metrics["previous_token.heads"]
    with pytest.raises(NotApplicableError, match="one for each of 16 positions"):
        probe.run("attention", plant.subject, target=(0, 1))


def positional(tokens: np.ndarray, back: int) -> np.ndarray:
    """(example, 1, query, key) a head that looks back by `back`, whatever stands there."""
    ctx = tokens.shape[1]
    pattern = np.eye(ctx)[np.maximum(np.arange(ctx) - back, 0)]
    return np.broadcast_to(pattern, (len(tokens), 1, ctx, ctx)).astype(np.float32)


def by_content(tokens: np.ndarray, kind: str) -> np.ndarray:
    """(example, 1, query, key) all attention on the keys of a kind, else on the first."""
    hit = patterns.targets(tokens, np.full(len(tokens), tokens.shape[1]), kind).astype(float)
    hit[..., 0] += hit.sum(-1) == 0
    return (hit / hit.sum(-1, keepdims=True)).astype(np.float32)[:, None]


@pytest.mark.parametrize("kind", ["same_token", "induction"])
def test_place_gains_nothing_on_the_keys_of_other_examples(kind: str) -> None:
    tokens = content.repeats(np.arange(40).reshape(2, 20), np.array([20, 20]), 3)
    assert tokens is not None and all(
        any((row[:-back] == row[back:]).all() for back in range(5, 16)) for row in tokens
    )
    lengths, hit = np.full(32, 20), patterns.targets(tokens, np.full(32, 20), kind)
    weights = np.concatenate([positional(tokens, 9), by_content(tokens, kind)], 1)
    examples = content.Examples(weights, hit, lengths)
    values, null = content.gain(examples, 0, 99)
    assert examples.tell(0.002, 0.1) and null.max() < 0.3
    assert abs(values[0]) < 0.15 and values[1] > 0.5
    # brute force: every example's attention on every example's keys
    pairs = [[float((weights[i, 1] * hit[j]).sum()) for j in range(32)] for i in range(32)]
    asked = hit.any(-1).sum(1).mean()
    expected = (np.trace(pairs) - np.mean(pairs) * 32) / asked / 32
    assert values[1] == pytest.approx(expected, rel=1e-4)
    same = content.Examples(weights, np.repeat(hit[:1], 32, 0), lengths)
    assert not same.tell(0.002, 0.1)
    assert not content.Examples(weights[:4], hit[:4], lengths[:4]).tell(0.002, 0.1)  # 24 dealings


def test_nothing_beyond_a_length_is_asked_of_other_examples() -> None:
    tokens = np.random.default_rng(0).integers(0, 3, (6, 7))
    lengths = np.array([3, 7, 4, 5, 7, 6])
    weights = np.random.default_rng(1).random((6, 1, 7, 7)).astype(np.float32)
    hit = patterns.targets(tokens, lengths, "same_token")
    examples = content.Examples(weights, hit, lengths)
    for i, j in ((0, 1), (2, 4)):
        inside = hit[j][: lengths[i]]
        assert examples.asked()[i, j] == inside.any(-1).sum()
        assert examples.on_others(weights[:, 0])[i, j] == pytest.approx(
            (weights[i, 0, : lengths[i]] * inside).sum(), rel=1e-5
        )


def test_repeats_keep_a_first_token_and_need_enough_others() -> None:
    begun = np.concatenate([np.full((4, 1), 99), np.arange(48).reshape(4, 12)], 1)
    made = content.repeats(begun, np.full(4, 13), 0)
    assert made is not None and (made[:, 0] == 99).all() and not (made[:, 1:] == 99).any()
    assert content.repeats(begun % 3, np.full(4, 13), 0) is None


def test_a_head_at_a_fixed_distance_is_no_induction_head() -> None:
    subject = library.fixed_distance(0)
    assert subject.accuracy()["next"] == 1.0
    result = probe.run("attention", subject)
    assert result.metrics["induction.largest"] > 0.9 and result.metrics["induction.heads"] == []
    assert "induction heads" not in result.finding
    assert "wherever that stands" in result.finding


def test_separators_at_fixed_places_make_no_head_look_at_equal_tokens() -> None:
    """Three queries look back at the first separator, whatever stands there."""
    tokens = np.random.default_rng(0).integers(0, 50, (32, 20))
    tokens[:, [4, 9, 14, 19]] = 60
    pattern = np.eye(20)
    pattern[[9, 14, 19]] = np.eye(20)[4]
    weights = np.tile(pattern[None, None], (32, 1, 1, 1))
    task = TASKS["repeated-tokens"].from_dict({"n": 61})
    shape = {"n_layers": 1, "n_heads": 1, "d_vocab": 61, "d_vocab_out": 61, "n_ctx": 20}
    subject = Subject(HookedTransformer(ModelConfig(**shape)), task)
    report = Report(PROBES["attention"](), subject)
    add_kind(report, subject, collected(weights, tokens), "same_token", Rule(0.002, 0.1, 999, 0))
    assert report.metrics["same_token.heads"] == []
    assert report.findings[0].verdict in ("no", "unclear")


@pytest.mark.parametrize(
    ("target", "ways"),
    [([-1, -1, -1, 2, 1, 0], 6), ([-1, -1, -1, 0, 0, 0], 1), ([-1, -1, 1, -1, -1, -1], 1)],
)
def test_a_target_with_few_arrangements_is_not_denied(target: list[int], ways: int) -> None:
    """A head that follows it wholly: few orders, one key for all queries, one query."""
    weights = np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    for query, key in enumerate(target):
        if key >= 0:
            weights[query] = np.eye(6)[key]
    found = collected(np.tile(weights[None, None], (32, 1, 1, 1)), np.zeros((32, 6), int))
    report = Report(PROBES["attention"](), library.addition(0.0, 0).subject)
    add_target(report, found, target, Rule(0.002, 0.1, 999, 0))
    assert report.findings[0].verdict == "unclear"
    assert f"only {ways} way" in report.findings[0].headline


def test_preferences_and_swings_are_those_of_every_input_by_loops() -> None:
    """From the answer, of every head of two layers, and of untrained models; a row for each."""
    task = TASKS["modular-arithmetic"](p=5)
    shape = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_vocab": 6, "d_vocab_out": 5}
    model = HookedTransformer(ModelConfig(init_mode="d_model", **shape), seed=4)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.mul_(6)
    subject = Subject(model, task)
    result = probe.run("attention", subject, untrained=4, seed=2)
    metrics, table = result.metrics, result.tables["heads"].columns

    def attention(one: Subject) -> np.ndarray:  # (head, example, operand)
        hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in range(2)]
        layers = [one.activation(hook, at=None)[:, :, 2, :2].numpy() for hook in hooks]
        return np.concatenate(layers, 1).swapaxes(0, 1).astype(np.float64)

    def preferences(weights: np.ndarray) -> list[float]:
        means = weights.mean(1)
        return [(first - second) / (first + second) for first, second in means]

    weights = attention(subject)
    for place, name in enumerate(("L0H0", "L0H1", "L1H0", "L1H1")):
        each = [(first - second) / (first + second) for first, second in weights[place]]
        assert metrics["operand.swing"][name] == pytest.approx(np.std(each), abs=1e-6)
        assert metrics["operand.attention"][name] == pytest.approx(weights[place].mean(0), abs=1e-6)
        row = table["head"].index(name)
        for operand in (0, 1):
            found = table[f"to position {operand}"][row]
            assert found == pytest.approx(weights[place, :, operand].mean(), abs=1e-6)
    values = preferences(weights)
    assert list(metrics["operand.preference"].values()) == pytest.approx(values, abs=1e-6)
    largest = max(abs(value) for value in values)
    assert metrics["operand.largest_preference"] == pytest.approx(largest, abs=1e-6)
    null = [
        max(abs(value) for value in preferences(attention(subject.untrained(2 * 4 + i))))
        for i in range(4)
    ]
    found = result.null["operand.largest_preference"]
    assert found.mean == pytest.approx(np.mean(null), abs=1e-6)
    assert found.std == pytest.approx(np.std(null, ddof=1), abs=1e-6)


def test_a_target_of_some_queries_by_loops() -> None:
    """Two heads, three queries with a key: means over these alone, largest weights counted too."""
    generator = np.random.default_rng(3)
    weights = np.tril(generator.random((5, 2, 6, 6)))
    weights /= weights.sum(-1, keepdims=True)
    mean = weights.mean(0)
    argmax = np.stack([np.eye(6)[one.argmax(-1)].mean(0) for one in weights.swapaxes(0, 1)])
    found = dataclasses.replace(collected(weights, np.zeros((5, 6), int)), argmax=argmax)
    target = [-1, 0, -1, 3, -1, 2]
    pairs = [(query, key) for query, key in enumerate(target) if key >= 0]
    values, best, null = patterns.agreement(found, target, 8, 200)
    for head in range(2):
        expected = np.mean([mean[head, q, k] for q, k in pairs])
        assert values[head] == pytest.approx(expected)
        expected = np.mean([weights[i, head, q].argmax() == k for q, k in pairs for i in range(5)])
        assert best[head] == pytest.approx(expected)
    orders = [
        order for order in itertools.permutations((0, 3, 2)) if order[0] <= 1 and order[1] <= 3
    ]
    every = {tuple(mean[:, (1, 3, 5), order].mean(1).round(9).tolist()) for order in orders}
    assert {tuple(row) for row in null.round(9).tolist()} == every and len(every) == 2


@pytest.mark.parametrize(("causal", "lengths"), [(True, (5, 5, 5)), (False, (4, 3, 4))])
def test_orders_of_the_keys_are_counted_one_by_one(causal: bool, lengths: tuple[int, ...]) -> None:
    """Of the two queries that are asked, each of the keys in reach may take the place of its own:
    as many ways as there are pairs of keys.
    """
    hit = np.zeros((3, 5, 5), bool)
    hit[0, 2, 1] = hit[1, 2, 0] = hit[2, 3, 2] = True
    reach = {query: range(query + 1 if causal else max(lengths)) for query in (2, 3)}
    ways = len(list(itertools.product(*reach.values())))
    assert patterns.arrangements(hit, causal, np.array(lengths)) == ways


def test_the_null_of_content_is_the_largest_of_each_dealing_by_brute_force() -> None:
    generator = np.random.default_rng(5)
    tokens, lengths = generator.integers(0, 3, (6, 7)), np.full(6, 7)
    weights = generator.random((6, 2, 7, 7)).astype(np.float32)
    hit = patterns.targets(tokens, lengths, "same_token")
    values, null = content.gain(content.Examples(weights, hit, lengths), 9, 5)

    def on(dealt: np.ndarray, head: int) -> float:
        """Attention on the keys of the example that is dealt, a query."""
        total = sum((weights[i, head] * hit[j]).sum() for i, j in enumerate(dealt))
        return total / sum(hit[j].any(-1).sum() for j in dealt)

    by_place = [
        sum((weights[i, head] * hit[j]).sum() for i in range(6) for j in range(6))
        / (6 * hit.any(-1).sum())
        for head in range(2)
    ]
    draw, order = rng("attention examples dealt", 9), np.arange(6)
    expected = [on(order, head) - by_place[head] for head in range(2)]
    assert values == pytest.approx(expected, abs=1e-6)
    for found in null:
        dealt = draw.permutation(order)
        largest = max(on(dealt, head) - by_place[head] for head in range(2))
        assert found == pytest.approx(largest, abs=1e-6)


def test_the_effect_of_a_kind_is_of_heads_above_the_null_else_of_the_largest() -> None:
    """The third head gains most on its own null, but does not exceed the largest of any head."""
    rule = Rule(alpha=0.1, least=0.1, samples=9, seed=0)
    null = np.tile([0.2, 0.6, 0.05], (9, 1))
    values = np.array([0.7, 0.9, 0.58])
    assert rule.above(values, null).tolist() == [True, True, False]
    assert rule.effect(values, null) == pytest.approx(0.5)
    values = np.array([0.3, 0.59, 0.4])
    assert not rule.above(values, null).any()
    assert rule.effect(values, null) == pytest.approx(-0.01)


@pytest.mark.parametrize("causal", [True, False])
def test_dealings_are_counted_and_drawn_alike(causal: bool) -> None:
    queries, keys = np.array([4, 1, 2, 3]), np.array([0, 1, 1, 3])
    every = {
        order
        for order in itertools.permutations(keys.tolist())
        if not causal or (np.array(order) <= queries).all()
    }
    assert patterns.dealings(queries, keys, causal) == len(every)
    generator = np.random.default_rng(0)
    drawn = Counter(
        tuple(patterns.deal(queries, keys, causal, generator).tolist()) for _ in range(2000)
    )
    assert set(drawn) == every
    assert min(drawn.values()) > 0.7 * 2000 / len(every)


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


def test_queries_in_the_padding_are_not_in_the_mean() -> None:
    task = TASKS["listops"]()
    config = ModelConfig(
        n_ctx=task.n_ctx, d_vocab=task.d_vocab, d_vocab_out=task.d_vocab, n_heads=2, n_layers=2
    )
    subject = Subject(HookedTransformer(config), task, n_examples=24, chunk=5)
    lengths = subject.data.lengths
    assert lengths is not None and len(lengths.unique()) > 1
    found = collect(subject, [], np.arange(2))
    shape = found.mean.shape
    sums, most, counts = np.zeros(shape), np.zeros(shape), np.zeros(shape[1])
    for i, length in enumerate(lengths.tolist()):
        one = subject.activation("blocks.1.attn.hook_pattern")[i].numpy()
        counts[:length] += 1
        for head, query in itertools.product(range(2), range(length)):
            sums[2 + head, query] += one[head, query]
            most[2 + head, query, one[head, query].argmax()] += 1
    reached = np.maximum(counts, 1)[:, None]
    assert found.mean[2:] == pytest.approx((sums / reached)[2:], abs=1e-6)
    assert found.argmax[2:] == pytest.approx((most / reached)[2:])


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
            assert value == pytest.approx(patterns.mass(weights, moved))


@pytest.mark.parametrize("seed", range(6))
def test_a_sample_in_the_order_of_the_keys_ties_with_what_is_observed(seed: int) -> None:
    """Three keys stand in six orders, of which one is theirs: a sixth of the samples are as good.

    The patterns are float32, and heads look at the previous token more than at any other.
    """
    generator = np.random.default_rng(seed)
    tokens = generator.integers(0, 9, (32, 3))
    weights = np.tril(generator.random((32, 4, 3, 3)) + 3 * np.eye(3, k=-1))
    weights /= weights.sum(-1, keepdims=True)
    values, every = patterns.score(collected(weights, tokens), "previous_token", seed, 999)
    null = every.max(1)
    p_value = Null.sampled("score", float(values.max()), null, "").p_value
    assert len(np.unique(null)) == 6
    assert p_value > 1 / 6 - 3 * np.sqrt(5 / 36 / 999)
    hit = patterns.targets(tokens, np.full(32, 3), "previous_token")
    assert values == pytest.approx(patterns.mass(weights, hit), abs=1e-6)


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
    assert (
        "Heads that look at what followed an earlier equal token, as induction heads do (what they "
        f"write is not tested): L{layer}H{head}"
    ) in result.finding


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
    assert result.verdict == "unclear"
    assert "arranged in only 6 ways; p ≤ 0.002 takes 500" in result.finding
    assert "No head" not in result.finding


def sharp(others: int, weight: float) -> np.ndarray:
    """(example, head, query, key) of 6 tokens: a head that gives the previous token `weight`, and
    `others` that look at one key each for every query, whatever stands there.
    """
    draw, uniform = np.random.default_rng(0), np.tril(np.ones((6, 6))) / np.arange(1, 7)[:, None]
    first = weight * np.eye(6)[[0, 0, 1, 2, 3, 4]] + (1 - weight) * uniform
    fixed = [np.eye(6)[[0, 1, *(draw.integers(0, q + 1) for q in (2, 3, 4, 5))]] for _ in range(8)]
    return np.tile(np.stack([first, *fixed[:others]])[None], (32, 1, 1, 1))


@pytest.mark.parametrize("weight", [1.0, 0.6])
@pytest.mark.parametrize(("others", "status"), [(0, "yes"), (8, "unclear")])
def test_a_previous_token_head_is_not_denied_because_others_are_sharp(
    weight: float, others: int, status: str
) -> None:
    """Of 720 orders one is as good for each of nine heads: 9/720 is above the level."""
    tokens = np.random.default_rng(1).integers(0, 10, (32, 6))
    report = Report(PROBES["attention"](), library.addition(0.0, 0).subject)
    found = collected(sharp(others, weight), tokens)
    add_kind(report, report.subject, found, "previous_token", Rule(0.002, 0.1, 3999, 0))
    at_random = np.mean([1 / (q + 1) for q in range(1, 6)])  # whatever the weights
    assert report.findings[0].verdict == status
    if others:
        value = report.metrics["previous_token.score"]["L0H0"]
        said = f"L0H0 ({value:.2f}, at random {at_random:.2f}) may, but the largest of 9 heads"
        assert said in report.findings[0].headline
    else:
        assert report.metrics["previous_token.heads"] == ["L0H0"]
        assert report.findings[0].effect == pytest.approx(
            report.metrics["previous_token.largest"] - at_random, abs=0.01
        )


def test_a_head_that_does_no_more_than_its_own_keys_in_random_order_is_denied() -> None:
    report = Report(PROBES["attention"](), library.addition(0.0, 0).subject)
    tokens = np.random.default_rng(1).integers(0, 10, (32, 6))
    found = collected(sharp(8, 1.0)[:, 1:], tokens)
    add_kind(report, report.subject, found, "previous_token", Rule(0.002, 0.1, 3999, 0))
    assert report.findings[0].verdict == "no"
    assert "No head is told from keys in random order by how" in report.findings[0].headline
    assert "where the largest of 8 heads there has" in report.findings[0].headline


def test_what_an_induction_head_writes_is_not_said_to_be_tested() -> None:
    """W_O of the layer zero: the pattern is as it was, and the model is at chance."""
    subject = planted.induction_head(10, 5, n_heads=3, seed=0).subject
    with torch.no_grad():
        dict(subject.model.named_parameters())["blocks.1.attn.W_O"].zero_()
    subject = Subject(subject.model, subject.task)
    assert subject.accuracy()["next"] < 0.2
    finding = probe.run("attention", subject).finding
    assert "as induction heads do (what they write is not tested): L1H1 (1.00)" in finding
    assert "Induction heads" not in finding


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


def test_the_view_of_many_heads_holds_the_best_of_each_kind_and_says_what_it_leaves_out() -> None:
    task = TASKS["repeated-tokens"](length=35, n=40)
    sizes = {"d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out, "n_ctx": task.n_ctx}
    model = HookedTransformer(ModelConfig(n_layers=5, d_model=24, n_heads=12, d_mlp=8, **sizes))
    subject = Subject(model, task, n_examples=12)
    settings = {"samples": 19, "alpha": 0.2, "examples": 12}
    result = probe.run("attention", subject, **settings)
    shown = result.figures["patterns"]
    heads = shown.spec["view"]["heads"]
    assert len(heads) == 48 and heads == [n for n in result.metrics["heads"] if n in heads]
    for kind in ("previous_token", "same_token", "induction"):
        scores = result.metrics[f"{kind}.score"]
        assert set(sorted(scores, key=lambda name: -scores[name])[:12]) <= set(heads)
    assert shown.title == "Attention of 48 of 60 heads"
    for sentence in (
        "The heads are those that score highest.",
        "A few of the 12 examples can be chosen.",
        "Of 70 tokens the first 64 are shown.",
        "There is room for the first 1 of 9 examples.",
        "Saved as a drawing, it shows the first 12 heads.",
    ):
        assert sentence in shown.caption
    whole = result.arrays["pattern"]
    for place, name in enumerate(heads):  # the mean over the examples, of the head so named
        drawn = np.reshape(shown.spec["view"]["frames"][-1][0][place], (64, 64))
        mean = whole[result.metrics["heads"].index(name), :64, :64]
        np.testing.assert_allclose(drawn, mean, atol=6e-4)
