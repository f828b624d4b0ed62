"""Ablate named components and read what the model still answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechint.errors import ParameterError
from mechint.interventions.effects import logits_under
from mechint.interventions.sites import Site
from mechint.interventions.values import Intervention, Mean, Zero

if TYPE_CHECKING:
    from mechint.subject import Subject

WAYS = ("mean", "zero")


@dataclass(frozen=True)
class Ablated:
    """components: what was replaced, together; by: its mean over the examples, or zero; accuracy,
    loss: output → share right and cross-entropy (nats) without them; accuracy_before, loss_before:
    with them.
    """

    components: tuple[str, ...]
    by: str
    accuracy: dict[str, float]
    loss: dict[str, float]
    accuracy_before: dict[str, float]
    loss_before: dict[str, float]

    def __str__(self) -> str:
        names = ", ".join(self.components)
        parts = [
            f"{output}: accuracy {self.accuracy_before[output]:.1%} → {self.accuracy[output]:.1%}, "
            f"loss {self.loss_before[output]:.3g} → {self.loss[output]:.3g} nats"
            for output in self.loss
        ]
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
    if not components or by not in WAYS:
        got = f"ablate: {components!r} by {by!r}"
        raise ParameterError(f"{got}: expected components, by mean or zero")
    if subject.task is None:
        raise ParameterError(f"{subject.describe()}: no task, so there is no answer to be lost")
    kind: type[Intervention] = Mean if by == "mean" else Zero
    edits = [kind(one) for one in components]  # type: ignore[arg-type]  # a text is a site, too
    logits, targets = logits_under(subject, edits), subject.targets
    return Ablated(
        tuple(str(edit.site) for edit in edits),
        by,
        subject.accuracy(logits, targets),
        subject.loss(logits, targets),
        subject.accuracy(),
        subject.loss(),
    )
