"""What clusters of neurons are worth: the loss with one at its mean, beside random sets as large.

The null deals the clusters out anew among the neurons that vary, as in a permutation test: where
nothing sets clusters apart, they are one such deal. Sets of a cluster's complement alone are less
spread than that: a third of the neurons, where each adds its own to the loss, would beat them at
p ≤ 0.01 in 8% of cases.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Bool, Int

from mechint.errors import counted
from mechint.probe import Report
from mechint.task import rng
from probes import neuron_removal, removal


def enough_others(size: int, alive: int, alpha: float) -> bool:
    """Whether `size` of `alive` neurons can be held against as many: at most half of them, of more
    sets than 1/alpha.

    >>> [enough_others(size, 60, 0.01) for size in (1, 2, 30, 31, 60)]
    [False, True, True, False, False]
    """
    return 2 * size <= alive and math.comb(alive, size) * alpha >= 1


def add_ablation(
    report: Report,
    hook: str,
    clusters: Mapping[str, Int[np.ndarray, " _index"]],
    alive: Bool[np.ndarray, " neuron"],
    *,
    examples: int,
    samples: int,
    seed: int,
) -> None:
    """Rise of the loss with each cluster at its mean, and of the largest beside random sets.

    hook: of the neurons, at whose mean over all data they are set; examples: pairs on which the
    loss is taken; samples: of the null.
    """
    if not clusters:
        return
    subject, draw = report.subject, rng("neurons ablation", seed)
    drawn = np.sort(draw.permutation(len(subject.data))[:examples])
    some = subject.with_data(subject.data[torch.from_numpy(drawn).to(subject.device)])
    mean = subject.activation(hook, at="answer").mean(0)
    edited = neuron_removal.NeuronsAtMean(some, hook, mean)
    base = removal.mean_loss(some, some.logits(), some.targets)
    rises = {name: edited.loss(neurons) - base for name, neurons in clusters.items()}
    report.metric("loss", base, unit="nats")
    report.metric("ablation", rises, unit="nats")
    varying, alpha = np.flatnonzero(alive), report.probe.significance
    sizes = {
        name: len(neurons)
        for name, neurons in clusters.items()
        if enough_others(len(neurons), len(varying), alpha)
    }
    if sizes:
        null: list[float] = []
        for _ in range(samples):
            dealt = np.split(draw.permutation(varying), np.cumsum(list(sizes.values())))[:-1]
            null.append(max(edited.loss(neurons) - base for neurons in dealt))
        _add_finding(report, {name: rises[name] for name in sizes}, sizes, null, len(drawn))
    if left := sorted(set(clusters) - set(sizes), key=lambda name: -rises[name]):
        most = f", the most of {len(left)} such clusters" if len(left) > 1 else ""
        report.abstain(
            f"with {_members(left[0], len(clusters[left[0]]))} at their mean the loss changes by "
            f"{rises[left[0]]:+.2g} nats{most}; of the {counted(len(varying), 'neuron')} that vary "
            "too few others are left to compare with as many"
        )


def _add_finding(
    report: Report,
    rises: Mapping[str, float],
    sizes: Mapping[str, int],
    null: Sequence[float],
    n: int,
) -> None:
    """The sentence on the cluster without which the loss rises most."""
    first = max(rises, key=lambda name: rises[name])
    size, taken = sizes[first], f"With {_members(first, sizes[first])} at their mean"
    how = (
        f"{size} neurons drawn from all that vary"
        if len(sizes) == 1
        else f"the largest of {len(sizes)} sets of the clusters' sizes drawn from all that vary"
    )
    report.metric("ablation.largest", rises[first], null=null, how=how)
    report.finding(
        f"{taken} the loss rises by {rises[first]:.2g} nats.",
        question="whether the model needs one cluster of its neurons",
        otherwise=(
            f"{taken} the loss changes by {rises[first]:+.2g} nats; the most with random sets in "
            f"place of the clusters is {np.mean(null):+.2g} on average."
            if len(sizes) > 1
            else f"{taken} the loss changes by {rises[first]:+.2g} nats; with random sets of as "
            f"many it changes by {np.mean(null):+.2g} on average."
        ),
        null="ablation.largest",
        effect=rises[first],
        causal=True,
        n=n,
    )


def _members(name: str, size: int) -> str:
    return f"the {counted(size, 'neuron')} of representation {name}"
