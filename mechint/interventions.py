"""Forwards that branch off a recorded one: many edits of the residual stream, each computed only
from where it differs.

    stream = Stream(model, tokens, reads)
    logits = stream.edited([Edit(Point(0, 1), delta, pos=2), ...])      # (edit, example,
    d_vocab_out)

Every patch and every ablation of a head, a layer, a neuron or a direction adds something to the
residual stream at one `Point`. All edits of one point are stacked along the batch and share one
forward, which begins at that point, and which after the last attention computes only the rows that
are read. Exact: equal to a hooked forward from the tokens.

Cost: one forward to record, then an edit costs the blocks that follow it. Memory: `memory` bytes a
stacked forward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models import forward
from mechint.models.forward import no_hook
from mechint.task import IGNORE

Parameters = Mapping[str, Tensor]


@dataclass(frozen=True, order=True)
class Point:
    """A place on the residual stream: between blocks `block` - 1 and `block` (half 0), or after the
    attention of `block` (half 1).

    ``Point(depth)`` is the stream that is unembedded.
    """

    block: int
    half: int = 0


@dataclass(frozen=True)
class Edit:
    """Add `delta` to the residual stream at `point`: (example, pos, d_model), or (example, d_model)
    at position `pos`.
    """

    point: Point
    delta: Tensor
    pos: int | None = None


def last_read(targets: Tensor) -> Tensor:
    """(example,) the last position at which an answer is read, of targets (example, pos, output); 0
    where none is.
    """
    read = (targets != IGNORE).any(-1)
    return (read * torch.arange(targets.shape[1], device=targets.device)).amax(1)


def at(x: Tensor, reads: Tensor) -> Tensor:
    """x (example, pos, …) at one position an example -> (example, …)."""
    first = int(reads[0]) if len(reads) else 0
    if bool((reads == first).all()):  # a slice, whose gradient needs no scatter
        return x[:, first]
    return x[torch.arange(len(x), device=x.device), reads]


def unsupported(model: Any) -> str | None:
    """Why forwards cannot branch off in `model`, or None when they can."""
    return (
        None
        if isinstance(getattr(model, "config", None), ModelConfig)
        else f"its model is a {type(model).__name__}, not a HookedTransformer of mechint"
    )


def frozen(model: Any) -> dict[str, Tensor]:
    """The parameters of a HookedTransformer by name, outside autograd."""
    return {name: value.detach() for name, value in model.weights().items()}


def resume(p: Parameters, config: ModelConfig, x: Tensor, point: Point, reads: Tensor) -> Tensor:
    """Logits (example, d_vocab_out) at `reads` (example,), from the residual stream x (example,
    pos, d_model) at `point`.

    Differentiable in x. Output groups that left the stream before `point` (`config.read_layers`)
    are not to be used.
    """
    last = config.depth - 1
    if config.read_layers is not None:
        x = forward.feed_forward(p, config, point.block, x, no_hook, no_hook) if point.half else x
        return at(
            forward.read_out(
                p,
                config,
                x,
                forward.dense(x[..., 0].detach().long()),
                start=point.block + point.half,
            ),
            reads,
        )
    if point.half and point.block < last:
        x, point = (
            forward.feed_forward(p, config, point.block, x, no_hook, no_hook),
            Point(point.block + 1),
        )
    if point <= Point(last):
        x = forward.blocks(
            p, config, x, forward.dense(x[..., 0].detach().long()), start=point.block, stop=last
        )
        x, point = forward.attend(p, config, last, x, None, no_hook, no_hook), Point(last, 1)
    rows = at(x, reads)
    return forward.unembed(
        p,
        config,
        forward.feed_forward(p, config, last, rows, no_hook, no_hook) if point.half else rows,
    )


class Stream:
    """A forward of a HookedTransformer on `tokens`, recorded, from which edited forwards branch
    off.

    Args:
        model: a HookedTransformer; nothing of it is touched, its hooks do not run.
        tokens: (example, pos); the caller chunks the examples.
        reads: (example,) position at which each example's logits are wanted.
        names: hooks to record besides the residual stream, kept in `activations`.
        memory: bytes that one stacked forward of `edited` may take.
        until: the last block that is recorded; all when None. `logits` are computed when first
            asked for.
    """

    def __init__(
        self,
        model: Any,
        tokens: Tensor,
        reads: Tensor,
        names: Iterable[str] = (),
        memory: int = 1 << 28,
        until: int | None = None,
    ) -> None:
        self.p, self.config, self.tokens, self.reads, self.memory = (
            frozen(model),
            model.config,
            tokens,
            reads,
            memory,
        )
        self.activations: dict[str, Tensor] = {}
        self._residual: dict[Point, Tensor] = {}
        with torch.no_grad():
            self._record(set(names), self.config.depth - 1 if until is None else until)

    @cached_property
    def logits(self) -> Tensor:
        """(example, d_vocab_out) at `reads`, without an edit."""
        start = Point(0) if self.config.read_layers is not None else max(self._residual)
        with torch.no_grad():
            return resume(self.p, self.config, self._residual[start], start, self.reads)

    def _record(self, wanted: set[str], until: int) -> None:
        def keep(name: str, tensor: Tensor) -> Tensor:
            if name in wanted:
                self.activations[name] = tensor
            return tensor

        x = forward.embed(self.p, forward.dense(self.tokens), keep)
        for block in range(until + 1):
            self._residual[Point(block)] = x
            x = self._residual[Point(block, 1)] = forward.attend(
                self.p, self.config, block, x, None, keep, no_hook
            )
            if block < until or wanted - set(self.activations):
                x = self._residual[Point(block + 1)] = forward.feed_forward(
                    self.p, self.config, block, x, keep, no_hook
                )

    def residual(self, point: Point) -> Tensor:
        """The recorded residual stream (example, pos, d_model) at `point`."""
        if (
            point not in self._residual
        ):  # after the last recorded block, which is not computed before it is asked for
            with torch.no_grad():
                self._residual[point] = forward.feed_forward(
                    self.p,
                    self.config,
                    point.block - 1,
                    self._residual[Point(point.block - 1, 1)],
                    no_hook,
                    no_hook,
                )
        return self._residual[point]

    def edited(self, edits: Sequence[Edit]) -> Tensor:
        """Logits (edit, example, d_vocab_out) at `reads` under each edit alone."""
        result = self.logits.new_empty(len(edits), *self.logits.shape)
        by_point: dict[Point, list[int]] = defaultdict(list)
        for index, edit in enumerate(edits):
            if self._idle(edit):
                result[index] = self.logits
            else:
                by_point[edit.point].append(index)
        with torch.no_grad():
            for point, members in by_point.items():
                for start in range(0, len(members), self._stack(point)):
                    part = members[start : start + self._stack(point)]
                    result[part] = self._branch(point, [edits[index] for index in part])
        return result

    def _stack(self, point: Point) -> int:
        """How many edits of `point` fit one forward."""
        config, (examples, positions) = self.config, self.tokens.shape
        rows = examples if self._only_read(point) else examples * positions
        width = 6 * config.d_model + 2 * (config.d_mlp or 0) + config.n_heads * positions
        return max(1, int(self.memory // (4 * (rows * width + examples * config.d_vocab_out))))

    def _only_read(self, point: Point) -> bool:
        """Whether positions no longer mix after `point`."""
        return self.config.read_layers is None and point > Point(self.config.depth - 1)

    def _idle(self, edit: Edit) -> bool:
        """Whether the edited position cannot reach any that is read."""
        if edit.pos is None:
            return False
        if self._only_read(edit.point):
            return not bool((self.reads == edit.pos).any())
        return self.config.attention_dir == "causal" and edit.pos > int(self.reads.max())

    def _branch(self, point: Point, edits: Sequence[Edit]) -> Tensor:
        base, reads = self.residual(point), self.reads
        if self._only_read(point):
            base, reads = at(base, reads)[:, None], torch.zeros_like(reads)
            x = torch.stack([base[:, 0] + self._read_delta(edit) for edit in edits])[:, :, None]
        else:
            x = base.expand(len(edits), *base.shape).clone()
            for row, edit in zip(x, edits, strict=True):
                (row if edit.pos is None else row[:, edit.pos]).add_(edit.delta)
        logits = resume(
            self.p, self.config, x.flatten(0, 1), point, reads.repeat(len(edits))
        ).unflatten(0, (len(edits), -1))
        if self.config.read_layers is not None:
            logits = torch.where(self._left_before(point), self.logits, logits)
        return logits

    def _read_delta(self, edit: Edit) -> Tensor:
        """(example, d_model) what the edit adds at the read position: nothing where it edits
        another position.
        """
        return (
            at(edit.delta, self.reads)
            if edit.pos is None
            else edit.delta * (self.reads == edit.pos)[:, None]
        )

    def _left_before(self, point: Point) -> Tensor:
        """(d_vocab_out,) True for the output groups that are read off before `point`."""
        assert self.config.read_layers is not None and self.config.output_sizes is not None
        left = [Point(after) < point for after in self.config.read_layers]
        return torch.tensor(left, device=self.reads.device).repeat_interleave(
            torch.tensor(self.config.output_sizes, device=self.reads.device)
        )
