"""Composition: the attention patterns against the planted construction, the hops' targets against
brute force.
"""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from mechint.planted import composition as planted
from mechint.studies import Runs, plan
from mechint.training import Run

composition = importlib.import_module("mechint.studies.composition.runs")


class Planted(Run):
    """A run whose model is the planted construction."""

    def subject(self, **options: Any) -> Any:
        return planted(n=3, k=4).subject


@pytest.fixture(scope="module")
def run() -> Run:
    made = Planted(
        plan(
            "x",
            "composition",
            {"n": 3, "k": 4, "hops": (1, 2, 4)},
            {"d_model": 8, "n_heads": 1},
            {"steps": 1},
        ).spec
    )
    made.status = "finished"
    return made


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_construction_has_its_own_pattern(run: Run, layer: int) -> None:
    assert composition.pattern_shares(run, layer) == pytest.approx((1.0, 1.0), abs=1e-4)


def test_looking_at_all_but_the_target_is_told_from_looking_at_it(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert composition.complement_share(run) == 0.0
    made = run.subject()
    followed = made.activation("blocks.0.attn.hook_pattern")
    monkeypatch.setattr(made, "activation", lambda name: 1 - followed)
    monkeypatch.setattr(run, "subject", lambda **options: made)
    assert composition.complement_share(run) == 1.0


@pytest.mark.parametrize("layer", [1, 2, 3])
def test_targets_by_brute_force(run: Run, layer: int) -> None:
    task: Any = run.spec.task
    tokens = task.sample(5, seed=1).tokens
    found = composition.pattern_targets(run, tokens, layer).tolist()
    half, hidden = 0 if layer == 1 else 2 ** (layer - 2), task.permutations.tolist()
    for row, example in zip(found, tokens.tolist(), strict=True):
        for i in range(4):
            for j in range(3):
                end = j
                for step in range(i, min(4, i + half)):
                    end = example[step * 3 + hidden[step][end]] - step * 3
                doubled = (i + half) * 3 + end if i + 2 * half <= 4 else -1
                assert row[i * 3 + j] == (i * 3 + hidden[i][j] if layer == 1 else doubled)


def learned(arm: str, steps: dict[int, int], last: int = 100) -> Run:
    """A run whose hops jump to accuracy 1 at the given steps (0: never)."""
    hops = tuple(steps)
    run = Run(
        plan(
            arm,
            "composition",
            {"n": 3, "k": 4, "hops": hops},
            {"d_model": 8, "n_heads": 1, "n_layers": 3},
            {"steps": last},
        ).spec
    )
    names = ["test.accuracy"] if len(hops) == 1 else [f"test.accuracy.{hop}-hop" for hop in hops]
    for step in range(0, last + 1, 10):
        run.metrics.append(
            {
                "step": step,
                **{
                    name: 1.0 if 0 < at <= step else 1 / 3
                    for name, at in zip(names, steps.values(), strict=True)
                },
            }
        )
    run.step, run.status = last, "finished"
    return run


def runs_of(**arms: Run) -> Runs:
    return Runs(arms, {name: {"arm": name.replace("_", "-"), "seed": 0} for name in arms})


def test_mixture_must_be_learned_from_easy_to_hard() -> None:
    last = learned("mixture-last", {1: 10, 2: 20, 4: 0})
    assert composition._mixture(
        runs_of(mixture=learned("mixture", {1: 10, 2: 20, 4: 40}), mixture_last=last), 4
    ).holds
    assert not composition._mixture(
        runs_of(mixture=learned("mixture", {1: 10, 2: 50, 4: 40}), mixture_last=last), 4
    ).holds
    lost = composition._mixture(runs_of(mixture=last, mixture_last=last), 4)
    assert not lost.holds
    assert lost.ours == (
        "0 of 1 runs learned every hop; 1-hop at step 10, 2-hop at step 20, 4-hop never (medians)."
    )


def test_direct_training_must_have_had_time_and_stay_at_chance() -> None:
    mixture = learned("mixture", {1: 10, 2: 20, 4: 40})
    assert composition._direct(runs_of(mixture=mixture, direct=learned("direct", {4: 0})), 4).holds
    assert not composition._direct(
        runs_of(mixture=mixture, direct=learned("direct", {4: 90})), 4
    ).holds
    assert not composition._direct(
        runs_of(mixture=mixture, direct=learned("direct", {4: 0}, last=50)), 4
    ).holds
