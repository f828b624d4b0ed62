"""What the emergence study trains: Ren, Nichani, Wu, Lee 2025, Emergence and scaling laws for SGD
learning.

The theorem is of online SGD, for P ≪ d^0.1 with neurons to spare. These runs descend the population
gradient, whose weights never leave the span of the P directions and the m neurons' starts: d in the
ten thousands costs P + m coordinates (`mechint.models.two_layer.reduced_draws`; a test holds them
against direct runs). P is far above d^0.1. A few small runs on fresh batches show what noise does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mechint.studies.core.study import FRESH, Analysis, PlannedRun, Runs, Study, plan
from mechint.studies.emergence import figures as drawn
from mechint.studies.emergence.claims import CLAIMS
from mechint.studies.emergence.search import SEARCH
from mechint.studies.emergence.tables import add_tables


@dataclass(frozen=True)
class Budget:
    """What a size trains. d: dimension of the mixtures; directions, steps: β → P and steps of its
    mixtures, whose students have 3P neurons; floor_widths, floor_steps: β → widths and steps;
    dimensions, search_steps: d of the single
    directions, and k → their steps. online_steps: of the runs with fresh batches.
    """

    d: int
    directions: Mapping[float, int]
    steps: Mapping[float, int]
    seeds: int
    floor_d: int
    floor_widths: Mapping[float, tuple[int, ...]]
    floor_steps: Mapping[float, int]
    floor_seeds: int
    dimensions: tuple[int, ...]
    search_steps: Mapping[int, int]
    search_seeds: int
    lr: float = 0.1
    init_norm: float = 0.02
    online_steps: int = 3000


BUDGETS = {
    "smoke": Budget(
        d=64,
        directions={1.0: 6},
        steps={1.0: 300},
        seeds=1,
        floor_d=64,
        floor_widths={1.0: (2, 4)},
        floor_steps={1.0: 300},
        floor_seeds=1,
        dimensions=(16, 64),
        search_steps={2: 300, 3: 300, 4: 300},
        search_seeds=2,
        online_steps=300,
    ),
    "laptop": Budget(
        d=16_384,
        directions={0.75: 96, 1.0: 96, 1.5: 32},
        steps={0.75: 6000, 1.0: 15_000, 1.5: 28_000},
        seeds=4,
        floor_d=4096,
        floor_widths={0.75: (16, 32, 64), 1.0: (16, 32, 64), 1.5: (8, 16, 32)},
        floor_steps={0.75: 6000, 1.0: 12_000, 1.5: 28_000},
        floor_seeds=8,
        dimensions=(256, 1024, 4096, 16_384),
        search_steps={2: 240, 3: 2400, 4: 12_000},
        search_seeds=64,
    ),
    "overnight": Budget(
        d=65_536,
        directions={0.75: 192, 1.0: 192, 1.5: 64},
        steps={0.75: 20_000, 1.0: 60_000, 1.5: 160_000},
        seeds=4,
        floor_d=16_384,
        floor_widths={0.75: (16, 32, 64, 128), 1.0: (16, 32, 64, 128), 1.5: (8, 16, 32, 64)},
        floor_steps={0.75: 20_000, 1.0: 48_000, 1.5: 160_000},
        floor_seeds=8,
        dimensions=(256, 1024, 4096, 16_384, 65_536),
        search_steps={2: 240, 3: 4800, 4: 48_000},
        search_seeds=64,
    ),
    "full": Budget(
        d=262_144,
        directions={0.75: 768, 1.0: 768, 1.5: 128},
        steps={0.75: 100_000, 1.0: 400_000, 1.5: 800_000},
        seeds=5,
        floor_d=65_536,
        floor_widths={0.75: (16, 32, 64, 128, 256), 1.0: (16, 32, 64, 128, 256), 1.5: (8, 16, 32)},
        floor_steps={0.75: 60_000, 1.0: 200_000, 1.5: 160_000},
        floor_seeds=8,
        dimensions=(256, 1024, 4096, 16_384, 65_536),
        search_steps={2: 240, 3: 4800, 4: 48_000},
        search_seeds=128,
    ),
}


ONLINE = {"d": 64, "n_directions": 8, "beta": 1.0}
BATCHES = {"population": None, "fresh batches of 256": 256}
ONLINE_LR = 0.008
"""Over the batch, 3e-5: below a_P / d^(k/2) = 2e-4, as the theorem asks of one input a step."""


def mixtures(budget: Budget) -> Iterator[PlannedRun]:
    """Sums of P directions, learned by 3P neurons; every β has the same seeds."""
    for beta, n in budget.directions.items():
        model = {"width": 3 * n, "init_norm": budget.init_norm, "ambient": budget.d}
        task = {"d": 4 * n, "n_directions": n, "beta": beta}
        for seed in range(budget.seeds):
            name = f"mixture-beta{beta:g}"
            yield _plan(
                name, task, model, budget, budget.steps[beta], seed, arm="mixture", beta=beta
            )


def online(budget: Budget) -> Iterator[PlannedRun]:
    """A few directions in few dimensions, by online SGD and, from the same starts, on the
    population gradient.
    """
    model = {"width": 3 * ONLINE["n_directions"], "init_norm": budget.init_norm}
    for gradient, batch in BATCHES.items():
        for seed in range(budget.seeds):
            yield _plan(
                f"online-{batch or 'population'}",
                ONLINE,
                model,
                budget,
                budget.online_steps,
                1000 + seed,
                batch_size=batch,
                lr=ONLINE_LR,
                arm="online",
                gradient=gradient,
            )


def floors(budget: Budget) -> Iterator[PlannedRun]:
    """Students too narrow for their 3m directions, trained until they stand still."""
    for beta, widths in budget.floor_widths.items():
        most = max(widths)
        for width in widths:
            task = {"d": 3 * most + most, "n_directions": 3 * most, "beta": beta}
            # one ensemble for all widths: coordinates to spare are directions of no amplitude
            model = {
                "width": width,
                "neurons": most,
                "init_norm": budget.init_norm,
                "ambient": budget.floor_d,
            }
            for seed in range(budget.floor_seeds):
                yield _plan(
                    f"floor-beta{beta:g}-width{width}",
                    task,
                    model,
                    budget,
                    budget.floor_steps[beta],
                    seed,
                    arm="floor",
                    beta=beta,
                    width=width,
                )


def searches(budget: Budget) -> Iterator[PlannedRun]:
    """A single direction among 8 neurons, at every (k, d), with seeds of its own in every cell."""
    for k in (2, *SEARCH):
        for cell, d in enumerate(budget.dimensions):
            task = {"d": 9, "n_directions": 1, "hermite": (0.0,) * k + (1.0,)}
            model = {"width": 8, "init_norm": 1e-2, "ambient": d}
            for seed in range(budget.search_seeds):
                own = 10_000 + (10 * k + cell) * budget.search_seeds + seed
                yield _plan(
                    f"search-k{k}-d{d}",
                    task,
                    model,
                    budget,
                    budget.search_steps[k],
                    own,
                    looks=1200,
                    arm="search",
                    k=k,
                    d=d,
                )


def _plan(
    name: str,
    task: Mapping[str, Any],
    model: Mapping[str, Any],
    budget: Budget,
    steps: int,
    seed: int,
    looks: int = 400,
    batch_size: int | None = None,
    lr: float | None = None,
    **labels: Any,
) -> PlannedRun:
    """Descent, on the exact population loss unless a batch size is given, looked at `looks`
    times.
    """
    train = {
        "steps": steps,
        "batch_size": batch_size,
        "lr": lr or budget.lr,
        "evaluate_every": max(1, steps // looks),
        "checkpoints": "last",  # the curves are all that is measured
    }
    return plan(name, "single-index", task, model, train, seed=FRESH + seed, **labels)


class Emergence(Study):
    """Sharp emergence, smooth loss."""

    name = "emergence"
    title = "Emergence and scaling laws for SGD learning"
    paper = "Ren, Nichani, Wu and Lee 2025, Emergence and scaling laws for SGD learning"
    summary = (
        "A two-layer network learns a sum of single-index functions whose strengths fall as a "
        "power law. Every direction shows a long plateau and a sharp end, at a time that its "
        "strength sets. Added up, these sharp transitions give a loss that falls as a smooth "
        "power law of time and of width."
    )
    setting = (
        "The theorem is of online SGD with P ≪ d^0.1 directions. The runs here descend the exact "
        "population gradient, without the noise of SGD, and have P far above d^0.1: they test the "
        "paper's exponents outside of what it proves. A sensitivity table shows a few directions "
        "learned by online SGD."
    )
    claims = CLAIMS

    def runs(self, size: str) -> list[PlannedRun]:
        """Mixtures at every β, narrow students for the floor, a single direction at every (k,
        d), and a small mixture with and without the noise of SGD.
        """
        budget = BUDGETS[size]
        return [*mixtures(budget), *floors(budget), *searches(budget), *online(budget)]

    def analyze(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to e, and draw the loss, the emergence times, the floor and the search
        time.
        """
        analysis = Analysis(self.name, size, runs.say)
        for spec in self.claims:
            analysis.add_claim(spec, runs)
        analysis.add_figure("Loss", lambda: drawn.loss(runs))
        analysis.add_figure("Emergence times", lambda: drawn.times(runs))
        analysis.add_figure("Alignment", lambda: drawn.alignment(runs))
        analysis.add_figure("Width floor", lambda: drawn.floor(runs))
        analysis.add_figure("Search time", lambda: drawn.search(runs))
        add_tables(analysis, runs)
        return analysis
