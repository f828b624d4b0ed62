"""transformers on local files: nothing is fetched, no code of a directory runs, nothing is printed;
and the tokenizer of a directory.
"""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mechint.errors import CheckpointError, DataError, first_line

LOCAL = {"local_files_only": True, "trust_remote_code": False}

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "merges.txt",
)

MAX_GROWTH = 1000


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal, which is left as it was."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextlib.contextmanager
def one_line(what: str) -> Iterator[None]:
    """Say in one line whatever breaks inside, in files or models of others."""
    try:
        yield
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{what}: {first_line(error, 200)}") from error


def has_tokenizer(path: Path) -> bool:
    """Return whether the directory `path` has a tokenizer."""
    return any((path / name).is_file() for name in TOKENIZER_FILES)


def load_tokenizer(path: Path) -> Any:
    """The tokenizer in the local directory `path`; runs no code of the directory's.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    if not has_tokenizer(path):
        raise CheckpointError(f"{path}: no tokenizer: expected {' or '.join(TOKENIZER_FILES)}")
    with quiet(), one_line(f"{path}: its tokenizer cannot be read"):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(path, **LOCAL)
        if not len(tokenizer):
            raise ValueError("it knows no tokens")
        if _growth(tokenizer) > MAX_GROWTH:
            raise ValueError("its normalizer makes far longer texts of what it is given")
        return tokenizer


def _growth(tokenizer: Any) -> int:
    """The factor by which replacements of a tokenizer's normalizer may lengthen a text."""
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    parts = [json.loads(normalizer.__getstate__())] if normalizer is not None else []
    for part in parts:
        parts += part.get("normalizers", [])  # of a sequence
    return math.prod(max(1, len(part.get("content", ""))) for part in parts)


def opening_of(tokenizer: Any, prepend_bos: bool | None = None) -> list[int]:
    """The tokens before every text: BOS where it is asked for, by default where the tokenizer's own
    ``encode`` puts it.

    Raises:
        DataError: BOS is asked for and the tokenizer has none.
    """
    bos = tokenizer.bos_token_id
    if prepend_bos is None:
        return [bos] if bos is not None and tokenizer.encode("")[:1] == [bos] else []
    if prepend_bos and bos is None:
        raise DataError("prepend_bos: the tokenizer has no BOS token")
    return [bos] if prepend_bos else []


# --- names of the hub -----------------------------------------------------------------------------
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
