"""Causal language models in a Hugging Face model directory (``config.json`` and safetensors).

transformers reads configuration, weights, ties, rotations and shards. GPT-2, Llama, Mistral, Qwen2,
Qwen3 and SmolLM become a HookedTransformer of its module's weights, so that every probe serves
them, if their logits are the module's on two rows of tokens. Other models, and options that a
HookedTransformer does not have, open through TransformerLens's bridge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.formats.transformer_lens import ACTIVATIONS
from mechint.checkpoints.reader import ParsedCheckpoint
from mechint.checkpoints.renaming import (
    BIAS,
    HEADS,
    OUT,
    QKV_BIAS,
    ROWS,
    Table,
    rename,
    transformer_config,
)
from mechint.checkpoints.weights import check_weights
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, MechintError
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.system.files import read_json, regular_file

INDEX, WEIGHTS = "model.safetensors.index.json", "model.safetensors"
MAX_LAYERS = 1000
MAX_TABLES = 1 << 27
"""Numbers in tables that a model computes and its files do not hold, such as rotations."""

LLAMA: Table = {
    "embed.W_E": "model.embed_tokens.weight",
    "blocks.{layer}.ln1.w": "model.layers.{layer}.input_layernorm.weight",
    "blocks.{layer}.ln2.w": "model.layers.{layer}.post_attention_layernorm.weight",
    **{
        f"blocks.{{layer}}.attn.W_{ours}": (
            f"model.layers.{{layer}}.self_attn.{name}_proj.weight",
            HEADS,
        )
        for ours, name in zip("QKV", "qkv", strict=True)
    },
    **{
        f"blocks.{{layer}}.attn.b_{ours}": (
            f"model.layers.{{layer}}.self_attn.{name}_proj.bias",
            BIAS,
        )
        for ours, name in zip("QKV", "qkv", strict=True)
    },
    "blocks.{layer}.attn.q_norm.w": "model.layers.{layer}.self_attn.q_norm.weight",
    "blocks.{layer}.attn.k_norm.w": "model.layers.{layer}.self_attn.k_norm.weight",
    "blocks.{layer}.attn.W_O": ("model.layers.{layer}.self_attn.o_proj.weight", OUT),
    "blocks.{layer}.attn.b_O": "model.layers.{layer}.self_attn.o_proj.bias",
    "blocks.{layer}.mlp.W_gate": ("model.layers.{layer}.mlp.gate_proj.weight", ROWS),
    "blocks.{layer}.mlp.W_in": ("model.layers.{layer}.mlp.up_proj.weight", ROWS),
    "blocks.{layer}.mlp.W_out": ("model.layers.{layer}.mlp.down_proj.weight", ROWS),
    "ln_final.w": "model.norm.weight",
    "unembed.W_U": ("lm_head.weight", ROWS),
}
"""Linear layers are to the left of what they act on."""

GPT2: Table = {
    "embed.W_E": "transformer.wte.weight",
    "pos_embed.W_pos": "transformer.wpe.weight",
    **{
        f"blocks.{{layer}}.ln{i}.{ours}": f"transformer.h.{{layer}}.ln_{i}.{name}"
        for i in (1, 2)
        for ours, name in (("w", "weight"), ("b", "bias"))
    },
    "blocks.{layer}.attn.W_QKV": (
        "transformer.h.{layer}.attn.c_attn.weight",
        "d_model (qkv head d_head) -> qkv head d_model d_head",
    ),
    "blocks.{layer}.attn.b_QKV": (
        "transformer.h.{layer}.attn.c_attn.bias",
        QKV_BIAS,
    ),
    "blocks.{layer}.attn.W_O": (
        "transformer.h.{layer}.attn.c_proj.weight",
        "(head d_head) d_model -> head d_head d_model",
    ),
    "blocks.{layer}.attn.b_O": "transformer.h.{layer}.attn.c_proj.bias",
    "blocks.{layer}.mlp.W_in": "transformer.h.{layer}.mlp.c_fc.weight",
    "blocks.{layer}.mlp.b_in": "transformer.h.{layer}.mlp.c_fc.bias",
    "blocks.{layer}.mlp.W_out": "transformer.h.{layer}.mlp.c_proj.weight",
    "blocks.{layer}.mlp.b_out": "transformer.h.{layer}.mlp.c_proj.bias",
    "ln_final.w": "transformer.ln_f.weight",
    "ln_final.b": "transformer.ln_f.bias",
    "unembed.W_U": ("lm_head.weight", ROWS),
}
"""Its linear layers (Conv1D) are to the right of what they act on; q, k and v are one matrix."""

NATIVE: Mapping[str, Table] = {
    "gpt2": GPT2,
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), LLAMA),
}
"""Type of a model of transformers → its tensors."""

Longest = Callable[[int], int]
"""From the number of tokens that a model knows to the length of the longest input asked of it."""


class Unserved(MechintError):
    """An option that a HookedTransformer does not have."""


def read(
    path: Path,
    content: Any,
    *,
    through_bridge: bool = False,
    longest: Longest | None = None,
) -> ParsedCheckpoint | None:
    """A local Hugging Face directory; `through_bridge`: as TransformerLens's bridge, whatever its
    architecture.
    """
    if content is not None or not path.is_dir():
        return None
    given = read_json(path / "config.json", CheckpointError)
    if (path / "adapter_config.json").is_file():
        raise CheckpointError(
            f"{path}: a LoRA adapter, which is no model of its own; merge it into its base model "
            "first (peft: merge_and_unload(), then save_pretrained)"
        )
    if not isinstance(given, Mapping) or "model_type" not in given:
        return None
    check_directory(path, given)
    from mechint.models.foreign.bridge import load_directory

    return of_module(load_directory(path), path, through_bridge, longest)


def of_module(
    module: Any,
    path: Path | None,
    through_bridge: bool = False,
    longest: Longest | None = None,
    tokenizer: Any = None,
) -> ParsedCheckpoint:
    """The causal language model `module` of transformers, from the directory `path` or, where it is
    None, with `tokenizer`: as weights of a HookedTransformer that share its memory, else bridged.
    """
    from mechint.models.foreign.bridge import bridge_of, differing, known_logits

    kind = str(module.config.model_type)
    asked = None if longest is None else longest(module.config.get_text_config().vocab_size)
    where, lacking = path or Path(kind), "as asked" if through_bridge else None
    known = known_logits(module, asked)
    if lacking is None:
        try:
            config, weights, extra = native(where, module, asked)
            forward = Forward(weights, config)
            lacking = differing(known, lambda tokens: forward.logits(RowLayout.dense(tokens)))
        except (Unserved, CheckpointError) as error:
            lacking = str(error).removeprefix(f"{where}: ")
        else:
            if lacking is None:
                extra = {"model_type": kind, **extra}
                return ParsedCheckpoint(config=config, weights=weights, extra=extra)
    model = bridge_of(module, path, tokenizer, known)
    return ParsedCheckpoint(
        config=model.cfg,
        model=model,
        extra={
            "model_type": kind,
            "d_vocab": model.cfg.d_vocab,
            "n_ctx": model.cfg.n_ctx,
            "through the bridge for": lacking,
        },
    )


# --- as a HookedTransformer -----------------------------------------------------------------------
def native(
    path: Path, module: Any, longest: int | None = None
) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Any]]:
    """Configuration and weights of a module of transformers as a HookedTransformer, and what is to
    be said of them.

    Raises:
        Unserved: an architecture, an option or a tensor that a HookedTransformer does not have.
    """
    given = module.config
    if given.model_type not in NATIVE:
        raise Unserved(f"model_type={given.model_type}")
    if given.num_hidden_layers < 1:
        raise Unserved("no layers")
    table = NATIVE[given.model_type]
    fields = _gpt2_fields(given) if table is GPT2 else _llama_fields(given)
    state = {name: value.detach() for name, value in module.named_parameters()}
    state["lm_head.weight"] = module.get_output_embeddings().weight.detach()
    weights = rename(path, state, table, {"d_head": fields["d_head"]})
    extra: dict[str, Any] = {}
    layers = getattr(given, "layer_types", None) or ["sliding_attention"]
    window = getattr(given, "sliding_window", None)
    if window and "sliding_attention" in layers and window < fields.get("n_ctx", 0):
        if longest is None or longest > window:
            raise Unserved(f"sliding_window={window}")
        fields["n_ctx"] = window
        extra["sliding_window"] = f"{window}, no shorter than any input; longer ones are refused"
    config = transformer_config(path, weights, fields)
    check_weights(path, config, weights)
    return config, weights, extra


def _activation(name: str) -> str:
    if name not in ACTIVATIONS:
        raise Unserved(f"activation {name}")
    return ACTIVATIONS[name]


def _gpt2_fields(given: Any) -> dict[str, Any]:
    if given.scale_attn_by_inverse_layer_idx:
        raise Unserved("scale_attn_by_inverse_layer_idx=True")
    return {
        "d_head": given.n_embd // given.n_head,
        "normalization_type": "LN",
        "eps": given.layer_norm_epsilon,
        "attn_scale": None if given.scale_attn_weights else 1.0,
        "dropout": given.resid_pdrop,
        "act_fn": _activation(given.activation_function),
    }


def _llama_fields(given: Any) -> dict[str, Any]:
    rope = given.rope_parameters
    kind, share = rope.get("rope_type", "default"), rope.get("partial_rotary_factor") or 1
    if kind not in ("default", "llama3") or share != 1:
        raise Unserved(f"rope_type={kind}" if share == 1 else f"partial_rotary_factor={share}")
    names = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
    d_head = getattr(given, "head_dim", None) or given.hidden_size // given.num_attention_heads
    return {
        "d_head": d_head,
        "n_ctx": given.max_position_embeddings,
        "normalization_type": "RMS",
        "eps": given.rms_norm_eps,
        "positional_embedding_type": "rotary",
        "rotary_base": float(rope["rope_theta"]),
        "rotary_scaling": [float(rope[name]) for name in names] if kind == "llama3" else None,
        "gated_mlp": True,
        "act_fn": _activation(given.hidden_act),
    }


# --- before anything is allocated -----------------------------------------------------------------
def check_directory(path: Path, given: Mapping[str, Any]) -> None:
    """CheckpointError where `path` lacks safetensors, is quantized, or where its configuration
    speaks of more weights than their headers do; no weight is read.
    """
    if given.get("quantization_config"):
        raise CheckpointError(f"{path}: its weights are quantized; open the ones in full precision")
    held = sum(map(_count_numbers, weight_files(path)))
    _check_counts(path, given)
    from mechint.models.foreign.local import LOCAL, one_line, quiet

    with quiet(), one_line(f"{path}: this Hugging Face model cannot be opened"):
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.from_pretrained(path, **LOCAL)
        with torch.device("meta"):
            shell = AutoModelForCausalLM.from_config(config)
    wanted = sum(value.numel() for value in shell.parameters())
    tables = sum(value.numel() for value in shell.buffers())
    if wanted > 2 * held + (1 << 16) or tables > MAX_TABLES:  # twice: of tied ones one is held
        raise CheckpointError(
            f"{path}: its configuration asks for {wanted:,} weights and {tables:,} other numbers, "
            f"its files hold {held:,}"
        )


def weight_files(path: Path) -> list[Path]:
    """``model.safetensors``, else the files that the index names.

    Raises:
        CheckpointError: neither is there, or a file of the index lies elsewhere or is missing.
    """
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    index = read_json(path / INDEX, CheckpointError)
    named = index.get("weight_map") if isinstance(index, Mapping) else None
    if not isinstance(named, Mapping) or not named:
        raise CheckpointError(
            f"{path}: a Hugging Face configuration without weights; expected {WEIGHTS}, or {INDEX} "
            "and its files, beside it; other forms are written anew by save_pretrained"
        )
    files = {name if isinstance(name, str) else "" for name in named.values()}
    if wrong := sorted(name for name in files if Path(name).name != name or not name):
        raise CheckpointError(f"{path}: {INDEX} names {wrong[0]!r}, no file beside it")
    return [path / name for name in sorted(files)]


def _count_numbers(file: Path) -> int:
    """Numbers in the tensors of a safetensors file, whose header is checked and no tensor read."""
    from safetensors import SafetensorError, safe_open

    regular_file(file, CheckpointError)
    try:
        with safe_open(file, framework="pt") as opened:
            shapes = [opened.get_slice(name).get_shape() for name in opened.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{file}: not a whole safetensors file: {error}") from error
    return sum(map(math.prod, shapes))


def _check_counts(path: Path, given: Mapping[str, Any]) -> None:
    """CheckpointError for numbers of modules that no model has, which would take long to list."""
    for name, value in given.items():
        if isinstance(value, Mapping):
            _check_counts(path, value)
        counts = any(part in name for part in ("layer", "expert", "block"))
        if counts and isinstance(value, int) and value > MAX_LAYERS and "window" not in name:
            raise CheckpointError(f"{path}: {name}={value}: expected at most {MAX_LAYERS}")
