"""Logits and losses of a model under interventions applied together.

Cost: one forward per chunk; one more where a mean has to be computed first. The model, its weights
and its hooks are as before afterwards, after an error too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jaxtyping import Bool, Float
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions.resuming import asked
from mechint.interventions.runs import EditedRuns
from mechint.interventions.sites import Site
from mechint.interventions.values import Intervention, Mean, Zero
from mechint.models.foreign.untouched import evaluating
from mechint.models.protocol import check_edits

if TYPE_CHECKING:
    from mechint.subject import Subject
    from mechint.task import Batch


def _place(site: Site) -> int | Literal["answer"] | None:
    if isinstance(site.pos, tuple):
        raise ParameterError(
            f"{site}: expected one position, answer or none; EditedRuns has one of each row"
        )
    return site.pos


def logits_under(
    subject: Subject, interventions: Sequence[Intervention] = (), *, data: Batch | None = None
) -> Float[Tensor, "example d_vocab_out"]:
    """Logits at the answer when all `interventions` are applied.

    Args:
        data: the examples; the subject's own when None.

    Raises:
        UnknownNameError: no such hook. ParameterError: a hook that the model can only show, a
            position that an example does not have, a unit that an activation does not have, or a
            value of another width.
    """
    data = subject.data if data is None else data.to(subject.device)
    for intervention in interventions:
        subject.check_hook(intervention.site.hook)
        data.check_position(str(intervention.site), _place(intervention.site))
    check_edits(subject.model, [edit.site.hook for edit in interventions])
    filled = fill_means(subject, interventions, data)
    with evaluating(subject.model):
        runs = EditedRuns(subject.model, data.tokens, asked(subject, data)[0], engine="whole")
        return runs.under([filled])[0]


def loss_under(subject: Subject, interventions: Sequence[Intervention] = ()) -> dict[str, float]:
    """Output → mean cross-entropy at the answer (nats, float64) under the interventions; see
    `logits_under`.

    Raises:
        ParameterError: a subject without a task, which has no answer to be wrong about.
    """
    return subject.loss(logits_under(subject, interventions), asked(subject, subject.data)[1])


def fill_means(
    subject: Subject, interventions: Sequence[Intervention], data: Batch | None = None
) -> list[Intervention]:
    """The interventions, with the mean over all examples in every `Mean` that lacks one.

    Means are taken per position, counted from the first token, over the examples that have it, or
    at the answer where the site stands there.
    """
    data = subject.data if data is None else data
    lacking = [
        (index, edit)
        for index, edit in enumerate(interventions)
        if isinstance(edit, Mean) and edit.value is None
    ]
    if not lacking:
        return list(interventions)
    sums: dict[int, Tensor] = {}
    for _, edit in lacking:
        edit.site.check_position(data.tokens.shape[1])
    means = {
        index: ExampleMean(len(data), data.own_positions(_place(edit.site)))
        for index, edit in lacking
    }
    every, _ = asked(subject, data)
    hooks = {edit.site.hook for _, edit in lacking}
    for start in range(0, len(data), subject.chunk):
        rows = slice(start, start + subject.chunk)
        with evaluating(subject.model):
            runs = EditedRuns(subject.model, data.tokens[rows], every[rows], hooks, engine="whole")
        for index, edit in lacking:
            part = means[index].sum(
                edit.site.select(runs.recorded(edit.site.hook), runs.reads), rows
            )
            sums[index] = sums[index] + part if index in sums else part
    result = list(interventions)
    for index, edit in lacking:
        result[index] = Mean(edit.site, means[index].of(sums[index]))
    return result


# --- means ----------------------------------------------------------------------------------------
class ExampleMean:
    """The mean over examples of an activation that comes in chunks: at every position over the
    examples that have it, as what stands behind the end of the others is padding.

    Args:
        n: examples.
        own: which positions each example has, (example, pos), or (example,) for an activation at
            one position, as `Batch.own_positions` says; None where it is all data. At a position
            that no example has the mean is that of the padding.

    >>> import torch
    >>> own = torch.tensor([[True, True], [True, False]])
    >>> x = torch.tensor([[[1.0], [2.0]], [[5.0], [9.0]]])
    >>> mean = ExampleMean(2, own)
    >>> mean.of(mean.sum(x, slice(None))).tolist()
    [[3.0], [2.0]]
    """

    def __init__(self, n: int, own: Bool[Tensor, "example ..."] | None = None) -> None:
        self._n, self._own = n, None if own is None else own | ~own.any(0)

    def sum(self, x: Float[Tensor, "example ..."], rows: slice | Tensor) -> Float[Tensor, " ..."]:
        """([pos,] …) of the examples `rows`, whose activation is x, without padding."""
        if self._own is None:
            return x.sum(0)
        kept = self._own[rows]
        return x.where(kept.reshape(kept.shape + (1,) * (x.dim() - kept.dim())), 0).sum(0)

    def of(self, total: Float[Tensor, " ..."]) -> Float[Tensor, " ..."]:
        """The mean, or the part of it that a chunk makes, of sums ([pos,] …)."""
        if self._own is None:
            return total / self._n
        counts = self._own.sum(0)
        return total / counts.reshape(counts.shape + (1,) * (total.dim() - counts.dim()))


# --- ablation -------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ablated:
    """components: what was replaced, together; by: its mean over the examples, or zero; accuracy,
    loss: output → share right and cross-entropy (nats) without them; accuracy_before, loss_before:
    with them. Of pairs, each answer is held against the other of its pair, and margin,
    margin_before are its mean logit above that; else None.
    """

    components: tuple[str, ...]
    by: str
    accuracy: dict[str, float]
    loss: dict[str, float]
    accuracy_before: dict[str, float]
    loss_before: dict[str, float]
    margin: float | None = None
    margin_before: float | None = None

    def __str__(self) -> str:
        names = ", ".join(self.components)
        parts = [
            f"{output}: accuracy {self.accuracy_before[output]:.1%} → {self.accuracy[output]:.1%}, "
            f"loss {self.loss_before[output]:.3g} → {self.loss[output]:.3g} nats"
            for output in self.loss
        ]
        if self.margin is not None:
            parts.append(f"by pair, logit difference {self.margin_before:.3g} → {self.margin:.3g}")
        return f"without {names} (set to {'its mean' if self.by == 'mean' else 'zero'}): " + (
            "; ".join(parts)
        )


def ablate(subject: Subject, *components: str | Site, by: str = "mean") -> Ablated:
    """Accuracy and loss of `subject` with all `components` replaced together.

    Args:
        components: ``"L0H2"``, ``"L1 MLP"``, ``"L0 MLP[37]"``, ``"L0 attention @ answer"``, or
            sites.
        by: "mean", over the subject's examples, or "zero".

    Raises:
        ParameterError: no component, another way, a component that is none, or a subject without a
            task.
        UnknownNameError: the model does not have the component.

    Example:
        >>> from mechint.planted import modular_addition
        >>> found = ablate(modular_addition(5, (1,)).subject, "L0 MLP", by="zero")
        >>> found.components, found.accuracy_before
        (('L0 MLP',), {'answer': 1.0})
    """
    if not components or by not in ("mean", "zero"):
        got = f"ablate: {components!r} by {by!r}"
        raise ParameterError(f"{got}: expected components, by mean or zero")
    if subject.task is None:
        raise ParameterError(f"{subject.describe()}: no task, so there is no answer to be lost")
    kind: type[Intervention] = Mean if by == "mean" else Zero
    # a text is a site, too
    edits = [kind(component) for component in components]  # type: ignore[arg-type]
    accuracy, loss, margin = subject.scores_by_pair(logits_under(subject, edits))
    accuracy_before, loss_before, margin_before = subject.scores_by_pair()
    names = tuple(str(edit.site) for edit in edits)
    before = accuracy_before, loss_before, margin, margin_before
    return Ablated(names, by, accuracy, loss, *before)
