"""Llama, Mistral, Qwen2 and Qwen3 of transformers as HookedTransformers: the same numbers at every
site; what a HookedTransformer does not have goes through the bridge, by name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.checkpoints import load_checkpoint
from mechint.interventions import resumes

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "attn_implementation": "eager",
}
KINDS: dict[str, dict[str, Any]] = {
    "Llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 700.0}},
    "Mistral": {"sliding_window": None, "rms_norm_eps": 1e-3},
    "Qwen2": {"tie_word_embeddings": True},
    "Qwen3": {"hidden_act": "gelu_pytorch_tanh"},
}


def made(kind: str, **settings: Any) -> Any:
    """A random model whose biases and norms are random, too."""
    import transformers

    config = getattr(transformers, f"{kind}Config")(**SIZES | KINDS.get(kind, {}) | settings)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = getattr(transformers, f"{kind}ForCausalLM")(config).eval()
        for name, weight in model.named_parameters():
            if "norm" in name or "bias" in name:
                torch.nn.init.normal_(weight, mean=0.5)
            else:
                torch.nn.init.normal_(weight, std=0.3)
    return model


def recorded(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """What modules of transformers say under the names of our hooks."""
    found: dict[str, Tensor] = {}

    def keep(name: str, module: Any, *, given: bool = False) -> None:
        def hook(_: Any, inputs: Any, output: Any) -> None:
            value = inputs[0] if given else output
            found[name] = value[0] if isinstance(value, tuple) else value

        module.register_forward_hook(hook)

    keep("hook_embed", model.model.embed_tokens)
    for index, layer in enumerate(model.model.layers):
        block = f"blocks.{index}"
        keep(f"{block}.hook_resid_pre", layer.input_layernorm, given=True)
        keep(f"{block}.hook_attn_out", layer.self_attn)
        keep(f"{block}.hook_resid_mid", layer.post_attention_layernorm, given=True)
        keep(f"{block}.hook_mlp_out", layer.mlp)
        keep(f"{block}.hook_resid_post", layer)
        keep(f"{block}.mlp.hook_pre", layer.mlp.gate_proj)
        keep(f"{block}.mlp.hook_pre_linear", layer.mlp.up_proj)
        keep(f"{block}.mlp.hook_post", layer.mlp.down_proj, given=True)
        for letter in "qkv":
            keep(f"{block}.attn.hook_{letter}", getattr(layer.self_attn, f"{letter}_proj"))
        keep(f"{block}.attn.hook_z", layer.self_attn.o_proj, given=True)
    with torch.no_grad():
        output = model(tokens, output_attentions=True)
    found |= {f"blocks.{i}.attn.hook_pattern": one for i, one in enumerate(output.attentions)}
    return found | {"logits": output.logits}


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_holds_what_transformers_does(kind: str, tmp_path: Path) -> None:
    source = made(kind)
    source.save_pretrained(tmp_path)
    opened = load_checkpoint(tmp_path)
    assert resumes(opened.model) and "through the bridge for" not in opened.extra
    tokens = torch.randint(40, (3, 17), generator=torch.Generator().manual_seed(1))
    expected = recorded(source, tokens)
    with torch.no_grad():
        logits, cache = opened.model.run_with_cache(tokens)
    found = {"logits": logits, **cache}
    for name, value in expected.items():
        mine = found[name]
        if name.endswith(("hook_k", "hook_v")):  # one for each head that shares them
            value = value.unflatten(-1, (2, 6)).repeat_interleave(2, -2)
        if name.endswith("hook_pattern"):
            assert mine.shape == value.shape
        assert torch.allclose(mine, value.reshape(mine.shape), atol=1e-4, rtol=1e-4), name
    sites = {name for name in found if not name.endswith(("hook_scale", "hook_normalized"))}
    derived = {"hook_rot_q", "hook_rot_k", "hook_attn_scores"}  # between two that are compared
    assert {name for name in sites if name.rpartition(".")[2] not in derived} == set(expected)
