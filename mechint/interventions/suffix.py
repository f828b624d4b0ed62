"""Pairs of prompts that begin alike, patched from where they differ on.

    runs = SuffixRuns(model, base, source, classes, first)
    runs.patched({(23, 3)}) - runs.base          # what head 3 of block 23 moves, pair by pair

What stands before the first token that differs is the same in both prompts and computed once: a
patched forward takes its keys and values, begins at the block of the patch, and ends in the two
logits that a pair is about. On pairs of fifteen tokens that differ in the eleventh this is a tenth
of a forward. Exact: equal to hooked forwards from the tokens.

Cost: one forward on every different prompt; then the blocks behind each patch, at the positions
behind the prefix. Memory: heads' outputs, keys and values of the prompts.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.config import centers
from mechint.interventions.resuming import detached_weights
from mechint.models.forward import Forward
from mechint.models.layers import no_hook, norm
from mechint.models.rows import RowLayout

Head = tuple[int, int]
"""Block and head."""


class SuffixRuns:
    """Recorded forwards on pairs of prompts of one length, read at the last position.

    Args:
        model: one that resumes (`mechint.interventions.resumes`) and reads back only.
        base, source: (pair, pos); equal before position `first`.
        classes: (pair, 2) the base's answer and the source's: the difference of a pair is the logit
            of the second above the first.
    """

    def __init__(
        self,
        model: Any,
        base: Int[Tensor, "pair pos"],
        source: Int[Tensor, "pair pos"],
        classes: Int[Tensor, "pair 2"],
        first: int,
    ) -> None:
        self.weights, self.config = detached_weights(model), model.config
        self.forward = Forward(self.weights, self.config)
        self.first, self.classes = first, classes
        unique: Any = torch.unique  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        self.tokens: Int[Tensor, "prompt pos"]
        index: Int[Tensor, " both"]
        self.tokens, index = unique(torch.cat([base, source]), dim=0, return_inverse=True)
        self.own, self.other = index[: len(base)], index[len(base) :]  # (pair,) of prompts
        self.x: list[Tensor] = []  # (prompt, n, d_model) before each block, behind the prefix
        self.z: list[Tensor] = []
        self.keys: list[tuple[Tensor, Tensor]] = []  # and values, (prompt, pos, head, d_head)
        self.from_last: list[Tensor] = []  # (prompt, head, pos)
        self.from_first: list[Tensor] = []
        with torch.no_grad():
            layout = RowLayout.dense(self.tokens)
            x = self.forward.embed(layout)
            for layer in range(self.config.depth):
                attended = self.forward.attend_behind(layer, x)
                self.x.append(x[:, first:].clone())
                self.z.append(attended.z[:, first:].clone())
                self.keys.append((attended.keys, attended.values))
                self.from_last.append(attended.pattern[:, :, -1].clone())
                self.from_first.append(attended.pattern[:, :, first].clone())
                x = self.forward.feed_forward(layer, attended.x)
            self.end = x[:, -1]

    def __len__(self) -> int:
        return len(self.own)

    @cached_property
    def _directions(self) -> tuple[Float[Tensor, "pair d_model"], Float[Tensor, " pair"]]:
        """(pair, d_model) along which the difference rises behind the final norm, and its bias."""
        columns = self.weights["unembed.W_U"].T[self.classes]  # (pair, 2, d_model)
        bias = self.weights.get("unembed.b_U")
        offsets = torch.zeros(len(self)) if bias is None else bias[self.classes].diff(dim=-1)[:, 0]
        return columns[:, 1] - columns[:, 0], offsets

    def difference(self, x: Float[Tensor, "pair d_model"]) -> Float[Tensor, " pair"]:
        """Logit of the source's answer above that of the base's (nats) at the last stream x."""
        directions, offsets = self._directions
        normed = norm(self.weights, "ln_final", "", self.config, x, no_hook)
        return (normed * directions).sum(-1) + offsets

    @cached_property
    def base(self) -> Float[Tensor, " pair"]:
        """Differences of the bases."""
        return self.difference(self.end[self.own])

    @cached_property
    def source(self) -> Float[Tensor, " pair"]:
        """Differences of the sources."""
        return self.difference(self.end[self.other])

    def _past(self, layer: int) -> tuple[Tensor, Tensor]:
        keys, values = self.keys[layer]
        return keys[self.own, : self.first], values[self.own, : self.first]

    # --- patches ----------------------------------------------------------------------------------
    def patched(
        self, heads: Iterable[Head], other: Int[Tensor, " pair"] | None = None
    ) -> Float[Tensor, " pair"]:
        """Differences of the bases when the outputs of `heads` are those of the sources.

        other: the prompt that each pair takes them from, in place of its source.
        """
        other = self.other if other is None else other
        by_layer: dict[int, list[int]] = {}
        for layer, head in heads:
            by_layer.setdefault(layer, []).append(head)
        start = min(by_layer, default=self.config.depth - 1)

        def replaced(z: Tensor, layer: int) -> Tensor:
            z, chosen = z.clone(), by_layer[layer]
            z[:, :, chosen] = self.z[layer][other][:, :, chosen]
            return z

        with torch.no_grad():
            z = self.z[start][self.own]
            z = replaced(z, start) if start in by_layer else z
            x = self.x[start][self.own] + self.forward.write_heads(start, z)
            x = self.forward.feed_forward(start, x)
            for layer in range(start + 1, self.config.depth):
                edit = partial(replaced, layer=layer) if layer in by_layer else None
                attended = self.forward.attend_behind(layer, x, self._past(layer), edit)
                x = self.forward.feed_forward(layer, attended.x)
            return self.difference(x[:, -1])

    @cached_property
    def first_order(self) -> Float[Tensor, "pair layer head"]:
        """Change of the difference to first order when each head alone is taken from the source
        (attribution patching, Nanda 2023): one forward and backward behind the prefix.
        """
        added = [torch.zeros_like(z[self.own], requires_grad=True) for z in self.z]
        with torch.enable_grad():
            x = self.x[0][self.own]
            for layer, more in enumerate(added):
                edit = more.__add__
                attended = self.forward.attend_behind(layer, x, self._past(layer), edit)
                x = self.forward.feed_forward(layer, attended.x)
            gradients = torch.autograd.grad(self.difference(x[:, -1]).sum(), added)
        changes = [
            ((z[self.other] - z[self.own]) * gradient).sum((1, 3))
            for z, gradient in zip(self.z, gradients, strict=True)
        ]
        return torch.stack(changes, 1)

    # --- ways to the answer -----------------------------------------------------------------------
    @cached_property
    def direct(self) -> Float[Tensor, "pair layer head"]:
        """Change of the difference that each head's output at the answer alone makes, the final
        norm's scale held (Elhage et al. 2021).
        """
        directions, _ = self._directions
        name = "ln_final.w"
        directions = directions * self.weights[name] if name in self.weights else directions
        x = self.end[self.own]
        if centers(self.config.normalization_type):
            x = x - x.mean(-1, keepdim=True)
            directions = directions - directions.mean(-1, keepdim=True)
        if self.config.normalization_type is not None:
            directions = directions * (x.square().mean(-1, keepdim=True) + self.config.eps).rsqrt()
        found: list[Tensor] = []
        for layer, z in enumerate(self.z):
            weight = self.weights[f"blocks.{layer % self.config.n_layers}.attn.W_O"]
            change = z[self.other][:, -1] - z[self.own][:, -1]
            found.append(torch.einsum("bhd,hdm,bm->bh", change, weight, directions))
        return torch.stack(found, 1)

    def through_queries(self, sender: Head, receivers: Iterable[Head]) -> Float[Tensor, " pair"]:
        """Differences of the bases when what `sender` writes at the answer is the source's for the
        queries of `receivers` alone (path patching, Wang et al. 2023).
        """
        layer, head = sender
        by_layer: dict[int, list[int]] = {}
        for at, each in receivers:
            if at > layer:
                by_layer.setdefault(at, []).append(each)
        if not by_layer:
            return self.base
        weight = self.weights[f"blocks.{layer % self.config.n_layers}.attn.W_O"][head]
        z = self.z[layer][:, -1:, head]
        change = (z[self.other] - z[self.own]) @ weight  # (pair, 1, d_model)
        with torch.no_grad():
            start = min(by_layer)
            x = self.x[start][self.own][:, -1:]
            for at in range(start, self.config.depth):
                keys, values = (one[self.own] for one in self.keys[at])

                def asked(z: Tensor, at: int = at, x: Tensor = x) -> Tensor:
                    z, chosen = z.clone(), by_layer[at]
                    held = (one[self.own] for one in self.keys[at])
                    z[:, :, chosen] = self.forward.ask(at, x + change, *held)[:, :, chosen]
                    return z

                past, edit = (keys[:, :-1], values[:, :-1]), asked if at in by_layer else None
                x = self.forward.feed_forward(at, self.forward.attend_behind(at, x, past, edit).x)
            return self.difference(x[:, -1])
