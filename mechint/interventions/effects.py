"""Logits and losses of a model under interventions applied together.

Cost: one forward per chunk; one more where a mean has to be computed first. The model, its weights
and its hooks are as before afterwards, after an error too.
"""

# hooks and torch.func are untyped
# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false
from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.interventions.means import ExampleMean
from mechint.interventions.resuming import asked, select_positions
from mechint.interventions.values import Intervention, Mean, hooks_of
from mechint.models.protocol import check_edits
from mechint.models.untouched import evaluating

if TYPE_CHECKING:
    from mechint.subject import Subject
    from mechint.task import Batch


def logits_under(
    subject: Subject,
    interventions: Sequence[Intervention] = (),
    *,
    data: Batch | None = None,
) -> Float[Tensor, "example d_vocab_out"]:
    """Logits at the answer when all `interventions` are applied.

    Args:
        data: the examples; the subject's own when None.

    Raises:
        UnknownNameError: no such hook. ParameterError: a hook that the model can only show, a
            position or unit that an activation does not have, or a value of another width.
    """
    data = subject.data if data is None else data.to(subject.device)
    for intervention in interventions:
        subject.check_hook(intervention.site.hook)
    check_edits(subject.model, [one.site.hook for one in interventions])
    filled = fill_means(subject, interventions, data)
    parts, (positions, _) = [], asked(subject, data)
    for start in range(0, len(data), subject.chunk):
        rows = slice(start, start + subject.chunk)
        with torch.no_grad(), evaluating(subject.model):
            hooks = hooks_of(filled, positions[rows], (rows, len(data)))
            logits = subject.model.run_with_hooks(data.tokens[rows], fwd_hooks=hooks)
        parts.append(select_positions(logits, positions[rows]))
    return torch.cat(parts)


def loss_under(
    subject: Subject,
    interventions: Sequence[Intervention] = (),
    *,
    data: Batch | None = None,
) -> dict[str, float]:
    """Output → mean cross-entropy at the answer (nats, float64) under the interventions; see
    `logits_under`.

    Raises:
        ParameterError: a subject without a task, which has no answer to be wrong about.
    """
    logits = logits_under(subject, interventions, data=data)
    _, targets = asked(subject, subject.data if data is None else data.to(subject.device))
    return subject.loss(logits, targets)


def fill_means(
    subject: Subject, interventions: Sequence[Intervention], data: Batch | None = None
) -> list[Intervention]:
    """The interventions, with the mean over all examples in every `Mean` that lacks one.

    Means are taken per position, over the examples that have it, or at the answer where the site
    stands there.
    """
    data = subject.data if data is None else data
    lacking = [
        (index, one)
        for index, one in enumerate(interventions)
        if isinstance(one, Mean) and one.value is None
    ]
    if not lacking:
        return list(interventions)
    sums: dict[int, Tensor] = {}
    for _, one in lacking:
        one.site.check_position(data.tokens.shape[1])
    means = {
        index: ExampleMean(len(data), data.own_positions(one.site.pos)) for index, one in lacking
    }
    every, _ = asked(subject, data)
    for start in range(0, len(data), subject.chunk):
        rows = slice(start, start + subject.chunk)

        def collect(index: int, one: Intervention, rows: slice = rows):
            def keep(activation: Tensor, hook: object) -> None:
                part = one.site.select(activation.detach(), every[rows])
                part = means[index].sum(part, rows)
                sums[index] = sums[index] + part if index in sums else part

            return keep

        hooks = [(one.site.hook, collect(index, one)) for index, one in lacking]
        with torch.no_grad(), evaluating(subject.model):
            subject.model.run_with_hooks(data.tokens[rows], fwd_hooks=hooks)
    result = list(interventions)
    for index, one in lacking:
        result[index] = Mean(one.site, means[index].of(sums[index]))
    return result
