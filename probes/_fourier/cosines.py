"""Cosines of logits with the answer's waves, and what they reach where an answer is known by heart
or none is known.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from jaxtyping import Float, Num

from probes._fourier.spectra import (
    Array,
    KeyFrequencyRule,
    Spectrum,
    circular_orders,
    offset_profile,
    offset_profiles,
    random_orders,
    signs,
    step_down,
    upper_quantile,
    wave_sums,
    without,
)

RELABELED = "the largest cosine with the classes in random order, with and without the answers"
"""The null of cosines, in words."""
TIE = 1e-12
"""Cosines nearer than this are the same: a lookup table's, summed in another order."""


def cosine_spectrum(
    sums: Float[np.ndarray, "n n"],
    counts: Num[np.ndarray, " n"],
    squares: float,
    rule: KeyFrequencyRule,
    seed: int,
) -> Spectrum:
    """Cosine of the logits L[input, class] with cos 2πk(answer(input) - class)/n, per frequency.

    Args:
        sums: (n, n) L summed over the inputs of every answer; L centered over classes for every
            input, and over inputs.
        counts: (n,) inputs of every answer; squares: Σ L².

    A frequency is key when its cosine exceeds each of: `rule.cosine`; `flat_level` of all cosines
    (a memorized table answers with a peak, whose spectrum is flat; a few keys leave most
    frequencies near zero); what the classes in random order reach at any frequency, and what they
    do with the answers in the same order. That keeps right answers right: where they are known by
    heart they raise this null as they do the cosines. A key's square is the share of the logits'
    energy it explains.
    """
    n = len(sums)
    norms = np.sqrt(max(squares, 1e-24) * counts.sum() * n / signs(n))
    values = wave_sums(offset_profile(sums)) / norms
    orders = random_orders("relabeling null", seed, rule.permutations, n)

    def null_without(keys: list[int]) -> Array:
        rest = without(sums, keys, axis=1) if keys else sums
        profiles = np.stack([offset_profiles(rest, orders, turned) for turned in (False, True)])
        return higher((wave_sums(profiles) / norms).max(-1) + TIE, rule.alpha)

    level = max(rule.cosine, flat_level(values, rule.alpha))
    found = step_down(values, level, rule.alpha, null_without)
    return dataclasses.replace(found, arrangements=circular_orders(n))


def also_unseen(found: Spectrum, unseen: Spectrum) -> Spectrum:
    """`found` over all inputs, with those of its keys that are key in `unseen`, too."""
    keys = [k for k in found.keys if k in unseen.keys]
    return dataclasses.replace(found, keys=keys, unseen=unseen)


def flat_level(values: Float[np.ndarray, " frequency"], alpha: float) -> float:
    """What the largest of the amplitudes `values` exceeds with probability `alpha` where they are
    the amplitudes of noise, (F,) -> one amplitude.

    The energies of noise at different frequencies are exponentially distributed (Fisher 1929): of F
    of them the largest exceeds ln(F/alpha) times their mean with probability at most alpha. The
    mean is estimated from the lower quartile, ln(4/3) times the mean, which up to three quarters of
    key frequencies do not raise. Amplitudes have no sign: of cosines their size counts.

    >>> round(flat_level(np.ones(29), 0.002), 2)
    5.77
    """
    quartile = np.quantile(np.abs(values), 0.25, method="lower") if len(values) else 0.0
    return float(quartile) * math.sqrt(math.log(max(len(values), 1) / alpha) / math.log(4 / 3))


def higher(nulls: Float[np.ndarray, "null sample"], alpha: float) -> Float[np.ndarray, " sample"]:
    """The null of several that is harder to exceed at level `alpha`, the first where rounding alone
    sets them apart.
    """
    return max(nulls, key=lambda null: round(upper_quantile(null, alpha), 6))
