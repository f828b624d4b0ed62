"""Names of models on the Hugging Face hub, which mechint never downloads itself."""

from __future__ import annotations

import shlex
from pathlib import Path

SUFFIXES = (".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".json", ".yaml")
"""File suffixes; a path with one is never a Hub model name."""


def from_the_hub(path: Path) -> str:
    """The command that downloads the model that the hub may have under the name `path` (gpt2, or
    EleutherAI/pythia-70m), and what to do then; "" where `path` is no such name.

    >>> from_the_hub(Path("models/add.pt"))
    ''
    """
    local = (
        path.is_absolute() or ".." in path.parts or (len(path.parts) == 2 and path.parent.exists())
    )
    if local or path.suffix in SUFFIXES or len(path.parts) > 2:
        return ""
    return (
        "; a model of the Hugging Face hub is downloaded first: "
        f"hf download {shlex.quote(str(path))} --local-dir {shlex.quote(path.name)}"
    )
