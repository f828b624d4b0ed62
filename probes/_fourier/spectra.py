"""Spectra on a cyclic group, and the rule by which a frequency is called key; shared by the probes
of periodicity.

Everything rests on one sum. The offset profile of an (n, n) matrix M is D[d] = Σ_a M[a, a + d]; its
transform Re Σ_d D[d] e^(-2πi kd/n) = Σ_{a,c} M[a, c] cos(2πk(a - c)/n) is the energy of frequency k
in x when M = x xᵀ, and the component of logits along cos w(answer - class) when M holds the logits
summed by answer. A permutation of the elements permutes M, so the null costs n² a sample, whatever
the width.

Pure numpy on (n, …) arrays; `probes/answers.py` takes them from a Subject.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import NDArray

from mechint.groups.finite import FiniteGroup
from mechint.null import orderings
from mechint.results import Null
from mechint.task import rng

Array = NDArray[Any]
"""Float64 where a comment says nothing else."""


@dataclass(frozen=True)
class KeyFrequencyRule:
    """When a frequency is called key: its numbers stand above three levels at once.

    factor: times the share that each frequency of a flat spectrum has (shares only); cosine: least
    cosine with the answer's wave (logits only, which also have to stand out of the other
    frequencies, see `flat_level`); alpha: family-wise level, over all frequencies, against
    `permutations` permutations of the elements.
    """

    factor: float = 2.0
    cosine: float = 0.01
    alpha: float = 0.002
    permutations: int = 499


@dataclass(frozen=True)
class Spectrum:
    """Frequencies 1 … n//2 of one thing, and which of them are key.

    values (F,): share of the energy, or cosine with the symmetric direction; keys: key frequencies,
    ascending; threshold: what the others did not exceed; null (samples,): the largest value over
    all frequencies in every permuted sample; arrangements: see `Null`; unseen: the same on `where`,
    inputs that the model cannot have by heart, on which a key is key, too.
    """

    values: Array
    keys: list[int]
    threshold: float
    null: Array
    observed: float | None = None
    arrangements: float = math.inf
    where: str = "all inputs"
    unseen: Spectrum | None = None

    @property
    def by_frequency(self) -> dict[int, float]:
        """Frequency, counted from 1 → its value."""
        return {k + 1: float(value) for k, value in enumerate(self.values)}

    def test(self, metric: str, how: str) -> Null:
        """The largest value against the largest values of the null."""
        observed = float(self.values.max()) if self.observed is None else self.observed
        return Null.sampled(metric, observed, self.null, how, self.arrangements)


def step_down(
    values: Float[np.ndarray, " frequency"],
    level: float,
    alpha: float,
    null_without: Callable[[list[int]], Array],
) -> Spectrum:
    """Call frequencies key round by round, each against a null from which the keys found before are
    taken out.

    A strong key, permuted, spreads over all frequencies and would hide the weaker ones: what is
    left is compared with what is left. The first round holds the family-wise level alone (Romano
    and Wolf 2005).

    Args:
        values: (F,) of the data; level: what a key exceeds in any case; null_without(keys) ->
            (samples,) largest values.
    """
    keys: list[int] = []
    first: Array | None = None
    threshold = np.inf
    while True:
        null = null_without(keys)
        first = null if first is None else first
        threshold = min(threshold, max(level, upper_quantile(null, alpha)))
        found = (np.flatnonzero(values > threshold) + 1).tolist()
        if len(found) == len(keys) or len(found) == len(values):
            return Spectrum(values, found, threshold, first)
        keys = found


def upper_quantile(null: Float[np.ndarray, " sample"], alpha: float) -> float:
    """What a null of largest values exceeds with probability `alpha`.

    The empirical level where there are at least 1/alpha - 1 samples; with fewer the Gumbel
    distribution of their mean and standard deviation.
    """
    allowed = int(alpha * (len(null) + 1) + 1e-9)
    if allowed >= 1:
        return float(np.sort(null)[-allowed])
    euler = 0.5772156649015329
    return float(
        null.mean() - null.std() * np.sqrt(6) / np.pi * (euler + np.log(-np.log1p(-alpha)))
    )


def without(
    x: Float[np.ndarray, "*shape"], keys: Sequence[int], axis: int = 0
) -> Float[np.ndarray, "*shape"]:
    """x with the frequencies `keys` over an axis taken out."""
    transform = np.fft.rfft(x, axis=axis)
    np.moveaxis(transform, axis, 0)[list(keys)] = 0
    return np.fft.irfft(transform, n=x.shape[axis], axis=axis)


def cyclic_order(group: FiniteGroup) -> Int[np.ndarray, " n"]:
    """(n,) elements of a cyclic group in the order of their logarithms: 0 … n-1 for Z/n itself."""
    return np.argsort(group.logarithms)


def circular_orders(n: int) -> float:
    """In how many ways n values can stand on circles: turning a circle, and walking it in steps
    that are prime to n, give the same.

    >>> circular_orders(7)
    120.0
    """
    return orderings(n, alike=n * sum(math.gcd(k, n) == 1 for k in range(n)))


def offset_profile(
    matrix: Float[np.ndarray, "n n"],
    rows: Int[np.ndarray, "*order n"] | None = None,
    columns: Int[np.ndarray, "*order n"] | None = None,
) -> Float[np.ndarray, "*order n"]:
    """(..., n) D[d] = Σ_a M[rows[a], columns[a + d]] of an (n, n) matrix, for every order in rows
    and columns (..., n); these as they stand when None.

    >>> offset_profile(np.eye(3)).tolist()
    [3.0, 0.0, 0.0]
    """
    n, shifted = len(matrix), _circulant(len(matrix))
    rows = np.arange(n) if rows is None else rows
    shifted = shifted if columns is None else columns[..., shifted]
    return matrix.reshape(-1).take(n * rows[..., None] + shifted).sum(-2)


AT_ONCE = 1 << 14
"""Entries of reordered matrices that are looked up together: about what stays in the caches."""


def offset_profiles(
    matrix: Float[np.ndarray, "n n"], orders: Int[np.ndarray, "order n"], turned: bool
) -> Float[np.ndarray, "order n"]:
    """`offset_profile` with the columns in every order, and the rows likewise if `turned`."""
    size = max(1, AT_ONCE // matrix.size)
    parts = (orders[start : start + size] for start in range(0, len(orders), size))
    return np.concatenate(
        [offset_profile(matrix, part if turned else None, part) for part in parts]
    )


def random_orders(name: str, seed: int, samples: int, n: int) -> Int[np.ndarray, "samples n"]:
    """(samples, n) permutations, the same ones for the same name and seed."""
    generator = rng(name, seed)
    return np.stack([generator.permutation(n) for _ in range(samples)])


@functools.lru_cache(maxsize=8)
def _circulant(n: int) -> Int[np.ndarray, "n n"]:
    """(n, n) a + d mod n, not to be written to."""
    found = np.add.outer(np.arange(n), np.arange(n)) % n
    found.setflags(write=False)
    return found


def wave_sums(profile: Float[np.ndarray, "*profile n"]) -> Float[np.ndarray, "*profile frequency"]:
    """(..., n//2) Σ_d D[d] cos(2πkd/n) for k = 1 … n//2."""
    return np.fft.rfft(profile).real[..., 1:]


@functools.lru_cache(maxsize=8)
def waves(n: int) -> Float[np.ndarray, "frequency 2 n"]:
    """(n//2, 2, n) cosine and sine of every frequency, orthonormal, not to be written to; the
    Nyquist frequency's sine is zero.
    """
    angles = 2 * np.pi * np.outer(np.arange(1, n // 2 + 1), np.arange(n)) / n
    found = np.stack([np.cos(angles), np.sin(angles)], 1) * np.sqrt(signs(n) / n)[:, None, None]
    found[2 * np.arange(1, n // 2 + 1) == n, 1] = 0
    found.setflags(write=False)
    return found


def energies(x: Float[np.ndarray, "n ..."]) -> Float[np.ndarray, " frequency"]:
    """(n//2,) energy of x (n, …) at frequencies 1 … n//2 over its first axis, both signs of a
    frequency together.

    For even n the last one is the Nyquist frequency, which has a cosine only. Sums to the energy of
    the centered x.

    >>> energies(np.array([1.0, -1.0, 1.0, -1.0]))
    array([0., 4.])
    """
    n = len(x)
    power = (np.abs(np.fft.rfft(x.reshape(n, -1), axis=0)[1:]) ** 2).sum(1)
    return power * signs(n) / n


def signs(n: int) -> Array:
    """(n//2,) how many complex frequencies each real one stands for: two, and one for the Nyquist
    frequency.
    """
    return np.where(2 * np.arange(1, n // 2 + 1) == n, 1.0, 2.0)


def share_spectrum(x: Float[np.ndarray, "n ..."], rule: KeyFrequencyRule, seed: int) -> Spectrum:
    """Share of the energy of the centered x (n, …) per frequency; the null permutes the n elements.

    A share is key above `factor` times the flat level, two of n - 1 dimensions a frequency (2/(n -
    1)), and above what permuted elements reach at any frequency. One frequency alone (n < 4) cannot
    stand out and is never key.

    Cost: n² (d + permutations).
    """
    n = len(x)
    x = x.reshape(n, -1) - x.reshape(n, -1).mean(0)
    total = max(float((x**2).sum()), 1e-24)
    orders = random_orders("share null", seed, rule.permutations, n)

    def null_without(keys: list[int]) -> Array:
        rest = without(x, keys) if keys else x
        profiles = offset_profiles(rest @ rest.T / total, orders, turned=True)
        return (wave_sums(profiles) * signs(n) / n).max(-1)

    level = rule.factor * 2 / max(n - 1, 1)
    found = step_down(energies(x) / total, level, rule.alpha, null_without)
    return dataclasses.replace(found, arrangements=circular_orders(n))


def active(values: Float[np.ndarray, " frequency"], k: float) -> list[int]:
    """Frequencies with ω > μ + kσ, mean and standard deviation over the frequencies (Mechanistic
    Interpretability on Irreducible Integer Identifiers, Sec. 4).

    At most a share 1/(1 + k²) of all frequencies can be active (Cantelli's inequality).
    """
    return (np.flatnonzero(values > values.mean() + k * values.std()) + 1).tolist()
