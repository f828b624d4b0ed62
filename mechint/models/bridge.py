"""Language models of a local Hugging Face directory under TransformerLens's hook names, through its
TransformerBridge.

Weights stay as they are (no folding of layer norm), so logits are the model's own. Nothing is
fetched: a directory without a tokenizer gets one that writes each token as its number. Cost: the
weights in memory once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mechint.errors import CheckpointError

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "spiece.model",
    "merges.txt",
)


def boot(path: Path) -> Any:
    """The causal language model in directory `path` as a TransformerBridge, on the CPU in float32.

    Raises:
        CheckpointError: the directory lacks weights, needs code of its own, or TransformerLens has
            no bridge for it.
    """
    with _quiet():
        from transformer_lens.model_bridge import TransformerBridge
        from transformers import AutoModelForCausalLM

        try:
            # eager attention: the others never make the pattern that hooks read
            local = {"local_files_only": True, "trust_remote_code": False}
            model = AutoModelForCausalLM.from_pretrained(
                path, attn_implementation="eager", dtype="float32", **local
            )
            tokenizer = (
                None
                if any((path / name).is_file() for name in TOKENIZER_FILES)
                else _numbers(model.config.vocab_size)
            )
            bridge = TransformerBridge.boot_transformers(
                str(path), device="cpu", hf_model=model, tokenizer=tokenizer
            )
        except Exception as error:  # whatever breaks in a foreign directory, the user gets one line
            line = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise CheckpointError(
                f"{path}: this Hugging Face model cannot be opened: {line[:200]}"
            ) from error
    return bridge.eval()


def _numbers(size: int) -> Any:
    """A tokenizer that writes token i as the text "i"."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(
        models.WordLevel({str(index): index for index in range(size)}, unk_token="0")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="0", pad_token="0", unk_token="0"
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
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
