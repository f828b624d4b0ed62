"""Transition curves: planted curves are found again, the interval covers them, and what lies beyond
the models says so.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import optimize

from mechint.errors import DataError
from mechint.run_table import transitions
from mechint.run_table.transitions import SHALLOWEST, fit_transition, logistic

SIZES = np.array([1e3, 3e3, 1e4, 3e4, 1e5, 3e5])


def planted(
    middle: float, slope: float, seeds: int, noise: float, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    sizes = np.repeat(SIZES, seeds)
    noisy = logistic(np.log(sizes), math.log(middle), slope) + np.random.default_rng(seed).normal(
        0, noise, len(sizes)
    )
    return sizes, noisy.clip(0, 1)


def test_a_planted_curve_is_found() -> None:
    found = fit_transition(*planted(2e4, 2.5, 1, 0.0), bootstrap=5)
    assert found.at(0.5) == pytest.approx(2e4, rel=0.01)
    assert found.at(0.8) == pytest.approx(2e4 * 4 ** (1 / 2.5), rel=0.01)  # logit(0.8) = ln 4
    assert found.slope == pytest.approx(2.5, rel=0.02)


def test_the_fit_is_that_of_scipy() -> None:
    sizes, accuracies = planted(2e4, 1.7, 5, 0.08)
    found = fit_transition(sizes, accuracies, bootstrap=1)
    (middle, slope), _ = optimize.curve_fit(
        lambda x, middle, slope: 1 / (1 + np.exp(-slope * (x - middle))),
        np.log(sizes),
        accuracies,
        p0=[10, 1],
    )
    assert (found.middle, found.slope) == pytest.approx((middle, slope), rel=0.01)


def test_the_mean_of_runs_drawn_again_varies_by_its_standard_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of two runs of a size, too, where runs drawn as they are would vary by 0.71 of it."""
    sizes, accuracies = np.array([1e3, 1e3, 1e5, 1e5, 1e5]), np.array([0.1, 0.4, 0.7, 0.9, 0.8])
    for size, own in ((1e3, accuracies[:2]), (1e5, accuracies[2:])):
        monkeypatch.setattr(
            transitions,
            "_least_squares",
            lambda x, y, size=size: (y[np.isclose(x, math.log(size))].mean(), 1.0),
        )
        drawn = fit_transition(sizes, accuracies, bootstrap=4000).samples[:, 0]
        assert drawn.std() == pytest.approx(own.std(ddof=1) / math.sqrt(len(own)), rel=0.05)
        assert drawn.mean() == pytest.approx(own.mean(), abs=0.01)


def test_what_is_never_learned_lies_beyond_the_largest_model() -> None:
    found = fit_transition(SIZES, [0.0, 0.0, 0.05, 0.1, 0.1, 0.12], bootstrap=10)
    assert math.isinf(found.at())


def test_what_all_learn_lies_at_or_below_the_smallest_model() -> None:
    found = fit_transition(SIZES, [0.9, 0.97, 0.99, 1, 1, 1], bootstrap=10)
    assert found.at() == 0
    assert found.interval() == (0.0, pytest.approx(1e3))


@pytest.mark.parametrize(
    ("accuracies", "at", "interval"),
    [
        ([1.0, 0.9, 0.6, 0.3, 0.1, 0.0], math.inf, (3e5, math.inf)),
        # its mean lies above the level
        ([1.0, 1.0, 1.0, 0.9, 0.8, 0.0], math.inf, (3e5, math.inf)),
        ([0.9, 0.91, 0.9, 0.9, 0.89, 0.9], 0.0, (0.0, 1e3)),  # above the level at every size
        ([0.4, 0.42, 0.4, 0.39, 0.41, 0.4], math.inf, (3e5, math.inf)),
        ([0.5] * 6, math.inf, (3e5, math.inf)),
    ],
)
def test_what_no_rising_curve_describes_does_not_cross(
    accuracies: list[float], at: float, interval: tuple[float, float]
) -> None:
    """scipy finds no curve that rises and is better than the mean."""
    found = fit_transition(SIZES, accuracies, bootstrap=10)
    assert found.at() == pytest.approx(at)
    assert found.interval() == pytest.approx(interval)
    values = logistic(np.log(SIZES), found.middle, found.slope)
    mean = np.full(6, min(np.mean(accuracies), accuracies[-1]))
    assert values == pytest.approx(mean, abs=1e-5)
    best = optimize.minimize(
        lambda p: ((logistic(np.log(SIZES), p[0], math.exp(p[1])) - accuracies) ** 2).sum(),
        [10.0, 0.0],
        bounds=[(0, 20), (math.log(SHALLOWEST), math.log(40))],
    )
    assert best.fun > np.var(accuracies) * 6 - 1e-12


@pytest.mark.parametrize(("slope", "height", "noise"), [(0.05, 0.3, 0.02), (0.35, 0.1, 0.05)])
def test_no_run_that_reaches_a_level_means_no_crossing(
    slope: float, height: float, noise: float
) -> None:
    """As near to the runs as the curve that scipy fits from the height at the middle size."""
    x, center = np.log(np.repeat(SIZES, 5)), np.log(SIZES).mean()
    middle = center - math.log(height / (1 - height)) / slope
    y = logistic(x, middle, slope) + np.random.default_rng(1).normal(0, noise, len(x))
    y = y.clip(0, 0.49)
    found = fit_transition(np.exp(x), y, bootstrap=20)
    assert math.isinf(found.at()) and math.isinf(found.interval()[1])
    best = optimize.least_squares(
        lambda p: 1 / (1 + np.exp(-p[0] - p[1] * (x - center))) - y, [-1.0, 0.1]
    )
    assert best.x[1] > SHALLOWEST
    error = ((logistic(x, found.middle, found.slope) - y) ** 2).sum()
    assert error == pytest.approx(2 * best.cost, rel=1e-3)


@pytest.mark.parametrize(
    ("sizes", "accuracies", "said"),
    [
        (SIZES, [0.0, 0.1, math.nan, 0.5, 0.9, 1.0], "accuracy nan: expected a share between"),
        (SIZES, [0.0, 10.0, 20.0, 50.0, 90.0, 100.0], "accuracy 10: expected a share between"),
        (SIZES, [-0.1, 0.1, 0.2, 0.5, 0.9, 1.0], "accuracy -0.1"),
        (SIZES[:3], [0.0, 1.0], r"shape \(3,\) and values of shape \(2,\)"),
        ([0, 1e4, 1e5], [0.0, 1.0, 1.0], "a size: 0: expected a number above 0"),
        ([1e3, math.inf, 1e5], [0.0, 1.0, 1.0], "a size: inf"),
    ],
)
def test_what_is_no_accuracy_by_size_is_refused(
    sizes: list[float], accuracies: list[float], said: str
) -> None:
    with pytest.raises(DataError, match=said) as caught:
        fit_transition(sizes, accuracies)
    assert "\n" not in str(caught.value)
