"""The group that a subject's neurons are held against, the rule of its answers, and what neurons
add to its logits.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint.groups.finite import FiniteGroup
from mechint.subject import Subject
from mechint.task import FiniteTask
from probes._clock_pizza import measures
from probes.operands import by_element


def group_of(subject: Subject) -> FiniteGroup | None:
    """The group whose elements the operands are, in the order of `operands.element_places`."""
    task = subject.task
    if not isinstance(task, FiniteTask) or len(task.outputs) != 1 or len(task.grid) != 2:
        return None
    if task.outputs[0].group is not None:
        return task.outputs[0].group
    symmetry = task.symmetry
    tokens = () if symmetry is None else symmetry.tokens
    return (
        symmetry.group
        if symmetry is not None and list(tokens) == list(range(len(tokens)))
        else None
    )


def answer_sign(subject: Subject, group: FiniteGroup) -> int | None:
    """1 where the answer's exponent in a cyclic group is the sum of the operands', -1 where it is
    their difference, the second from the first, None elsewhere.
    """
    targets = by_element(subject, subject.targets[:, 0]).cpu().numpy()
    if targets.min() < 0 or targets.max() >= group.order:  # no answer, or none in the group
        return None
    exponents = group.logarithms[targets]
    if exponents[group.identity, group.identity] != 0:  # moved on by a constant
        return None
    return measures.answer_sign(exponents, np.argsort(group.logarithms))


def output_weights(
    subject: Subject, group: FiniteGroup
) -> Float[np.ndarray, "neuron answer"] | None:
    """(neuron, class) what the last layer's neurons add to the logits, None where layer norm or the
    architecture stand between.
    """
    model, last = subject.model, subject.n_layers - 1
    config = getattr(model, "config", None)
    if getattr(model, "W_U", None) is None or getattr(config, "normalization_type", None):
        return None
    weights: Tensor = model.W_U.detach().double()[:, : group.order]
    name = f"blocks.{last}.mlp.W_out"
    written = dict(model.named_parameters()).get(name)
    return (weights if written is None else written.detach().double() @ weights).cpu().numpy()
