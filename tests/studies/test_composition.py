"""The composition study's verdicts on planted outcomes, and its measures against brute force."""

from __future__ import annotations

import math
from typing import Any

import torch

import tasks
from mechint import planted
from mechint.models import build
from mechint.subject import Subject
from mechint.training import spec
from studies.composition.measures import followed, pattern_targets
from studies.rows import Rows
from tests.studies.planted import Cases, verdicts

NEVER = math.inf


def plant(
    n: int = 16,
    direct: float = 0.25,
    last: bool = True,
    staged: bool = True,
    steps: tuple[float, ...] = (150, 300, 700),
    one_each: bool = True,
    curriculum: float = 0.99,
    curriculum_last: float = 0.99,
    passed: bool = True,
    shortest: bool = True,
    forgotten: float = 0.4,
    followed: float = 0.98,
    start: float = 0.1,
) -> Rows:
    """Rows of every arm; a hop that is not learned was never reached."""
    pattern = {"followed": [followed] * 3, "followed_untrained": [start] * 3}
    ends = {"1": forgotten, "2": 0.9, "4": curriculum}
    last_ends = {"1": 0.5, "2": 0.5, "4": curriculum_last}
    arms: dict[str, tuple[bool, dict[str, Any]]] = {
        "mixture-last": (last, {}),
        "mixture": (staged, pattern),
        "mixture-one-hop-each": (one_each, {}),
        "direct": (False, {"last": {"4": direct}}),
        "curriculum": (True, {"last": ends, "passed_stages": passed}),
        "curriculum-last": (True, {"last": last_ends, "passed_stages": passed}),
    }
    stuck = (steps[0] if shortest else NEVER, NEVER, NEVER)
    return Rows(
        [
            {
                **{"arm": arm, "seed": seed, "chance": 0.25, "steps": 6000},
                "learned_at": dict(zip("124", steps if learned else stuck, strict=True)),
                **more,
            }
            for seed in range(n)
            for arm, (learned, more) in arms.items()
        ]
    )


UNLEARNED = {"last": False, "staged": False, "one_each": False}
CASES: Cases = {
    "a": ({"direct": 0.9}, {"last": False}),
    "b1": ({"last": False}, {**UNLEARNED, "shortest": False}),
    "b2": ({"staged": False}, {**UNLEARNED, "shortest": False}),
    "b3": ({"steps": (300, 150, 700)}, {"last": False, "staged": False}),
    "b4": ({"one_each": False}, {**UNLEARNED, "shortest": False}),
    "c1": ({"curriculum": 0.2}, {"passed": False}),
    "c2": ({"curriculum_last": 0.2}, {"passed": False}),
    "d1": ({"followed": 0.3}, {"start": 0.8}),
    "d2": ({"followed": 0.3}, {"start": 0.8}),
    "d3": ({"followed": 0.3}, {"start": 0.8}),
    "e": ({"forgotten": 0.99}, {"passed": False}),
}
test_verdicts = verdicts("composition", plant, CASES)


def test_targets_are_those_of_the_construction() -> None:
    task: Any = tasks.make("composition", n=3, k=4, hops=(4,), perm_seed=5)
    data = task.sample(4, seed=0, split="test")
    first = pattern_targets(task, data.tokens, 1)
    for i in range(4):
        for j in range(3):
            assert int(first[0, 3 * i + j]) == 3 * i + int(task.permutations[i][j])
    second, third = (pattern_targets(task, data.tokens, layer) for layer in (2, 3))
    assert (second[:, 9:] == -1).all() and (third[:, 3:] == -1).all()
    assert ((second[:, :9] // 3) == torch.arange(1, 4).repeat_interleave(3)).all()
    assert (third[:, :3] // 3 == 2).all()


def test_the_planted_construction_is_followed_and_initial_weights_are_not() -> None:
    made = planted.composition(3, 4).subject
    layers = range(1, 4)
    assert all(followed(made, layer) > 0.99 for layer in layers)
    task: Any = tasks.make("composition", n=3, k=4, hops=(1, 2, 4))
    asked = spec(task, {"n_layers": 3, "d_model": 16}, {"steps": 1})
    fresh = Subject(build(asked.model, seed=0).eval(), task, n_examples=64)
    assert all(followed(fresh, layer) < 0.7 for layer in layers)
