"""Text that a model writes, one token at a time, under TransformerLens's name and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.errors import ParameterError


@torch.no_grad()
def generate(
    model: Any,
    tokens: Int[Tensor, "batch pos"],
    max_new_tokens: int = 10,
    *,
    do_sample: bool = True,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    freq_penalty: float = 0.0,
    eos_token_id: int | Sequence[int] | None = None,
    stop_at_eos: bool = True,
    use_past_kv_cache: bool = False,
    prepend_bos: bool | None = None,
    verbose: bool = False,
) -> Int[Tensor, "batch new_pos"]:
    """Return `tokens` followed by those that the model draws, or by its first choices where
    `do_sample` is false. Cost: one forward a token.

    eos_token_id: with `stop_at_eos`, a row that has written one of them is filled with the first.
    The last three are TransformerLens's, and change nothing that is returned.

    Raises:
        ParameterError: a model whose classes are not its tokens, or more positions than n_ctx.

    >>> from mechint.config import ModelConfig
    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=5, n_ctx=6))
    >>> tuple(generate(model, torch.tensor([[1, 2]]), 3, do_sample=False).shape)
    (1, 5)
    """
    config = model.config
    if config.d_vocab != config.d_vocab_out:
        raise ParameterError(
            f"generate: d_vocab_out={config.d_vocab_out} classes for d_vocab={config.d_vocab} "
            "tokens, so that no class is the next token"
        )
    longest = tokens.shape[1] + max_new_tokens
    if not 0 <= max_new_tokens or longest > config.n_ctx:
        raise ParameterError(
            f"generate: {tokens.shape[1]} tokens and max_new_tokens={max_new_tokens}: expected at "
            f"most n_ctx={config.n_ctx} together"
        )
    ends = [eos_token_id] if isinstance(eos_token_id, int) else list(eos_token_id or ())
    ends = ends if stop_at_eos else []
    done = torch.zeros(len(tokens), dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        logits = model(tokens)[:, -1]
        if do_sample:
            from transformer_lens.utilities.logits_utils import sample_logits  # the whole package

            penalized = {"freq_penalty": freq_penalty, "tokens": tokens}
            new = sample_logits(logits, top_k, top_p, temperature, **penalized)
        else:
            new = logits.argmax(-1)
        if ends:
            new = torch.where(done, ends[0], new)
            done |= torch.isin(new, torch.tensor(ends, device=new.device))
        tokens = torch.cat([tokens, new.to(tokens)[:, None]], 1)
        if ends and bool(done.all()):
            break
    return tokens
