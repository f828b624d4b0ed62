"""Attention of examples that ask with one row: against the ordinary way, and where it gives way."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.forward import Forward
from mechint.models.initial import initialize
from mechint.models.one_query import key_weights
from mechint.models.rows import KeyBags, Layout
from mechint.task import IGNORE, Batch
from mechint.training.compact import compact, stack

CONFIG = ModelConfig(d_model=6, n_heads=2, d_mlp=5, n_ctx=3, d_vocab=9, d_vocab_out=8)


def drawn(models: int, examples: int) -> Layout:
    """The layout of pairs of values and an "=", other pairs for every model."""
    batches = []
    for seed in range(models):
        generator = torch.Generator().manual_seed(seed)
        tokens = torch.randint(8, (examples, 3), generator=generator)
        tokens[:, 2] = 8
        targets = torch.full((examples, 3, 1), IGNORE)
        targets[:, 2] = 0
        batches.append(Batch(tokens, targets))
    return compact(stack(batches), CONFIG).layout


def without_bags(layout: Layout) -> Layout:
    assert layout.blocks is not None
    blocks = tuple(dataclasses.replace(block, bags=None) for block in layout.blocks)
    return dataclasses.replace(layout, blocks=blocks)


def weights(models: int, scale: float = 1.0) -> dict[str, Tensor]:
    each = [initialize(CONFIG, seed) for seed in range(models)]
    found = {name: torch.stack([one[name] for one in each]).double() for name in each[0]}
    for name in ("blocks.0.attn.W_Q", "blocks.0.attn.W_K"):
        found[name] *= scale
    return {name: value.requires_grad_() for name, value in found.items()}


def logits_and_gradients(p: dict[str, Tensor], layout: Layout) -> list[Tensor]:
    logits = Forward(p, CONFIG).logits(layout)
    turned = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0)).double()
    return [logits, *torch.autograd.grad(logits, list(p.values()), turned)]


@pytest.mark.parametrize("models", [1, 3])
@pytest.mark.parametrize("scale", [1.0, 3.0, 30.0])  # at 30 scores lie hundreds apart
def test_logits_and_gradients_are_those_of_the_ordinary_way(models, scale):
    layout, p = drawn(models, 40), weights(models, scale)
    assert layout.blocks is not None and layout.blocks[0].bags is not None
    ordinary = logits_and_gradients(p, without_bags(layout))
    for found, expected in zip(logits_and_gradients(p, layout), ordinary, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_scores_that_lie_too_far_apart_or_are_not_numbers_are_left_to_the_ordinary_way():
    q, k = torch.ones(1, 1, 1), torch.tensor([0.0, -58, 1]).view(3, 1, 1)
    weights = key_weights(q, k, 1.0)
    assert weights is not None
    torch.testing.assert_close(weights.flatten(), torch.tensor([-1.0, -59, 0]).exp())
    assert key_weights(q, k, 0.5) is None  # 118 apart
    assert key_weights(q, k * torch.nan, 1.0) is None


@settings(deadline=None)
@given(
    st.integers(1, 3), st.integers(1, 6), st.integers(1, 4), st.integers(1, 9), st.integers(0, 9)
)
def test_sums_over_keys_are_products_with_how_often_each_row_is_a_key(models, n, keys, rows, seed):
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(rows, (models, n, keys), generator=generator)
    bags = KeyBags(drawn, rows)
    counts = torch.nn.functional.one_hot(drawn, rows).sum(2).double()  # (model, example, row)
    x = torch.randn(models, rows, 5, generator=generator).double()
    y = torch.randn(models, n, 5, generator=generator).double()
    torch.testing.assert_close(bags.by_example(x), (counts @ x).flatten(0, 1))
    torch.testing.assert_close(bags.by_row(y), (counts.mT @ y).flatten(0, 1))
