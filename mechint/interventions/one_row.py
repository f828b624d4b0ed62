"""A forward resumed before the last block when one row per example has changed there.

Only what reads that row is computed again: its key and value, or, where it is the row of the
answer, also its query; then attention, the MLP and the unembedding at the answer alone. Everything
else of the block is computed once, for all changes that follow. Differentiable in the new rows.

Cost: a step of alignment search costs a few products of (example, d_model). Memory: values of the
block for all examples, and scores, or keys where the row is the answer's.
"""

from __future__ import annotations

import torch
from einops import rearrange
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
        attn, letters = f"{self.weights}.attn", "KVQ" if self.at_answer else "KV"
        self.weight = torch.cat([p[f"{attn}.W_{letter}"] for letter in letters])
        biases = [bias for letter in letters if (bias := p.get(f"{attn}.b_{letter}")) is not None]
        self.bias = torch.cat(biases) if biases else None
        with torch.no_grad():
            self._keep(x, positions, answer_positions)

    def _keep(self, x: Tensor, positions: Tensor, answer_positions: Tensor) -> None:
        """Everything that no change reaches, as one row per example: one gather fetches it."""
        config, attn, (n, n_ctx, _) = self.config, f"{self.weights}.attn", x.shape
        normed, at = self._norm(x), torch.arange(n_ctx, device=x.device)
        keys, values = (
            heads(normed, self.p[f"{attn}.W_{letter}"], self.p.get(f"{attn}.b_{letter}"))
            for letter in "KV"
        )  # (example, pos, head, d_head)
        changed = at == positions[:, None]  # (example, pos)
        unchanged = rearrange(keys, "n t h d -> n h t d") * ~changed[:, None, :, None]
        causal = config.attention_dir == "causal"
        masked = (at > answer_positions[:, None]) & causal
        mask = x.new_zeros(masked.shape).masked_fill(masked, -torch.inf)[:, None]
        kept = {
            "row": select_positions(x, positions),
            "values": rearrange(values, "n t h d -> n h t d") * ~changed[:, None, :, None],
            "changed": changed[:, None].to(x),  # (example, 1, pos)
        }
        if self.at_answer:
            kept |= {"keys": unchanged, "scores": mask}
        else:
            answers = select_positions(x, answer_positions)
            query = heads(
                self._norm(answers), self.p[f"{attn}.W_Q"], self.p.get(f"{attn}.b_Q")
            )  # (example, head, d_head)
            scores = torch.einsum("nhd,nhtd->nht", query, unchanged) / config.scale + mask
            kept |= {"answers": answers, "query": query / config.scale, "scores": scores}
        self.shapes = {name: tensor.shape[1:] for name, tensor in kept.items()}
        self.kept = torch.cat([tensor.reshape(n, -1) for tensor in kept.values()], 1)

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

    def logits(
        self, change: Float[Tensor, "row d_model"], index: Int[Tensor, " row"]
    ) -> Float[Tensor, "row d_vocab_out"]:
        """Logits at the answers of the examples `index` with `change` added to their rows."""
        config, attn = self.config, f"{self.weights}.attn"
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = torch.split_with_sizes(self.kept.index_select(0, index), sizes, 1)
        kept = {
            name: part.view(-1, *shape)
            for part, (name, shape) in zip(parts, self.shapes.items(), strict=True)
        }
        rows = kept["row"] + change
        letters = len(self.weight) // config.n_heads
        found = torch.chunk(heads(self._norm(rows), self.weight, self.bias), letters, 1)
        key, value = found[:2]  # (row, head, d_head)
        if self.at_answer:
            stream, query = rows, found[2] / config.scale
            scores = torch.einsum("nhd,nhtd->nht", query, kept["keys"]) + kept["scores"]
        else:
            stream, query, scores = kept["answers"], kept["query"], kept["scores"]
        own = (query * key).sum(-1, keepdim=True)  # (row, head, 1)
        pattern = (scores + own * kept["changed"]).softmax(-1)  # (row, head, pos)
        if config.attention_rate < 1:
            pattern = config.attention_rate * pattern + (1 - config.attention_rate)
        z = (pattern.unsqueeze(2) @ kept["values"]).squeeze(2)
        z = z + (pattern * kept["changed"]).sum(-1, keepdim=True) * value
        weight, bias = self.p[f"{attn}.W_O"], self.p.get(f"{attn}.b_O")
        stream = stream + linear(z.flatten(1), weight.flatten(0, 1), bias)
        forward = Forward(self.p, config)
        return forward.unembed(forward.feed_forward(self.block, stream))
