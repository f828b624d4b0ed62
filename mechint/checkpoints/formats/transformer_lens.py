"""State dicts of TransformerLens's HookedTransformer, bare or inside ``{model, config, …}``.

Shapes say most of the architecture. What they do not say comes from a configuration (a mapping in
the file, or ``cfg.json`` or ``config.json`` beside it, in TransformerLens's field names) and is
otherwise assumed and named in ``extra["assumed"]``: ReLU, causal attention, and without layer norm
weights LNPre where the weights show that layer norm was folded into them, no normalisation
otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.reader import Found, history, json_beside, record, settings, state_dict
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.models.transformer import parameter_shapes

STATES = ("model", "state_dict", "model_state_dict", "model_state", "params")
CONFIGS = ("config", "cfg", "model_config", "model_cfg")
PREFIXES = ("_orig_mod.", "module.", "model.", "transformer.")
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}
ASSUMED = {"act_fn": "relu", "attention_dir": "causal", "normalization_type": None}
UNSERVED = {
    "parallel_attn_mlp": (False, None),
    "use_local_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "gated_mlp": (False, None),
    "attn_scores_soft_cap": (-1.0, 0.0, None),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "num_experts": (None,),
    "n_key_value_heads": (None,),
    "positional_embedding_type": ("standard", None),
}
"""Options of TransformerLens that change the mathematics → the values under which mechint's is the
same.
"""


def read(path: Path, content: Any) -> Found | None:
    """A state dict of TransformerLens's HookedTransformer, with or without its configuration."""
    state, given = _parts(content)
    if (
        state is None
        or "embed.W_E" not in state
        or state.get("blocks.0.attn.W_Q", torch.empty(0)).dim() != 3
    ):
        return None
    given = given if given is not None else _beside(path, state)
    config, weights, assumed = interpret(path, state, given or {})
    step, metrics = record(content)  # a bare state dict records nothing
    series = {
        at: lambda then=then: interpret(path, then, given or {})[1]
        for at, then in history(content).items()
    }
    return Found(
        config=config,
        weights=weights,
        step=step,
        metrics=metrics,
        series=series,
        extra={"assumed": assumed} if assumed else {},
    )


def _parts(content: Any) -> tuple[dict[str, Tensor] | None, Mapping[str, Any] | None]:
    """The state dict in `content`, names without wrappers' prefixes, and the configuration that
    came with it.
    """
    state, given = state_dict(content), None
    if state is None and isinstance(content, Mapping):
        state = next(
            (found for name in STATES if (found := state_dict(content.get(name))) is not None), None
        )
        given = next(
            (content[name] for name in CONFIGS if isinstance(content.get(name), Mapping)), None
        )
    for prefix in PREFIXES if state else ():
        if all(name.startswith(prefix) for name in state or {}):
            state = {name.removeprefix(prefix): value for name, value in (state or {}).items()}
    return state, given


def _beside(path: Path, state: Mapping[str, Tensor]) -> Mapping[str, Any] | None:
    for name in ("cfg.json", "config.json"):
        given = json_beside(path.with_name(name))
        if isinstance(given, Mapping) and given.get("d_model") == state["embed.W_E"].shape[1]:
            return given
    return None


def interpret(
    path: Path, state: Mapping[str, Tensor], given: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Any]]:
    """Configuration, weights under it, and what had to be assumed.

    Raises:
        CheckpointError: the model uses what mechint's HookedTransformer does not have.
    """
    _refuse(path, state, given)
    said = {name: given.get(name, default) for name, default in ASSUMED.items()}
    assumed = {name: default for name, default in ASSUMED.items() if name not in given}
    if "blocks.0.ln1.w" in state:
        said["normalization_type"] = "LN"
        assumed.pop("normalization_type", None)
    elif "normalization_type" in assumed and _folded(state):
        said["normalization_type"] = assumed["normalization_type"] = "LNPre"
    attn_only = "blocks.0.mlp.W_in" not in state
    if attn_only:
        assumed.pop("act_fn", None)
        said["act_fn"] = "relu"
    elif str(said["act_fn"]) not in ACTIVATIONS:
        raise CheckpointError(
            f"{path}: act_fn={said['act_fn']!r} is not served; expected one of "
            f"{', '.join(ACTIVATIONS)}"
        )
    (d_vocab, d_model), (n_heads, _, d_head) = (
        state["embed.W_E"].shape,
        state["blocks.0.attn.W_Q"].shape,
    )
    shape = {
        "n_layers": len({name.split(".")[1] for name in state if name.startswith("blocks.")}),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": None if attn_only else state["blocks.0.mlp.W_in"].shape[1],
        "n_ctx": _n_ctx(path, state, given),
        "d_vocab": d_vocab,
        "d_vocab_out": state["unembed.W_U"].shape[1],
        "attn_only": attn_only,
        "eps": given.get("eps", 1e-5),
        "attn_scale": _attn_scale(given),
    }
    config = settings(ModelConfig, {**shape, **said, "act_fn": ACTIVATIONS[said["act_fn"]]}, path)
    weights = {
        name: value for name, value in state.items() if not name.endswith((".mask", ".IGNORE"))
    }
    for name, size in parameter_shapes(config).items():
        if name not in weights and (
            name.rpartition(".")[2].startswith("b_") or name == "pos_embed.W_pos"
        ):
            weights[name] = state["embed.W_E"].new_zeros(size)
            assumed.setdefault("zero", []).append(name)
    return config, weights, assumed


def _folded(state: Mapping[str, Tensor]) -> bool:
    """Whether layer norm weights were folded in: TransformerLens then centres what reads the
    residual stream.
    """
    reads = state["blocks.0.attn.W_Q"]
    return bool(reads.abs().max() > 0) and bool(
        reads.mean(1).abs().max() < 1e-6 * reads.abs().max()
    )


def _attn_scale(given: Mapping[str, Any]) -> float | None:
    if given.get("use_attn_scale") is False:
        return 1.0
    scale = given.get("attn_scale")
    return float(scale) if isinstance(scale, int | float) and scale > 0 else None


def _n_ctx(path: Path, state: Mapping[str, Tensor], given: Mapping[str, Any]) -> int:
    """Positions: of the position embedding, else as configured, else of the attention mask."""
    if "pos_embed.W_pos" in state:
        return state["pos_embed.W_pos"].shape[0]
    mask = state.get("blocks.0.attn.mask", torch.empty(0))
    if isinstance(given.get("n_ctx"), int) or mask.numel():  # version 3 keeps an empty mask
        return given.get("n_ctx") or mask.shape[-1]
    raise CheckpointError(
        f"{path}: neither a position embedding nor a mask nor a configuration says how many "
        "positions it reads"
    )


def _refuse(path: Path, state: Mapping[str, Tensor], given: Mapping[str, Any]) -> None:
    """CheckpointError for what would make another function of the same weights."""
    for name, served in UNSERVED.items():
        value = given.get(name)
        if value not in served and not (
            name == "n_key_value_heads" and value == given.get("n_heads")
        ):
            raise CheckpointError(
                f"{path}: uses {name}={value!r}, which mechint's HookedTransformer does not have"
            )
    if given.get("normalization_type") not in ("LN", "LNPre", None) or (
        "blocks.0.ln1.w" in state and "blocks.0.ln1.b" not in state
    ):
        raise CheckpointError(
            f"{path}: normalization_type={given.get('normalization_type', 'RMS')!r} is not "
            "served; expected LN, LNPre or none"
        )
    if "unembed.W_U" not in state:
        raise CheckpointError(f"{path}: a HookedTransformer without unembed.W_U")
    for part, what in (
        ("rotary", "rotary positions"),
        ("W_gate", "gated feed-forward layers"),
        ("_W_K", "grouped keys and values"),
        ("mlp.ln.", "SoLU"),
    ):
        if any(
            part in name.rpartition("blocks.")[2]
            and (part != "_W_K" or name.rpartition(".")[2] == part)
            for name in state
        ):
            raise CheckpointError(
                f"{path}: uses {what}, which mechint's HookedTransformer does not have"
            )
    mask = state.get("blocks.0.attn.mask")
    if (
        mask is not None
        and mask.numel()
        and not torch.equal(mask.bool(), torch.ones_like(mask, dtype=torch.bool).tril())
    ):
        raise CheckpointError(
            f"{path}: uses local attention, which mechint's HookedTransformer does not have"
        )
