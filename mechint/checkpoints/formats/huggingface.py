"""Causal language models in a Hugging Face model directory (``config.json`` and weights),
offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.content import check_file
from mechint.checkpoints.reader import ParsedCheckpoint
from mechint.errors import CheckpointError
from mechint.files import read_json, regular_file

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
MAX_LAYERS = 1000
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
WIDTHS = ("hidden_size", "n_embd", "d_model", "dim")
LENGTHS = ("vocab_size", "intermediate_size", "n_inner", "ffn_dim", "n_positions")
"""Names of sizes that make a matrix with the width."""

MAX_ROTATED = 1 << 20
"""Positions of a model that rotates by them: its file has no matrix of them, its code a table."""


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A local Hugging Face directory, opened through TransformerLens's bridge."""
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
    for file in files:
        if file.suffix == ".bin":
            check_file(file)
    from mechint.models.bridge import boot

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


def _check_sizes(path: Path, given: Mapping[str, Any], size: int) -> None:
    """CheckpointError where the configuration speaks of more weights than `size` bytes can hold."""
    for name in LAYERS:
        if _whole(given.get(name)) > MAX_LAYERS:
            raise CheckpointError(f"{path}: {name}={given[name]}: expected at most {MAX_LAYERS}")
    width = max(_whole(given.get(name)) for name in WIDTHS)
    rotates = _whole(given.get("rotary_dim")) > 0
    if rotates and _whole(given.get("n_positions")) > MAX_ROTATED:
        raise CheckpointError(
            f"{path}: n_positions={given['n_positions']}: expected at most {MAX_ROTATED:,}"
        )
    for name in LENGTHS[:-1] if rotates else LENGTHS:
        if _whole(given.get(name)) * max(width, 1) > size:
            raise CheckpointError(
                f"{path}: its configuration asks for {name}={given[name]} by {width}, more than "
                f"the {size:,} bytes of its weights hold"
            )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
