"""The worth of single singular directions of a head's circuits: the loss with each at its mean.

With W_V W_O = U S Vᵀ, direction i of the OV circuit is the i-th column of V, along which the head
writes to the residual stream; with W_Q W_Kᵀ = U S Vᵀ, direction i of the QK circuit is the i-th
column of U, along which its queries read the stream. The coordinate along the direction is set to
its mean over examples and the positions that they have, without padding. The control makes the same
change, example by example and position by position, along a random direction of the residual
stream: a change of the same size.

Cost: one forward per direction, and one per direction and random direction; those that fit
`subject.memory` share one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from mechint.interventions import Add, Intervention, RecordedForward, Site
from mechint.interventions.resuming import asked
from mechint.null import family_wise
from mechint.progress import counting_within
from mechint.subject import Subject
from mechint.task import rng
from probes import removal
from probes._weights.circuits import Heads
from probes.ties import tied

AT_ONCE = 32
"""Changes of one forward."""


@dataclass(frozen=True)
class Direction:
    """One singular direction of one head's circuit; `share` is of the sum of squared singular
    values.
    """

    head: int
    circuit: str
    index: int
    value: float
    share: float


@dataclass(frozen=True)
class Removals:
    """Rise of the loss in nats with each direction at its mean, and with as much taken away along
    random directions: rise (direction,), random (direction, draw).
    """

    directions: list[Direction]
    rise: Float[np.ndarray, " direction"]
    random: Float[np.ndarray, "direction draw"]
    loss: float
    examples: int

    @property
    def null(self) -> Float[np.ndarray, " draw"]:
        """The largest rise over all directions of each draw."""
        return self.random.max(0)

    @property
    def p_values(self) -> Float[np.ndarray, " direction"]:
        """Corrected for the number of directions."""
        return family_wise(self.rise, self.null)


def leading(heads: Heads, count: int) -> list[Direction]:
    """The `count` largest singular directions of both circuits of every head, but not zeros."""
    found = []
    for circuit, matrix in (("OV", heads.ov), ("QK", heads.qk)):
        for head, values in enumerate(matrix.S):
            total = float(values.square().sum())
            found += [
                Direction(head, circuit, index, value, value**2 / total)
                for index, value in enumerate(values[:count].tolist())
                if value > 1e-9 * max(1e-150, float(values[0])) and total > 1e-18
            ]
    return sorted(found, key=lambda one: (one.head, one.circuit, one.index))


def as_large(heads: Heads, one: Direction) -> list[int]:
    """Other directions of the same circuit whose singular values tie with this one's: together they
    are no more than a basis, and any other of what they span is as valid.
    """
    values = (heads.ov if one.circuit == "OV" else heads.qk).S[one.head].cpu().numpy()
    (tie,) = (group for group in tied(values) if one.index in group)
    return [index for index in tie if index != one.index]


def removals(
    subject: Subject, heads: Heads, directions: list[Direction], draws: int, n: int, seed: int
) -> Removals:
    """Take every direction out of the subject's forwards on `n` of its examples."""
    draw = rng("weights directions", seed)
    some = torch.from_numpy(np.sort(draw.permutation(len(subject.data))[:n]))
    subject = subject.with_data(subject.data[some.to(subject.device)]).with_answer(
        -1 if subject.answer == "all" else subject.answer
    )
    positions, targets = asked(subject, subject.data)
    names = sorted({name for one in directions for name in _hooks(heads, one)})
    recorded = RecordedForward(subject.model, subject.data.tokens, positions, names, subject.memory)
    base = removal.mean_loss(subject, recorded.logits, targets)
    own = subject.data.own_positions()
    rises = np.empty((len(directions), 1 + draws))
    with counting_within("directions") as count:
        for row, one in enumerate(directions):
            count(row, len(directions))
            random = F.normalize(
                torch.from_numpy(draw.standard_normal((draws, heads.o.shape[-1]))), dim=1
            )
            logits = _logits(recorded, list(_changes(recorded, heads, one, random, own)))
            rises[row] = [removal.mean_loss(subject, each, targets) - base for each in logits]
    return Removals(directions, rises[:, 0], rises[:, 1:], base, len(subject.data))


def _logits(recorded: RecordedForward, changes: list[Intervention]) -> Iterator[Tensor]:
    """Logits under each change alone, a few at a time."""
    for start in range(0, len(changes), AT_ONCE):
        yield from recorded.under(changes[start : start + AT_ONCE])


def _hooks(heads: Heads, one: Direction) -> list[str]:
    at = f"blocks.{heads.places[one.head][0]}"
    return [f"{at}.attn.hook_z"] if one.circuit == "OV" else [f"{at}.attn.hook_q"]


def _changes(
    recorded: RecordedForward,
    heads: Heads,
    one: Direction,
    random: Tensor,
    own: Bool[Tensor, "example pos"] | None = None,
) -> Iterator[Intervention]:
    """The change along the direction, then along each of random (draw, d_model); `own` as
    `Batch.own_positions`.
    """
    layer, head = heads.places[one.head]
    (name,) = _hooks(heads, one)
    activation = recorded.activations[name][:, :, head]  # (example, pos, d_head)
    along, out = _coordinate(heads, one)
    coordinate = activation.double() @ along.to(activation.device)  # (example, pos)
    away = (coordinate if own is None else coordinate[own]).mean() - coordinate
    for direction in (out, *random):
        if one.circuit == "OV":
            delta = away[..., None] * direction.to(away)
            yield Add(Site.attention(layer), delta.to(activation.dtype))
        else:
            asked_by = direction.to(away) @ heads.q[one.head].to(away)  # (d_head,)
            delta = away[..., None, None] * asked_by
            yield Add(Site(name, units=(head,)), delta.to(activation.dtype))


def _coordinate(heads: Heads, one: Direction) -> tuple[Tensor, Tensor]:
    """The vector that gives the coordinate from z or q, (d_head,), and the direction (d_model,).

    Of OV: z W_O v. Of QK: u lies in the columns of W_Q, u = W_Q c, so that x u = (x W_Q) c.
    """
    if one.circuit == "OV":
        direction = heads.ov.V[one.head, :, one.index]
        return heads.o[one.head] @ direction, direction
    direction = heads.qk.U[one.head, :, one.index]
    return torch.linalg.pinv(heads.q[one.head]) @ direction, direction
