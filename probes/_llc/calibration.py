"""Models whose learning coefficient is known: what the probe is calibrated on."""

from __future__ import annotations

from mechint.planted import Planted, Trial, linear_network
from mechint.planted.calibration import Calibration
from mechint.probe.results import ProbeResult
from mechint.subject import Subject

N = 256
"""Examples."""
SINGULAR = (((4, 3, 4), 1), ((5, 3, 5), 3), ((6, 4, 4, 6), 2))
"""(widths, rank) of deep and wide linear networks of multiplicity 1."""


def singular(noise: float, seed: int) -> Planted:
    """A linear network with hidden layers, wider than the rank of its map or as wide."""
    widths, rank = SINGULAR[seed % len(SINGULAR)]
    return linear_network(widths, rank, n=N, noise=noise, seed=seed)


def regular(noise: float, seed: int) -> Planted:
    """Linear regression of several outputs."""
    return linear_network((5, 2 + seed % 3), 2, n=N, noise=noise, seed=seed)


WEAK = (0.05, 0.1, 0.2)
"""Standard deviations of the weak inputs of a badly conditioned regression."""


def badly_conditioned(seed: int) -> Subject:
    """Linear regression three of whose ten inputs vary little: regular, though chains that are
    pulled back see little of the curvature there.
    """
    scales = [1.0] * 7 + [WEAK[seed % len(WEAK)]] * 3
    return linear_network((10, 3), 3, n=N, seed=seed, scales=scales).subject


def error(result: ProbeResult, plant: Planted) -> float:
    """Relative error of the coefficient; none given counts as all of it."""
    truth = plant.truth["learning_coefficient"]
    given = result.metrics["llc"] if gives_a_number(result) else 0.0
    return abs(given - truth) / truth


def gives_a_number(result: ProbeResult) -> bool:
    """Return whether the estimate is reliable."""
    return result.metrics.get("estimate") == "reliable"


def calibration() -> Calibration:
    """Singular models must be found degenerate, regular ones must not; both with the right number.

    Controls of the singular ones: linear regression, also badly conditioned, and a network that
    was not trained.
    """
    estimate, tolerance = "relative error of the coefficient", 0.2
    degenerate = Trial(
        "deep linear network",
        singular,
        {
            "linear regression": lambda seed: regular(0.0, seed).subject,
            "badly conditioned regression": badly_conditioned,
            "untrained": lambda seed: singular(0.0, seed).subject.untrained(seed),
        },
        error,
        estimate,
        tolerance,
    )
    number = Trial(
        "linear regression",
        regular,
        {"untrained": lambda seed: regular(0.0, seed).subject.untrained(seed)},
        error,
        estimate,
        tolerance,
        detects=gives_a_number,
    )
    return Calibration(
        (degenerate, number), {"chains": 2, "draws": 8, "burn_in": 2, "batch_size": 64}
    )
