"""Runs of a model in which every edge of the graph carries one of two runs.

    cut = Cut(EditedRuns(model, base, reads), graph, sender_outputs(other_runs, graph))
    cut.logits(kept)                       # (circuit, example, d_vocab_out)

A receiver is given the residual stream of the source run, with what each sender writes in *this*
run in place of what it wrote there, along the edges that are kept: with all edges kept the run is
that of the base, with none that of the source, and with all but one it is path patching
(Goldowsky-Dill et al. 2023): that edge alone carries the source. Exact: every head's q, k and v and
every MLP has an input of its own, norms included. Circuits are stacked and start at the first
receiver into which one of them leaves an edge out.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.interventions import Add, Compute, EditedRuns, Site
from mechint.interventions.runs import At
from mechint.probes._circuits.graph import LOGITS, Graph, Node


def sender_outputs(runs: EditedRuns, graph: Graph) -> Float[Tensor, "sender example pos d_model"]:
    """Outputs that every sender of the graph adds to the residual stream of the unedited runs."""
    layers, mlps = range(graph.config.depth), not graph.config.attn_only
    positions = graph.config.embeds_positions
    starts = ["hook_embed", "hook_pos_embed"] if positions else ["blocks.0.hook_resid_pre"]
    names = [*starts, *(f"blocks.{layer}.attn.hook_z" for layer in layers)]
    names += [f"blocks.{layer}.hook_mlp_out" for layer in layers if mlps]
    runs.record([*names, *filter(None, map(runs.behind, layers))])
    parts = [runs.recorded(name)[None] for name in starts]
    for layer in layers:
        parts.append(runs.written_by(layer).movedim(2, 0))
        if mlps:
            parts.append(runs.recorded(f"blocks.{layer}.hook_mlp_out")[None])
    return torch.cat(parts)


class Cut:
    """Runs on base inputs whose edges carry either what their senders write there or the source.

    Args:
        runs: those of the base inputs.
        source: what the senders wrote in the source runs, of `sender_outputs`; or their means.
    """

    def __init__(
        self, runs: EditedRuns, graph: Graph, source: Float[Tensor, "sender example pos d_model"]
    ) -> None:
        self.runs, self.graph, self.source = runs, graph, source
        with torch.no_grad():
            self.change = sender_outputs(runs, graph) - source

    def logits(
        self, kept: Float[Tensor, "circuit edge"] | Bool[Tensor, "circuit edge"]
    ) -> Float[Tensor, "circuit example d_vocab_out"]:
        """Logits at the answers when each edge carries `kept` of this run, the rest of the source:
        1 (or True) where it belongs to the circuit, 0 where it does not.
        """
        without = kept != 1
        edits = self._edits(self.graph.mask(1 - kept.to(self.source)))
        depths = torch.from_numpy(self.graph.depths).to(kept.device)
        first = torch.where(without, depths, 1 << 30).amin(1).tolist()
        return self.runs.under([[edit for at, edit in edits if at >= depth] for depth in first])

    def attributed(self, point: float, score: Callable[[Tensor, Tensor], Tensor]) -> np.ndarray:
        """(edge,) what each sender changed · the gradient of the score at the receiver's input,
        summed over examples and the edge's positions, in the runs whose embeddings lie at `point`
        between the source (0) and the base (1).

        score: (logits, examples) → (example,).
        """
        graph, change = self.graph, self.change
        embedded = change[: len(graph.embeddings)].sum(0)
        nearer = [Add(Site.resid_pre(0), (point - 1) * embedded)] if point < 1 else []
        sites = {site.hook: receivers for site, receivers in self._sites.items()}
        by_place = change.new_zeros(len(graph.receivers), *change[..., 0].shape[::2])
        every = torch.arange(len(self.runs), device=change.device)
        for rows, parts in self.runs.gradients(sites, score, every, under=nearer):
            for hook, (_, slope, places) in parts.items():
                slope = slope if slope.dim() == 4 else slope[:, :, None]
                there = change[:, rows[:, None], places]  # (sender, example, place, d_model)
                product = torch.einsum("nprd,snpd->rsnp", slope, there)
                index = places.expand(*product.shape)
                whole = product.new_zeros(*product.shape[:3], change.shape[2])
                by_place[sites[hook]] += whole.scatter(-1, index, product).sum(2)
        receiver, sender, group = (torch.from_numpy(column) for column in graph.index)
        if graph.groups == 1:
            by_place, group = by_place.sum(-1, keepdim=True), group * 0
        return by_place[receiver, sender, group].double().cpu().numpy()

    # --- edits ------------------------------------------------------------------------------------
    def _edits(
        self, cut: Float[Tensor, "circuit receiver sender group"]
    ) -> list[tuple[int, Compute]]:
        """Depth and edit of the receivers, and of what looks at the senders, in order: a receiver
        reads the stream less what the senders of its edges in `cut` changed in this run.
        """
        graph, found = self.graph, list[tuple[int, Compute]]()
        senders = {(node.kind, node.layer): i for i, node in reversed([*enumerate(graph.senders)])}
        sites = self._sites

        def read(site: Site, depth: int) -> None:
            edit = partial(self._read, cut[:, sites[site]], depth)
            found.append((depth, Compute(site, edit)))

        for layer in range(graph.config.depth):
            for letter in "qkv":
                read(Site.read(letter, layer), 2 * layer)
            look = partial(self._look_at_heads, layer, senders["head", layer])
            behind = self.runs.behind(layer)
            hooks = [f"blocks.{layer}.attn.hook_z", *([behind] if behind else [])]
            found += [(2 * layer, Compute(Site(hook), look)) for hook in hooks]
            if not graph.config.attn_only:
                read(Site.read("mlp", layer), 2 * layer + 1)
                look = partial(self._look, senders["mlp", layer])
                found.append((2 * layer + 1, Compute(Site.mlp(layer), look)))
        read(self._site(graph.receivers[-1]), 2 * graph.config.depth)
        return found

    @cached_property
    def _sites(self) -> dict[Site, slice]:
        """Site of reading → the receivers there."""
        found: dict[Site, slice] = {}
        for i, node in enumerate(self.graph.receivers):
            site = self._site(node)
            found[site] = slice(found[site].start if site in found else i, i + 1)
        return found

    def _site(self, receiver: Node) -> Site:
        if receiver.kind == LOGITS:
            return Site.of("resid_post", self.graph.config.depth - 1)
        return Site.read(receiver.kind, receiver.layer)

    def _look_at_heads(self, layer: int, first: int, part: Tensor, at: At) -> None:
        """Keep what the heads write, once both z and the scale of a norm behind it are known."""
        is_scale = part.shape[-1] == 1 and part.dim() == 3
        z, scale = (at.state.pop("z"), part) if is_scale else (part, None)
        if scale is None and self.runs.behind(layer):
            at.state["z"] = z
            return
        written = self.runs.written(layer, z, scale)
        self._keep(first, written.movedim(2, 0), at)

    def _look(self, first: int, part: Tensor, at: At) -> None:
        self._keep(first, part[None], at)

    def _keep(self, first: int, written: Float[Tensor, "sender case n d_model"], at: At) -> None:
        """Keep the change of the senders from the `first` on against the source."""
        source = self._window(self.source[first : first + len(written)], at.inputs, at)
        at.state.setdefault("own", []).append((first, written - source, at.answers))

    def _window(self, x: Tensor, inputs: Tensor, at: At) -> Float[Tensor, "sender input n d_model"]:
        """x (sender, example, pos, d_model) of the inputs at the positions computed."""
        if at.answers:
            return x[:, inputs, self.runs.reads[inputs]][:, :, None]
        x = x[:, :, at.first : at.last + 1]
        return x[:, inputs]

    def _read(self, cut: Tensor, depth: int, part: Tensor, at: At) -> Tensor:
        """`part` (case, pos, [head,] d_model) less what the cut senders changed, in place."""
        state = at.state
        if "grid" not in state:
            state["grid"] = at.grid()
            state["done"] = sum(node.depth < depth for node in self.graph.senders)
        variants, rows = state["grid"] or (at.variants, at.rows)
        done, n = state["done"], "vn" if state["grid"] else "n"
        if ("shared", at.answers) not in state:
            state["shared", at.answers] = self._window(self.change[:done], rows, at)
        mask, axes = cut[variants], n[0] + "rs"
        if self.graph.groups == 1:
            mask = mask[..., 0]
        elif not at.answers:
            mask, axes = mask[..., at.first : at.last + 1], axes + "p"
        elif n == "vn":
            mask, axes = mask[..., self.runs.reads[rows]], axes + "n"
        else:
            mask = mask[torch.arange(len(mask)), ..., at.reads]
        missing = torch.einsum(
            f"{axes},snpd->{n}prd", mask[:, :, :done], state["shared", at.answers]
        )
        if own := state.get("own"):
            index = [first + i for first, change, _ in own for i in range(len(change))]
            changes = torch.cat([self._at(change, answers, at) for _, change, answers in own])
            changes = changes.unflatten(1, (-1, len(rows))) if n == "vn" else changes
            missing = missing + torch.einsum(f"{axes},s{n}pd->{n}prd", mask[:, :, index], changes)
        missing = missing if part.dim() == 4 else missing[..., 0, :]
        (part.unflatten(0, (-1, len(rows))) if n == "vn" else part).sub_(missing)
        return part

    def _at(self, x: Tensor, answers: bool, at: At) -> Tensor:
        """x (sender, case, n, d_model) at the positions that are computed now."""
        if answers or not at.answers:
            return x
        return x[:, torch.arange(x.shape[1]), at.reads - at.first][:, :, None]
