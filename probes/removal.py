"""Causal tests by removal: the loss without a part of the embedding, the neurons or W_U.

A spectrum says where a model's energy is, not what the model needs. Here directions over the
group's elements (frequencies, representations) are projected out of weights or activations, and
the loss is taken again, in nats, mean over the outputs, on all of the subject's data.

Cost: one forward per removal from the embedding; a projection and an unembedding per removal from
the last layer's neurons; a projection per removal from the unembedding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from mechint.models import forward
from mechint.models.at_positions import forward_at, supports
from mechint.subject import Subject
from mechint.task import IGNORE
from probes.fourier.spectra import Array


def mean_loss(
    subject: Subject, logits: Float[Tensor, "example d_vocab_out"], targets: Tensor
) -> float:
    """Cross-entropy in nats of logits at the answer, each output alone, then averaged; float64."""
    assert subject.task is not None
    losses = [
        F.cross_entropy(logits[:, part].double(), targets[:, i], ignore_index=IGNORE)
        for i, part in enumerate(subject.task.output_slices.values())
        if bool((targets[:, i] != IGNORE).any())
    ]
    return float(torch.stack(losses).mean())


# --- the embedding --------------------------------------------------------------------------------
@dataclass(frozen=True)
class EmbeddingRemoval:
    """The subject without some directions of its embedding.

    operands: the tokens of the group's elements, in the order of the directions' columns; several
    lists where the operands have embeddings of their own.
    """

    subject: Subject
    operands: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, subject: Subject, *operands: Sequence[int]) -> EmbeddingRemoval | None:
        """None where the model has no token embedding that can be edited."""
        embedding = getattr(subject.model, "W_E", None)
        if embedding is None or not (supports(subject.model) or _hooked(subject)):
            return None
        return cls(subject, tuple(dict.fromkeys(tuple(tokens) for tokens in operands)))

    def loss(self, directions: Float[Array, "direction element"]) -> float:
        """The loss with the orthonormal `directions` projected out of the rows of W_E."""
        return mean_loss(self.subject, self._logits(self._change(directions)), self.subject.targets)

    def _change(self, directions: Array) -> Tensor:
        """(d_vocab, d_model) what is added to W_E."""
        weights = self.subject.model.W_E.detach()
        basis = torch.from_numpy(directions).to(weights.device, torch.float64)
        change = torch.zeros_like(weights, dtype=torch.float64)
        for tokens in self.operands:
            rows = weights[list(tokens)].double()  # (element, d_model)
            change[list(tokens)] = -basis.T @ (basis @ rows)
        return change.to(weights.dtype)

    def _logits(self, change: Tensor) -> Tensor:
        subject = self.subject
        edited = {"embed.W_E": subject.model.W_E.detach() + change}
        fast = supports(subject.model)
        parts = []
        for part in _slices(subject):
            data = subject.data[part]
            if fast:
                parts.append(
                    forward_at(subject.model, data.tokens, subject.read, weights=edited)[0]
                )
            else:
                hook = partial(_add_to_embedding, change[data.tokens])
                parts.append(subject.logits(data, hooks=[("hook_embed", hook)]))
        return torch.cat(parts)


def _hooked(subject: Subject) -> bool:
    return "hook_embed" in subject.model.hook_dict


def _add_to_embedding(change: Tensor, activation: Tensor, hook: Any) -> Tensor:
    return activation + change.to(activation.dtype)


def _slices(subject: Subject) -> Iterator[slice]:
    for start in range(0, len(subject.data), subject.chunk):
        yield slice(start, min(start + subject.chunk, len(subject.data)))


# --- neurons and unembedding ----------------------------------------------------------------------
@dataclass(frozen=True)
class NeuronRemoval:
    """The subject without functions of the two operands that the last layer's neurons compute.

    Taking a function of the inputs out of every neuron takes it out of what the MLP writes, so that
    only its output and the final residual stream at the answer are needed, (example, d_model).
    """

    subject: Subject
    written: Tensor
    residual: Tensor

    @classmethod
    def of(cls, subject: Subject) -> NeuronRemoval | None:
        """None where the final residual stream cannot be unembedded alone, or there is no MLP."""
        last = subject.n_layers - 1
        names = [f"blocks.{last}.hook_mlp_out", f"blocks.{last}.hook_resid_post"]
        if not supports(subject.model, names):
            return None
        parts: dict[str, list[Tensor]] = {name: [] for name in names}
        for part in _slices(subject):
            tokens = subject.data[part].tokens
            for name, value in forward_at(subject.model, tokens, subject.read, names)[1].items():
                parts[name].append(value)
        return cls(subject, *(torch.cat(parts[name]) for name in names))

    def loss(self, waves: Float[Array, "wave element"], order: Int[Array, " element"]) -> float:
        """The loss without all products of two of the orthonormal `waves` (the constant is added to
        them) over the grid of operands, the constant itself kept.

        order: tokens of the elements in the order of the waves' columns.
        """
        subject, n = self.subject, len(order)
        constant = torch.full((1, n), n**-0.5, dtype=torch.float64)
        basis = torch.cat([constant, torch.from_numpy(waves)])[:, torch.from_numpy(order.argsort())]
        basis = basis.to(self.written.device)
        grid = subject.grid(self.written)[:n, :n].double()  # (x, y, d_model)
        parts = torch.einsum("ix,jy,xyd->ijd", basis, basis, grid)
        parts[0, 0] = 0
        removed = torch.einsum("ix,jy,ijd->xyd", basis, basis, parts).to(self.residual.dtype)
        edited = subject.grid(self.residual).clone()
        edited[:n, :n] -= removed
        with torch.no_grad():
            model = subject.model
            logits = forward.unembed(model.weights(), model.config, edited.flatten(0, 1))
        return mean_loss(subject, logits, subject.targets)


def loss_without_classes(
    subject: Subject, directions: Float[Array, "direction element"], columns: Sequence[int]
) -> float:
    """The loss with orthonormal directions over the classes projected out of the unembedding, its
    bias too; `columns` are the logits of the elements in the order of the directions' columns.
    """
    basis = torch.from_numpy(directions).to(subject.device)
    columns = list(columns)
    logits = subject.logits().double().clone()  # (example, d_vocab_out)
    logits[:, columns] -= (logits[:, columns] @ basis.T) @ basis
    return mean_loss(subject, logits, subject.targets)
