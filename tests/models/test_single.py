"""A single model without autograd: logits and gradients of the ordinary way, to the bit."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models import single
from mechint.models.forward import Forward
from mechint.models.rows import Layout
from mechint.models.single import serves
from mechint.models.transformer import initialize
from mechint.task import IGNORE, Batch
from mechint.training.compact import compact, stack
from mechint.training.packing import FEW_SHAPES


@st.composite
def models(draw) -> ModelConfig:
    return ModelConfig(
        n_layers=draw(st.integers(1, 2)),
        n_loops=draw(st.integers(1, 3)),
        d_model=draw(st.sampled_from([4, 6])),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.integers(1, 4)),
        d_mlp=draw(st.integers(1, 9)),
        n_ctx=12,
        d_vocab=draw(st.sampled_from([4, 40])),  # rows of the first block shared, or each its own
        d_vocab_out=5,
        act_fn=draw(st.sampled_from(["relu", "gelu", "gelu_new", "silu"])),
        normalization_type=draw(st.sampled_from(["LN", "LNPre", None])),
        attn_only=draw(st.booleans()),
        attention_dir=draw(st.sampled_from(["causal", "bidirectional"])),
        use_bias=draw(st.booleans()),
        attn_scale=draw(st.sampled_from([None, 0.5])),
    )


def drawn(config: ModelConfig, examples: int, read: str, seed: int) -> tuple[Layout, Tensor]:
    """The layout of a batch of examples of many lengths, and a gradient of its logits."""
    generator = torch.Generator().manual_seed(seed)
    shape = (examples, config.n_ctx)
    tokens = torch.randint(config.d_vocab, shape, generator=generator)
    lengths = torch.randint(1, config.n_ctx + 1, (examples,), generator=generator)
    positions = torch.arange(config.n_ctx)
    last = positions == lengths.unsqueeze(1) - 1
    reads = {
        "last": last,
        "some": last | ((positions < lengths.unsqueeze(1)) & (tokens == 0)),
        "all": positions < lengths.unsqueeze(1),
    }[read]
    targets = torch.where(reads, torch.zeros_like(tokens), IGNORE).unsqueeze(-1)
    prepared = compact(stack([Batch(tokens, targets, None, lengths)]), config, FEW_SHAPES)
    rows = prepared.targets.shape[1]
    return prepared.layout, torch.randn(1, rows, config.d_vocab_out, generator=generator)


def weights(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Stacked parameters of one model, none of them zero."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (value + 0.3 * torch.randn(value.shape, generator=generator))[None].requires_grad_()
        for name, value in initialize(config, seed).items()
    }


def alone(
    p: dict[str, Tensor], config: ModelConfig, layout: Layout, grad: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and gradients of `mechint.models.single`, with the model axis."""
    plain = {name: value.detach().squeeze(0) for name, value in p.items()}
    logits, gradient = single.logits(plain, config, layout)
    found = gradient(grad.squeeze(0))
    assert found.keys() == p.keys()
    return logits.unsqueeze(0), {name: value.unsqueeze(0) for name, value in found.items()}


def same(p: dict[str, Tensor], config: ModelConfig, layout: Layout, grad: Tensor) -> None:
    assert serves(p, config, layout)
    logits, grads = alone(p, config, layout, grad)
    expected = Forward(p, config).logits(layout)
    expected_grads = torch.autograd.grad(expected, list(p.values()), grad, materialize_grads=True)
    assert torch.equal(logits, expected)
    for name, value in zip(p, expected_grads, strict=True):
        assert grads[name].shape == p[name].shape
        assert torch.equal(grads[name], value), name


@settings(deadline=None)
@given(models(), st.integers(2, 20), st.sampled_from(["last", "some", "all"]), st.integers(0, 99))
def test_it_computes_what_the_ordinary_way_does(config, examples, read, seed):
    layout, grad = drawn(config, examples, read, seed)
    p = weights(config, seed)
    if serves(p, config, layout):
        same(p, config, layout, grad)


@pytest.mark.parametrize("d_vocab", [8, 60])
@pytest.mark.parametrize("act_fn", ["relu", "gelu"])
def test_it_does_so_where_onednn_multiplies(d_vocab, act_fn):
    config = ModelConfig(
        n_layers=2,
        d_model=64,
        n_heads=2,
        d_mlp=256,
        n_ctx=40,
        d_vocab=d_vocab,
        d_vocab_out=5,
        act_fn=act_fn,
        normalization_type="LN",
    )
    layout, grad = drawn(config, 60, "some", 0)
    same(weights(config, 1), config, layout, grad)


FULL = {
    # scores of each pair of rows looked up, one query of each example that sees 3 keys or 6
    "looked up, few keys": (3, 5, 125, [2]),
    "looked up, more keys": (6, 2, 64, [5]),
    "looked up, two queries": (2, 7, 49, [0, 1]),
    "looked up, four queries": (4, 3, 81, [0, 1, 2, 3]),
    "own scores, few keys": (3, 40, 20, [2]),
}


@pytest.mark.parametrize("normalization_type", ["LN", None])
@pytest.mark.parametrize("kind", FULL)
def test_it_does_so_of_short_examples_that_are_all_of_one_length(kind, normalization_type):
    n_ctx, d_vocab, n, reads = FULL[kind]
    config = ModelConfig(
        n_layers=1,
        d_model=6,
        n_heads=2,
        d_mlp=9,
        n_ctx=n_ctx,
        d_vocab=d_vocab,
        d_vocab_out=5,
        normalization_type=normalization_type,
    )
    grid = torch.cartesian_prod(*[torch.arange(d_vocab)] * n_ctx)
    tokens = grid[torch.randperm(len(grid), generator=torch.Generator().manual_seed(1))[:n]]
    targets = torch.full((n, n_ctx, 1), IGNORE)
    targets[:, reads] = 0
    prepared = compact(stack([Batch(tokens, targets)]), config)
    assert prepared.layout.blocks is not None
    rows = prepared.layout.blocks[0]
    assert rows.table == kind.startswith("looked up")
    assert rows.queries.shape[1:] == (n, len(reads))
    generator = torch.Generator().manual_seed(2)
    grad = torch.randn(1, n * len(reads), config.d_vocab_out, generator=generator)
    same(weights(config, 3), config, prepared.layout, grad)


def test_what_it_cannot_compute_goes_the_ordinary_way():
    config = ModelConfig(
        n_layers=1,
        d_model=4,
        n_heads=1,
        n_ctx=12,
        d_vocab=40,
        d_vocab_out=5,
        normalization_type="LN",
    )
    layout, _ = drawn(config, 4, "all", 0)
    p = weights(config, 0)
    assert serves(p, config, layout)
    two = {name: torch.cat([value, value]) for name, value in p.items()}
    assert not serves(two, config, layout.each_of(2))
    assert not serves({name: value[0] for name, value in p.items()}, config, layout)
    for other in ({"attention_rate": 0.5}, {"d_head": 1}):
        assert not serves(p, dataclasses.replace(config, **other), layout)


def test_its_gradient_is_that_of_differences():
    config = ModelConfig(
        n_layers=2,
        d_model=4,
        n_heads=2,
        d_mlp=5,
        n_ctx=12,
        d_vocab=40,
        d_vocab_out=5,
        act_fn="gelu",
        normalization_type="LN",
    )
    layout, grad = drawn(config, 5, "some", 3)
    p = {name: value.detach().double() for name, value in weights(config, 3).items()}
    generator = torch.Generator().manual_seed(4)
    along = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64)
        for name, value in p.items()
    }

    def value(step: float) -> Tensor:
        moved = {name: p[name] + step * along[name] for name in p}
        return (Forward(moved, config).logits(layout) * grad).sum()

    assert serves(p, config, layout)
    _, grads = alone(p, config, layout, grad.double())
    slope = sum((grads[name] * along[name]).sum() for name in p)
    assert isinstance(slope, Tensor)
    assert float(slope) == pytest.approx(float(value(1e-5) - value(-1e-5)) / 2e-5, rel=1e-6)
