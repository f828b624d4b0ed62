"""The mathematics of a transformer, for training, evaluation, recording and resumed forwards.

    logits = Forward(parameters, config).logits(RowLayout.dense(tokens))

With x the residual stream, in every block (Elhage et al. 2021)

    x ← x + Σ_heads softmax(q kᵀ / scale + mask) v W_O + b_O      q, k, v from LN(x)
    x ← x + act(LN(x) W_in + b_in) W_out + b_out

and logits = LN(x) W_U + b_U. As the configuration says, LN is an RMS norm (Zhang & Sennrich 2019),
q and k are normed and turned by their positions (Su et al. 2021), or the MLP is
(act(LN(x) W_gate) · LN(x) W_in + b_in) W_out + b_out (Shazeer 2020), as in Llama.

Parameters have TransformerLens's names. They are those of one model, or stacked along a leading
model axis, which activations then have, too; `...` in shape comments stands for it. A `RowLayout`
says which rows are computed: dense ones have TransformerLens's shapes, which hooks of users need.

Cost: one forward. Memory: the activations that autograd keeps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.layers import (
    Hook,
    Parameters,
    Rotation,
    activation,
    heads,
    linear,
    no_hook,
    norm,
    rms_norm,
    rotate,
    rotation,
)
from mechint.models.rows import BlockRows, RowLayout, gather_rows


@dataclass(frozen=True)
class Forward:
    """Forwards with one set of parameters.

    p: parameters by name. hook: called as hook(name, activation) at every hook point; what it
    returns takes the activation's place. drop: likewise for what attention and MLP add (dropout).
    """

    p: Parameters
    config: ModelConfig
    hook: Hook = no_hook
    drop: Hook = no_hook

    @property
    def stacked(self) -> bool:
        """True where the parameters have a leading model axis."""
        return self.p["embed.W_E"].dim() == 3

    def logits(self, layout: RowLayout) -> Float[Tensor, "... d_vocab_out"]:
        """Logits of what the layout reads: dense (..., batch, pos, d_vocab_out), else (M, N,
        d_vocab_out).
        """
        return self.read_out(self.embed(layout), layout)

    def embed(self, layout: RowLayout) -> Float[Tensor, "... d_model"]:
        """Token plus position embedding of the layout's rows, (..., rows, d_model)."""
        tokens = gather_rows(self.p["embed.W_E"], layout.tokens, self.stacked)
        tokens = self.hook("hook_embed", tokens)
        if not self.config.embeds_positions:
            return tokens
        positions = gather_rows(self.p["pos_embed.W_pos"], layout.positions, self.stacked)
        return tokens + self.hook("hook_pos_embed", positions)

    def blocks(
        self,
        x: Float[Tensor, "*rows d_model"],
        layout: RowLayout,
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
        """Block `index` of `config.depth`; a repeated pass reuses the weights, not the hooks."""
        return self.feed_forward(index, self.attend(index, x, rows))

    # --- attention --------------------------------------------------------------------------------
    def attend(
        self, index: int, x: Float[Tensor, "*rows d_model"], rows: BlockRows | None = None
    ) -> Float[Tensor, "*out d_model"]:
        """First half of block `index`: the residual stream x with what attention adds."""
        name, weights = f"blocks.{index}", f"blocks.{index % self.config.n_layers}"
        x = self.hook(f"{name}.hook_resid_pre", x)
        normed = norm(self.p, f"{weights}.ln1", f"{name}.ln1", self.config, x, self.hook)
        out = self._attention(f"{name}.attn", f"{weights}.attn", normed, rows)
        out = self.hook(f"{name}.hook_attn_out", self.drop(f"{name}.attn", out))
        if rows is not None:
            x = gather_rows(x, rows.residual, self.stacked)
        return x + out

    def _attention(self, name: str, weights: str, x: Tensor, rows: BlockRows | None) -> Tensor:
        """Output of the attention layer for normed rows x (..., *, d_model)."""
        q, k, v = self.project(name, weights, x, rows)
        if rows is None:
            causal = self.config.attention_dir == "causal"
            mask = _causal_mask(x.shape[-2], x.device) if causal else None
        else:
            mask = None if rows.mask is None else rows.mask.unsqueeze(-3)
        scores = _bmm(q.transpose(-3, -2), k.movedim(-3, -1))  # (..., B, head, Q, T)
        pattern = self._pattern(name, scores, mask)
        z = _bmm(pattern, v.transpose(-3, -2)).transpose(-3, -2)  # (..., B, Q, head, d_head)
        z = self.hook(f"{name}.hook_z", z)
        w_o, bias = self.p[f"{weights}.W_O"], self.p.get(f"{weights}.b_O")
        if getattr(self.hook, "wants_result", False):
            each = torch.einsum("...hd,hdm->...hm", z, w_o)
            out = self.hook(f"{name}.hook_result", each).sum(-2)
            return out if bias is None else out + bias
        z = z.flatten(-2)
        if rows is not None:
            z = gather_rows(z.flatten(-3, -2), rows.out, self.stacked)  # of (…, B·Q, head·d_head)
        return linear(z, w_o.flatten(-3, -2), bias)

    def mix(
        self,
        name: str,
        q: Float[Tensor, "B Q head d_head"],
        k: Float[Tensor, "B T head d_head"],
        v: Float[Tensor, "B T head d_head"],
        places: Int[Tensor, "B Q"],
    ) -> Float[Tensor, "B Q head d_head"]:
        """Outputs z of the heads for queries that stand at `places`, and keys at 0, 1, …"""
        mask = None
        if self.config.attention_dir == "causal":
            later = torch.arange(k.shape[1], device=k.device) > places[..., None]
            mask = torch.zeros(later.shape, device=k.device).masked_fill(later, -torch.inf)[:, None]
        scores = _bmm(q.transpose(-3, -2), k.movedim(-3, -1))
        return _bmm(self._pattern(name, scores, mask), v.transpose(-3, -2)).transpose(-3, -2)

    def write_heads(
        self, index: int, z: Float[Tensor, "*rows head d_head"]
    ) -> Float[Tensor, "*rows d_model"]:
        """The output of attention of block `index` to the residual stream when its heads give z."""
        name = f"blocks.{index % self.config.n_layers}.attn"
        weight, bias = self.p[f"{name}.W_O"], self.p.get(f"{name}.b_O")
        return linear(z.flatten(-2), weight.flatten(-3, -2), bias)

    def project(
        self, name: str, weights: str, x: Tensor, rows: BlockRows | None
    ) -> tuple[Tensor, ...]:
        """q (..., B, Q, head, d_head), k and v (..., B, T, head, d_head) of rows x, which without a
        layout stand at positions from 0 on.
        """
        n_heads = self.config.n_heads
        places = torch.arange(x.shape[-2], device=x.device)
        turned = rotation(self.config, places) if rows is None else rows.rotation

        def projected(letters: str, x: Tensor, by: Rotation | None = turned) -> Tensor:
            weight = torch.cat([self.p[f"{weights}.W_{letter}"] for letter in letters], -3)
            bias = None
            if f"{weights}.b_Q" in self.p:
                bias = torch.cat([self.p[f"{weights}.b_{letter}"] for letter in letters], -2)
            y = heads(x, weight, bias)
            if rows is None and self.hook is not no_hook:
                y = self.hook(f"{name}.hook_{letters.lower()}", y)
            if not self._places_heads:
                return y
            parts = zip(letters, y.split(n_heads, -2), strict=True)
            hooked = name if rows is None else ""
            placed = [self._placed(letter, hooked, weights, each, by) for letter, each in parts]
            return torch.cat(placed, -2)

        if rows is None:
            if self.hook is no_hook:
                return projected("QKV", x).split(n_heads, -2)
            return tuple(projected(letter, x) for letter in "QKV")

        attending, there = gather_rows(x, rows.query_rows, self.stacked), turned
        if turned is not None:
            index = rows.query_rows[..., None, None]
            cosines, sines = (one.take_along_dim(index, 1) for one in turned)
            there = cosines, sines
        q = gather_rows(projected("Q", attending, there), rows.queries, self.stacked)
        both = gather_rows(projected("KV", x), rows.keys, self.stacked)
        return q, *both.split(n_heads, -2)

    @property
    def _places_heads(self) -> bool:
        """True where queries and keys are normed, or turned by their positions."""
        return self.config.use_qk_norm or not self.config.embeds_positions

    def place(
        self,
        letter: str,
        name: str,
        weights: str,
        x: Float[Tensor, "case pos head d_head"],
        positions: Int[Tensor, "#case pos"],
    ) -> Float[Tensor, "case pos head d_head"]:
        """Queries, keys or values of the attention `weights` as they enter its products."""
        if not self._places_heads or letter == "V":
            return x
        return self._placed(letter, name, weights, x, rotation(self.config, positions))

    def _placed(
        self, letter: str, name: str, weights: str, x: Tensor, by: Rotation | None
    ) -> Tensor:
        """Queries or keys x (…, head, d_head) normed and turned; values as they are."""
        if letter == "V":
            return x
        which = letter.lower()
        if self.config.use_qk_norm:
            weight = self.p[f"{weights}.{which}_norm.w"]  # (…, d_head)
            weight = weight.view(*weight.shape[:-1], *[1] * (x.dim() - weight.dim()), -1)
            x = rms_norm(x, self.config.eps) * weight
        if by is not None:
            hook = self.hook if name else no_hook
            x = hook(f"{name}.hook_rot_{which}", rotate(x, by))
        return x

    def _pattern(self, name: str, scores: Tensor, mask: Tensor | None) -> Tensor:
        """The attention pattern of unscaled scores (..., head, Q, T) under an additive mask."""
        scale, rate = self.config.scale, self.config.attention_rate
        if mask is None:
            scores = scores / scale
        else:  # added, not filled in: its gradient is that of the scores
            scores = torch.add(mask.to(scores.dtype), scores, alpha=1 / scale)
        pattern = self.hook(f"{name}.hook_attn_scores", scores).softmax(-1)
        pattern = rate * pattern + (1 - rate) if rate < 1 else pattern
        return self.hook(f"{name}.hook_pattern", pattern)

    # --- MLP --------------------------------------------------------------------------------------
    def feed_forward(
        self, index: int, x: Float[Tensor, "*rows d_model"]
    ) -> Float[Tensor, "*rows d_model"]:
        """Second half of block `index`: x with what the MLP adds, if there is one."""
        name = f"blocks.{index}"
        if not self.config.attn_only:
            x = self.hook(f"{name}.hook_resid_mid", x)
            out = self.mlp(index, x)
            x = x + self.hook(f"{name}.hook_mlp_out", self.drop(f"{name}.mlp", out))
        return self.hook(f"{name}.hook_resid_post", x)

    def mlp(self, index: int, x: Float[Tensor, "*rows d_model"]) -> Float[Tensor, "*rows d_model"]:
        """Output of the MLP of block `index` for the residual stream x, which it norms first."""
        name, weights = f"blocks.{index}", f"blocks.{index % self.config.n_layers}"
        x = norm(self.p, f"{weights}.ln2", f"{name}.ln2", self.config, x, self.hook)
        first, bias = self.p[f"{weights}.mlp.W_in"], self.p.get(f"{weights}.mlp.b_in")
        if self.config.gated_mlp:  # the bias is added to the product, as in TransformerLens
            gate = self.hook(f"{name}.mlp.hook_pre", linear(x, self.p[f"{weights}.mlp.W_gate"]))
            up = self.hook(f"{name}.mlp.hook_pre_linear", linear(x, first))
            post = activation(self.config.act_fn, gate) * up
            if bias is not None:
                post = post + bias.view(*bias.shape[:-1], *[1] * (post.dim() - bias.dim()), -1)
        else:
            pre = self.hook(f"{name}.mlp.hook_pre", linear(x, first, bias))
            post = activation(self.config.act_fn, pre)
        post = self.hook(f"{name}.mlp.hook_post", post)
        return linear(post, self.p[f"{weights}.mlp.W_out"], self.p.get(f"{weights}.mlp.b_out"))

    # --- logits -----------------------------------------------------------------------------------
    def unembed(
        self, x: Float[Tensor, "*rows d_model"], group: int | None = None, hook: Hook | None = None
    ) -> Float[Tensor, "*rows d_vocab_out"]:
        """Logits (..., rows, d_vocab_out) of rows x, of one output group where given."""
        hook = self.hook if hook is None else hook
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
        self, x: Float[Tensor, "*rows d_model"], layout: RowLayout, start: int = 0
    ) -> Float[Tensor, "*reads d_vocab_out"]:
        """Logits from x before block `start`; output groups as `read_layers` says."""
        after = self.config.read_layers
        if after is None:
            return self.unembed(self._reads(self.blocks(x, layout, start), layout))
        logits: list[Tensor | None] = [None] * len(after)
        for depth in range(start, self.config.depth + 1):
            if depth > start:
                x = self.blocks(x, layout, depth - 1, depth)
            hook = self.hook if depth == self.config.depth else no_hook
            for group, read_after in enumerate(after):
                if read_after == depth or (depth == start and read_after < start):
                    logits[group] = self.unembed(self._reads(x, layout), group, hook)
        return torch.cat([part for part in logits if part is not None], -1)

    def _reads(self, rows: Tensor, layout: RowLayout) -> Tensor:
        return rows if layout.reads is None else gather_rows(rows, layout.reads, self.stacked)


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    """a (..., n, k) @ b (..., k, m) of equal leading axes, which `torch.matmul` would broadcast."""
    leading = a.shape[:-2]
    return torch.bmm(a.flatten(0, -3), b.flatten(0, -3)).view(*leading, a.shape[-2], b.shape[-1])


@functools.lru_cache(maxsize=64)
def _causal_mask(n: int, device: torch.device) -> Float[Tensor, "query key"]:
    """-inf where the key comes after the query, 0 elsewhere."""
    return torch.full((n, n), -torch.inf, device=device).triu(1)
