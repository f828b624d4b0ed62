"""Greedy continuation: what a model writes after a prompt, its most likely token at every step, for
many models at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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

    Exact: every token is the most likely one after the model's own tokens before it. It is found
    by guessing the whole continuation and reading the model at every position of it: what agrees
    from the prompt on is the model's own, and so is the first token that does not; from there what
    was read is the next guess. An example is done once its answer is there, it ended, or the
    context is full, and is not computed further once it is done under every model.

    Args:
        predict: (tokens (1 or model, batch, pos), positions (1 or model, batch, read), -1 for
            none) -> logits (model, batch, read, class); an axis of one model stands for the same
            tokens under all.
        tokens: (batch, pos), prompts and the first guess; the guess decides how often `predict` is
            called, not what comes out.
        prompts: (batch,) how many tokens are the prompt.

    Returns:
        (model, batch, width).
    """
    return torch.cat(
        [
            _Continuations(part, lengths, equals, end, width).answers(predict)
            for part, lengths in zip(
                torch.split(tokens, ROWS), torch.split(prompts, ROWS), strict=True
            )
        ],
        1,
    )


@dataclass
class _Continuations:
    """Texts of which the first `known` tokens are the models' own, the rest a guess.

    written (model, batch, pos), prompts (batch,). One model as long as all have the same tokens.
    """

    written: Tensor
    prompts: Tensor
    equals: int
    end: int
    width: int

    def __post_init__(self) -> None:
        self.written = self.written[None].clone()
        self.known = self.prompts[None].clone()

    def answers(self, predict: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        active = torch.arange(len(self.prompts))
        while len(active):
            self._read(predict, active)
            unfinished = (self.known < self._stops()).any(0)
            active = unfinished.nonzero().flatten()
        places = torch.arange(self.written.shape[-1])
        texts = self.written.masked_fill(places >= self._stops()[..., None], self.end)
        return after(texts, self.equals, self.end, self.width)

    def _stops(self) -> Tensor:
        """(model, batch) tokens up to the end of the answer, the text or the context."""
        n_ctx = self.written.shape[-1]
        ended = (self.written == self.end) & (torch.arange(n_ctx) >= self.prompts[:, None])
        asked = self.written == self.equals
        end = torch.where(ended.any(-1), ended.int().argmax(-1) + 1, n_ctx)
        answered = asked.int().argmax(-1) + 1 + self.width
        return torch.where(asked.any(-1), answered, n_ctx).minimum(end).clamp_max(n_ctx)

    def _read(self, predict: Callable[[Tensor, Tensor], Tensor], active: Tensor) -> None:
        """Read the guesses of the examples `active` once: more of each is known after it."""
        known, stops = self.known[:, active], self._stops()[:, active]
        n_reads = int((stops - known).max())
        before = known[..., None] - 1 + torch.arange(n_reads)  # the position that each is read at
        guessed = before < stops[..., None] - 1
        positions = torch.where(guessed, before, -1)
        seen = self.written[:, active, : int(stops.max())]
        token = predict(seen, positions).argmax(-1).to(seen.device)  # (model, active, read)
        models = len(token)
        if len(self.written) != models:
            self.written = self.written.expand(models, -1, -1).clone()
            self.known = self.known.expand(models, -1).clone()
        guessed, before = (each.expand(models, -1, -1) for each in (guessed, before))
        now = self.written[:, active]
        guess = now.gather(-1, (before + 1).clamp_max(now.shape[-1] - 1))
        agree = ((token == guess) & guessed).int().cumprod(-1).sum(-1)
        model, row, _ = guessed.nonzero().unbind(1)
        now[model, row, before[guessed] + 1] = token[guessed]
        self.written[:, active] = now
        self.known[:, active] += (agree + 1).minimum(guessed.sum(-1))


def after(
    tokens: Int[Tensor, "*batch pos"], equals: int, end: int, width: int
) -> Int[Tensor, "*batch width"]:
    """(..., width) tokens after the first `equals`, then `end`; -1 without `equals`."""
    padded = torch.nn.functional.pad(tokens, (0, width), value=end)
    found = padded.gather(-1, _first(tokens, equals)[..., None] + 1 + torch.arange(width))
    return found.masked_fill(~(tokens == equals).any(-1, keepdim=True), -1)


def _first(tokens: Tensor, equals: int) -> Tensor:
    """(...) position of the first `equals`; 0 where there is none."""
    return (tokens == equals).int().argmax(-1)
