"""The functional transformer: the same numbers plain and stacked, with and without hooks, for every
configuration.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.models.transformer import HookedTransformer, initialize

BATCH = 3


@st.composite
def configs(draw) -> ModelConfig:
    """Small models of every kind: widths that do not divide, several groups, groups that leave
    early.
    """
    n_layers, n_loops = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    rotary = draw(st.booleans())
    sizes = draw(st.sampled_from([(4,), (2, 3)]))
    leaves = draw(st.booleans())
    return ModelConfig(
        n_layers=n_layers,
        n_loops=n_loops,
        d_model=draw(st.sampled_from([4, 6])),
        n_heads=draw(st.integers(1, 3)),
        d_head=draw(st.sampled_from([2, 4] if rotary else [1, 2, 3, 4])),
        positional_embedding_type="rotary" if rotary else "standard",
        gated_mlp=draw(st.booleans()),
        use_qk_norm=draw(st.booleans()),
        qkv_bias=draw(st.sampled_from([None, True, False])),
        d_mlp=draw(st.integers(1, 7)),
        n_ctx=draw(st.integers(1, 4)),
        d_vocab=draw(st.integers(1, 6)),
        d_vocab_out=sum(sizes),
        output_sizes=sizes,
        read_layers=tuple(draw(st.integers(1, n_layers * n_loops)) for _ in sizes)
        if leaves
        else None,
        act_fn=draw(st.sampled_from(["relu", "gelu", "gelu_new", "silu"])),
        normalization_type=draw(st.sampled_from([None, "LN", "LNPre", "RMS", "RMSPre"])),
        attn_only=draw(st.booleans()),
        attention_dir=draw(st.sampled_from(["causal", "bidirectional"])),
        attention_rate=draw(st.sampled_from([0.0, 0.3, 1.0])),
        use_bias=draw(st.booleans()),
        attn_scale=draw(st.sampled_from([None, 0.5])),
    )


def parameters(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Random values everywhere, in float64: biases and norm weights too."""
    generator = torch.Generator().manual_seed(seed)
    shift = {"w": 1.0}
    return {
        name: (
            torch.randn(value.shape, generator=generator, dtype=torch.float64) * 0.5
            + shift.get(name.rpartition(".")[2], 0.0)
        ).requires_grad_()
        for name, value in initialize(config, seed).items()
    }


def tokens_for(config: ModelConfig, *models: int) -> Tensor:
    return torch.randint(
        config.d_vocab, (*models, BATCH, config.n_ctx), generator=torch.Generator().manual_seed(7)
    )


@pytest.mark.full
@given(configs())
def test_the_hooked_module_computes_the_same(config):
    model = HookedTransformer(config).double()
    model.load_weights(parameters(config, 1))
    tokens = tokens_for(config)
    seen = []
    model.use_attn_result = True
    hooks = [(name, lambda tensor, hook: seen.append(hook.name)) for name in model.hook_dict]
    logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    torch.testing.assert_close(
        logits, Forward(model.weights(), config).logits(RowLayout.dense(tokens))
    )
    # with groups that leave early the norm before the unembedding runs unhooked for them
    silent = {name for name in model.hook_dict if name not in seen}
    assert all(name.startswith("ln_final") for name in silent) and (
        config.read_layers is not None or not silent
    )
    assert len(seen) == len(set(seen)) or config.read_layers is not None


@settings(max_examples=10)
@given(configs())
def test_a_causal_model_reads_no_later_token_and_a_bidirectional_one_may(config):
    weights, tokens = parameters(config, 2), tokens_for(config)
    before = Forward(weights, config).logits(RowLayout.dense(tokens))
    changed = tokens.clone()
    changed[:, -1] = (changed[:, -1] + 1) % config.d_vocab
    after = Forward(weights, config).logits(RowLayout.dense(changed))
    if config.attention_dir == "causal" and config.attention_rate == 1:
        assert torch.equal(before[:, :-1], after[:, :-1])


@pytest.mark.parametrize("rate", [0.0, 0.25, 1.0])
def test_constant_attention_is_mixed_in_as_ones(rate):
    config = ModelConfig(
        d_model=4,
        n_heads=1,
        d_vocab=3,
        d_vocab_out=3,
        attention_dir="bidirectional",
        attention_rate=rate,
        attn_only=True,
    )
    model = HookedTransformer(config, seed=1)
    tokens = torch.tensor([[0, 1, 2]])
    _, cache = model.run_with_cache(tokens)
    scores, pattern, v = (
        cache[f"blocks.0.attn.hook_{name}"] for name in ("attn_scores", "pattern", "v")
    )
    torch.testing.assert_close(pattern, rate * scores.softmax(-1) + (1 - rate))
    by_hand = (rate * scores[0, 0].softmax(-1) @ v[0, :, 0]) + (1 - rate) * v[0, :, 0].sum(0)
    torch.testing.assert_close(cache["blocks.0.attn.hook_z"][0, :, 0], by_hand)


def test_groups_that_leave_early_are_read_from_the_stream_there():
    config = ModelConfig(
        n_layers=2,
        d_model=6,
        n_heads=2,
        d_vocab=4,
        d_vocab_out=5,
        output_sizes=(2, 3),
        read_layers=(1, 2),
        normalization_type="LN",
    )
    model = HookedTransformer(config, seed=0)
    logits, cache = model.run_with_cache(torch.tensor([[0, 3, 1]]))
    weight, bias = model.weights()["unembed.W_U"], model.weights()["unembed.b_U"]
    for layer, columns in ((0, slice(0, 2)), (1, slice(2, 5))):
        stream = torch.nn.functional.layer_norm(cache[f"blocks.{layer}.hook_resid_post"], (6,))
        torch.testing.assert_close(
            logits[..., columns], stream @ weight[:, columns] + bias[columns]
        )
