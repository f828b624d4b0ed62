"""A forward in which every edge of the graph carries one of two runs.

    patched = PatchedForward(model, graph, base, reads, sender_outputs(model, graph, source))
    patched.logits(kept)                       # (circuit, example, d_vocab_out)

A receiver is given the residual stream of the source run, with what each sender writes in *this*
forward in place of what it wrote there, along the edges that are kept: with all edges kept the
forward is that of the base, with none that of the source, and with all but one it is path patching
(Goldowsky-Dill et al. 2023): that edge alone carries the source. Exact: every head's q, k and v and
every MLP has an input of its own, norms included. Circuits are stacked along a leading axis, start
at the first block in which one of them leaves an edge out, and after the last attention's keys
compute only the rows that are read.

Cost: one recorded forward per run; then the blocks from the first edge that is left out on. Memory:
`memory` bytes per stacked forward.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.interventions import Add, EditedRuns, Site, detached_weights, select_positions
from mechint.models.forward import Forward
from mechint.models.rows import RowLayout
from mechint.probes._circuits.graph import LOGITS, Graph

Tap = Callable[[int, Tensor], Tensor]
"""tap(index of the first receiver, inputs (receiver, example, pos, d_model)) -> inputs."""


def sender_outputs(
    model: Any, graph: Graph, tokens: Int[Tensor, "example pos"]
) -> Float[Tensor, "sender example pos d_model"]:
    """Outputs that every sender of the graph adds to the residual stream."""
    kept: dict[str, Tensor] = {}

    def keep(name: str, tensor: Tensor) -> Tensor:
        if name.endswith(("_embed", "hook_z", "hook_mlp_out")):
            kept[name] = tensor
        return tensor

    weights, config = detached_weights(model), model.config
    with torch.no_grad():
        forward = Forward(weights, config, keep)
        forward.blocks(forward.embed(RowLayout.dense(tokens)), RowLayout.dense(tokens))
    parts = [kept["hook_embed"][None]]
    if config.embeds_positions:
        parts.append(kept["hook_pos_embed"].expand_as(parts[0][0])[None])
    for layer in range(config.depth):
        z = kept[f"blocks.{layer}.attn.hook_z"].permute(2, 0, 1, 3).flatten(1, 2)
        written = z @ weights[f"blocks.{layer % config.n_layers}.attn.W_O"]  # (head, rows, d_model)
        parts.append(written.unflatten(1, tokens.shape))
        if not config.attn_only:
            parts.append(kept[f"blocks.{layer}.hook_mlp_out"][None])
    return torch.cat(parts)


class PatchedForward:
    """Forwards on `base` tokens whose edges carry either this forward or the source's.

    Args:
        model: a model that resumes (`mechint.interventions.resumes`).
        base: the inputs; reads: the position of each one's answer.
        source: what the senders wrote in the source run, of `sender_outputs`; or their means.
        memory: bytes that one stacked forward may take.
    """

    def __init__(
        self,
        model: Any,
        graph: Graph,
        base: Int[Tensor, "example pos"],
        reads: Int[Tensor, " example"],
        source: Float[Tensor, "sender example pos d_model"],
        memory: int = 1 << 27,
    ) -> None:
        self.model, self.graph, self.base, self.reads = model, graph, base, reads
        self.memory = memory
        self.weights, self.config = detached_weights(model), model.config
        self.source = source
        self.change = sender_outputs(model, graph, base) - source
        mlps = 0 if self.config.attn_only else 1
        self.per_layer = self.config.n_heads + mlps  # senders
        self.per_block = 3 * self.config.n_heads + mlps  # receivers

    def logits(
        self,
        kept: Float[Tensor, "circuit edge"] | Bool[Tensor, "circuit edge"],
        tap: Tap | None = None,
    ) -> Float[Tensor, "circuit example d_vocab_out"]:
        """Logits at the answers when each edge carries `kept` of this forward, the rest of the
        source: 1 (or True) where it belongs to the circuit, 0 where it does not.

        tap: called with the inputs of each group of receivers, of one circuit, and differentiable;
        all positions are computed then.
        """
        if tap is not None:
            return self._run(kept, 0, tap)
        with torch.no_grad():
            parts = [self._run(part, self._start(part)) for part in kept.split(self._stack())]
        return torch.cat(parts)

    def path_logits(self) -> Float[Tensor, "edge example d_vocab_out"]:
        """Logits at the answers when each edge alone carries the source: its receiver reads the
        residual stream less what the sender changed, and every other one the stream as it is.
        """
        receivers, senders, groups = self.graph.index
        runs = EditedRuns(self.model, self.base, self.reads)
        order, parts = [], []
        for i, receiver in enumerate(self.graph.receivers):
            # of the last block nothing but the answers is read, keys and values apart
            last = receiver.kind == LOGITS or receiver.layer == self.config.depth - 1
            at = "answer" if last and receiver.kind not in "kv" else None
            site = Site.read(receiver.kind, receiver.layer, receiver.head, at)
            members = np.flatnonzero(receivers == i)
            for edges in np.array_split(members, -(-len(members) // self._stack()) or 1):
                change = self.change[senders[edges]]  # (edge, example, pos, d_model)
                if self.graph.groups > 1:
                    there = np.arange(self.graph.groups) == groups[edges][:, None]
                    change = change * torch.from_numpy(there).to(change)[:, None, :, None]
                if at:
                    change = change[:, torch.arange(len(self.reads)), self.reads]
                change = change if receiver.head is None else change[..., None, :]  # a head's axis
                parts.append(runs.under([Add(site, -one) for one in change]))
                order.append(edges)
        found = torch.from_numpy(np.concatenate(order)).to(self.reads.device)
        return torch.cat(parts)[found.argsort()]

    def _stack(self) -> int:
        """Number of circuits that fit one forward."""
        _, examples, positions, d_model = self.source.shape
        config = self.config
        width = (2 * self.per_block + len(self.graph.senders)) * d_model
        width += 3 * config.n_heads * (positions + (config.d_head or 0)) + 2 * (config.d_mlp or 0)
        each = self.source.element_size() * examples * (positions * width + config.d_vocab_out)
        return max(1, int(self.memory // each))

    def _start(self, kept: Tensor) -> int:
        """The first block in which an edge is left out."""
        out = (kept != 1).any(0).cpu().numpy()
        depth = int(self.graph.depths[out].min()) if out.any() else 2 * self.config.depth
        return min(depth // 2, self.config.depth - 1)

    def _run(self, kept: Tensor, start: int, tap: Tap | None = None) -> Tensor:
        run = _Run(self, self.graph.mask(kept.to(self.source)), start)
        for layer in range(start, self.config.depth):
            if layer == self.config.depth - 1 and tap is None:
                run.attend(layer, at_reads=True)
            else:
                run.attend(layer, tap=tap)
            if not self.config.attn_only:
                run.feed_forward(layer, tap=tap)
        x = run.inputs(len(self.graph.receivers) - 1, 1, tap)[:, 0]  # (circuit, example, rows, d)
        if tap is not None:
            x = torch.stack([select_positions(one, self.reads) for one in x])[:, :, None]
        return Forward(self.weights, self.config).unembed(x[:, :, 0])


class _Run:
    """One stacked forward on its way: the source's stream so far, and how senders differ from it.

    Changes that all circuits share (senders before the first block that is computed) are kept once.
    """

    def __init__(self, forward: PatchedForward, mask: Tensor, start: int) -> None:
        self.f, self.mask = forward, mask
        done = len(forward.graph.embeddings) + start * forward.per_layer
        self.stream = forward.source[:done].sum(0)  # (example, pos, d_model)
        for layer in range(start):
            self._add_bias(layer)
        self.shared = forward.change[:done]
        self.own: list[Tensor] = []  # (sender, circuit, example, pos, d_model)
        self.done, self.at_reads = done, False

    def _add_bias(self, layer: int) -> None:
        bias = self.f.weights.get(f"blocks.{layer % self.f.config.n_layers}.attn.b_O")
        self.stream = self.stream if bias is None else self.stream + bias

    def inputs(self, first: int, count: int, tap: Tap | None = None) -> Tensor:
        """(circuit, receiver, example, pos, d_model) the residual stream that `count` receivers
        from the `first` on are given.
        """
        mask = self.mask[:, first : first + count, : self.done]  # (circuit, receiver, sender, …)
        x = self.stream + self._mixed(mask[:, :, : len(self.shared)], self.shared, "snpd")
        if self.own:
            own = torch.cat(self.own)
            x = x + self._mixed(mask[:, :, len(self.shared) :], own, "smnpd")
        if tap is not None:
            x = tap(first, x[0])[None]
        return x

    def _mixed(self, mask: Tensor, change: Tensor, axes: str) -> Tensor:
        """Σ over senders of mask · change, (circuit, receiver, example, pos, d_model)."""
        if self.f.graph.groups == 1:
            return torch.einsum(f"mrs,{axes}->mrnpd", mask[..., 0], change)
        if self.at_reads:
            return torch.einsum(f"mrsn,{axes}->mrnpd", mask[..., self.f.reads], change)
        return torch.einsum(f"mrsp,{axes}->mrnpd", mask, change)

    def attend(self, layer: int, at_reads: bool = False, tap: Tap | None = None) -> None:
        """The heads of a block; `at_reads`: from here on only what is read is computed."""
        f, heads = self.f, self.f.config.n_heads
        at = layer * f.per_block
        if at_reads:
            keys, values = self.inputs(at + heads, 2 * heads).split(heads, 1)
            self._keep_reads()
            queries = self.inputs(at, heads)
        else:
            queries, keys, values = self.inputs(at, 3 * heads, tap).split(heads, 1)
        mask = self._causal(keys.shape[-2])
        positions = f.reads[:, None] if self.at_reads else None
        written = Forward(f.weights, f.config).attend_per_head(
            layer, queries, keys, values, mask, positions
        )  # (circuit, head, example, pos, d_model)
        self._add(written.movedim(1, 0))
        self._add_bias(layer)

    def feed_forward(self, layer: int, tap: Tap | None = None) -> None:
        """The MLP of a block."""
        at = layer * self.f.per_block + 3 * self.f.config.n_heads
        x = self.inputs(at, 1, tap)[:, 0]
        self._add(Forward(self.f.weights, self.f.config).mlp(layer, x)[None])

    def _add(self, written: Tensor) -> None:
        """Take in the next senders: written (sender, circuit, example, pos, d_model)."""
        source = self._at(self.f.source[self.done : self.done + len(written)])
        self.own.append(written - source[:, None])
        self.stream = self.stream + source.sum(0)
        self.done += len(written)

    def _at(self, x: Tensor) -> Tensor:
        """x (sender, example, pos, d_model) at the rows that are computed."""
        if not self.at_reads:
            return x
        return x[:, torch.arange(x.shape[1], device=x.device), self.f.reads][:, :, None]

    def _keep_reads(self) -> None:
        """Leave all but the rows that are read."""
        self.at_reads = True
        examples = torch.arange(len(self.f.reads), device=self.f.reads.device)
        self.stream = self.stream[examples, self.f.reads][:, None]
        self.shared = self._at(self.shared)
        self.own = [one[:, :, examples, self.f.reads][:, :, :, None] for one in self.own]

    def _causal(self, positions: int) -> Tensor | None:
        """(example | 1, query, key) added to the scores: -inf where a query may not look."""
        if self.f.config.attention_dir != "causal":
            return None
        key = torch.arange(positions, device=self.stream.device)
        query = self.f.reads[:, None] if self.at_reads else key[None]
        mask = self.stream.new_zeros(*query.shape, positions)
        return mask.masked_fill(key > query[..., None], -torch.inf)
