"""Causal language models in a Hugging Face model directory (``config.json`` and weights), offline.

GPT-2 models become a HookedTransformer, so that every probe serves them; the other architectures
open through TransformerLens's bridge.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def serves_gpt2(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration is of a GPT-2 that a HookedTransformer expresses."""
    return config.get("model_type") == "gpt2" and not any(config.get(name) for name in UNSERVED)


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
    if serves_gpt2(given) and not through_bridge:
        return _gpt2(path, given, files)
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
        },
    )


def _gpt2(path: Path, given: Mapping[str, Any], files: list[Path]) -> ParsedCheckpoint:
    """The weights of a GPT-2 directory under the built-in mapping."""
    state: dict[str, Tensor] = {}
    first = files[0].suffix  # where weights lie in both forms, the safetensors are read
    for file in files:
        if file.suffix == first:
            found = state_dict(read_content(file))
            if found is None:
                raise CheckpointError(f"{file}: holds no state dict")
            state |= found
    if given.get("tie_word_embeddings", True):
        state.pop("lm_head.weight", None)
    elif "lm_head.weight" not in state:
        raise CheckpointError(f"{path}: its weights lack lm_head.weight")
    return builtin_mapping("gpt2").forced(path, {"model": state})


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
