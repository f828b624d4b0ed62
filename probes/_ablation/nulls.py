"""What the harm of an ablation is held against: no effect, rotated changes, random neurons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import ParameterError
from mechint.interventions import Add, Site
from mechint.null import family_wise, selections
from mechint.results import Null
from mechint.task import answer_scores, rng
from probes._ablation.measures import Ablated, Examples, ablations, scores
from probes.ties import TIE

if TYPE_CHECKING:
    from mechint.subject import Subject

STRONGEST = 4
"""Of how many components, those with the largest effect, changes are rotated."""
DIGITS = 9
"""Digits of a mean on its own scale: equal ones, as of few examples that change, are equal."""


@dataclass(frozen=True)
class Harm:
    """What the ablation of each component costs, by_example (component, example), in `unit`.

    advantage: what the model has over chance, in the same unit; metric: the name of the largest.
    """

    metric: str
    unit: str
    by_example: np.ndarray
    advantage: float

    @property
    def total(self) -> Float[np.ndarray, " component"]:
        """(component,) means over the examples."""
        return self.by_example.mean(1)

    @property
    def share(self) -> Float[np.ndarray, " component"]:
        """(component,) shares of the advantage; 0 where the model has none."""
        return self.total / self.advantage if self.advantage > 0 else 0 * self.total

    @property
    def scale(self) -> Float[np.ndarray, " component"]:
        """(component,) roots of the mean squares over the examples, the same under all signs, but
        at least `TIE` of the largest, since smaller changes are rounding; 1 where nothing changes.
        """
        size = np.sqrt(np.square(self.by_example).mean(1))
        size = np.maximum(size, TIE * size.max(initial=0.0))
        return np.where(size > 0, size, 1.0)

    @property
    def on_own_scale(self) -> Float[np.ndarray, " component"]:
        """(component,) means over the examples in units of `scale`."""
        return (self.total / self.scale).round(DIGITS)

    def no_effect(self, n: int, seed: int) -> Float[np.ndarray, " sample"]:
        """(n,) `no_effect` with each component on its own scale: on that of the largest, no
        smaller one would be told from its noise.
        """
        return no_effect(self.by_example / self.scale[:, None], n, seed).round(DIGITS)

    def p_values(self, samples: Float[np.ndarray, " sample"]) -> Float[np.ndarray, " component"]:
        """(component,) against the largest of all components in samples of `no_effect`,
        family-wise.
        """
        return family_wise(self.on_own_scale, samples)


def no_effect(
    increases: Float[np.ndarray, "component example"], n: int, seed: int
) -> Float[np.ndarray, " sample"]:
    """(n,) the largest mean increase of the loss over all components if none had an effect.

    increases (component, example): the sign of every example's change, the same for all components,
    is drawn at random (a paired sign-flip test, family-wise over the components).
    """
    generator = np.random.default_rng(seed)
    signs = generator.choice(np.array([-1.0, 1.0]), (increases.shape[1], n))
    return (increases @ signs / increases.shape[1]).max(0)


def rotated(
    subject: Subject,
    examples: Examples,
    ablated: Sequence[Ablated],
    total: Float[Tensor, " component"],
    *,
    mode: str,
    n: int,
    seed: int,
) -> Null:
    """The largest loss increase when the strongest components' changes of the residual stream are
    rotated at random: equal norms, other directions.
    """
    assert subject.task is not None
    chosen = total.topk(min(STRONGEST, len(ablated))).indices.tolist()
    strongest = [ablated[index] for index in chosen]
    width = subject.model_description.d_model
    if width is None:
        raise ParameterError(
            "ablation: the model states no width of its residual stream; wrap it with d_model=…"
        )
    plain: list[Tensor] = []  # (example, output)
    changed: list[list[Tensor]] = [[] for _ in range(n)]  # (component, example, output)
    for targets, recorded, interventions in ablations(subject, examples, strongest, mode):
        plain.append(answer_scores(subject.task, recorded.logits, targets)[..., 1])
        written = [recorded.written(one) for one in interventions]
        generator = torch.Generator().manual_seed(seed)  # every chunk is rotated alike
        for losses in changed:
            square = torch.randn(width, width, generator=generator, dtype=torch.float64)
            rotation = torch.linalg.qr(square)[0].to(recorded.logits)
            logits = recorded.under([Add(Site(hook), delta @ rotation) for hook, delta in written])
            losses.append(answer_scores(subject.task, logits, targets)[..., 1])
    own = torch.cat(plain).nanmean()
    rises = [torch.cat(losses, 1).flatten(1).nanmean(1) - own for losses in changed]
    samples = [float(rise.max()) for rise in rises]
    how = (
        f"the changes that the {len(strongest)} strongest ablations make, rotated at random, "
        f"on {len(examples)} examples"
    )
    return Null.sampled("rotated_loss_increase", float(total.max()), samples, how)


def random_neurons(
    subject: Subject,
    examples: Examples,
    layer: int,
    neurons: Sequence[int],
    *,
    width: int,
    mode: str,
    n: int,
    seed: int,
) -> Null:
    """The loss increase when as many random ones of the layer's `width` neurons are ablated.

    One set is ablated once, however often it is drawn: the same set in another order would differ
    from it by rounding.
    """
    generator = rng("neurons", seed)
    drawn = [generator.choice(width, len(neurons), replace=False).tolist() for _ in range(n)]
    sets = [tuple(sorted(one)) for one in [neurons, *drawn]]
    row = {one: index for index, one in enumerate(dict.fromkeys(sets))}
    groups = [Ablated(Site.neurons(layer, one)) for one in row]
    base, ablated = scores(subject, examples, groups, mode)
    increase = (ablated - base)[..., 1].flatten(1).nanmean(-1)[[row[one] for one in sets]]
    return Null.sampled(
        "neurons_loss_increase",
        float(increase[0]),
        increase[1:].numpy(),
        f"random sets of {len(neurons)} neurons of layer {layer}",
        selections(width, len(neurons)),
    )
