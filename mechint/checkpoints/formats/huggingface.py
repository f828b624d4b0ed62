"""Causal language models in a Hugging Face model directory (``config.json`` and weights),
offline.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.reader import ParsedCheckpoint, read_sibling_json
from mechint.errors import CheckpointError

WEIGHTS = ("*.safetensors", "pytorch_model*.bin")


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A local Hugging Face directory, opened through TransformerLens's bridge."""
    if content is not None or not path.is_dir():
        return None
    given = read_sibling_json(path / "config.json")
    if not isinstance(given, Mapping) or "model_type" not in given:
        return None
    if not any(file for pattern in WEIGHTS for file in path.glob(pattern)):
        raise CheckpointError(
            f"{path}: a Hugging Face configuration without weights; expected "
            f"{' or '.join(WEIGHTS)} beside it"
        )
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
