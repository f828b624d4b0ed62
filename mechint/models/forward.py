"""The transformer's mathematics, once, for cached forwards, fast training and ensembles.

Every function takes parameters by name (TransformerLens's names) in one of two shapes: plain, or
stacked with a leading `model` axis; activations then carry the same leading axis. `...` in shape
comments stands for that axis.

What is computed is said by a `Layout`: `dense` computes every position of every example in
TransformerLens's shapes (what hooks need); `compact` computes each distinct (token, position) row
of the first block once, no padding, and in the last block only what is read. Both walk through the
same functions below; `tests/models/test_forward.py` holds their losses and gradients against each
other.

Cost: one forward. Memory: the activations autograd keeps.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from mechint.config import ModelConfig

Parameters = Mapping[str, Tensor]
Hook = Callable[[str, Tensor], Tensor]


def no_hook(name: str, tensor: Tensor) -> Tensor:
    return tensor


@dataclass(frozen=True)
class Gather:
    """How one block goes from the rows it is given to the rows it hands on. B batch, Q queries, T
    keys, N rows out.

    keys (..., B, T): row of each key; queries (..., B, Q): which of `query_rows` each query is;
    query_rows (..., U): the rows that ask (None: all); out (..., N): which of the B·Q queries go on
    (None: all); residual (..., N): the row that each of them stands on (None: its own); mask (...,
    B | 1, Q, T): what is added to the scores, -inf where a query may not look (None: nothing);
    table: scores are computed once for every pair of rows and looked up; in_order: the rows are the
    keys, B after B, and need no look-up.
    """

    keys: Tensor
    queries: Tensor
    query_rows: Tensor | None
    out: Tensor | None
    residual: Tensor | None
    mask: Tensor | None
    table: bool
    in_order: bool = False


@dataclass(frozen=True)
class Layout:
    """What a forward computes: the first rows, how blocks pass rows on, and which rows are read.

    tokens, positions (..., rows); blocks: one Gather a block, or None for dense (rows are (batch,
    pos)); reads: (..., reads) rows of the last block's output to unembed, None for all.
    """

    tokens: Tensor
    positions: Tensor
    blocks: tuple[Gather, ...] | None = None
    reads: Tensor | None = None


def dense(tokens: Tensor, first_position: int = 0) -> Layout:
    """Every position of `tokens` (..., batch, pos)."""
    positions = torch.arange(
        first_position, first_position + tokens.shape[-1], device=tokens.device
    )
    return Layout(tokens, positions.expand(tokens.shape))


# --- pieces ---------------------------------------------------------------------------------------
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x (..., *, d_in) @ weight (..., d_in, d_out) + bias (..., d_out)."""
    if weight.dim() == 2:
        return F.linear(x, weight.T, bias)
    if weight.shape[0] == 1:
        return F.linear(x, weight.squeeze(0).T, None if bias is None else bias.squeeze(0))
    flat = x.flatten(1, -2)
    y = torch.bmm(flat, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), flat, weight)
    return y.view(*x.shape[:-1], weight.shape[-1])


def rows_of(x: Tensor, index: Tensor, stacked: bool) -> Tensor:
    """x (..., rows, *) at `index` (..., *) of rows; the gradient is a scatter-add."""
    if not stacked:
        return x.flatten(1).index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])
    models, rows = x.shape[:2]
    if models > 1:
        index = index + (rows * torch.arange(models, device=index.device)).view(
            -1, *[1] * (index.dim() - 1)
        )
    return (
        x.reshape(models * rows, -1)
        .index_select(0, index.flatten())
        .view(*index.shape, *x.shape[2:])
    )


def norm(
    p: Parameters, name: str, hooked_as: str, config: ModelConfig, x: Tensor, hook: Hook
) -> Tensor:
    """Layer norm over d_model; with weights for LN, without for LNPre, the identity where the model
    has none.
    """
    if config.normalization_type is None:
        return x
    weight, bias = (
        (p[f"{name}.w"], p.get(f"{name}.b")) if config.normalization_type == "LN" else (None, None)
    )
    if hook is no_hook:
        if weight is not None and weight.numel() == x.shape[-1]:  # one model: in one pass
            return F.layer_norm(
                x,
                x.shape[-1:],
                weight.flatten(),
                None if bias is None else bias.flatten(),
                config.eps,
            )
        y = F.layer_norm(x, x.shape[-1:], eps=config.eps)
    else:
        x = x - x.mean(-1, keepdim=True)
        y = hook(
            f"{hooked_as}.hook_normalized",
            x
            / hook(
                f"{hooked_as}.hook_scale", (x.square().mean(-1, keepdim=True) + config.eps).sqrt()
            ),
        )
    if weight is None:
        return y
    if weight.dim() == 2:
        weight = weight.view(weight.shape[0], *[1] * (y.dim() - 2), -1)
        bias = None if bias is None else bias.view(weight.shape)
    return y * weight if bias is None else torch.addcmul(bias, y, weight)


def heads(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (..., *, d_model) through weight (..., head, d_model, d_head) -> (..., *, head, d_head)."""
    n_heads, _, d_head = weight.shape[-3:]
    y = linear(x, weight.transpose(-3, -2).flatten(-2), None if bias is None else bias.flatten(-2))
    return y.unflatten(-1, (n_heads, d_head))


def _heads(p: Parameters, weights: str, names: str, x: Tensor) -> Tensor:
    """Queries, keys and values, those in `names`, of x (..., *, d_model) in one product -> (..., *,
    len(names) * head, d_head).
    """
    weight = torch.cat([p[f"{weights}.W_{name}"] for name in names], -3)
    bias = (
        torch.cat([p[f"{weights}.b_{name}"] for name in names], -2)
        if f"{weights}.b_Q" in p
        else None
    )
    return heads(x, weight, bias)


def activation(name: str, x: Tensor) -> Tensor:
    if name == "relu":
        return F.relu(x)
    if name == "silu":
        return F.silu(x)
    return F.gelu(x, approximate="tanh" if name == "gelu_new" else "none")


def _scores(q: Tensor, k: Tensor, gather: Gather | None, stacked: bool) -> Tensor:
    """q (..., B, Q, head, d_head) with k (..., B, T, head, d_head) -> (..., B, head, Q, T),
    unscaled.

    Under a `table` gather q is (..., U, head, d_head) and k (..., rows, head, d_head): the products
    of all pairs of rows are made once and looked up.
    """
    if gather is None or not gather.table:
        return torch.matmul(q.transpose(-3, -2), k.movedim(-3, -1))
    table = torch.matmul(q.transpose(-3, -2), k.movedim(-3, -1))  # (..., head, U, rows)
    pairs = gather.queries.unsqueeze(-1) * table.shape[-1] + gather.keys.unsqueeze(
        -2
    )  # (..., B, Q, T)
    table = table.flatten(-2).transpose(-2, -1)  # (..., U * rows, head)
    return rows_of(table, pairs, stacked).movedim(-1, -3)


FEW = 4
"""Up to so many (query, key) pairs a head, sums of products beat a batch of tiny matrix
products.
"""


def _mix(pattern: Tensor, v: Tensor) -> Tensor:
    """pattern (..., B, head, Q, T) with v (..., B, T, head, d_head) -> z (..., B, Q, head,
    d_head).
    """
    queries, keys = pattern.shape[-2:]
    if queries * keys > FEW:
        return torch.matmul(pattern, v.transpose(-3, -2)).transpose(-3, -2)
    return (pattern.movedim(-3, -1).unsqueeze(-1) * v.unsqueeze(-4)).sum(-3)


def _softmax(scores: Tensor) -> Tensor:
    """Softmax over the last axis; in the order in memory, where looked-up scores have the heads
    innermost.
    """
    if scores.stride(-3) == 1 and scores.shape[-3] > 1:
        return scores.movedim(-3, -1).softmax(-2).movedim(-1, -3)
    return scores.softmax(-1)


def _asked(p: Parameters, weights: str, x: Tensor, gather: Gather, stacked: bool) -> list[Tensor]:
    """q, k and v of rows x as `_scores` and `_mix` take them: one product and one look-up for all
    that share their rows.
    """

    def as_keys(rows: Tensor) -> Tensor:
        return (
            rows.view(*gather.keys.shape, *rows.shape[-2:])
            if gather.in_order
            else rows_of(rows, gather.keys, stacked)
        )

    n_heads = p[f"{weights}.W_Q"].shape[-3]
    if gather.query_rows is None and gather.queries is gather.keys and not gather.table:
        return list(as_keys(_heads(p, weights, "QKV", x)).split(n_heads, -2))
    q = _heads(
        p, weights, "Q", x if gather.query_rows is None else rows_of(x, gather.query_rows, stacked)
    )
    both = _heads(p, weights, "KV", x)
    if gather.table:
        k, v = both.split(n_heads, -2)
        return [q, k, as_keys(v)]
    return [rows_of(q, gather.queries, stacked), *as_keys(both).split(n_heads, -2)]


def attention(
    p: Parameters,
    name: str,
    weights: str,
    config: ModelConfig,
    x: Tensor,
    gather: Gather | None,
    hook: Hook,
) -> Tensor:
    """Output of the attention layer for normed rows x: dense (..., batch, pos, d_model), compact
    (..., N, d_model).
    """
    stacked = p[f"{weights}.W_Q"].dim() == 4
    if gather is None and hook is no_hook:
        q, k, v = _heads(p, weights, "QKV", x).split(p[f"{weights}.W_Q"].shape[-3], -2)
    elif gather is None:
        q, k, v = (
            hook(f"{name}.hook_{letter.lower()}", _heads(p, weights, letter, x)) for letter in "QKV"
        )
    else:
        q, k, v = _asked(p, weights, x, gather, stacked)
    scores = _scores(q, k, gather, stacked)
    if gather is None:
        mask = (
            _causal(scores.shape[-2], scores.shape[-1], scores.device)
            if config.attention_dir == "causal"
            else None
        )
    else:
        mask = None if gather.mask is None else gather.mask.unsqueeze(-3)
    # added, not filled in: its gradient is the scores' own
    scores = (
        scores / config.scale
        if mask is None
        else torch.add(mask.to(scores.dtype), scores, alpha=1 / config.scale)
    )
    pattern = _softmax(hook(f"{name}.hook_attn_scores", scores))
    if config.attention_rate < 1:
        pattern = config.attention_rate * pattern + (1 - config.attention_rate)
    pattern = hook(f"{name}.hook_pattern", pattern)
    z = hook(f"{name}.hook_z", _mix(pattern, v))
    weight, bias = p[f"{weights}.W_O"], p.get(f"{weights}.b_O")
    if hook is not no_hook and getattr(hook, "wants_result", False):
        result = hook(f"{name}.hook_result", torch.einsum("bqhd,hdm->bqhm", z, weight))
        out = result.sum(-2)
        return out if bias is None else out + bias
    z = z.flatten(-2)
    if gather is not None:
        z = z.flatten(-3, -2)
        z = z if gather.out is None else rows_of(z, gather.out, stacked)
    return linear(z, weight.flatten(-3, -2), bias)


@functools.lru_cache(maxsize=64)
def _causal(queries: int, keys: int, device: torch.device) -> Tensor:
    """(query, key) -inf where the key comes after the query, 0 elsewhere; the last query stands at
    the last key.
    """
    return torch.full((queries, keys), -torch.inf, device=device).triu(keys - queries + 1)


def mlp(
    p: Parameters, name: str, weights: str, config: ModelConfig, x: Tensor, hook: Hook
) -> Tensor:
    """Feed-forward layer for normed rows x (..., *, d_model)."""
    pre = hook(f"{name}.hook_pre", linear(x, p[f"{weights}.W_in"], p.get(f"{weights}.b_in")))
    post = hook(f"{name}.hook_post", activation(config.act_fn, pre))
    return linear(post, p[f"{weights}.W_out"], p.get(f"{weights}.b_out"))


def attend(
    p: Parameters,
    config: ModelConfig,
    index: int,
    x: Tensor,
    gather: Gather | None,
    hook: Hook,
    drop: Hook,
) -> Tensor:
    """First half of block `index`: the residual stream x with what attention adds."""
    name, weights = f"blocks.{index}", f"blocks.{index % config.n_layers}"
    x = hook(f"{name}.hook_resid_pre", x)
    normed = norm(p, f"{weights}.ln1", f"{name}.ln1", config, x, hook)
    out = attention(p, f"{name}.attn", f"{weights}.attn", config, normed, gather, hook)
    out = hook(f"{name}.hook_attn_out", drop(f"{name}.attn", out))
    if gather is not None and gather.residual is not None:
        x = rows_of(x, gather.residual, p[f"{weights}.attn.W_Q"].dim() == 4)
    return x + out


def feed_forward(
    p: Parameters, config: ModelConfig, index: int, x: Tensor, hook: Hook, drop: Hook
) -> Tensor:
    """Second half of block `index`: the residual stream x with what the feed-forward layer adds, if
    there is one.
    """
    name, weights = f"blocks.{index}", f"blocks.{index % config.n_layers}"
    if not config.attn_only:
        x = hook(f"{name}.hook_resid_mid", x)
        normed = norm(p, f"{weights}.ln2", f"{name}.ln2", config, x, hook)
        out = mlp(p, f"{name}.mlp", f"{weights}.mlp", config, normed, hook)
        x = x + hook(f"{name}.hook_mlp_out", drop(f"{name}.mlp", out))
    return hook(f"{name}.hook_resid_post", x)


def block(
    p: Parameters,
    config: ModelConfig,
    index: int,
    x: Tensor,
    gather: Gather | None,
    hook: Hook,
    drop: Hook,
) -> Tensor:
    """Block `index` of `config.depth` on rows x (..., rows, d_model); a repeated pass reuses the
    weights, not the hooks.
    """
    return feed_forward(
        p, config, index, attend(p, config, index, x, gather, hook, drop), hook, drop
    )


def embed(p: Parameters, layout: Layout, hook: Hook = no_hook) -> Tensor:
    """Token plus position embedding of the layout's rows, (..., rows, d_model)."""
    stacked = p["embed.W_E"].dim() == 3
    positions = layout.positions
    tokens = hook("hook_embed", rows_of(p["embed.W_E"], layout.tokens, stacked))
    return tokens + hook("hook_pos_embed", rows_of(p["pos_embed.W_pos"], positions, stacked))


def unembed(
    p: Parameters, config: ModelConfig, x: Tensor, hook: Hook = no_hook, group: int | None = None
) -> Tensor:
    """Logits (..., rows, d_vocab_out) of rows x, or of one output group."""
    x = norm(p, "ln_final", "ln_final", config, x, hook)
    weight, bias = p["unembed.W_U"], p.get("unembed.b_U")
    if group is not None:
        start = sum(config.output_sizes[:group])  # type: ignore[index]
        columns = slice(start, start + config.output_sizes[group])  # type: ignore[index]
        weight, bias = weight[..., columns], None if bias is None else bias[..., columns]
    return linear(x, weight, bias)


def blocks(
    p: Parameters,
    config: ModelConfig,
    x: Tensor,
    layout: Layout,
    hook: Hook = no_hook,
    drop: Hook = no_hook,
    start: int = 0,
    stop: int | None = None,
) -> Tensor:
    """Residual stream after blocks start … stop-1."""
    for index in range(start, config.depth if stop is None else stop):
        x = block(
            p, config, index, x, None if layout.blocks is None else layout.blocks[index], hook, drop
        )
    return x


def read_out(
    p: Parameters,
    config: ModelConfig,
    x: Tensor,
    layout: Layout,
    hook: Hook = no_hook,
    drop: Hook = no_hook,
    start: int = 0,
) -> Tensor:
    """Logits from the residual stream x before block `start`; output groups leave where
    `read_layers` says.
    """
    stacked = p["unembed.W_U"].dim() == 3

    def reads(rows: Tensor) -> Tensor:
        return rows if layout.reads is None else rows_of(rows, layout.reads, stacked)

    if config.read_layers is None:
        return unembed(p, config, reads(blocks(p, config, x, layout, hook, drop, start)), hook)
    logits: list[Tensor | None] = [None] * len(config.read_layers)
    for depth in range(start, config.depth + 1):
        if depth > start:
            x = blocks(p, config, x, layout, hook, drop, depth - 1, depth)
        for group in (
            group
            for group, after in enumerate(config.read_layers)
            if after == depth or (depth == start and after < start)
        ):
            logits[group] = unembed(
                p, config, reads(x), hook if depth == config.depth else no_hook, group
            )
    return torch.cat([part for part in logits if part is not None], -1)


def forward(
    p: Parameters, config: ModelConfig, layout: Layout, hook: Hook = no_hook, drop: Hook = no_hook
) -> Tensor:
    """Logits of what the layout reads: dense (..., batch, pos, d_vocab_out), compact (..., reads,
    d_vocab_out).
    """
    return read_out(p, config, embed(p, layout, hook), layout, hook, drop)
