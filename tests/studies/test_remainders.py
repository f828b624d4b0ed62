"""The remainders study's verdicts on planted outcomes, and its measures against brute force."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from studies.remainders.claims import KEPT
from studies.remainders.measures import (
    effective,
    energies,
    gram,
    periodicity,
    power,
)
from studies.rows import Rows
from tests.studies.planted import Cases, held, verdicts

PRIMES = ("2", "3", "5", "7", "11", "13", "17", "19", "23", "29", "31")
FIRST = dict(zip(PRIMES, (10, 20, 30, 40, 900, 800, 950, 820, 860, 910, 840), strict=True))


def plant(
    n: int = 12,
    final: float = 0.95,
    two: float = 1.0,
    onset: dict[str, float] | None = None,
    added: float = 1.0,
    positions: tuple[float, float, float] = (-0.7, 0.7, -0.4),
    ranks: tuple[int, int, int] = (31, 10, 9),
    heads: tuple[float, float, float] = (0.95, 0.5, 0.6),
    frequencies: tuple[float, float, float] = (17.0, 6.0, 5.0),
    neuron: tuple[float, float] = (0.8, 0.9),
    periodic: tuple[float, float] = (0.001, 0.5),
    fitted: float = 1.0,
    peak: tuple[int, int, int] = (0, 18, 8),
    settled: float = 0.3,
    fall: float = 10.0,
    slow: float = math.inf,
    overfit: tuple[str, ...] = ("2", "3"),
    masked: tuple[float, float] = (100, 900),
) -> Rows:
    """Rows of every arm: (main, addition, shuffled) of what is compared."""
    first = FIRST if onset is None else onset
    gradients = {"attention": settled, "MLP": 1.0, "attention_fall": fall, "MLP_fall": fall}
    lead = dict.fromkeys(("11", "13", "17", "19"), masked[0])
    arms: dict[str, tuple[int, dict[str, Any]]] = {
        "main": (0, {"active": [[0, 1, 2], list(peak)], "settled": gradients}),
        "long": (0, {"settled": gradients}),
        "addition": (1, {"final": {"answer": added}}),
        "shuffled": (2, {}),
        "no grokfast": (0, {"onset": {q: slow if int(q) > 7 else 10 for q in PRIMES}}),
        "no dropout": (0, {"final": {q: float(q in overfit) for q in PRIMES}}),
        "masked": (0, {"onset": {q: lead.get(q, masked[1]) for q in PRIMES[4:]}}),
    }

    def row(name: str, seed: int) -> dict[str, Any]:
        arm, more = arms[name]
        same = {
            "position_correlation": positions[arm] + 0.001 * seed,
            "rank_90": ranks[arm],
            "heads": [[heads[arm], 0.02]] * 4,
            "frequencies_neurons": frequencies[arm],
            "neuron_few": neuron[min(arm, 1)] + 0.001 * seed,
            **dict.fromkeys(("p_embedding", "p_neurons"), periodic[min(arm, 1)]),
        }
        known = dict.fromkeys(PRIMES, final) | {"2": two, "3": two}
        return {
            **{"arm": name, "seed": seed, "steps": 65_536, "early": same, "end": same},
            **{"final": known, "train": dict.fromkeys(PRIMES, fitted), "onset": first, **more},
        }

    return Rows([row(name, seed) for seed in range(n) for name in arms])


def test_the_ten_kept_runs_stand_beside_the_four_that_were_registered_with_them() -> None:
    """Runs after these four, made in place of the kept ones, decide nothing."""
    rows = [dict(row) for row in plant(n=12)]
    for i, row in enumerate(row for row in rows if row["arm"] == "main"):
        row["final"] = dict.fromkeys(PRIMES, 0.95 if i < 4 else 0.5) | {"2": 1.0}
    kept = [{**row, "arm": KEPT, "final": dict.fromkeys(PRIMES, 0.95)} for row in plant(n=10)]
    kept = [row for row in kept if "active" in row]
    assert held("remainders", "a", Rows(rows)).verdict == "inconclusive"
    found = held("remainders", "a", Rows([*rows, *kept]))
    assert found.verdict == "supported" and found.n == 14
    assert found.note.endswith("14 of 22, 0.636 [0.407, 0.828]")


def late(steps: tuple[float, ...]) -> dict[str, float]:
    """Onsets with these of the primes above 7."""
    return {**FIRST, **dict(zip(PRIMES[4:], steps, strict=True))}


NEVER = {**FIRST, "31": math.inf}
UNLEARNED, FAILED = {"final": 0.5}, {"added": 0.3}
CASES: Cases = {
    "a": ({"final": 0.5}, {"two": 0.5}),
    "b1": ({"onset": {**FIRST, "2": 50}}, {"onset": {**FIRST, "5": math.inf}}),
    "b2": ({"onset": late((1, 2, 3, 4, 5, 6, 7))}, {"onset": NEVER}),
    "b3": (
        {"onset": late((900, 30, 950, 820, 860, 910, 840))},
        {"onset": {**FIRST, "7": math.inf}},
    ),
    "c1": ({"positions": (-0.7, 0.1, -0.4)}, FAILED),
    "c2": ({"positions": (0.5, 0.7, -0.4)}, {"two": 0.5}),
    "c3": ({"positions": (-0.2, 0.7, -0.4)}, {"fitted": 0.9}),
    "d1": ({"ranks": (5, 10, 9)}, {"ranks": (31, 10, 20)}),
    "d2": ({"ranks": (15, 10, 20)}, {"fitted": 0.9}),
    "e": ({"peak": (0, 18, 17)}, UNLEARNED),
    "f": ({"periodic": (0.001, 0.001)}, {"periodic": (0.5, 0.5)}),
    "g1": ({"heads": (0.5, 0.5, 0.5)}, UNLEARNED),
    "g2": ({"heads": (0.5, 0.95, 0.5)}, FAILED),
    "g3": ({"heads": (0.5, 0.5, 0.95)}, {"fitted": 0.9}),
    "h1": ({"slow": 5.0}, {"onset": NEVER}),
    "h2": ({"overfit": PRIMES}, {"onset": NEVER}),
    "i1": ({"masked": (900, 100)}, {"onset": NEVER}),
    "i2": ({"masked": (100, 9000)}, {"onset": NEVER}),
    "j1": ({"frequencies": (4.0, 6.0, 5.0)}, {"frequencies": (17.0, 6.0, 23.0)}),
    "j3": ({"frequencies": (17.0, 6.0, 23.0)}, {"two": 0.5}),
    "j2": ({"neuron": (0.2, 0.9)}, {"neuron": (0.8, 0.3)}),
    "k": ({"settled": 3.0}, {"fall": 1.2}),
}
test_verdicts = verdicts("remainders", plant, CASES)


def test_shuffled_labels_that_look_alike_support_no_contrast() -> None:
    """Where every run gives the same share, that it is larger is refuted."""
    same = plant(positions=(-0.6, 0.7, -0.6), heads=(0.9, 0.5, 0.9))
    assert held("remainders", "c3", same).verdict == "inconclusive"
    assert held("remainders", "g3", same).verdict == "refuted"
    assert held("remainders", "c2", same).verdict == "supported"


def test_energies_are_those_of_fourier_transforms() -> None:
    x = np.random.default_rng(0).standard_normal((11, 4))
    transformed = np.fft.fft(x - x.mean(0), axis=0)
    expected = [2 * (np.abs(transformed[k]) ** 2).sum() / 11 for k in range(1, 6)]
    assert energies(gram(x)) == pytest.approx(expected)
    assert energies(gram(x)).sum() == pytest.approx(((x - x.mean(0)) ** 2).sum())


def test_a_wave_is_periodic_and_noise_is_not() -> None:
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((13, 6))
    wave = np.cos(2 * np.pi * 3 * np.arange(13) / 13)[:, None]
    assert periodicity(gram(5 * wave + noise), 199) <= 0.01
    assert periodicity(gram(noise), 199) > 0.05
    assert effective(energies(gram(wave))) == pytest.approx(1, abs=1e-4)


def test_power_of_a_neuron_is_at_its_frequency() -> None:
    p = 11
    x = np.arange(p)
    image = np.cos(2 * np.pi * 4 * x / p)[:, None] + np.zeros(p)
    found = power(image[..., None])
    assert int(found[:, 0].argmax()) == 3 and found[3, 0] == pytest.approx(found.sum())
