"""Path patching of single edges: the receiver is computed again, and what it changes is resumed.

An edge that alone carries the source changes one input of one component. So only that head or MLP
is computed anew, for all edges that lead to one input at once, and the forward goes on from where
it writes (`mechint.interventions.resume`), after the last attention at the answers alone. Equal
to `PatchedForward.logits` with one edge left out.

Cost: one head or MLP per edge, and the blocks behind it. Memory: that of the patched forward.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.interventions import ResidSite, select_positions
from mechint.interventions.resume import resume_by_weights
from mechint.models.attention import attend_apart
from mechint.models.forward import Forward
from mechint.models.pieces import no_hook, norm
from probes._circuits.forward import PatchedForward
from probes._circuits.graph import LOGITS, Node


def path_logits(patched: PatchedForward) -> Float[Tensor, "edge example d_vocab_out"]:
    """Logits at the answers when each edge alone carries the source."""
    graph = patched.graph
    receivers, senders, groups = graph.index
    streams = _streams(patched)
    parts: list[tuple[np.ndarray, Tensor]] = []
    with torch.no_grad():
        for i, receiver in enumerate(graph.receivers):
            members = np.flatnonzero(receivers == i)
            size = _stack(patched)
            for start in range(0, len(members), size):
                rows = members[start : start + size]
                change = patched.change[senders[rows]]  # (edge, example, pos, d_model)
                if graph.groups > 1:
                    at = torch.from_numpy(groups[rows]).to(change.device)
                    there = torch.arange(graph.groups, device=change.device) == at[:, None]
                    change = change * there[:, None, :, None]
                parts.append((rows, _resumed(patched, receiver, change, streams)))
    logits = torch.cat([part for _, part in parts])
    order = np.argsort(np.concatenate([rows for rows, _ in parts]))
    return logits[torch.from_numpy(order).to(logits.device)]


def _stack(patched: PatchedForward) -> int:
    """Edges into one receiver that are computed at once."""
    _, examples, positions, d_model = patched.source.shape
    config = patched.config
    width = 10 * d_model + (config.n_heads + 3) * positions + 2 * (config.d_mlp or 0)
    each = patched.source.element_size() * examples * (positions * width + config.d_vocab_out)
    return max(1, int(patched.memory // each))


def _streams(patched: PatchedForward) -> list[Tensor]:
    """The base's residual stream before every depth, (example, pos, d_model): 2 layer before
    attention, 2 layer + 1 before the MLP.
    """
    config, base = patched.config, patched.source + patched.change
    streams, done = [base[:2].sum(0)], 2
    for layer in range(config.depth):
        x = streams[-1] + base[done : done + config.n_heads].sum(0)
        bias = patched.weights.get(f"blocks.{layer % config.n_layers}.attn.b_O")
        streams.append(x if bias is None else x + bias)
        done += config.n_heads
        if config.attn_only:
            streams.append(streams[-1])
        else:
            streams.append(streams[-1] + base[done])
            done += 1
    return streams


def _resumed(
    patched: PatchedForward, receiver: Node, change: Tensor, streams: list[Tensor]
) -> Tensor:
    """Logits (edge, example, d_vocab_out) when the receiver is given the base without `change`."""
    x, config = streams[receiver.depth], patched.config
    if receiver.kind == LOGITS:
        rows = torch.stack([select_positions(x - one, patched.reads) for one in change])
        return Forward(patched.weights, config).unembed(rows)
    if receiver.kind == "mlp":
        forward = Forward(patched.weights, config)
        written = forward.mlp(receiver.layer, x - change) - forward.mlp(receiver.layer, x)
        site = ResidSite.pre(receiver.layer + 1)
    else:
        written = _head_change(patched, receiver, x, change)
        site = ResidSite.mid(receiver.layer)
    after, reads = streams[receiver.depth + 1] + written, patched.reads
    if receiver.layer == config.depth - 1:  # positions no longer mix
        after = torch.stack([select_positions(one, reads) for one in after])[:, :, None]
        reads = torch.zeros_like(reads)
    n = len(change)
    logits = resume_by_weights(patched.weights, config, after.flatten(0, 1), site, reads.repeat(n))
    return logits.unflatten(0, (n, -1))


def _head_change(patched: PatchedForward, receiver: Node, x: Tensor, change: Tensor) -> Tensor:
    """(edge, example, pos, d_model) by how much the head writes something else when one of its
    inputs lacks `change`.
    """
    config, head = patched.config, receiver.head
    assert head is not None
    block = f"blocks.{receiver.layer % config.n_layers}"
    own = {
        name: weight[head : head + 1]
        for name, weight in patched.weights.items()
        if name.startswith(f"{block}.attn.") and not name.endswith("b_O")
    }
    base, other = (
        norm(patched.weights, f"{block}.ln1", "", config, one, no_hook)[:, None]
        for one in (x[None], x - change)
    )  # (edge, head, example, pos, d_model)
    given = {letter: other if letter == receiver.kind else base for letter in "qkv"}
    mask = None
    if config.attention_dir == "causal":
        positions = torch.arange(x.shape[1], device=x.device)
        later = positions > positions[:, None]
        mask = x.new_zeros(later.shape).masked_fill(later, -torch.inf)[None]
    name = f"{block}.attn"
    now = attend_apart(own, name, config, given["q"], given["k"], given["v"], mask)
    was = attend_apart(own, name, config, base, base, base, mask)
    return (now - was)[:, 0]
