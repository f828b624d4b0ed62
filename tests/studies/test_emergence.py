"""The emergence study's verdicts on planted outcomes, and its measures against closed forms."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tasks
from studies.emergence.measures import measure
from studies.rows import Rows
from tests.studies.planted import Cases, verdicts

BETAS = (0.75, 1.0, 1.5)


def plant(
    n: int = 8,
    time: float = 1.0,
    window: float = 1.0,
    loss: float = 1.0,
    rise: float = 0.1,
    factor: float = 1.1,
    lost: int = 0,
    floor: float = 1.0,
    fall: float = 0.01,
    search: float = 0.0,
    every: int = 1,
    samples: float = 2.0,
    then: float = -0.5,
    fixed: float = 1.0,
) -> Rows:
    """Rows of every arm, each exponent as many times the theory's as is said."""
    spread = np.linspace(-0.01, 0.01, n)

    def search_time(d: int, power: float) -> float:
        return 10 * math.log(d / 50) if power == 0 else 10 * (d / 256) ** power

    def powers(exponent: float) -> list[float]:
        return [100.0 * p**exponent for p in range(1, 17)]

    return Rows(
        [
            {**row, "seed": seed}
            for seed in range(n)
            for row in (
                *(
                    {
                        **{"arm": "mixture", "beta": beta, "fitted": 95, "lost": lost},
                        **{"time_exponent": time * beta + spread[seed], "theory_exponent": beta},
                        "window": {"0.25": window * beta, "1": time * beta + spread[seed]},
                        "loss_exponent": loss * (1 - 2 * beta) / beta + spread[seed],
                        **{"factor": factor, "rise": rise},
                    }
                    for beta in BETAS
                ),
                *(
                    {
                        **{"arm": "floor", "beta": beta, "width": width, "late_fall": fall},
                        "floor": width ** (floor * (1 - 2 * beta)),
                    }
                    for beta in BETAS
                    for width in (8, 16, 32)
                ),
                *(
                    {
                        **{"arm": "search", "k": k, "d": d, "every": every},
                        "search_time": search_time(d, k / 2 - 1 + search),
                    }
                    for k in (2, 3, 4)
                    for d in (256, 1024, 4096, 16_384)
                ),
                *(
                    {
                        **{"arm": "online", "target": target, "samples": powers(samples)},
                        "loss_then": [number**then for number in powers(samples)],
                    }
                    for target in (2, 4, 8, 16)
                ),
                {"arm": "online fixed", "samples": powers(fixed), "loss_then": powers(fixed)},
            )
        ]
    )


LOST = {"lost": 20}
CASES: Cases = {
    **{f"a{i}": ({"time": 1.5, "window": 1.5}, LOST) for i in (1, 2, 3)},
    "a4": ({"rise": 2.0}, LOST),
    **{f"b{i}": ({"loss": 1.5}, LOST) for i in (1, 2, 3)},
    **{f"c{i}": ({"floor": 0.5}, {"fall": 0.2}) for i in (1, 2, 3)},
    "d": ({"factor": 2.0}, LOST),
    "e2": ({"search": 0.2}, {"every": 100}),
    **{f"e{k}": ({"search": 0.5}, {"every": 100}) for k in (3, 4)},
    "f1": ({"samples": 1.0}, {"fixed": 2.0}),
    "f2": ({"then": -1.0}, {"fixed": 2.0}),
}
test_verdicts = verdicts("emergence", plant, CASES)


def test_an_exponent_of_one_fit_window_alone_decides_nothing() -> None:
    from tests.studies.planted import held

    assert held("emergence", "a2", plant(window=0.8)).verdict == "inconclusive"


def test_what_is_measured_of_a_mixture_that_follows_the_theory() -> None:
    """Directions rise as steps at the predicted times, and the loss is the sum of what is left."""
    task: Any = tasks.make("single-index", d=64, n_directions=16, beta=1.0)
    model = SimpleNamespace(init_norm=0.02, width=48, ambient=4096)
    times = task.emergence_times(0.1, 0.02, 48, 4096).numpy()
    steps = np.unique(np.geomspace(1, 2 * times[-1], 4000).astype(int))
    metrics = []
    for step in steps:
        learned = times <= step
        row = {f"test.alignment.{p}": float(learned[p]) for p in range(16)}
        left = float((task.amplitudes.numpy() ** 2)[~learned].sum())
        metrics.append({"step": int(step), "test.loss": left, **row})
    train = SimpleNamespace(lr=0.1, steps=int(steps[-1]), batch_size=None, evaluate_every=1)
    run: Any = SimpleNamespace(
        spec=SimpleNamespace(task=task, model=model, train=train), metrics=metrics
    )
    found = measure(run, {"arm": "mixture"})
    assert found["time_exponent"] == pytest.approx(found["theory_exponent"], abs=0.01)
    assert found["factor"] == pytest.approx(1.0, abs=0.02) and found["lost"] == 0
    assert found["loss_exponent"] == pytest.approx(-1.0, abs=0.15)
    late: Any = SimpleNamespace(spec=run.spec, metrics=metrics[:100])
    assert math.isinf(measure(late, {"arm": "mixture"})["times"][-1])
