"""Verdicts of the half-learned study on planted outcomes, and its measures against brute force."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mechint
import tasks
from mechint.studies.half_learned.claims import gained, half_learned, lost
from mechint.studies.half_learned.figures import draw
from mechint.studies.half_learned.measures import factor, from_pairs, measure
from mechint.studies.rows import Rows
from tests.studies.planted import Cases, held, verdicts

GRID = np.stack(np.meshgrid(*[np.arange(10)] * 3, indexing="ij"), -1).reshape(-1, 3)


def plant(
    n: int = 24,
    gain: float = 30.0,
    loss: float = 30.0,
    late_loss: float = 30.0,
    pairs: float = 20.0,
    agree: float = 75.0,
    half: float = 0.6,
    solved: float = 0.3,
) -> Rows:
    """Runs that know the sum mod 5 and not its parity (share `half`, by so many triplets above and
    below chance), that solve it, and that know nothing; a third of them with twice as many held
    out.
    """

    def factors(train: int, test: int, short: float, seed: int) -> dict[str, Any]:
        noise = 0.2 * (seed % 3 - 1)
        sizes = {"n_train": train, "n_test": test, "agree": agree * test / 100, "pairs": 0.0}
        known = {**sizes, "train": train, "test": test}
        blank = {**sizes, "train": train / 5, "test": test / 5}
        right = {"train": train / 2 + gain + noise, "test": test / 2 - short - noise}
        parity = {**sizes, **right, "pairs": pairs * test / 100}
        solves = half * n <= seed < (half + solved) * n
        other = known if seed < (half + solved) * n else blank
        return {"2": known if solves else parity, "5": other}

    arms = {
        "triplets ADD": (900, 100, loss),
        "triplets ADD, 200 held out": (800, 200, late_loss),
    }
    return Rows(
        [
            {"arm": arm, "seed": seed, "init": "normal", "factors": factors(*of, seed)}
            for arm, of in arms.items()
            for seed in range(n)
        ]
    )


FEW = {"half": 0.1}
CASES: Cases = {
    "a": ({"loss": -15.0}, FEW),
    "b": ({"loss": 8.0}, {"gain": -1.0}),
    "c": ({"late_loss": 8.0}, {"gain": -1.0}),
    "d": ({"agree": 50.0}, {"pairs": 60.0}),
    "e": ({"pairs": 45.0}, FEW),
}
test_verdicts = verdicts("half-learned", plant, CASES)


def test_a_guess_balances_and_is_not_supported_for_it() -> None:
    """It neither gains nor loses: nothing could have failed."""
    guess = held("half-learned", "b", plant(gain=0.0, loss=0.0))
    assert guess.verdict == "inconclusive" and guess.control.startswith("failed")
    assert held("half-learned", "a", plant(gain=0.0, loss=0.0)).verdict == "inconclusive"


def test_a_memorized_table_is_refuted() -> None:
    """It gains everything in training and loses nothing held out."""
    assert held("half-learned", "b", plant(gain=450.0, loss=0.5)).verdict == "refuted"


def test_functions_of_two_digits_give_the_right_remainder_chance_over_all_triplets() -> None:
    """Whatever the functions: by brute force over all 1,000, for both factors."""
    generator = np.random.default_rng(0)
    for m in (2, 5):
        wanted = np.eye(m)[GRID.sum(1) % m]
        scores = sum(
            generator.standard_normal((10, 10, m))[GRID[:, a], GRID[:, b]]
            for a, b in ((0, 1), (0, 2), (1, 2))
        )
        assert float((scores * (wanted - 1 / m)).sum()) == pytest.approx(0, abs=1e-8)


def test_pairs_of_digits_are_wrong_on_the_parity_of_held_out_sums() -> None:
    """Parity of three digits is of third order: what fits it by pairs must be wrong elsewhere."""
    order = np.random.default_rng(0).permutation(1000)
    test, train = order[:100], order[100:]
    odd = GRID.sum(1) % 2
    right = from_pairs(GRID, odd, train) == odd
    assert right[train].mean() > 0.5 and right[test].mean() < 0.2
    of_two = (GRID[:, 0] + GRID[:, 1]) % 2
    assert (from_pairs(GRID, of_two, train) == of_two).all()


def test_counts_of_a_factor_are_those_of_a_loop() -> None:
    generator = np.random.default_rng(1)
    predicted = generator.integers(0, 13, 1000)
    order = generator.permutation(1000)
    parts = {"train": order[:900], "test": order[900:]}
    found = factor(predicted, GRID, 5, parts)
    for name, index in parts.items():
        right = sum(predicted[i] < 10 and predicted[i] % 5 == sum(GRID[i]) % 5 for i in index)
        assert found[name] == right and found[f"n_{name}"] == len(index)
    said = from_pairs(GRID, GRID.sum(1) % 5, parts["train"])
    agree = sum(predicted[i] < 10 and predicted[i] % 5 == said[i] for i in parts["test"])
    assert found["agree"] == agree
    assert gained(5, found) == found["train"] - 180 and lost(5, found) == 20 - found["test"]


def test_the_digits_of_a_run_are_those_of_its_text() -> None:
    """What is measured of a run, against the texts of its examples and the model's own answers."""
    task: Any = tasks.make("listops-triplets", n=10, operations=("ADD",))
    (run,) = mechint.train(task, {"d_model": 12}, {"steps": 3, "batch_size": 8})
    row = measure(run, {"arm": "triplets ADD"})
    examples = task.examples()
    answers = run.subject(data=examples).logits().argmax(-1).tolist()
    right = dict.fromkeys(("train", "test"), 0)
    for part in right:
        for i in task.split(run.spec.data_seed)[part].tolist():
            digits = [
                int(one) for one in task.text(examples.tokens[i]).split("=")[0] if one.isdigit()
            ]
            right[part] += answers[i] < 10 and answers[i] % 2 == sum(digits) % 2
    counts = row["factors"]["2"]
    assert (counts["train"], counts["test"]) == (right["train"], right["test"])
    assert (counts["n_train"], counts["n_test"]) == (900, 100)


def test_the_figure_has_a_point_a_half_learned_run() -> None:
    (figure,) = draw(plant()).values()
    line, *points = figure.plots[0].layers
    assert list(line.x) == list(line.y)
    assert sum(len(layer.x) for layer in points) == len(half_learned(plant()))
    assert not draw(plant(half=0.0))
