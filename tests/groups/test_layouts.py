"""Layouts of tokens against projections by least squares, planted layouts and isotropic rows."""

from __future__ import annotations

import numpy as np
import pytest

from mechint.groups.layouts import (
    agreement,
    align,
    beyond_isotropy,
    center,
    find_layouts,
    layouts,
)

DIGITS = np.arange(10)
ANGLE = 2 * np.pi * DIGITS / 10
UNEVEN = np.diag([3.0, 1.0, 2.0, 0.5, 4.0])[DIGITS % 5]
PLANTS = {
    "cyclic": np.c_[np.cos(3 * ANGLE), np.sin(3 * ANGLE)],
    "line": (DIGITS[:, None] - 4.5) / 2.9,
    "mod 2": (-1.0) ** DIGITS[:, None],
    # classes at unequal distances: five equal ones are circles, a smaller space
    "mod 5": UNEVEN,
    "grid 2×5": np.c_[2 * np.eye(2)[DIGITS % 2], UNEVEN],
}


def spread(functions: np.ndarray, noise: float, seed: int) -> np.ndarray:
    """Rows (n, 32) along random directions, with noise."""
    draw = np.random.default_rng(seed)
    axes = np.linalg.qr(draw.standard_normal((32, 32)))[0][: functions.shape[1]]
    return functions @ axes + noise * draw.standard_normal((len(functions), 32)) / np.sqrt(32)


def by_least_squares(residual: np.ndarray, basis: np.ndarray) -> float:
    """The share of a matrix in the span of centered matrices, the isotropic one beside them."""
    n = len(residual)
    isotropic = center(np.eye(n)).ravel()
    columns = np.array([center((one + one.T) / 2).ravel() for one in basis])
    columns -= np.outer(columns @ isotropic, isotropic) / (n - 1)
    held = columns.T @ np.linalg.lstsq(columns.T, residual.ravel(), rcond=None)[0]
    return float((held**2).sum() / (residual**2).sum())


@pytest.mark.parametrize("n", [10, 12, 59])
def test_shares_are_those_of_least_squares(n: int) -> None:
    residual = beyond_isotropy(np.random.default_rng(n).standard_normal((n, 7)))
    x = np.arange(n)
    lag = x[:, None] - x
    bases = {
        "cyclic": [lag % n == k for k in range(n)],
        "ordered": [abs(lag) == k for k in range(n)],
        "line": [np.outer(x - x.mean(), x - x.mean())],
        "mod 2": [np.outer(x % 2 == a, x % 2 == b) for a in (0, 1) for b in (0, 1)],
    }
    for layout in layouts(n):
        if layout.name in bases:
            basis = np.array(bases[layout.name], float)
            share = layout.share(residual)
            assert abs(share) == pytest.approx(by_least_squares(residual, basis), abs=1e-9)
            part = layout.project(residual)
            assert (part**2).sum() / (residual**2).sum() == pytest.approx(abs(share), abs=1e-9)


@pytest.mark.parametrize("name", PLANTS)
def test_planted_layouts_are_found_and_named(name: str) -> None:
    named = [
        find_layouts(beyond_isotropy(spread(PLANTS[name], 0.3, seed)), 99).name()
        for seed in range(5)
    ]
    assert named.count(name) == 5


@pytest.mark.parametrize("name", PLANTS)
def test_permuted_tokens_have_no_layout(name: str) -> None:
    draw = np.random.default_rng(0)
    named = [
        find_layouts(
            beyond_isotropy(spread(PLANTS[name][draw.permutation(10)], 0.3, seed)), 99
        ).name()
        for seed in range(10)
    ]
    assert sum(map(bool, named)) <= 3


def test_parity_that_is_missing_is_no_parity() -> None:
    alike = np.eye(5)[DIGITS % 5]  # x and x + 5 in one place: no variance on parity
    effects = find_layouts(beyond_isotropy(alike), 99).effects
    assert effects["mod 5"] == pytest.approx(1) and effects["mod 2"] < 0


def test_copies_of_a_layout_agree_after_fitting_alone() -> None:
    line = DIGITS[:, None] * np.ones(3)
    copies = np.array([beyond_isotropy(line[DIGITS * u % 10]) for u in (1, 3, 7, 9) * 2])
    assert agreement(copies) < 0.6
    assert agreement(align(copies)) == pytest.approx(1)
    drawn_twice = np.array([copies[0], copies[0], copies[1]])
    pair = (copies[0] * copies[1]).sum() / (drawn_twice**2).sum() * 3
    assert agreement(drawn_twice, [0, 0, 1]) == pytest.approx(pair)


def test_rows_that_are_alike_have_no_layout() -> None:
    found = find_layouts(beyond_isotropy(np.ones((10, 4))), 19)
    assert found.name() == "" and max(found.effects.values()) == 0
