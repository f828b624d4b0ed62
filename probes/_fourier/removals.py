"""What each frequency is worth: the loss without it, in the embedding, the neurons and W_U."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mechint.subject import Subject
from mechint.task import rng
from probes import neuron_removal, removal
from probes._fourier import spectra
from probes._fourier.spectra import Array, Spectrum
from probes.answers import Cycle
from probes.rises import Rises


@dataclass(frozen=True)
class Removals(Rises):
    """Rises of the loss, in nats, over `loss`, by frequency.

    harmonics: the second harmonics of the logits' key frequencies that are not key there, and
    without them, together; harmonics_test: as `named_test`, beside what is neither named nor a
    harmonic; neurons, unembedding: frequency → rise, of the logits' key frequencies, empty where
    they cannot be told.
    """

    harmonics: tuple[int, ...] = ()
    without_harmonics: float | None = None
    harmonics_test: tuple[float, Array] | None = None
    neurons: Mapping[int, float] = field(default_factory=dict)
    unembedding: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class RemovalNull:
    """How removals are tested: `samples` random removals on at most `examples` random inputs."""

    samples: int
    examples: int
    seed: int

    def against(
        self, subject: Subject, orders: Sequence[Sequence[int]]
    ) -> Callable[[Sequence[int], Sequence[int]], tuple[float, Array] | None]:
        """A function of frequencies and of others: the rise without the former together, and
        (sample,) the rises without as many random directions in the span of the latter.
        """
        drawn = rng("fourier removal examples", self.seed).permutation(len(subject.data))
        chosen = torch.from_numpy(np.sort(drawn[: self.examples])).to(subject.device)
        some = subject.with_data(subject.data[chosen])
        edited = removal.EmbeddingRemoval.of(some, *orders)
        assert edited is not None
        base = removal.mean_loss(some, some.logits(), some.targets)

        def test(frequencies: Sequence[int], others: Sequence[int]) -> tuple[float, Array] | None:
            if not frequencies or not others:
                return None
            directions, rest = (_directions(len(orders[0]), ks) for ks in (frequencies, others))
            if len(directions) >= len(rest):
                return None
            draw = rng("fourier removal null", self.seed)
            null = removal.null_rises(edited, rest, len(directions), self.samples, draw)
            return edited.loss(directions) - base, null - base

        return test


def _directions(n: int, frequencies: Sequence[int]) -> Array:
    """(direction, n) orthonormal waves of the frequencies; the Nyquist frequency has one alone."""
    rows = np.concatenate([spectra.waves(n)[k - 1] for k in frequencies])
    return rows[(rows**2).sum(1) > 0.5]


def second_harmonics(n: int, keys: Sequence[int]) -> list[int]:
    """The frequencies 2k mod n, 1 … n//2, of `keys`, without those that are keys themselves.

    >>> second_harmonics(59, [3, 15, 17])
    [6, 25, 29]
    """
    doubled = {min(2 * k % n, -2 * k % n) for k in keys}
    return sorted(doubled - set(keys) - {0})


def removals(
    subject: Subject,
    cycles: Sequence[Cycle],
    orders: Sequence[Sequence[int]],
    embedding: Spectrum,
    logits: Mapping[str, Spectrum],
    null: RemovalNull,
) -> Removals | None:
    """The losses without the named frequencies; None where the embedding cannot be edited.

    orders: tokens of the elements by exponent, of each operand that has its own. The logits'
    frequencies are the operands' where there is one output of the same modulus; elsewhere the
    embedding's alone are named.
    """
    edited = removal.EmbeddingRemoval.of(subject, *orders)
    if edited is None:
        return None
    n, order = len(orders[0]), orders[0]
    waves = spectra.waves(n)  # (F, 2, n)
    base = removal.mean_loss(subject, subject.logits(), subject.targets)
    shared = len(cycles) == 1 and cycles[0].n == n
    keys = logits[cycles[0].output].keys if shared else []
    named = sorted({*embedding.keys, *keys})
    harmonics = second_harmonics(n, keys)
    unnamed = [k for k in range(1, n // 2 + 1) if k not in named]

    def without(frequencies: Sequence[int]) -> float:
        if not frequencies:
            return 0.0
        return edited.loss(np.concatenate([waves[k - 1] for k in frequencies])) - base

    tested = null.against(subject, orders)
    return Removals(
        loss=base,
        embedding={k: without([k]) for k in named},
        named=without(named),
        unnamed=without(unnamed),
        harmonics=tuple(harmonics),
        without_harmonics=without(harmonics) if harmonics else None,
        named_test=tested(named, unnamed),
        harmonics_test=tested(harmonics, [k for k in unnamed if k not in harmonics]),
        neurons=_rises(_without_in_neurons(subject, order, waves), keys, base),
        unembedding=_rises(_without_in_classes(subject, cycles, waves), keys, base),
    )


def _rises(
    loss: Callable[[int], float] | None, keys: Sequence[int], base: float
) -> dict[int, float]:
    return {} if loss is None else {k: loss(k) - base for k in keys}


def _without_in_neurons(
    subject: Subject, order: Sequence[int], waves: Array
) -> Callable[[int], float] | None:
    grid = getattr(subject.task, "grid", ())
    if not subject.on_grid or len(grid) != 2 or max(order) >= min(grid):
        return None
    edited = neuron_removal.NeuronRemoval.of(subject)
    return edited and (lambda k: edited.loss(waves[k - 1], np.array(order)))


def _without_in_classes(
    subject: Subject, cycles: Sequence[Cycle], waves: Array
) -> Callable[[int], float] | None:
    if len(cycles) != 1 or cycles[0].n != waves.shape[-1]:
        return None
    assert subject.task is not None
    start = subject.task.output_slices[cycles[0].output].start
    columns = [start + c for c in cycles[0].classes]
    return lambda k: removal.loss_without_classes(subject, waves[k - 1], columns)
