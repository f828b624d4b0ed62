"""The remainders study: the whole path at size smoke, its arms at full, and its judgements on runs
whose outcome was written by hand.
"""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import pytest

from mechint.results import Claim
from mechint.studies import Analysis, Planned, Runs, find_study, reproduce
from mechint.studies.remainders.measures import Measures
from mechint.studies.remainders.runs import EASY, GENERALISED, STATED
from mechint.training import Run, train_many

LETTERS = list("abcdefghi")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Claim]]:
    place = tmp_path_factory.mktemp("study") / "remainders"
    return place, reproduce("remainders", "smoke", place).claims


def test_smoke_makes_every_claim_and_figure_and_judges_none(
    smoke: tuple[Path, list[Claim]],
) -> None:
    place, claims = smoke
    assert [claim.letter for claim in claims] == LETTERS
    assert {claim.verdict for claim in claims} == {"not tested"}
    assert all(claim.criterion and claim.reason and claim.paper for claim in claims)
    page = json.loads((place / "page.json").read_text(encoding="utf-8"))
    sections = {section["title"]: section for section in page["sections"]}
    assert "Not made" not in sections
    assert {"accuracy", "active frequencies", "singular values", "attention", "gradients"} <= set(
        sections["Figures"]["figures"]
    )


def test_the_paper_is_what_full_trains() -> None:
    planned = {one.name: one.spec for one in find_study("remainders").runs("full")}
    main = planned["main-0"]
    assert (main.task.p, main.task.train_fraction, len(main.task.outputs)) == (113, 0.3, 29)  # type: ignore[attr-defined]
    assert (
        main.model.d_model,
        main.model.d_mlp,
        main.model.n_heads,
        main.model.dropout,
        main.model.init_mode,
    ) == (256, 1024, 4, 0.1, "he")  # type: ignore[attr-defined]
    assert (main.train.steps, main.train.lr, main.train.weight_decay, main.train.grokfast_lamb) == (
        65_536,
        3e-4,
        1 / 3,
        0.5,
    )
    assert (
        planned["no-grokfast-0"].train.grokfast_lamb == 0
        and planned["half-train-0"].task.train_fraction == 0.5
    )  # type: ignore[attr-defined]
    assert sum(name.startswith("main") for name in planned) == 5


@pytest.mark.slow
def test_every_arm_of_full_trains() -> None:
    """One step each at the paper's width on its 12,769 inputs."""
    arms = {one.labels["arm"]: one for one in find_study("remainders").runs("full")}
    specs = [
        dataclasses.replace(
            one.spec,
            train=dataclasses.replace(
                one.spec.train, steps=1, evaluate_every=1, checkpoints="last"
            ),
        )
        for one in arms.values()
    ]
    assert {run.status for run in train_many(specs)} == {"finished"}


def written(
    arm: str, first: dict[int, int], steps: int = 1000, train: float = 1.0
) -> tuple[Planned, Run]:
    """A run of `arm` whose primes jump to accuracy 1 at the steps in `first`, and never where they
    are left out.
    """
    study = find_study("remainders")
    planned = next(one for one in study.runs("laptop") if one.labels["arm"] == arm)
    primes = [output.n_classes for output in planned.spec.task.outputs]
    rows: list[dict[str, Any]] = []
    for step in range(0, steps + 1, 100):
        row: dict[str, Any] = {"step": step}
        for q in primes:
            row |= {
                f"test.accuracy.mod {q}": 1.0 if step >= first.get(q, steps + 1) else 1 / q,
                f"train.accuracy.mod {q}": train,
            }
        rows.append(row)
    return planned, Run(planned.spec, rows, "finished", step=steps)


def judge(letter: str, *made: tuple[Planned, Run]) -> Claim:
    runs = Runs(
        {planned.name: run for planned, run in made},
        {planned.name: planned.labels for planned, _ in made},
    )
    stated = next(one for one in STATED if one.letter == letter)
    return Analysis("remainders", "laptop").judge(
        stated, getattr(Measures(runs, EASY, GENERALISED), f"claim_{letter}")
    )


LATE = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43)
SCATTERED = dict(zip(LATE, (900, 600, 800, 700, 600, 900, 700, 800, 900, 600), strict=True))
ASCENDING = dict(zip(LATE, (510, 520, 530, 540, 600, 610, 700, 710, 800, 900), strict=True))
EARLY = {2: 100, 3: 100, 5: 200, 7: 300}


@pytest.mark.parametrize(
    ("first", "verdict"),
    [
        (EARLY | SCATTERED, "reproduced"),
        (EARLY | ASCENDING, "not reproduced"),  # the later ones in the order of their size
        (EARLY | {3: 300, 5: 200} | SCATTERED, "not reproduced"),  # 5 before 3
        (EARLY | SCATTERED | {23: 200}, "not reproduced"),  # 23 before 7
    ],
)
def test_the_order_of_the_primes(first: dict[int, int], verdict: str) -> None:
    assert judge("b", written("main", first)).verdict == verdict


def test_all_primes_at_the_last_step() -> None:
    assert judge("a", written("main", EARLY | SCATTERED)).verdict == "reproduced"
    without = {q: step for q, step in SCATTERED.items() if q != 43}
    assert judge("a", written("main", EARLY | without)).verdict == "not reproduced"


def test_ablations_of_training() -> None:
    main, slow = written("main", EARLY | SCATTERED), written("no grokfast", EARLY)
    assert judge("h", main, slow, written("no dropout", {2: 100, 3: 100})).verdict == "reproduced"
    assert judge("h", main, slow, written("no dropout", EARLY)).verdict == "not reproduced"
    assert (
        judge(
            "h",
            main,
            written("no grokfast", EARLY | SCATTERED),
            written("no dropout", {2: 100, 3: 100}),
        ).verdict
        == "not reproduced"
    )


def test_masked_primes() -> None:
    main, first = written("main", EARLY | SCATTERED), {11: 800, 13: 700, 17: 900, 19: 900}
    assert judge("i", main, written("masked", first)).verdict == "reproduced"
    assert judge("i", main, written("masked", first | {23: 100})).verdict == "not reproduced"
    assert judge("i", main, written("masked", {11: 800})).verdict == "not reproduced"


def test_a_failed_run_costs_its_claims_alone() -> None:
    planned, run = written("no dropout", {2: 100, 3: 100})
    run.status, run.error = "failed", "the loss at step 7 is not finite"
    made = (written("main", EARLY | SCATTERED), written("no grokfast", EARLY), (planned, run))
    lost, kept = judge("h", *made), judge("a", *made)
    assert (
        lost.verdict == "not tested" and "not finite" in lost.note and kept.verdict == "reproduced"
    )
    assert math.isfinite(kept.values["final"]["main-0"][43])
