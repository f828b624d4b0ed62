"""Causal language models in a Hugging Face model directory (``config.json`` and weights), offline.

GPT-2, Llama, Mistral, Qwen2, Qwen3 and SmolLM become a HookedTransformer, so that every probe
serves them; other architectures, and options that a HookedTransformer does not have, open through
TransformerLens's bridge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.content import check_file, read_content
from mechint.checkpoints.mapping import builtin_mapping
from mechint.checkpoints.reader import ParsedCheckpoint, state_dict, whole_number
from mechint.errors import CheckpointError
from mechint.system.files import read_json, regular_file

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
MAX_LAYERS = 1000
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
LENGTHS = ("vocab_size", "intermediate_size", "n_inner", "ffn_dim", "n_positions")
"""Names of sizes that make a matrix with the width."""

UNSERVED = ("scale_attn_by_inverse_layer_idx", "add_cross_attention", "quantization_config")
"""Options of GPT-2 that mechint's HookedTransformer does not have: the bridge serves them."""

MAX_ROTATED = 1 << 20
"""Positions of a model that rotates by them: its file has no matrix of them, its code a table."""


NATIVE = {"gpt2": "gpt2"} | dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), "llama")
"""Type of a model of transformers → the mapping by which it becomes a HookedTransformer."""


def unserved(config: Mapping[str, Any]) -> str | None:
    """The architecture, or the option of it, that a HookedTransformer does not have; None where it
    expresses the model of this configuration.

    >>> unserved({"model_type": "llama", "hidden_act": "silu"})
    >>> unserved({"model_type": "llama", "rope_parameters": {"rope_type": "llama3"}})
    'rope_type=llama3'
    """
    kind = config.get("model_type")
    if kind not in NATIVE:
        return f"model_type={kind}"
    for name in UNSERVED:
        if config.get(name):
            return f"{name}={config[name]}"
    if NATIVE[kind] == "gpt2":
        return None
    if config.get("mlp_bias"):  # TransformerLens's bias is added to the gated product
        return "mlp_bias=True"
    for rope in (config.get("rope_parameters"), config.get("rope_scaling")):
        given = rope if isinstance(rope, Mapping) else {}
        rope_type = given.get("rope_type", given.get("type", "default"))
        if rope_type != "default":
            return f"rope_type={rope_type}"
        if given.get("partial_rotary_factor", 1) != 1:
            return f"partial_rotary_factor={given['partial_rotary_factor']}"
    if config.get("partial_rotary_factor") not in (None, 1):
        return f"partial_rotary_factor={config['partial_rotary_factor']}"
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    if window and window < (config.get("max_position_embeddings") or 0):
        return f"sliding_window={window}"
    return None


def read(path: Path, content: Any, *, through_bridge: bool = False) -> ParsedCheckpoint | None:
    """A local Hugging Face directory; `through_bridge`: as TransformerLens's bridge, whatever its
    architecture.
    """
    if content is not None or not path.is_dir():
        return None
    given = read_json(path / "config.json", CheckpointError)
    if not isinstance(given, Mapping) or "model_type" not in given:
        return None
    files = [file for pattern in WEIGHTS for file in sorted(path.glob(pattern))]
    if not files:
        raise CheckpointError(
            f"{path}: a Hugging Face configuration without weights; expected "
            f"{' or '.join(WEIGHTS)} beside it"
        )
    size = sum(regular_file(file, CheckpointError).st_size for file in files)
    _check_sizes(path, given, size)
    lacking = unserved(given)
    if lacking is None and not through_bridge:
        return _native(path, given, files)
    for file in files:
        if file.suffix == ".bin":
            check_file(file)
    from mechint.models.foreign.bridge import boot

    model = boot(path)
    return ParsedCheckpoint(
        config=model.cfg,
        model=model,
        extra={
            "model_type": given["model_type"],
            "d_vocab": model.cfg.d_vocab,
            "n_ctx": model.cfg.n_ctx,
            "through the bridge for": lacking or "as asked",
        },
    )


def _native(path: Path, given: Mapping[str, Any], files: list[Path]) -> ParsedCheckpoint:
    """The weights of a directory under the built-in mapping of its architecture."""
    state: dict[str, Tensor] = {}
    first = files[0].suffix  # where weights lie in both forms, the safetensors are read
    for file in files:
        if file.suffix == first:
            found = state_dict(read_content(file))
            if found is None:
                raise CheckpointError(f"{file}: holds no state dict")
            state |= {
                name: value if value.dtype == torch.float64 else value.float()
                for name, value in found.items()
            }
    kind = NATIVE[given["model_type"]]
    if kind == "llama":
        _check_biases(path, given, state)
    if given.get("tie_word_embeddings", kind == "gpt2"):
        state.pop("lm_head.weight", None)
    elif "lm_head.weight" not in state:
        raise CheckpointError(f"{path}: its weights lack lm_head.weight")
    return builtin_mapping(kind).forced(path, {"model": state})


def _check_biases(path: Path, given: Mapping[str, Any], state: Mapping[str, Tensor]) -> None:
    """CheckpointError where the biases of attention are not those that the configuration has."""
    there = [name for name in state if name.endswith("_proj.bias")]
    of_outputs = bool(given.get("attention_bias"))
    each = 3 + of_outputs if of_outputs or given["model_type"] == "qwen2" else 0
    if len(there) != each * whole_number(given.get("num_hidden_layers")):
        name = next(iter(there), "no bias")
        raise CheckpointError(
            f"{path}: its weights hold {name}, {len(there)} of attention in all; its configuration "
            f"has {each} a layer"
        )


def _check_sizes(path: Path, given: Mapping[str, Any], size: int) -> None:
    """CheckpointError where the configuration speaks of more weights than `size` bytes can hold."""
    for name in LAYERS:
        if whole_number(given.get(name)) > MAX_LAYERS:
            raise CheckpointError(f"{path}: {name}={given[name]}: expected at most {MAX_LAYERS}")
    width = max(whole_number(given.get(name)) for name in WIDTHS)
    rotates = whole_number(given.get("rotary_dim")) > 0
    if rotates and whole_number(given.get("n_positions")) > MAX_ROTATED:
        raise CheckpointError(
            f"{path}: n_positions={given['n_positions']}: expected at most {MAX_ROTATED:,}"
        )
    for name in LENGTHS[:-1] if rotates else LENGTHS:
        if whole_number(given.get(name)) * max(width, 1) > size:
            raise CheckpointError(
                f"{path}: its configuration asks for {name}={given[name]} by {width}, more than "
                f"the {size:,} bytes of its weights hold"
            )
