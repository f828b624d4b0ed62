"""The compact forward gives the plain one's logits at every read position, and the same
gradients.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.forward import Forward
from mechint.models.rows import dense
from mechint.models.transformer import initialize
from mechint.task import IGNORE, Batch
from mechint.training import spec
from mechint.training.compact import compact, stack
from mechint.training.learners import TokenLearner
from mechint.training.packing import EXACT, FEW_SHAPES, Multiples
from tasks._listops.task import ListOps

SHAPES = st.sampled_from([(1, 5, 2, 3), (2, 6, 4, 2), (3, 20, 3, 2), (1, 9, 1, 4), (2, 1, 4, 1)])
"""models, examples, positions, tokens: few tokens make rows repeat, many make them distinct."""


@st.composite
def problems(draw) -> tuple[ModelConfig, list[dict[str, Tensor]], list[Batch]]:
    """A model of some kind, its weights in float64 for each seed, and a batch for each: some
    positions read, some padded.
    """
    models, n, pos, d_vocab = draw(SHAPES)
    d_vocab *= draw(st.sampled_from([1, 10]))
    n_layers, n_loops = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    staged = draw(st.booleans())
    config = ModelConfig(
        n_layers=n_layers,
        n_loops=n_loops,
        d_model=4,
        n_heads=2,
        d_mlp=5,
        n_ctx=pos,
        d_vocab=d_vocab,
        d_vocab_out=5,
        output_sizes=(2, 3) if staged else None,
        read_layers=(1, n_layers * n_loops) if staged else None,
        act_fn=draw(st.sampled_from(["relu", "gelu"])),
        normalization_type=draw(st.sampled_from([None, "LN"])),
        attn_only=draw(st.booleans()),
        attention_dir=draw(st.sampled_from(["causal", "bidirectional"])),
        attention_rate=draw(st.sampled_from([0.4, 1.0])) if pos == 1 else 1.0,
        use_bias=draw(st.booleans()),
    )
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    padded, everywhere = draw(st.booleans()), draw(st.booleans())
    batches = [_batch(config, n, padded, everywhere, generator) for _ in range(models)]
    weights = [
        {name: value.double() + 0.1 for name, value in initialize(config, seed).items()}
        for seed in range(models)
    ]
    return config, weights, batches


def _batch(
    config: ModelConfig, n: int, padded: bool, everywhere: bool, generator: torch.Generator
) -> Batch:
    pos, outputs = config.n_ctx, len(config.output_sizes or (1,))
    tokens = torch.randint(config.d_vocab, (n, pos), generator=generator)
    targets = torch.randint(2, (n, pos, outputs), generator=generator)
    if not everywhere:
        targets[torch.rand(n, pos, generator=generator) < 0.6] = IGNORE
        targets[0, 0] = 1  # somebody is read
    if not padded:
        return Batch(tokens, targets)
    lengths = torch.randint(1, pos + 1, (n,), generator=generator)
    targets[torch.arange(pos) >= lengths[:, None]] = IGNORE
    return Batch(tokens, targets, lengths=lengths)


def plain(weights: dict[str, Tensor], config: ModelConfig, batch: Batch) -> tuple[Tensor, Tensor]:
    """Logits and targets of what is read, one example at a time, without its padding."""
    logits, targets = [], []
    for index, tokens in enumerate(batch.tokens):
        length = len(tokens) if batch.lengths is None else int(batch.lengths[index])
        answers = Forward(weights, config).logits(dense(tokens[None, :length]))[0]
        read = (batch.targets[index, :length] != IGNORE).any(-1)
        logits.append(answers[read])
        targets.append(batch.targets[index, :length][read])
    return torch.cat(logits), torch.cat(targets)


@given(problems(), st.sampled_from([EXACT, FEW_SHAPES, Multiples(3, 2, 5)]))
def test_compact_equals_plain(problem, multiples):
    config, alone, batches = problem
    stacked = {
        name: torch.stack([weights[name] for weights in alone]).requires_grad_()
        for name in alone[0]
    }
    prepared = compact(stack(batches), config, multiples)
    logits = Forward(stacked, config).logits(prepared.layout)
    real = (prepared.targets != IGNORE).any(-1)
    (logits.square().sum(-1) * real).sum().backward()
    for index, (weights, batch) in enumerate(zip(alone, batches, strict=True)):
        weights = {name: value.requires_grad_() for name, value in weights.items()}
        expected, targets = plain(weights, config, batch)
        torch.testing.assert_close(logits[index][real[index]], expected)
        assert torch.equal(prepared.targets[index][real[index]], targets)
        expected.square().sum().backward()
        for name, value in weights.items():
            gradient, ours = (
                torch.zeros_like(value) if grad is None else grad
                for grad in (value.grad, _of(stacked[name].grad, index))
            )
            torch.testing.assert_close(
                ours, gradient, rtol=1e-6, atol=1e-8, msg=lambda text, name=name: f"{name}: {text}"
            )


def _of(gradient: Tensor | None, index: int) -> Tensor | None:
    return None if gradient is None else gradient[index]


@pytest.mark.parametrize("p", [7, 12])
def test_all_pairs_are_computed_from_the_distinct_rows_alone(p):
    config = ModelConfig(d_model=4, n_heads=1, d_vocab=p + 1, d_vocab_out=p)
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    tokens = torch.cat([pairs, torch.full((p * p, 1), p)], 1)
    targets = torch.full((p * p, 3, 1), IGNORE)
    targets[:, -1, 0] = pairs.sum(1) % p
    layout = compact(stack([Batch(tokens, targets)]), config).layout
    assert layout.tokens.shape == (1, 2 * p + 1)  # p tokens at each of two positions, and "="


def test_batches_of_many_lengths_have_few_shapes() -> None:
    task = ListOps(n=10, operands=2, depth=2)
    one = spec(task, {"d_model": 16, "n_layers": 2}).model
    shapes: dict[Multiples, set[tuple[torch.Size, ...]]] = {EXACT: set(), FEW_SHAPES: set()}
    for seed, (multiples, found) in itertools.product(range(60), shapes.items()):
        prepared = compact(stack([task.sample(64, seed)]), one, multiples)
        blocks = prepared.layout.blocks or ()
        found.add((prepared.layout.tokens.shape, prepared.targets.shape, blocks[-1].keys.shape))
        assert prepared.layout.repeated == (multiples is FEW_SHAPES)
    assert len(shapes[FEW_SHAPES]) <= 20 < 50 <= len(shapes[EXACT])


def test_predictions_at_several_positions_are_those_at_each() -> None:
    task = ListOps(n=10, operands=2)
    one = spec(task, {"d_model": 16, "n_layers": 1, "n_loops": 2})
    learner = TokenLearner([one.model] * 2, [task] * 2, one.train, torch.device("cpu"))
    parts = [learner.initial(model, seed) for model, seed in enumerate((0, 1))]
    weights = {name: torch.stack([part[name] for part in parts]) for name in parts[0]}
    tokens = torch.stack([task.sample(9, seed).tokens for seed in (0, 1)])
    positions = torch.tensor([[2, 5, 11], [4, -1, -1], [0, 1, -1]]).repeat(3, 1).expand(2, -1, -1)
    positions = positions.clone()
    positions[1, 4] = -1  # of one model an example is not asked at all
    found = learner.predict(weights, tokens, positions)
    assert found.shape == (2, 9, 3, task.d_vocab_out)
    for model, example, read in (positions >= 0).nonzero().tolist():
        place = positions[model, example, read]
        alone = learner.predict(
            weights, tokens[:, example : example + 1], place.view(1, 1).expand(2, -1)
        )
        torch.testing.assert_close(found[model, example, read], alone[model, 0])


@pytest.mark.parametrize(("dropout", "layouts"), [(0.0, 2), (0.1, 1)])
def test_dropout_drops_the_same_whatever_multiplies(
    dropout: float, layouts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = ListOps(n=10, operands=3)
    one = spec(task, {"d_model": 16, "dropout": dropout})
    found = set()
    for faster in (False, True):
        monkeypatch.setattr(
            "mechint.models.products.onednn_is_faster", lambda faster=faster: faster
        )
        learner = TokenLearner([one.model], [task], one.train, torch.device("cpu"))
        layout = learner.prepare([task.sample(50, 0)]).layout
        found.add((layout.tokens.shape, layout.repeated))
    assert len(found) == layouts
