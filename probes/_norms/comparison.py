"""Two samples of norm ratios compared: distances, effect size, bootstrap and permutations."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from mechint.task import rng


def compare_samples(
    a: Float[np.ndarray, "example pos"],
    b: Float[np.ndarray, "other_example other_pos"],
    *,
    bins: int,
    draws: int,
    seed: int,
) -> dict[str, Any]:
    """Everything that compares `a` with `b`, NaN left out; differences are a minus b.

    `d_low` and `d_high` bound Cohen's d in 95% of `draws` bootstrap samples; `null` (draw,) is |d|
    with the examples dealt to the two samples at random.
    """
    from scipy import stats

    x, y = a[np.isfinite(a)], b[np.isfinite(b)]
    edges = np.histogram_bin_edges(np.concatenate([x, y]), bins=bins)
    p, q = (np.histogram(sample, edges)[0] / len(sample) for sample in (x, y))
    center = np.concatenate([x, y]).mean()  # of large numbers sums of squares keep no variance
    moments = np.concatenate([_moments(a - center), _moments(b - center)])
    draw = rng("norms", seed)
    first, n = np.arange(len(moments)) < len(a), len(moments)
    resampled = np.array(
        [
            _cohens_d(_bootstrap(moments[first], draw), _bootstrap(moments[~first], draw))
            for _ in range(draws)
        ]
    )
    dealt = [draw.permutation(n) < len(a) for _ in range(draws)]
    between = "linear" if np.isfinite(resampled).all() else "nearest"  # of infinities there is none
    low, high = np.quantile(resampled, [0.025, 0.975], method=between)
    return {
        "mean": float(x.mean()),
        "other_mean": float(y.mean()),
        "ks": float(stats.ks_2samp(x, y).statistic),  # type: ignore[attr-defined]
        "js_divergence_bits": jensen_shannon(p, q),
        "wasserstein": float(stats.wasserstein_distance(x, y)),
        "cohens_d": _cohens_d(moments[first].sum(0), moments[~first].sum(0)),
        "d_low": float(low),
        "d_high": float(high),
        "null": np.array(
            [abs(_cohens_d(moments[mine].sum(0), moments[~mine].sum(0))) for mine in dealt]
        ),
    }


def jensen_shannon(p: Float[np.ndarray, " bin"], q: Float[np.ndarray, " bin"]) -> float:
    """Jensen–Shannon divergence in bits (0–1) of two distributions over the same bins.

    >>> jensen_shannon(np.array([1.0, 0.0]), np.array([0.0, 1.0]))
    1.0
    """
    middle = (p + q) / 2

    def divergence(one: np.ndarray) -> float:
        held = one > 0
        return float((one[held] * np.log2(one[held] / middle[held])).sum())

    return (divergence(p) + divergence(q)) / 2


def _moments(sample: np.ndarray) -> np.ndarray:
    """(example, 3): how many numbers, their sum, the sum of their squares."""
    return np.stack([np.isfinite(sample).sum(1), np.nansum(sample, 1), np.nansum(sample**2, 1)], 1)


def _bootstrap(moments: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """(3,) summed moments of as many examples, drawn with replacement."""
    return (
        np.bincount(draw.integers(0, len(moments), len(moments)), minlength=len(moments)) @ moments
    )


def _cohens_d(a: np.ndarray, b: np.ndarray) -> float:
    """Cohen's d from summed moments, with the pooled unbiased variance; infinite where neither
    sample varies by more than rounding.
    """
    (n, total, squares), (m, other_total, other_squares) = a, b
    within = (squares - total**2 / n) + (other_squares - other_total**2 / m)
    spread = np.sqrt(max(within, 0.0) / max(n + m - 2, 1))
    difference = total / n - other_total / m
    if spread > 1e-12 and within > 1e-12 * (squares + other_squares):
        return float(difference / spread)
    return float(np.sign(difference) * np.inf) if abs(difference) > 1e-12 else 0.0
