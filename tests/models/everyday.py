"""Everyday expressions of TransformerLens, and what version 3.9 gives for them.

    make .venv-peer/.installed
    .venv-peer/bin/python tests/models/everyday.py tests/fixtures/everyday.json

records the values; `test_everyday` compares ours. Weights are written out, so that both libraries
have the same; numbers are a few of each tensor.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

SIZES = {"n_layers": 3, "d_model": 16, "n_heads": 2, "d_head": 8, "d_mlp": 24}
SIZES |= {"n_ctx": 6, "d_vocab": 11, "d_vocab_out": 11}
SHARED = {**SIZES, "act_fn": "relu", "attention_dir": "causal", "normalization_type": "LNPre"}

EXPRESSIONS = (
    "model(tokens)",
    "model(tokens, return_type='loss')",
    "model(tokens, return_type='loss', loss_per_token=True)",
    "model(tokens, return_type='both')[1]",
    "model(tokens[0])",
    "model(tokens, stop_at_layer=0)",
    "model(tokens, stop_at_layer=1)",
    "model(tokens, stop_at_layer=-1)",
    "model(tokens, stop_at_layer=7)",
    "model(model(tokens, stop_at_layer=-1), start_at_layer=-1)",
    "model(model(tokens, stop_at_layer=1), start_at_layer=1, stop_at_layer=-1)",
    "model(model(tokens, stop_at_layer=3), start_at_layer=3)",
    "model.run_with_cache(tokens, stop_at_layer=-2)[0]",
    "cache['pattern', 0]",
    "cache['attn_scores', 1][..., -1, :]",
    "cache['resid_post', -1]",
    "cache['blocks.1.attn.hook_z']",
    "cache['post', 2]",
    "cache['scale', 1, 'ln1']",
    "model.run_with_cache(tokens[:1], remove_batch_dim=True)[1]['pattern', 1]",
    "list(model.run_with_cache(tokens, names_filter=lambda n: n.endswith('hook_v'))[1].keys())",
    "cache.decompose_resid(layer=-1)",
    "cache.decompose_resid(layer=2, mlp_input=True, return_labels=True)[1]",
    "cache.accumulated_resid(layer=-1, incl_mid=True)",
    "cache.accumulated_resid(layer=2, apply_ln=True)",
    "cache.accumulated_resid(layer=-1, apply_ln=True)[-1]",
    "cache.stack_head_results(layer=-1)",
    "cache.get_full_resid_decomposition(layer=2, expand_neurons=False, return_labels=True)[1]",
    "cache.get_full_resid_decomposition(layer=2, expand_neurons=False)",
    "cache.apply_ln_to_stack(cache['resid_post', -1][:, -1], layer=-1, pos_slice=-1)",
    "cache.logit_attrs(cache.decompose_resid(layer=-1, pos_slice=-1), tokens=right, "
    "incorrect_tokens=wrong, pos_slice=-1)",
    "cache.logit_attrs(cache.stack_head_results(layer=-1, pos_slice=-1), tokens=right, "
    "pos_slice=-1)",
    "model.run_with_hooks(tokens, fwd_hooks=[('blocks.0.attn.hook_z', lambda z, hook: z * 0)])",
    "model.tokens_to_residual_directions(right)",
    "model.generate(tokens[:, :2], max_new_tokens=3, do_sample=False, stop_at_eos=False, "
    "use_past_kv_cache=False, "
    "verbose=False)",
    "model.W_Q",
    "model.b_O",
    "model.W_U",
    "model.OV.AB",
    "model.QK.AB",
    "model.all_head_labels()",
    "model.all_composition_scores('K')",
    "model.accumulated_bias(2)",
    "(model.cfg.n_layers, model.cfg.d_head, model.cfg.d_vocab_out, model.cfg.act_fn)",
    "[model.hook_dict[f'blocks.1.attn.hook_{one}'].name for one in ('q', 'result')]",
)
"""Of models without weights in their norms, where both have the same."""

FOLDED = (
    "model(tokens).log_softmax(-1)",
    "cache['pattern', 2]",
    "cache.apply_ln_to_stack(cache['resid_post', -1][:, -1], layer=-1, pos_slice=-1).mul("
    "model.tokens_to_residual_directions(right) - model.tokens_to_residual_directions(wrong)"
    ").sum(-1) + model.b_U[right] - model.b_U[wrong]",
    "cache.logit_attrs(cache.get_full_resid_decomposition(layer=-1, expand_neurons=False, "
    "pos_slice=-1), tokens=right, incorrect_tokens=wrong, pos_slice=-1).sum(0) + model.b_U[right] "
    "- model.b_U[wrong]",
    "(cache.accumulated_resid(layer=-1, apply_ln=True)[-1] @ model.W_U + model.b_U)"
    ".log_softmax(-1)",
)
"""Of a layer norm with weights, which TransformerLens folds and mechint keeps."""


def written(shapes: Iterable[tuple[str, tuple[int, ...]]]) -> dict[str, torch.Tensor]:
    """Weights of a formula: another sine for every tensor."""
    found = {}
    for place, (name, shape) in enumerate(sorted(shapes)):
        size = int(torch.tensor(shape).prod())
        wave = torch.sin(torch.arange(size, dtype=torch.float64) * (1.3 + 0.37 * place) + place)
        value = (wave * 0.35).reshape(shape).float()
        found[name] = 1 + value if name.endswith(".w") else value
    return found


def names(model: Any) -> dict[str, Any]:
    """What the expressions are about."""
    tokens = torch.tensor([[1, 4, 0, 9, 3], [10, 2, 2, 7, 5], [6, 8, 1, 0, 4]])
    _, cache = model.run_with_cache(tokens)
    right, wrong = torch.tensor([2, 5, 7]), torch.tensor([3, 0, 1])
    return {"model": model, "tokens": tokens, "cache": cache, "right": right, "wrong": wrong}


def summary(value: Any) -> Any:
    """Shape and up to forty numbers of a tensor; anything else as JSON has it."""
    if isinstance(value, torch.Tensor):
        flat = value.detach().double().flatten()
        chosen = flat[:: max(1, len(flat) // 40)]
        return {"shape": list(value.shape), "numbers": [float(f"{one:.6g}") for one in chosen]}
    return list(value) if isinstance(value, tuple) else value


def record() -> dict[str, dict[str, Any]]:
    """The values that the installed TransformerLens gives."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    known: dict[str, dict[str, Any]] = {}
    for kind, expressions in (("LNPre", EXPRESSIONS), ("LN", FOLDED)):
        config = HookedTransformerConfig(**{**SHARED, "normalization_type": kind}, seed=0)
        model = HookedTransformer(config)
        parameters = model.named_parameters()
        state = written((name, tuple(value.shape)) for name, value in parameters)
        if kind == "LN":
            model.load_and_process_state_dict(model.state_dict() | state)
        else:
            model.load_state_dict(state, strict=False)
        values = {one: summary(eval(one, names(model))) for one in expressions}
        known[kind] = values
    return known


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(record(), indent=0))
