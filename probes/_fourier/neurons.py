"""Neurons over the grid of two operands: their energy per frequency, and the frequency each calls
its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from mechint.subject import Subject
from mechint.task import rng
from probes import answers
from probes._fourier import spectra
from probes._fourier.spectra import Array, KeyFrequencyRule, Spectrum

WIDTH = 64
"""Neurons transformed at a time."""


@dataclass(frozen=True)
class Neurons:
    """The neurons of all layers.

    spectrum: shares of all neurons' energy; clusters: frequency → number of neurons that are its
    own; strongest: frequency → (layer, neuron, image (n, n)) of the neuron with most energy there.
    """

    spectrum: Spectrum
    clusters: dict[int, int]
    strongest: dict[int, tuple[int, int, Array]]


@dataclass
class _Tally:
    """Sums over the blocks of neurons seen so far; mixed (n, n, mixture): random mixtures."""

    energy: Array
    mixed: Array
    total: float = 0.0
    clusters: dict[int, int] = field(default_factory=dict)
    best: dict[int, tuple[float, int, int, Array]] = field(default_factory=dict)


def grid_energies(
    x: Float[np.ndarray, "n n neuron"],
) -> tuple[Float[np.ndarray, "frequency neuron"], Float[np.ndarray, " neuron"]]:
    """Energy of x (n, n, m) in the block {1, cos, sin} ⊗ {1, cos, sin} of every frequency, (n//2,
    m), and in all, (m,); constant left out.

    >>> wave = np.cos(2 * np.pi * np.add.outer(np.arange(5), np.arange(5)) / 5)[..., None]
    >>> blocks, total = grid_energies(wave)
    >>> (blocks / total).round(9).ravel().tolist()
    [1.0, 0.0]
    """
    x = x - x.mean((0, 1))
    return _in_blocks(x, spectra.waves(len(x)).astype(x.dtype)), np.square(x).sum((0, 1))


def _in_blocks(
    x: Float[np.ndarray, "n n neuron"], waves: Float[np.ndarray, "frequency 2 n"]
) -> Float[np.ndarray, "frequency neuron"]:
    """Energy of x, whose mean is zero, in the block of every frequency of `waves`."""
    n, m = len(x), x.shape[-1]
    constant = np.full((len(waves), 1, n), n**-0.5, x.dtype)
    first = (waves.reshape(-1, n) @ x.reshape(n, -1)).reshape(len(waves), 2, n, m)
    blocks = np.square(np.concatenate([constant, waves], 1)[:, None] @ first).sum((1, 2))
    alone = waves @ (x.sum(0) * n**-0.5)  # constant over the first operand: (F, 2, m)
    return blocks + np.square(alone).sum(1)


def blocks_of(
    subject: Subject, layer: int, order: Int[np.ndarray, " n"]
) -> Iterator[tuple[int, Float[np.ndarray, "n n neuron"]]]:
    """First neuron, and ``mlp.hook_post`` of up to 64 neurons over the grid of elements, (n, n, m)
    float64; all neurons in turn.

    Recorded a group of neurons at a time, as many as the subject's memory holds; one forward over
    the data a group, none where the subject keeps them.
    """
    hook, (rows, columns) = f"blocks.{layer}.mlp.hook_post", subject.task.grid  # type: ignore[union-attr]
    d_mlp = subject.activation(hook, "answer", subject.data[:1]).shape[-1]
    group = max(WIDTH, subject.memory // (8 * rows * columns) // WIDTH * WIDTH)
    for start in range(0, d_mlp, group):
        parts = [
            values[:, start : start + group].cpu().numpy()
            for values, _ in answers.chunks(subject, hook)
        ]
        recorded = np.concatenate(parts).reshape(rows, columns, -1)
        in_order = rows == columns and np.array_equal(order, np.arange(rows))
        for at in range(0, recorded.shape[-1], WIDTH):
            some = recorded[..., at : at + WIDTH]
            yield start + at, (some if in_order else some[np.ix_(order, order)]).astype(np.float64)


def measure(
    subject: Subject,
    order: Int[np.ndarray, " n"],
    rule: KeyFrequencyRule,
    *,
    own: float,
    mixtures: int,
    permutations: int,
    seed: int,
) -> Neurons:
    """The neurons' spectrum with its key frequencies, the clusters, and one picture per frequency.

    Args:
        order: tokens of the cyclic group's elements in the order of their logarithms.
        own: share of a neuron's energy from which on a frequency is its own.
        mixtures: random linear mixtures of all neurons, whose shares stand for those of the neurons
            in the null and in what is held against it; permutations: of the tokens, on both axes
            alike.
    """
    n = len(order)
    tally = _Tally(np.zeros(n // 2), np.zeros((n, n, mixtures)))
    for layer in range(subject.n_layers):
        for first, block in blocks_of(subject, layer, order):
            _count(tally, block, layer, first, own)
            weights = rng("neuron mixtures", seed, layer, first).standard_normal(
                (block.shape[-1], mixtures)
            )
            tally.mixed += block @ weights
    level = rule.factor * 2 / max(n - 1, 1)
    values = tally.energy / max(tally.total, 1e-24)
    mixed = (tally.mixed - tally.mixed.mean((0, 1))).astype(np.float32)
    size = max(float((mixed**2).sum()), 1e-24)
    observed = grid_energies(mixed)[0].sum(1) / size  # (F,) of the mixtures, as in the null

    def null_without(keys: list[int]) -> Array:
        rest, waves = _without(mixed, keys), spectra.waves(n).astype(mixed.dtype)
        generator = rng("neuron null", seed)
        # x in another order against the waves is x against the waves in the inverse order
        orders = (generator.permutation(n).argsort() for _ in range(permutations))
        return np.array([_in_blocks(rest, waves[..., some]).sum(1).max() / size for some in orders])

    found = spectra.step_down(
        np.where(values > level, observed, 0.0), level, rule.alpha, null_without
    )
    return Neurons(
        dataclasses.replace(
            found,
            values=values,
            observed=float(observed.max()),
            arrangements=spectra.circular_orders(n),
        ),
        dict(sorted(tally.clusters.items())),
        {k: best[1:] for k, best in sorted(tally.best.items(), key=lambda item: -item[1][0])},
    )


def _without(x: Array, keys: list[int]) -> Array:
    """x (n, n, m) with the frequencies `keys` of both operands taken out."""
    return spectra.without(spectra.without(x, keys), keys, axis=1).astype(x.dtype) if keys else x


def _count(tally: _Tally, block: Array, layer: int, first: int, own: float) -> None:
    """Add a block of neurons to the tally."""
    energy, total = grid_energies(block)
    tally.energy += energy.sum(1)
    tally.total += total.sum()
    fraction = energy / np.maximum(total, 1e-24)
    frequency = fraction.argmax(0) + 1
    for neuron in range(block.shape[-1]):
        k = int(frequency[neuron])
        if fraction[k - 1, neuron] >= own:
            tally.clusters[k] = tally.clusters.get(k, 0) + 1
        strength = float(energy[k - 1, neuron])
        if k not in tally.best or strength > tally.best[k][0]:
            tally.best[k] = (strength, layer, first + neuron, block[..., neuron].copy())
