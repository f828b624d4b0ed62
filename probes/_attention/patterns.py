"""Attention patterns of every head, collected in chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.activations import select, slices
from mechint.subject import Subject
from mechint.task import FiniteTask, rng


@dataclass(frozen=True)
class AttentionPatterns:
    """Attention of every head, layers one after another.

    names (heads,): "L0H1"; mean (heads, query, key) over the examples that reach the query, zeros
    where none does; to_operand (heads, example, operand): from the read position; sample (examples,
    heads, query, key) of a few examples, their tokens (examples, pos) and lengths (examples,).
    """

    names: list[str]
    mean: NDArray[np.float64]
    to_operand: NDArray[np.float32]
    sample: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def causal(self) -> bool:
        """True if no query ever looks ahead."""
        return not np.triu(self.mean, 1).any()


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
    sums: dict[str, Tensor] = {}
    to_operand: dict[str, list[Tensor]] = {hook: [] for hook in hooks}
    samples: dict[str, list[Tensor]] = {hook: [] for hook in hooks}
    for some in slices(len(hooks), _layers_at_once(subject)):
        for part, streamed in subject.stream(hooks[some]):
            kept = torch.from_numpy(rows[(rows >= part.start) & (rows < part.stop)] - part.start)
            for hook, pattern in streamed.items():
                own = pattern if inside is None else pattern * inside[part][:, None, :, None]
                total = own.sum(0, dtype=torch.float64)
                sums[hook] = sums[hook] + total if hook in sums else total
                samples[hook].append(pattern[kept.to(pattern.device)])
                if operands:
                    from_answer = select(hook, pattern, subject.answer_positions[part])
                    to_operand[hook].append(from_answer[..., operands].float())
    names = [
        f"L{layer}H{head}" for layer, hook in enumerate(hooks) for head in range(len(sums[hook]))
    ]
    chosen = data[torch.from_numpy(rows).to(data.tokens.device)]
    reach = np.full(ctx, n) if inside is None else inside.sum(0).cpu().numpy()
    return AttentionPatterns(
        names,
        torch.cat([sums[hook] for hook in hooks]).cpu().numpy() / np.maximum(reach, 1)[:, None],
        torch.cat([torch.cat(parts).transpose(0, 1) for parts in to_operand.values()]).cpu().numpy()
        if operands
        else np.zeros((len(names), 0, 0), np.float32),
        torch.cat([torch.cat(parts) for parts in samples.values()], 1).cpu().numpy(),
        chosen.tokens.cpu().numpy(),
        np.full(len(rows), ctx) if chosen.lengths is None else chosen.lengths.cpu().numpy(),
    )
