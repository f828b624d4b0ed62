"""Causal tests by removal: the loss without a part of the embedding, the neurons or W_U.

A spectrum says where a model's energy is, not what the model needs. Here directions over the
group's elements (frequencies, representations) are projected out of weights or activations, and
the loss is taken again, in nats, mean over the outputs, on all of the subject's data.

Cost: one forward per removal from the embedding; a projection and an unembedding per removal from
the last layer's neurons; a projection per removal from the unembedding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from einops import einsum
from jaxtyping import Float, Int
from torch import Tensor

from mechint.models.at_positions import AtPositions, supports
from mechint.models.forward import Forward
from mechint.subject import Subject
from mechint.task import IGNORE
from probes.fourier.spectra import Array
from probes.operands import embedded


def mean_loss(
    subject: Subject,
    logits: Float[Tensor, "example d_vocab_out"],
    targets: Int[Tensor, "example output"],
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
    lists where the operands have different tokens.
    """

    subject: Subject
    operands: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, subject: Subject, *operands: Sequence[int]) -> EmbeddingRemoval | None:
        """None where the model's embedding of the operands cannot be edited."""
        if not (supports(subject.model) or "hook_embed" in subject.model.hook_dict):
            return None
        return cls(subject, tuple(dict.fromkeys(tuple(tokens) for tokens in operands)))

    def loss(
        self,
        directions: Float[Array, "direction element"],
        targets: Int[Tensor, "example output"] | None = None,
    ) -> float:
        """The loss with the orthonormal `directions` projected out of the operands' embedding;
        against `targets` (example, output) in place of the subject's.
        """
        basis = torch.tensor(directions, device=self.subject.device, dtype=torch.float64)
        fast = supports(self.subject.model) and self.subject.answer != "all"
        logits = self._with_edited_weights(basis) if fast else self._with_hook(basis)
        return mean_loss(self.subject, logits, self.subject.targets if targets is None else targets)

    def _with_edited_weights(self, basis: Tensor) -> Tensor:
        subject = self.subject
        weights = subject.model.W_E.detach().clone()
        for rows in self._rows:
            weights[rows] -= _within(basis, weights[rows])
        edited = {"embed.W_E": weights}
        return torch.cat([part.forward(weights=edited)[0] for part in self._forwards])

    @cached_property
    def _rows(self) -> list[Tensor]:
        return [torch.tensor(tokens, device=self.subject.device) for tokens in self.operands]

    @cached_property
    def _forwards(self) -> list[AtPositions]:
        subject = self.subject
        where = subject.answer_positions.clamp(min=0)
        return [
            AtPositions(subject.model, subject.data[part].tokens, where[part])
            for part in _slices(subject)
        ]

    def _with_hook(self, basis: Tensor) -> Tensor:
        subject = self.subject
        tables = {tokens: self._embedded[tokens] for tokens in self.operands}
        parts = []
        for part in _slices(subject):
            data = subject.data[part]

            def remove(activation: Tensor, hook: Any, seen: Tensor = data.tokens) -> Tensor:
                activation = activation.clone()
                for tokens, table in tables.items():
                    slot = _slots(tokens, seen)  # (example, pos)
                    for position, rows in table.items():
                        change = torch.cat([_within(basis, rows), torch.zeros_like(rows[:1])])
                        activation[:, position] -= change[slot[:, position]]
                return activation

            parts.append(subject.logits(data, hooks=[("hook_embed", remove)]))
        return torch.cat(parts)

    @cached_property
    def _embedded(self) -> dict[tuple[int, ...], dict[int, Tensor]]:
        return {tokens: embedded(self.subject, tokens) for tokens in self.operands}


def random_directions(
    basis: Float[Array, "direction element"], count: int, generator: np.random.Generator
) -> Float[Array, "drawn element"]:
    """`count` random orthonormal directions in the span of the orthonormal `basis`; all of it where
    it has fewer.

    >>> random_directions(np.eye(5)[:3], 2, np.random.default_rng(0)).round(12)[:, 3:].tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """
    if count >= len(basis):
        return basis
    drawn = torch.from_numpy(generator.standard_normal((len(basis), count)))
    # by torch, as the forwards between two draws: two libraries' threads wait for each other
    return (torch.linalg.qr(drawn)[0].T @ torch.from_numpy(basis)).numpy()


def null_rises(
    edited: EmbeddingRemoval,
    others: Float[Array, "direction element"],
    count: int,
    samples: int,
    generator: np.random.Generator,
    targets: Tensor | None = None,
) -> Float[Array, " sample"]:
    """Losses without `count` random directions in the span of `others`: what as many directions
    that nobody named are worth.
    """
    drawn = (random_directions(others, count, generator) for _ in range(samples))
    return np.array([edited.loss(directions, targets) for directions in drawn])


def _within(basis: Tensor, rows: Tensor) -> Tensor:
    """The part of rows (element, d_model) in the span of basis (direction, element)."""
    return (basis.T @ (basis @ rows.double())).to(rows.dtype)


def _slots(tokens: Sequence[int], seen: Tensor) -> Tensor:
    """Which of `tokens` each token seen is; -1 where it is none."""
    slots = torch.full((max(int(seen.max()), *tokens) + 1,), -1, device=seen.device)
    slots[list(tokens)] = torch.arange(len(tokens), device=seen.device)
    return slots[seen]


def _slices(subject: Subject) -> Iterator[slice]:
    for start in range(0, len(subject.data), subject.chunk):
        yield slice(start, min(start + subject.chunk, len(subject.data)))


# --- neurons and unembedding ----------------------------------------------------------------------
@dataclass(frozen=True)
class NeuronRemoval:
    """The subject without functions of the two operands that the last layer's neurons compute.

    neurons: their activations at the answer, (example, d_mlp). Where the model allows it, only the
    MLP's output and the final residual stream at the answer are needed, (example, d_model) each:
    taking a function of the inputs out of every neuron takes it out of what the MLP writes.
    """

    subject: Subject
    hook: str
    activation: Tensor
    residual: Tensor | None

    @classmethod
    def of(cls, subject: Subject) -> NeuronRemoval | None:
        """None where the model has no neurons."""
        last = f"blocks.{subject.n_layers - 1}"
        post, written = f"{last}.mlp.hook_post", f"{last}.hook_mlp_out"
        if post not in subject.model.hook_dict or subject.answer == "all":
            return None
        if supports(subject.model, [written]):
            found = subject.activations([written, f"{last}.hook_resid_post"], at="answer")
            return cls(subject, written, *found.values())
        return cls(subject, post, subject.activation(post, at="answer"), None)

    def loss(self, waves: Float[Array, "wave element"], order: Int[Array, " element"]) -> float:
        """The loss without all products of two of the orthonormal `waves` (the constant is added to
        them) over the grid of operands, the constant itself kept.

        order: tokens of the elements in the order of the waves' columns.
        """
        subject, removed = self.subject, self._removed(waves, order)
        if self.residual is not None:
            model = subject.model
            with torch.no_grad():
                logits = Forward(model.weights(), model.config).unembed(self.residual - removed)
        else:
            logits = torch.cat([self._hooked(removed, part) for part in _slices(subject)])
        return mean_loss(subject, logits, subject.targets)

    def _removed(self, waves: Array, order: Array) -> Tensor:
        """(example, width) the part of the activation in the products of waves."""
        n = len(order)
        constant = torch.full((1, n), n**-0.5, dtype=torch.float64)
        basis = torch.cat([constant, torch.tensor(waves)])[:, torch.from_numpy(order.argsort())]
        basis = basis.to(self.activation.device)
        grid = self.subject.grid(self.activation)
        parts = einsum(basis, basis, grid[:n, :n].double(), "i x, j y, x y d -> i j d")
        parts[0, 0] = 0
        removed = torch.zeros_like(grid)
        removed[:n, :n] = einsum(basis, basis, parts, "i x, j y, i j d -> x y d").to(grid.dtype)
        return removed.flatten(0, 1)

    def _hooked(self, removed: Tensor, part: slice) -> Tensor:
        subject = self.subject
        where = subject.answer_positions[part]

        def subtract(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            examples = torch.arange(len(activation), device=activation.device)
            activation[examples, where] -= removed[part]
            return activation

        return subject.logits(subject.data[part], hooks=[(self.hook, subtract)])


@dataclass(frozen=True)
class NeuronsAtMean:
    """The subject with some neurons of `hook`, the last layer's, at their `mean` (neuron,) at the
    answer.
    """

    subject: Subject
    hook: str
    mean: Tensor

    @cached_property
    def _recorded(self) -> tuple[Tensor, Tensor] | None:
        """Neurons and final residual stream at the answer, where the model allows the short cut."""
        names = [self.hook, self.hook.replace("mlp.hook_post", "hook_resid_post")]
        if not supports(self.subject.model, names) or self.subject.answer == "all":
            return None
        neurons, residual = self.subject.activations(names, at="answer").values()
        return neurons, residual

    def loss(self, neurons: Int[Array, " chosen"]) -> float:
        """The loss with the neurons of these indices at their mean."""
        subject, chosen = self.subject, torch.from_numpy(neurons).to(self.subject.device)
        if self._recorded is None:
            logits = subject.logits(hooks=[(self.hook, self._replace_with_mean(chosen))])
        else:
            values, residual = self._recorded
            model = subject.model
            layer = int(self.hook.split(".")[1]) % model.config.n_layers
            written = model.weights()[f"blocks.{layer}.mlp.W_out"]
            with torch.no_grad():
                lost = (values[:, chosen] - self.mean[chosen]) @ written[chosen]
                logits = Forward(model.weights(), model.config).unembed(residual - lost)
        return mean_loss(subject, logits, subject.targets)

    def _replace_with_mean(self, chosen: Tensor) -> Callable[[Tensor, Any], Tensor]:
        def replace(activation: Tensor, hook: Any) -> Tensor:
            activation = activation.clone()
            activation[..., chosen] = self.mean[chosen].to(activation.dtype)
            return activation

        return replace


def loss_without_classes(
    subject: Subject,
    directions: Float[Array, "direction element"],
    columns: Sequence[int],
    targets: Int[Tensor, "example output"] | None = None,
) -> float:
    """The loss with orthonormal directions over the classes projected out of the unembedding, its
    bias too; `columns` are the logits of the elements in the order of the directions' columns.
    """
    basis = torch.tensor(directions, device=subject.device)
    chosen = torch.tensor(columns, device=subject.device)
    logits = subject.logits().double()  # (example, d_vocab_out)
    ordered = logits.index_select(1, chosen)
    logits = logits.index_copy(1, chosen, ordered - (ordered @ basis.T) @ basis)
    return mean_loss(subject, logits, subject.targets if targets is None else targets)
