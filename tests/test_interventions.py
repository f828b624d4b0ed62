"""Branched forwards equal hooked forwards from the tokens, over random shapes of model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mechint.config import ModelConfig
from mechint.interventions import Edit, Point, Stream, at, frozen, last_read, resume
from mechint.models.transformer import HookedTransformer

CONFIGS = st.builds(
    ModelConfig,
    n_layers=st.integers(1, 3),
    n_loops=st.integers(1, 2),
    d_model=st.just(8),
    n_heads=st.sampled_from([1, 2]),
    d_vocab=st.just(7),
    d_vocab_out=st.just(5),
    n_ctx=st.just(4),
    act_fn=st.sampled_from(["relu", "gelu"]),
    normalization_type=st.sampled_from([None, "LN", "LNPre"]),
    attn_only=st.booleans(),
    attention_dir=st.sampled_from(["causal", "bidirectional"]),
    use_bias=st.booleans(),
    init_mode=st.just("d_model"),
)


def hooked(
    model: HookedTransformer, tokens: torch.Tensor, reads: torch.Tensor, edit: Edit
) -> torch.Tensor:
    """The same edit by a plain hooked forward."""
    block = edit.point.block
    name = (
        f"blocks.{block}.hook_attn_out"
        if edit.point.half
        else f"blocks.{block - 1}.hook_resid_post"
        if block
        else "blocks.0.hook_resid_pre"
    )

    def add(x: torch.Tensor, hook: object) -> torch.Tensor:
        x = x.clone()
        (x if edit.pos is None else x[:, edit.pos]).add_(edit.delta)
        return x

    with torch.no_grad():
        return at(model.run_with_hooks(tokens, fwd_hooks=[(name, add)]), reads)


def model_and_tokens(
    config: ModelConfig, seed: int
) -> tuple[HookedTransformer, torch.Tensor, torch.Tensor, torch.Generator]:
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, config.d_vocab, (5, config.n_ctx), generator=generator)
    reads = torch.randint(0, config.n_ctx, (5,), generator=generator)
    return HookedTransformer(config, seed=seed).double(), tokens, reads, generator


@settings(max_examples=20)
@given(config=CONFIGS, seed=st.integers(0, 1000), memory=st.sampled_from([1, 1 << 28]))
def test_edited_equals_hooked(config: ModelConfig, seed: int, memory: int) -> None:
    model, tokens, reads, generator = model_and_tokens(config, seed)
    stream = Stream(model, tokens, reads, memory=memory)
    points = [Point(block, half) for block in range(config.depth) for half in (0, 1)] + [
        Point(config.depth)
    ]
    edits = []
    for point in points:
        edits.append(Edit(point, torch.randn(5, 4, 8, generator=generator, dtype=torch.float64)))
        edits += [
            Edit(point, torch.randn(5, 8, generator=generator, dtype=torch.float64), pos)
            for pos in (0, 3)
        ]
    logits = stream.edited(edits)
    assert torch.allclose(stream.logits, at(model(tokens), reads), atol=1e-10)
    for edit, branched in zip(edits, logits, strict=True):
        assert torch.allclose(branched, hooked(model, tokens, reads, edit), atol=1e-10)


def test_output_groups_that_left_early_keep_their_answer() -> None:
    config = ModelConfig(
        n_layers=2,
        d_model=8,
        n_heads=2,
        d_vocab=7,
        d_vocab_out=5,
        n_ctx=4,
        output_sizes=(2, 3),
        read_layers=(1, 2),
    )
    model, tokens, reads, generator = model_and_tokens(config, 0)
    edits = [
        Edit(point, torch.randn(5, 4, 8, generator=generator, dtype=torch.float64))
        for point in (Point(0, 1), Point(1), Point(1, 1), Point(2))
    ]
    stream = Stream(model, tokens, reads)
    for edit, branched in zip(edits, stream.edited(edits), strict=True):
        assert torch.allclose(branched, hooked(model, tokens, reads, edit), atol=1e-10)
        assert torch.equal(branched[:, :2], stream.logits[:, :2]) == (edit.point > Point(1))


def test_resume_is_differentiable() -> None:
    config = ModelConfig(n_layers=2, d_model=8, n_heads=2, d_vocab=7, d_vocab_out=5, n_ctx=4)
    model, tokens, reads, _ = model_and_tokens(config, 1)
    x = Stream(model, tokens, reads).residual(Point(1)).requires_grad_()
    (gradient,) = torch.autograd.grad(
        resume(frozen(model), config, x, Point(1), reads)[:, 2].sum(), x
    )
    y = x.detach().clone().requires_grad_()
    (expected,) = torch.autograd.grad(at(model(y, start_at_layer=1), reads)[:, 2].sum(), y)
    assert torch.allclose(gradient, expected, atol=1e-10)


def test_last_read() -> None:
    targets = torch.tensor([[[-1], [3], [-1]], [[0], [-1], [2]], [[-1], [-1], [-1]]])
    assert last_read(targets).tolist() == [1, 2, 0]


def test_hooks_do_not_run() -> None:
    config = ModelConfig(d_model=8, n_heads=2, d_vocab=7, d_vocab_out=5, n_ctx=4)
    model, tokens, reads, _ = model_and_tokens(config, 0)
    model.hook_embed.add_hook(lambda tensor, hook: pytest.fail("a hook of the model ran"))
    Stream(model, tokens, reads)
