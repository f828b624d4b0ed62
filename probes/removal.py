"""Causal tests by removal: the loss without a part of the embedding or of W_U.

A spectrum says where a model's energy is, not what the model needs. Here directions over the
group's elements (frequencies, representations) are projected out of weights, and the loss is taken
again, in nats, mean over the outputs, on all of the subject's data. `neuron_removal` takes them out
of the last layer's neurons.

Cost: one forward per removal from the embedding, several removals at once where the data is small;
a projection per removal from the unembedding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.activations import slices
from mechint.models.at_positions import AtPositions, supports
from mechint.subject import Subject
from mechint.task import IGNORE
from probes._fourier.spectra import Array
from probes.operands import embedded


def mean_loss(
    subject: Subject,
    logits: Float[Tensor, "example d_vocab_out"],
    targets: Int[Tensor, "example output"],
) -> float:
    """Cross-entropy in nats of logits at the answer, each output alone, then averaged; float64."""
    return float(mean_losses(subject, logits.unsqueeze(0), targets))


def mean_losses(
    subject: Subject,
    logits: Float[Tensor, "model example d_vocab_out"],
    targets: Int[Tensor, "example output"],
) -> Float[Tensor, " model"]:
    """`mean_loss` of several models' logits."""
    assert subject.task is not None
    losses = []
    for i, part in enumerate(subject.task.output_slices.values()):
        answered = (targets[:, i] != IGNORE).nonzero().flatten()
        if len(answered):
            likely = logits[:, answered, part].double().log_softmax(-1)
            answers = targets[answered, i].expand(len(logits), -1).unsqueeze(-1)
            losses.append(-likely.gather(-1, answers).mean((1, 2)))
    return torch.stack(losses).mean(0)


# --- the embedding --------------------------------------------------------------------------------
AT_ONCE = 4096
"""Examples of one forward, over all removals that it has: more of them gain nothing."""


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
        return float(self.losses(np.asarray(directions)[None], targets)[0])

    def losses(
        self,
        directions: Float[Array, "removal direction element"],
        targets: Int[Tensor, "example output"] | None = None,
    ) -> Float[Array, " removal"]:
        """The `loss` of several removals, of as many directions each."""
        bases = torch.tensor(directions, device=self.subject.device, dtype=torch.float64)
        fast = supports(self.subject.model) and self.subject.answer != "all"
        answers = self.subject.targets if targets is None else targets
        losses = []
        for some in bases.split(self.at_once):
            logits = (
                self._with_edited_weights(some)
                if fast
                else torch.stack([self._with_hook(basis) for basis in some])
            )
            losses.append(mean_losses(self.subject, logits, answers))
        return torch.cat(losses).cpu().numpy()

    @property
    def at_once(self) -> int:
        """How many removals one forward has."""
        return max(1, min(AT_ONCE, self.subject.chunk) // max(1, len(self.subject.data)))

    def _with_edited_weights(self, bases: Tensor) -> Tensor:
        """Logits (removal, example, d_vocab_out)."""
        weights = self.subject.model.W_E.detach().repeat(len(bases), 1, 1)
        for rows in self._rows:
            weights[:, rows] -= _within(bases, weights[:, rows])
        edited = {"embed.W_E": weights}
        return torch.cat([part.logits_each(edited) for part in self._forwards], 1)

    @cached_property
    def _rows(self) -> list[Tensor]:
        return [torch.tensor(tokens, device=self.subject.device) for tokens in self.operands]

    @cached_property
    def _forwards(self) -> list[AtPositions]:
        subject = self.subject
        where = subject.answer_positions.clamp(min=0)
        return [
            AtPositions(subject.model, subject.data[part].tokens, where[part])
            for part in slices(len(subject.data), subject.chunk)
        ]

    def _with_hook(self, basis: Tensor) -> Tensor:
        subject = self.subject
        tables = {tokens: self._embedded[tokens] for tokens in self.operands}
        parts = []
        for part in slices(len(subject.data), subject.chunk):
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
    basis: Float[Array, "direction element"],
    count: int,
    samples: int,
    generator: np.random.Generator,
) -> Float[Array, "sample drawn element"]:
    """`samples` times `count` random orthonormal directions in the span of the orthonormal `basis`;
    all of it where it has fewer.

    >>> random_directions(np.eye(5)[:3], 2, 1, np.random.default_rng(0)).round(12)[..., 3:].tolist()
    [[[0.0, 0.0], [0.0, 0.0]]]
    """
    if count >= len(basis):
        return np.repeat(basis[None], samples, 0)
    drawn = torch.from_numpy(generator.standard_normal((samples, len(basis), count)))
    # by torch, as the forwards between two draws: two libraries' threads wait for each other
    return (torch.linalg.qr(drawn)[0].mT @ torch.tensor(basis)).numpy()


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
    losses = []
    for start in range(0, samples, edited.at_once):
        several = min(edited.at_once, samples - start)
        drawn = random_directions(others, count, several, generator)
        losses.append(edited.losses(drawn, targets))
    return np.concatenate(losses)


def _within(basis: Tensor, rows: Tensor) -> Tensor:
    """The part of rows (..., element, d_model) in the span of basis (..., direction, element)."""
    return (basis.mT @ (basis @ rows.double())).to(rows.dtype)


def _slots(tokens: Sequence[int], seen: Tensor) -> Tensor:
    """Which of `tokens` each token seen is; -1 where it is none."""
    slots = torch.full((max(int(seen.max()), *tokens) + 1,), -1, device=seen.device)
    slots[list(tokens)] = torch.arange(len(tokens), device=seen.device)
    return slots[seen]


# --- the unembedding ------------------------------------------------------------------------------
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
