"""Claims of frequencies that die on planted rows, and the parts of an embedding at frequencies."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mechint
import tasks
from mechint.studies.dying_frequencies import measures
from mechint.studies.remainders.measures import energies, gram
from studies.rows import Rows
from tests.studies.planted import check


def plant(n: int = 12, times: float = 2.0, winners: float = math.inf, share: float = 1.5) -> Rows:
    """Models whose training takes `times` as long without the frequencies that die."""
    base = [100.0 + 5 * i for i in range(n)]
    taken = ({"losers": times * b, "winners": winners, "others": b, "share": share} for b in base)
    return Rows([{"arm": "addition", "seed": i, "taken": one} for i, one in enumerate(taken)])


CASES: dict[str, Any] = {
    "a": ({"times": 1.0}, {"winners": 110.0}),
    "b": ({"times": 1.0}, {"winners": 110.0}),
}


@pytest.mark.parametrize("id", CASES)
def test_claims_are_judged_by_what_is_planted(id: str) -> None:
    usual = 2.0 if id == "a" else 0.5

    def planted(times: float = usual, **knobs: Any) -> Rows:
        return plant(times=times, **knobs)

    check("dying-frequencies", id, planted, CASES)


def test_parts_at_frequencies_add_up_and_hold_their_own_waves_alone() -> None:
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(11, 3))
    whole = sum(measures.part_at(rows, [place]) for place in range(5))
    assert np.allclose(whole, rows - rows.mean(0))
    wave = np.cos(2 * np.pi * 3 * np.arange(11) / 11 + 0.4)[:, None]
    assert np.allclose(measures.part_at(wave, [2]), wave) and np.allclose(
        measures.part_at(wave, [0, 1, 3, 4]), 0
    )


def test_a_frequency_that_rises_late_does_not_count_as_one_that_dies() -> None:
    energy = np.array([[1.0, 1.0], [1.0, 3.0], [3.0, 1.0], [0.1, 0.1]])
    assert measures.fates_of(energy, 2)["losers"] == [1]


def test_a_fork_lacks_its_frequencies_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights that forks start from, without training them."""
    (run,) = mechint.train(tasks.make("modular-arithmetic", p=11), {"d_model": 8}, {"steps": 1})
    asked: list[Any] = []
    done = SimpleNamespace(step=5, final={"test.accuracy": 1.0})
    monkeypatch.setattr(measures, "train_many", lambda specs: asked.extend(specs) or [done] * 4)
    model, fates = run.subject().model, {"losers": [1], "winners": [2, 4], "others": [0, 3]}
    tokens = model.get_parameter("embed.W_E")[:11].detach().double().numpy()
    found = measures.forks(run, model, tokens, fates)
    assert set(found) == {"none", "losers", "winners", "others", "share"} and found["none"] == 5
    starts = [one.start.weights["embed.W_E"][:11].double().numpy() for one in asked]
    left = [energies(gram(one)) / energies(gram(tokens)) for one in starts]
    assert left[0] == pytest.approx([1] * 5)
    assert left[1] == pytest.approx([1, 0, 1, 1, 1], abs=1e-5)
    assert left[2] == pytest.approx([1, 1, 0, 1, 0], abs=1e-5)
    less = [float(np.linalg.norm(tokens - one)) for one in starts]
    assert less[3] == pytest.approx(min(less[1], found["share"] * less[1]), rel=1e-4)
    assert left[3][[1, 2, 4]] == pytest.approx([1] * 3, abs=1e-5)
    same = (name for name in asked[0].start.weights if name != "embed.W_E")
    assert all((asked[1].start.weights[n] == model.get_parameter(n)).all() for n in same)
