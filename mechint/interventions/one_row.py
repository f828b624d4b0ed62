"""A forward resumed before the last block when one row per example has changed there.

Only what reads that row is computed again: its key and value, or, where it is the row of the
answer, also its query; then attention, the MLP and the unembedding at the answer alone. Everything
else of the block is computed once, for all changes that follow. Differentiable in the new rows.

Cost: a step of alignment search costs a few products of (example, d_model). Memory: keys and values
of the block for all examples.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.interventions.resume import Parameters
from mechint.interventions.sites import select_positions
from mechint.models.forward import Forward
from mechint.models.pieces import heads, linear, no_hook, norm


class OneRow:
    """Forwards from before the last block in which one row per example is replaced.

    Args:
        p, config: of a HookedTransformer whose outputs all leave after the last block.
        x: the residual stream before the last block.
        positions: (example,) the rows that will be replaced.
        answer_positions: (example,) where the logits are wanted.
    """

    def __init__(
        self,
        p: Parameters,
        config: ModelConfig,
        x: Float[Tensor, "example pos d_model"],
        positions: Int[Tensor, " example"],
        answer_positions: Int[Tensor, " example"],
    ) -> None:
        assert self.serves(config, positions, answer_positions)
        self.p, self.config, self.block = p, config, config.depth - 1
        self.weights = f"blocks.{self.block % config.n_layers}"
        self.at_answer = bool((positions == answer_positions).all())
        self.positions, n_ctx = positions, x.shape[1]
        with torch.no_grad():
            normed = self._norm(x)
            self.keys, self.values = (self._project(normed, letter) for letter in "KV")
            self.old_values = select_positions(self.values, positions)  # (example, head, d_head)
            self.answers = select_positions(x, answer_positions)  # (example, d_model)
            queries = self._project(self._norm(self.answers), "Q")  # (example, head, d_head)
            self.scores = torch.einsum("nhd,nthd->nht", queries, self.keys)
            self.queries = queries
            later = torch.arange(n_ctx, device=x.device) > answer_positions[:, None]
            masked = later if config.attention_dir == "causal" else torch.zeros_like(later)
            self.mask = x.new_zeros(masked.shape).masked_fill(masked, -torch.inf)[:, None]

    @staticmethod
    def serves(
        config: ModelConfig,
        positions: Int[Tensor, " example"],
        answer_positions: Int[Tensor, " example"],
    ) -> bool:
        """Whether the answers leave after the last block, and the rows that change are the
        answers', or none of them is.
        """
        same = positions == answer_positions
        return config.read_layers is None and bool(same.all() | ~same.any())

    def _norm(self, x: Tensor) -> Tensor:
        name = f"{self.weights}.ln1"
        return norm(self.p, name, name, self.config, x, no_hook)

    def _project(self, x: Tensor, letter: str) -> Tensor:
        name = f"{self.weights}.attn"
        return heads(x, self.p[f"{name}.W_{letter}"], self.p.get(f"{name}.b_{letter}"))

    def logits(
        self, rows: Float[Tensor, "row d_model"], index: Int[Tensor, " row"]
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits at the answers of the examples `index` with their rows replaced."""
        config, attn = self.config, f"{self.weights}.attn"
        normed, positions = self._norm(rows), self.positions[index]
        key, value = (self._project(normed, letter) for letter in "KV")  # (row, head, d_head)
        where = positions[:, None, None].expand(-1, key.shape[1], 1)
        if self.at_answer:
            query, stream = self._project(normed, "Q"), rows
            scores = torch.einsum("nhd,nthd->nht", query, self.keys[index])
        else:
            query, stream = self.queries[index], self.answers[index]
            scores = self.scores[index]
        scores = scores.scatter(2, where, (query * key).sum(-1, keepdim=True))
        pattern = (scores / config.scale + self.mask[index]).softmax(-1)  # (row, head, pos)
        if config.attention_rate < 1:
            pattern = config.attention_rate * pattern + (1 - config.attention_rate)
        z = torch.einsum("nht,nthd->nhd", pattern, self.values[index])
        z = z + pattern.gather(2, where) * (value - self.old_values[index])
        weight, bias = self.p[f"{attn}.W_O"], self.p.get(f"{attn}.b_O")
        stream = stream + linear(z.flatten(1), weight.flatten(0, 1), bias)
        forward = Forward(self.p, config)
        return forward.unembed(forward.feed_forward(self.block, stream))
