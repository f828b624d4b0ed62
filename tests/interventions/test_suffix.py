"""Pairs of prompts patched behind their common prefix: the numbers of hooked forwards."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.config import LLAMA, ModelConfig
from mechint.interventions.suffix import SuffixRuns
from mechint.models.transformer import HookedTransformer

FIRST, LENGTH = 3, 7
KINDS: dict[str, dict[str, Any]] = {
    "GPT-2": {"normalization_type": "LN", "act_fn": "gelu_new"},
    "Llama": {**LLAMA, "use_qk_norm": True},
    "attention alone": {"attn_only": True},
}


def runs_of(kind: str) -> tuple[HookedTransformer, SuffixRuns, Tensor, Tensor, Tensor]:
    config = ModelConfig(
        n_layers=3, d_model=16, n_heads=4, n_ctx=9, d_vocab=12, d_vocab_out=12, **KINDS[kind]
    )
    model = HookedTransformer(config, seed=1).double().eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    base = torch.randint(12, (5, LENGTH), generator=generator)
    source = base.clone()
    source[:, FIRST] = (base[:, FIRST] + 1) % 12
    source[:, -1] = torch.randint(12, (5,), generator=generator)
    classes = torch.stack([torch.arange(5), torch.arange(5) + 6], 1)
    return model, SuffixRuns(model, base, source, classes, FIRST), base, source, classes


def difference(logits: Tensor, classes: Tensor) -> Tensor:
    own = logits[:, -1].gather(1, classes)
    return own[:, 1] - own[:, 0]


@pytest.mark.parametrize("kind", KINDS)
def test_patches_are_those_of_hooks(kind: str) -> None:
    model, runs, base, source, classes = runs_of(kind)
    with torch.no_grad():
        _, cache = model.run_with_cache(source)
        assert torch.allclose(runs.base, difference(model(base), classes))
        assert torch.allclose(runs.source, difference(model(source), classes))
    for heads in ([(0, 1)], [(2, 3)], [(0, 2), (1, 0), (1, 3)], []):

        def hook(z: Tensor, hook: Any, heads: Any = heads) -> Tensor:
            z = z.clone()
            for layer, head in heads:
                if hook.name.startswith(f"blocks.{layer}."):
                    z[:, :, head] = cache[hook.name][:, :, head]
            return z

        hooks = [(f"blocks.{layer}.attn.hook_z", hook) for layer in range(3)]
        with torch.no_grad():
            expected = difference(model.run_with_hooks(base, fwd_hooks=hooks), classes)
        assert torch.allclose(runs.patched(heads), expected), heads


@pytest.mark.parametrize("kind", KINDS)
def test_first_order_is_the_slope_of_small_patches(kind: str) -> None:
    """Along the way from the base's output to the source's, by finite differences of hooks."""
    model, runs, base, source, classes = runs_of(kind)
    with torch.no_grad():
        _, there = model.run_with_cache(source)
        for layer, head in ((0, 1), (1, 2), (2, 0)):
            found = []
            for step in (-1e-4, 1e-4):

                def hook(z: Tensor, hook: Any, step: float = step, head: int = head) -> Tensor:
                    z = z.clone()
                    z[:, :, head] += step * (there[hook.name] - z)[:, :, head]
                    return z

                hooks = [(f"blocks.{layer}.attn.hook_z", hook)]
                found.append(difference(model.run_with_hooks(base, fwd_hooks=hooks), classes))
            slope = (found[1] - found[0]) / 2e-4
            assert torch.allclose(runs.first_order[:, layer, head], slope, atol=1e-5)


def test_direct_parts_are_the_whole_of_the_last_block_without_a_norm() -> None:
    """Nothing reads what heads of the last block write but the unembedding."""
    _, runs, *_ = runs_of("attention alone")
    for head in range(4):
        expected = runs.patched([(2, head)]) - runs.base
        assert torch.allclose(runs.direct[:, 2, head], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_a_way_through_queries_is_that_of_a_frozen_forward(kind: str) -> None:
    """The receiver's query from the changed stream, all else before it from the base."""
    model, runs, base, source, classes = runs_of(kind)
    with torch.no_grad():
        _, own = model.run_with_cache(base)
        _, there = model.run_with_cache(source)
        change = (there["z", 0] - own["z", 0])[:, -1, 1] @ model.W_O[0, 1]

        def add(x: Tensor, hook: Any) -> Tensor:
            x = x.clone()
            x[:, -1] += change
            return x

        kept: dict[str, Tensor] = {}

        def keep(q: Tensor, hook: Any) -> None:
            kept["q"] = q.clone()

        model.run_with_hooks(
            base, fwd_hooks=[("blocks.1.hook_resid_pre", add), ("blocks.1.attn.hook_q", keep)]
        )

        def put(q: Tensor, hook: Any) -> Tensor:
            q = q.clone()
            q[:, -1, 2] = kept["q"][:, -1, 2]
            return q

        logits = model.run_with_hooks(base, fwd_hooks=[("blocks.1.attn.hook_q", put)])
    expected = difference(logits, classes)
    assert torch.allclose(runs.through_queries((0, 1), [(1, 2)]), expected)
    assert torch.equal(runs.through_queries((1, 1), [(1, 2)]), runs.base)  # it cannot reach it
