"""Attention patterns of every head, collected in chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.activations import select, slices
from mechint.subject import Subject
from mechint.task import FiniteTask, rng


@dataclass(frozen=True)
class AttentionPatterns:
    """Attention of every head, layers one after another.

    names (heads,): "L0H1"; mean (heads, query, key) over the examples that reach the query, zeros
    where none does; argmax (heads, query, key): how often among them a key got most; to_operand
    (heads, example, operand): from the read position; sample (examples, heads, query, key) of a few
    examples, their tokens (examples, pos) and lengths (examples,).
    """

    names: list[str]
    mean: NDArray[np.float64]
    argmax: NDArray[np.float64]
    to_operand: NDArray[np.float32]
    sample: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def causal(self) -> bool:
        """True if no query ever looks ahead."""
        return not np.triu(self.mean, 1).any()


@dataclass
class _Layer:
    """Sums over the examples of one layer's patterns, and those that are kept whole."""

    mean: Tensor
    argmax: Tensor
    sample: Tensor
    operands: list[Tensor] = field(default_factory=list)

    @classmethod
    def of(cls, pattern: Float[Tensor, "example head query key"], kept: int) -> _Layer:
        zero = torch.zeros_like(pattern[0], dtype=torch.float64)
        sample = torch.empty(kept, *pattern.shape[1:], device=pattern.device)
        return cls(zero, zero.clone(), sample)

    def add(
        self,
        pattern: Float[Tensor, "example head query key"],
        part: slice,
        rows: Int[np.ndarray, " row"],
        inside: Bool[Tensor, "example query"] | None,
    ) -> None:
        """Add the examples `part`, their queries `inside` alone where padding follows these; the
        examples of them that are among `rows` are kept whole.
        """
        most = pattern.argmax(-1).permute(1, 2, 0)  # (head, query, example)
        if inside is None:
            self.mean += pattern.sum(0, dtype=torch.float64)
            self.argmax.scatter_add_(-1, most, self.argmax.new_ones(()).expand_as(most))
        else:
            self.mean += (pattern * inside[:, None, :, None]).sum(0, dtype=torch.float64)
            self.argmax.scatter_add_(-1, most, inside.T.to(self.argmax).expand_as(most))
        for place, row in enumerate(rows.tolist()):
            if part.start <= row < part.stop:
                self.sample[place] = pattern[row - part.start]


def kept_rows(subject: Subject, examples: int, seed: int) -> Int[np.ndarray, " row"]:
    """The examples kept whole, ascending: drawn at random from all inputs of a finite task, which
    stand in order; the first of a generated one, which are random as they come.
    """
    n = len(subject.data)
    if n <= examples or not isinstance(subject.task, FiniteTask):
        return np.arange(min(n, examples))
    return np.sort(rng("attention examples", seed).permutation(n)[:examples])


def _layers_at_once(subject: Subject) -> int:
    """Layers whose patterns of one example fit an eighth of the subject's memory, at least one."""
    ctx = subject.data.tokens.shape[1]
    each = 4 * (subject.model_description.n_heads or 1) * ctx * ctx
    return max(1, subject.memory // (8 * each))


def collect(
    subject: Subject, operands: list[int], rows: Int[np.ndarray, " row"]
) -> AttentionPatterns:
    """The patterns of all heads over the subject's data; those of the examples `rows` are kept
    whole.

    Cost: one forward over the data for as many layers as the patterns of one example fit an eighth
    of the subject's memory, mostly all. Memory: one chunk of patterns, and the examples kept.
    """
    data = subject.data
    n, ctx = data.tokens.shape
    inside = data.own_positions()
    hooks = [f"blocks.{layer}.attn.hook_pattern" for layer in range(subject.n_layers)]
    found: dict[str, _Layer] = {}
    for some in slices(len(hooks), _layers_at_once(subject)):
        for part, streamed in subject.stream(hooks[some]):
            for hook, pattern in streamed.items():
                if hook not in found:
                    found[hook] = _Layer.of(pattern, len(rows))
                found[hook].add(pattern, part, rows, None if inside is None else inside[part])
                if operands:
                    from_answer = select(hook, pattern, subject.answer_positions[part])
                    found[hook].operands.append(from_answer[..., operands].float())
    layers = list(found.values())
    names = [
        f"L{index}H{head}" for index, layer in enumerate(layers) for head in range(len(layer.mean))
    ]
    to_operand = [torch.cat(layer.operands).transpose(0, 1) for layer in layers if operands]
    kept = data[torch.from_numpy(rows).to(data.tokens.device)]
    whole = np.full(len(rows), ctx)
    reach = np.full(ctx, n) if inside is None else inside.sum(0).cpu().numpy()
    of_query = np.maximum(reach, 1)[:, None]
    return AttentionPatterns(
        names,
        torch.cat([layer.mean for layer in layers]).cpu().numpy() / of_query,
        torch.cat([layer.argmax for layer in layers]).cpu().numpy() / of_query,
        torch.cat(to_operand).cpu().numpy()
        if operands
        else np.zeros((len(names), 0, 0), np.float32),
        torch.cat([layer.sample for layer in layers], 1).cpu().numpy(),
        kept.tokens.cpu().numpy(),
        whole if kept.lengths is None else kept.lengths.cpu().numpy(),
    )
