"""Attention patterns of every head, collected in chunks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from mechint.activations import select
from mechint.subject import Subject
from mechint.task import FiniteTask, rng
from probes.fourier.spectra import Array


@dataclass(frozen=True)
class Patterns:
    """Attention of every head, layers one after another.

    names (heads,): "L0H1"; mean (heads, query, key) over the data; argmax (heads, query, key): how
    often a key got most; to_operand (heads, example, operand): from the read position; sample
    (examples, heads, query, key) of a few examples, their tokens (examples, pos) and lengths
    (examples,).
    """

    names: list[str]
    mean: Array
    argmax: Array
    to_operand: NDArray[np.float32]
    sample: NDArray[np.float32]
    tokens: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @property
    def causal(self) -> bool:
        """Whether no query ever looks ahead."""
        return not np.triu(self.mean, 1).any()


@dataclass
class _Layer:
    mean: Tensor
    argmax: Tensor
    operands: list[Tensor] = field(default_factory=list)
    sample: list[Tensor] = field(default_factory=list)


def kept_rows(subject: Subject, examples: int, seed: int) -> Int[np.ndarray, " row"]:
    """The examples kept whole, ascending: drawn at random from all inputs of a finite task, which
    stand in order; the first of a generated one, which are random as they come.
    """
    n = len(subject.data)
    if n <= examples or not isinstance(subject.task, FiniteTask):
        return np.arange(min(n, examples))
    return np.sort(rng("attention examples", seed).permutation(n)[:examples])


def collect(subject: Subject, operands: list[int], rows: Int[np.ndarray, " row"]) -> Patterns:
    """The patterns of all heads over the subject's data; those of the examples `rows` are kept
    whole.

    Cost: one forward over the data a layer. Memory: one chunk of one layer's patterns, within the
    subject's limit.
    """
    data = subject.data
    n, ctx = data.tokens.shape
    layers = []
    for layer in range(subject.n_layers):
        found: _Layer | None = None
        hook = f"blocks.{layer}.attn.hook_pattern"
        for part, streamed in subject.stream([hook]):
            pattern = streamed[hook]
            heads = pattern.shape[1]
            if found is None:
                zero = torch.zeros(heads, ctx, ctx, dtype=torch.float64, device=pattern.device)
                found = _Layer(zero, zero.clone())
            found.mean += pattern.sum(0, dtype=torch.float64)
            found.argmax += torch.nn.functional.one_hot(pattern.argmax(-1), ctx).sum(0)
            if operands:
                from_answer = select(hook, pattern, subject.answer_positions[part])
                found.operands.append(from_answer[..., operands].float())
            here = rows[(rows >= part.start) & (rows < part.stop)] - part.start
            if len(here):
                found.sample.append(pattern[torch.from_numpy(here).to(pattern.device)].float())
        assert found is not None
        layers.append(found)
    names = [
        f"L{layer}H{head}" for layer, found in enumerate(layers) for head in range(len(found.mean))
    ]
    to_operand = [torch.cat(found.operands).transpose(0, 1) for found in layers if operands]
    kept = data[torch.from_numpy(rows).to(data.tokens.device)]
    whole = np.full(len(rows), ctx)
    return Patterns(
        names,
        torch.cat([found.mean for found in layers]).cpu().numpy() / n,
        torch.cat([found.argmax for found in layers]).cpu().numpy() / n,
        torch.cat(to_operand).cpu().numpy()
        if operands
        else np.zeros((len(names), 0, 0), np.float32),
        torch.cat([torch.cat(found.sample) for found in layers], 1).cpu().numpy(),
        kept.tokens.cpu().numpy(),
        whole if kept.lengths is None else kept.lengths.cpu().numpy(),
    )
