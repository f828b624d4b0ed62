"""The transformer's mathematics, once, for cached forwards, fast training and ensembles.

    logits = Forward(parameters, config).logits(dense(tokens))

Parameters have TransformerLens's names and one of two shapes: plain, or stacked with a leading
`model` axis; activations then carry the same leading axis. `...` in shape comments stands for it.

What is computed is said by a `Layout`: `dense` computes every position of every example in
TransformerLens's shapes (what hooks need); a compact one computes each distinct (token, position)
row of the first block once, no padding, and in the last block only what is read. Both walk through
the same methods; `tests/models/test_forward.py` holds their losses and gradients against each
other.

Cost: one forward. Memory: the activations autograd keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.activations import activation
from mechint.models.attention import attend_dense, attend_hooked, attend_rows
from mechint.models.pieces import Hook, Parameters, linear, no_hook, norm
from mechint.models.products import StackedMLP, by_onednn, repeated_shapes
from mechint.models.rows import BlockRows, Layout, rows_of


@dataclass(frozen=True)
class Forward:
    """Forwards with one set of parameters.

    p: parameters by name; hook(name, activation) -> activation is called at every hook point;
    drop(name, activation) at what attention and MLP add, for dropout.
    """

    p: Parameters
    config: ModelConfig
    hook: Hook = no_hook
    drop: Hook = no_hook

    @property
    def stacked(self) -> bool:
        """Whether the parameters have a leading model axis."""
        return self.p["embed.W_E"].dim() == 3

    def logits(self, layout: Layout) -> Float[Tensor, "... d_vocab_out"]:
        """What the layout reads: dense (..., batch, pos, d_vocab_out), compact (..., reads,
        d_vocab_out).
        """
        with repeated_shapes(layout.repeated):
            return self.read_out(self.embed(layout), layout)

    def embed(self, layout: Layout) -> Float[Tensor, "... d_model"]:
        """Token plus position embedding of the layout's rows, (..., rows, d_model)."""
        tokens = rows_of(self.p["embed.W_E"], layout.tokens, self.stacked)
        tokens = self.hook("hook_embed", tokens)
        positions = rows_of(self.p["pos_embed.W_pos"], layout.positions, self.stacked)
        return tokens + self.hook("hook_pos_embed", positions)

    def blocks(
        self,
        x: Float[Tensor, "*rows d_model"],
        layout: Layout,
        start: int = 0,
        stop: int | None = None,
    ) -> Float[Tensor, "*out d_model"]:
        """The residual stream after blocks start … stop-1."""
        for index in range(start, self.config.depth if stop is None else stop):
            x = self.block(index, x, None if layout.blocks is None else layout.blocks[index])
        return x

    def block(
        self, index: int, x: Float[Tensor, "*rows d_model"], rows: BlockRows | None = None
    ) -> Float[Tensor, "*out d_model"]:
        """Block `index` of `config.depth` on rows x (..., rows, d_model); a repeated pass reuses
        the weights, not the hooks.
        """
        return self.feed_forward(index, self.attend(index, x, rows))

    def attend(
        self, index: int, x: Float[Tensor, "*rows d_model"], rows: BlockRows | None = None
    ) -> Float[Tensor, "*out d_model"]:
        """First half of block `index`: the residual stream x with what attention adds."""
        name, weights = f"blocks.{index}", f"blocks.{index % self.config.n_layers}"
        x = self.hook(f"{name}.hook_resid_pre", x)
        normed = norm(self.p, f"{weights}.ln1", f"{name}.ln1", self.config, x, self.hook)
        out = self._attention(f"{name}.attn", f"{weights}.attn", normed, rows)
        out = self.hook(f"{name}.hook_attn_out", self.drop(f"{name}.attn", out))
        if rows is not None and rows.residual is not None:
            x = rows_of(x, rows.residual, self.stacked)
        return x + out

    def _attention(self, name: str, weights: str, x: Tensor, rows: BlockRows | None) -> Tensor:
        """Output of the attention layer for normed rows x: dense (..., batch, pos, d_model),
        compact (..., N, d_model).
        """
        if rows is not None:
            return attend_rows(self.p, name, weights, self.config, x, rows, self.hook)
        if self.hook is no_hook:
            return attend_dense(self.p, weights, self.config, x)
        return attend_hooked(self.p, name, weights, self.config, x, self.hook)

    def feed_forward(
        self, index: int, x: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Second half of block `index`: the residual stream x with what the MLP adds, if there is
        one.
        """
        name = f"blocks.{index}"
        if not self.config.attn_only:
            x = self.hook(f"{name}.hook_resid_mid", x)
            out = self.mlp(index, x)
            x = x + self.hook(f"{name}.hook_mlp_out", self.drop(f"{name}.mlp", out))
        return self.hook(f"{name}.hook_resid_post", x)

    def mlp(self, index: int, x: Tensor) -> Tensor:
        """What the MLP of block `index` gives for the residual stream x (..., *, d_model), which it
        norms first.
        """
        weights = f"blocks.{index % self.config.n_layers}"
        x = norm(self.p, f"{weights}.ln2", f"blocks.{index}.ln2", self.config, x, self.hook)
        return self._mlp(f"blocks.{index}.mlp", f"{weights}.mlp", x)

    def _mlp(self, name: str, weights: str, x: Tensor) -> Tensor:
        """The MLP of normed rows x (..., *, d_model)."""
        w_in, w_out = self.p[f"{weights}.W_in"], self.p[f"{weights}.W_out"]
        b_in, b_out = self.p.get(f"{weights}.b_in"), self.p.get(f"{weights}.b_out")
        act = self.config.act_fn
        if self.hook is no_hook and by_onednn(x, w_in):
            y = StackedMLP.apply(x.flatten(1, -2), w_in, b_in, w_out, b_out, act)
            return y.view(x.shape)
        pre = self.hook(f"{name}.hook_pre", linear(x, w_in, b_in))
        return linear(self.hook(f"{name}.hook_post", activation(act, pre)), w_out, b_out)

    def unembed(
        self, x: Float[Tensor, "*rows d_model"], group: int | None = None
    ) -> Float[Tensor, "*rows d_vocab_out"]:
        """Logits (..., rows, d_vocab_out) of rows x, or of one output group."""
        return self._unembed(x, group, self.hook)

    def _unembed(self, x: Tensor, group: int | None, hook: Hook) -> Tensor:
        x = norm(self.p, "ln_final", "ln_final", self.config, x, hook)
        weight, bias = self.p["unembed.W_U"], self.p.get("unembed.b_U")
        if group is not None:
            sizes = self.config.output_sizes
            assert sizes is not None
            start = sum(sizes[:group])
            columns = slice(start, start + sizes[group])
            weight, bias = weight[..., columns], None if bias is None else bias[..., columns]
        return linear(x, weight, bias)

    def read_out(
        self, x: Float[Tensor, "*rows d_model"], layout: Layout, start: int = 0
    ) -> Float[Tensor, "*reads d_vocab_out"]:
        """Logits from the residual stream x before block `start`; output groups leave where
        `read_layers` says.
        """
        after = self.config.read_layers
        if after is None:
            return self.unembed(self._reads(self.blocks(x, layout, start), layout))
        logits: list[Tensor | None] = [None] * len(after)
        for depth in range(start, self.config.depth + 1):
            if depth > start:
                x = self.blocks(x, layout, depth - 1, depth)
            hook = self.hook if depth == self.config.depth else no_hook
            for group, leaves in enumerate(after):
                if leaves == depth or (depth == start and leaves < start):
                    logits[group] = self._unembed(self._reads(x, layout), group, hook)
        return torch.cat([part for part in logits if part is not None], -1)

    def _reads(self, rows: Tensor, layout: Layout) -> Tensor:
        return rows if layout.reads is None else rows_of(rows, layout.reads, self.stacked)
