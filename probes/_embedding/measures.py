"""Measures of an embedding's geometry, with their nulls: ranks, residues, circles, positions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from mechint.errors import DataError
from mechint.null import orderings
from mechint.results import Null
from mechint.subject import Subject
from mechint.task import rng
from probes._clock_pizza.measures import circularity
from probes._embedding.residues import separations
from probes._embedding.values import value_tokens
from probes._fourier.spectra import (
    Array,
    KeyFrequencyRule,
    circular_orders,
    offset_profile,
    share_spectrum,
    waves,
)


def rank(singular: Float[np.ndarray, " component"], share: float) -> int:
    """Least number of singular values whose squares hold `share` of all; all of them where they are
    zero.

    >>> rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.5), rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.9)
    (1, 3)
    """
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    return min(int(np.searchsorted(held, share - 1e-12)) + 1, len(held))


def fractional_rank(singular: Float[np.ndarray, " component"], share: float) -> float:
    """`rank`, between two whole numbers where the last singular value is needed in part; for nulls,
    which whole numbers would tie.

    >>> fractional_rank(np.array([3.0, 1.0, 1.0, 1.0]), 0.5)
    0.6666666666666666
    """
    held = np.cumsum(singular**2) / max(float((singular**2).sum()), 1e-24)
    whole = rank(singular, share)
    before = float(held[whole - 2]) if whole > 1 else 0.0
    step = float(held[whole - 1]) - before
    return whole - 1 + (share - before) / step if step > 0 else float(whole)


def correlation(x: Num[np.ndarray, " n"], y: Num[np.ndarray, " n"]) -> float:
    """Pearson's correlation; 0 where one of them does not vary."""
    x, y = x - x.mean(), y - y.mean()
    norm = math.sqrt(float((x**2).sum() * (y**2).sum()))
    return float((x * y).sum() / norm) if norm > 1e-24 else 0.0


def similarity(rows: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n n"]:
    """(n, n) Pearson correlations of the rows (n, d) of an embedding."""
    centered = rows - rows.mean(1, keepdims=True)
    unit = centered / np.maximum(np.linalg.norm(centered, axis=1, keepdims=True), 1e-12)
    return unit @ unit.T


def average_similarity(subjects: Iterable[Subject]) -> Float[np.ndarray, "n n"]:
    """(n, n) mean similarity matrix of the value tokens over models of any width (joint-training,
    embedding PCA).

    Raises:
        DataError: no model, or models with different numbers of value tokens.
    """
    matrices = [
        similarity(subject.model.W_E.detach()[value_tokens(subject)].double().cpu().numpy())
        for subject in subjects
    ]
    if not matrices or len({matrix.shape for matrix in matrices}) > 1:
        raise DataError(
            f"average similarity: {len(matrices)} models with "
            f"{sorted({len(m) for m in matrices})} value tokens; expected models of one task"
        )
    return np.mean(matrices, axis=0)


def components_of(similar: Float[np.ndarray, "n n"]) -> Float[np.ndarray, "n component"]:
    """(n, n) principal component scores of a similarity matrix, strongest first: its rows,
    centered, in their principal axes.
    """
    left, singular, _ = np.linalg.svd(similar - similar.mean(0))
    return left * singular


def layout(
    similar: Float[np.ndarray, "n n"],
    *,
    components: int = 4,
    permutations: int = 999,
    seed: int = 0,
) -> tuple[dict[str, Any], dict[str, Null]]:
    """Metrics and nulls of a similarity matrix (n, n): separation by parity, by residue mod 4
    within parity, and the cyclic comparison.
    """
    n = len(similar)
    scores = components_of(similar)[:, :components]
    generator = rng("layout null", seed)
    orders = [generator.permutation(n) for _ in range(permutations)]
    metrics, nulls = separations(scores, orders, generator)
    profiles, names = _sinc_profiles(n)
    off = ~np.eye(n, dtype=bool)
    centered = np.where(off, similar - similar[off].mean(), 0.0)
    variance = max(float((centered**2).sum()), 1e-24)
    matches, share = _cyclic(centered, profiles, variance)
    best = int(matches.argmax())
    metrics |= {
        "cyclic.correlation": float(matches[best]),
        "cyclic.width": names[best][0],
        "cyclic.order": names[best][1],
        "cyclic.share": share,
    }
    samples = [_cyclic(centered[np.ix_(order, order)], profiles, variance) for order in orders]
    circles = circular_orders(n)
    how = "tokens in random order, with the same search"
    nulls["cyclic.correlation"] = Null.sampled(
        "cyclic.correlation",
        float(matches[best]),
        [float(found.max()) for found, _ in samples],
        how,
        circles,
    )
    nulls["cyclic.share"] = Null.sampled(
        "cyclic.share", share, [found for _, found in samples], "tokens in random order", circles
    )
    return metrics, nulls


def whittaker_shannon(n: int, width: int, order: int = 1) -> Float[np.ndarray, "n n"]:
    """(n, n) cyclic Whittaker–Shannon similarity: overlaps of `width`-sample periodic sinc pulses
    at positions order·x·width/n.

    >>> whittaker_shannon(10, 3).round(3)[0, :3].tolist()
    [1.0, 0.873, 0.539]
    """
    k = np.arange(-(width // 2), width // 2 + 1)
    offsets = np.subtract.outer(np.arange(n), np.arange(n))
    return np.cos(2 * np.pi * order / n * offsets[..., None] * k).mean(-1)


def _sinc_profiles(n: int) -> tuple[Array, list[tuple[int, int]]]:
    """(patterns, n - 1) unit profiles over the offsets 1 … n-1, and the (width, order) of each."""
    names = [
        (width, order)
        for width in (3, 5, 7, 9)
        if width < n
        for order in range(1, n // 2 + 1)
        if math.gcd(order, n) == 1
    ]
    profiles = np.array(
        [whittaker_shannon(n, width)[0, np.arange(1, n) * order % n] for width, order in names]
    )
    profiles = profiles - profiles.mean(1, keepdims=True)
    return profiles / np.maximum(np.linalg.norm(profiles, axis=1, keepdims=True), 1e-12), names


def _cyclic(centered: Array, profiles: Array, variance: float) -> tuple[Array, float]:
    """Correlation of the off-diagonal entries with every pattern, and the share of their variance
    that is circulant.
    """
    n = len(centered)
    profile = offset_profile(centered)[1:] / n
    return profiles @ profile * math.sqrt(n / variance), float(n * (profile**2).sum() / variance)


def rank_nulls(rows: Float[np.ndarray, "n d"], samples: int, seed: int) -> dict[str, Null]:
    """Ranks of rows (n, d) beside those of Gaussian rows of the same lengths; a low rank is
    surprising.
    """
    shares = {"svd.rank_50": 0.5, "svd.rank_90": 0.9}
    lengths = np.linalg.norm(rows - rows.mean(0), axis=1, keepdims=True)
    generator = rng("rank null", seed)

    def ranks(x: Array) -> list[float]:
        singular = np.linalg.svd(x - x.mean(0), compute_uv=False)
        return [fractional_rank(singular, share) for share in shares.values()]

    drawn = [generator.standard_normal(rows.shape) for _ in range(samples)]
    null = np.array(
        [ranks(x * lengths / np.linalg.norm(x, axis=1, keepdims=True)) for x in drawn]
    )  # (sample, share)
    how = "Gaussian rows of the same lengths; fewer is surprising"
    found = {}
    for i, (name, observed) in enumerate(zip(shares, ranks(rows), strict=True)):
        p_value = (1 + int((null[:, i] <= observed).sum())) / (1 + samples)
        mean, spread = float(null[:, i].mean()), float(null[:, i].std())
        found[name] = Null(name, observed, mean, spread, p_value, how, samples)
    return found


def circles(
    rows: Float[np.ndarray, "n d"], alpha: float, permutations: int, seed: int
) -> dict[int, float]:
    """The frequencies at which rows (n, d), in the order of their values, stand on a circle each,
    by `KeyFrequencyRule`, with the share of the rows' energy that each holds.
    """
    rule = KeyFrequencyRule(alpha=alpha, permutations=permutations)
    found = share_spectrum(rows, rule, seed)
    return {k: found.by_frequency[k] for k in found.keys}


def roundness(rows: Float[np.ndarray, "n d"], frequency: int) -> float:
    """How round the ellipse is on which a frequency puts rows (n, d): 1 a circle, 1/2 a line."""
    return circularity(rows, waves(len(rows))[frequency - 1])


def position_correlation(
    weights: Float[np.ndarray, "pos d_model"],
    positions: tuple[int, int],
    permutations: int,
    seed: int,
) -> Null:
    """Correlation of two rows of the position embedding (pos, d_model), two-sided."""
    first, second = (weights[position] for position in positions)
    observed, generator = correlation(first, second), rng("position null", seed)
    null = np.array(
        [correlation(first, generator.permutation(second)) for _ in range(permutations)]
    )
    p_value = (1 + int((np.abs(null) >= abs(observed)).sum())) / (1 + len(null))
    return Null(
        "position.correlation",
        observed,
        float(null.mean()),
        float(null.std()),
        p_value,
        "coordinates in random order, two-sided",
        len(null),
        orderings(len(first)),
    )
