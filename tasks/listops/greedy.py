"""Greedy continuation: what a model writes after a prompt, its most likely token at every step, for
many models at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Int
from torch import Tensor

ROWS = 1024
"""Examples continued at once; bounds memory."""


def answers(
    predict: Callable[[Tensor, Tensor], Tensor],
    tokens: Int[Tensor, "batch pos"],
    prompts: Int[Tensor, " batch"],
    equals: int,
    end: int,
    width: int,
) -> Int[Tensor, "model batch width"]:
    """The first `width` tokens after the first `equals` of each continuation, filled with `end`
    where it ends before.

    Exact: every step reads the model's own tokens. An example is done once its answer is there, it
    ended, or the context is full, and is not computed further once it is done under every model.

    Args:
        predict: (tokens (1 or model, batch, pos), positions (1 or model, batch)) -> logits (model,
            batch, class); an axis of one model stands for the same tokens under all.
        tokens: (batch, pos), of which only the prompts are read.
        prompts: (batch,) how many tokens are the prompt.

    Returns:
        (model, batch, width).
    """
    return torch.cat(
        [
            _answers(predict, rows, lengths, equals, end, width)
            for rows, lengths in zip(tokens.split(ROWS), prompts.split(ROWS), strict=True)
        ],
        1,
    )


def _answers(
    predict: Callable[[Tensor, Tensor], Tensor],
    tokens: Tensor,
    prompts: Tensor,
    equals: int,
    end: int,
    width: int,
) -> Tensor:
    n_ctx, places = tokens.shape[1], torch.arange(tokens.shape[1])
    # the first prompt has the same tokens under every model: one copy until the models' own tokens
    # differ
    written = tokens.masked_fill(places >= prompts[:, None], end)[None]
    cursor, active = prompts.clone(), torch.arange(len(tokens))
    done = torch.zeros(1, len(tokens), dtype=torch.bool)
    while len(active):
        seen = int(cursor[active].max())
        now = written[:, active]
        logits = predict(now[:, :, :seen], (cursor[active] - 1).expand(len(now), -1))
        token = logits.argmax(-1).to(written.device)
        if len(written) != len(token):
            written, done = (
                written.expand(len(token), -1, -1).clone(),
                done.expand(len(token), -1).clone(),
            )
        written[:, active, cursor[active]] = torch.where(done[:, active], end, token)
        cursor[active] += 1
        now = written[:, active]
        answered = (now == equals).any(-1) & (cursor[active] - 1 - _first(now, equals) >= width)
        done[:, active] |= (token == end) | answered | (cursor[active] == n_ctx)
        active = active[~done[:, active].all(0)]
    return after(written, equals, end, width)


def after(
    tokens: Int[Tensor, "*batch pos"], equals: int, end: int, width: int
) -> Int[Tensor, "*batch width"]:
    """(..., width) the tokens after the first `equals` of tokens (..., pos), filled with `end`; -1
    where there is no `equals`.
    """
    padded = torch.nn.functional.pad(tokens, (0, width), value=end)
    found = padded.gather(-1, _first(tokens, equals)[..., None] + 1 + torch.arange(width))
    return found.masked_fill(~(tokens == equals).any(-1, keepdim=True), -1)


def _first(tokens: Tensor, equals: int) -> Tensor:
    """(...) position of the first `equals`; 0 where there is none."""
    return (tokens == equals).int().argmax(-1)
