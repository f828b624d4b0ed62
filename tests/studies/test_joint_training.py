"""The joint-training study: the whole path at size smoke, its arms at full, and its judgements on
runs whose outcome was written by hand.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mechint.results import Claim
from mechint.studies import Analysis, Planned, Runs, find_study, reproduce
from mechint.studies.joint_training.claims import STATED
from mechint.studies.joint_training.measures import Measures
from mechint.studies.joint_training.runs import FULL_ARMS, full
from mechint.studies.joint_training.transitions import parameters
from mechint.training import Run, train_many

LETTERS = list("abcdefghijklm")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Claim]]:
    place = tmp_path_factory.mktemp("study") / "joint"
    return place, reproduce("joint-training", "smoke", place).claims


def test_smoke_makes_every_claim_and_judges_none(smoke: tuple[Path, list[Claim]]) -> None:
    place, claims = smoke
    assert [claim.letter for claim in claims] == LETTERS
    assert {claim.verdict for claim in claims} == {"not tested"}
    page = json.loads((place / "page.json").read_text(encoding="utf-8"))
    sections = {section["title"]: section for section in page["sections"]}
    assert {
        "transition",
        "triplets",
        "operations while a mixture trains",
        "norm ratios, attention",
    } <= set(sections["Figures"]["figures"])
    assert set(sections["Sensitivity"]["tables"]) == {"initialisation"}


def test_the_laptop_holds_the_triplets_of_the_paper() -> None:
    planned = find_study("joint-training").runs("laptop")
    sizes = {one.labels["arm"]: len(one.spec.task.split(0)["train"]) for one in planned}  # type: ignore[attr-defined]
    assert sizes["MAX+MED+ADD"] == 2700 and sizes["ADD"] == 900
    for arm in ("MAX+MED+ADD", "ADD"):
        assert (
            sum(
                one.labels["arm"] == arm
                and one.labels["width"] == 64
                and one.labels["init"] == "normal"
                for one in planned
            )
            == 5
        )


def test_parameters_are_counted_as_built() -> None:
    one = next(
        one for one in find_study("joint-training").runs("smoke") if one.labels["width"] == 12
    )
    (run,) = train_many(
        [dataclasses.replace(one.spec, train=dataclasses.replace(one.spec.train, steps=1))]
    )
    assert parameters(run) == sum(weight.numel() for weight in run.weights.values())


def test_what_is_judged_of_a_full_arm() -> None:
    judged = {one.labels["arm"]: one.labels["judged"] for one in full(widths=(8,), seeds=1)}
    assert (
        judged["ADD in ADD+PROD"] == "ADD"
        and judged["PROD prime in MAX+PROD"] == "PROD"
        and judged["shuffled ADD in MAX+MED+ADD"] == "ADD"
    )
    assert (
        judged["OP in OP+OP_TOP+OP_BOTTOM"] == "OP"
        and judged["ADD"] == ""
        and judged["3 operands, depth 5"] == ""
    )


@pytest.mark.slow
def test_full_runs_through_at_reduced_steps() -> None:
    """Every arm of the paper for two steps at two small widths: each claim is measured, none is
    lost to an error.
    """
    planned = full(
        widths=(8, 12),
        seeds=1,
        train={
            "steps": 2,
            "evaluate_every": 2,
            "batch_size": 4,
            "eval_examples": 8,
            "stop_after": 2,
        },
    )
    runs = train_many([one.spec for one in planned])
    names = [one.name for one in planned]
    analysis = find_study("joint-training").analyse(
        Runs(dict(zip(names, runs, strict=True)), {one.name: one.labels for one in planned}), "full"
    )
    assert [claim.letter for claim in analysis.claims] == LETTERS
    assert {claim.letter for claim in analysis.claims if "no run" in claim.note} <= {
        "g"
    }  # nothing is learned in two steps
    assert {f"transition: {name}" for name in ("addition", "products")} <= set(analysis.figures)
    assert set(FULL_ARMS) <= {one.labels["arm"] for one in planned}


def outcome(
    arm: str, width: int, accuracies: list[float], init: str = "normal"
) -> list[tuple[Planned, Run]]:
    """The runs of one arm of the laptop, one an accuracy, as if they had ended there; learned runs
    learn at step 500.
    """
    planned = [
        one
        for one in find_study("joint-training").runs("laptop")
        if (one.labels["arm"], one.labels["width"], one.labels["init"]) == (arm, width, init)
    ]
    made = []
    for one, accuracy in zip(planned, accuracies, strict=True):
        rows: list[dict[str, Any]] = [
            {"step": step, "test.greedy.accuracy": accuracy if step else 0.1, "train.accuracy": 1.0}
            for step in (0, 500, 5000)
        ]
        made.append((one, Run(one.spec, rows, "finished", step=5000)))
    return made


def judge(letter: str, *made: list[tuple[Planned, Run]]) -> Claim:
    flat = [pair for group in made for pair in group]
    runs = Runs(
        {planned.name: run for planned, run in flat},
        {planned.name: planned.labels for planned, _ in flat},
    )
    stated = next(one for one in STATED if one.letter == letter)
    return Analysis("joint-training", "laptop").judge(
        stated, getattr(Measures(runs, "laptop"), f"claim_{letter}")
    )


def test_mixture_against_sums_alone() -> None:
    mixed, alone = outcome("MAX+MED+ADD", 64, [1.0] * 5), outcome("ADD", 64, [0.1] * 5)
    claim = judge("e", mixed, alone)
    assert (
        claim.verdict == "reproduced"
        and "5 of 5 solved" in claim.ours
        and "0 of 5 solved" in claim.ours
    )
    assert (
        judge("e", outcome("MAX+MED+ADD", 64, [1.0, 1.0, 1.0, 1.0, 0.1]), alone).verdict
        == "not reproduced"
    )
    assert judge("e", mixed, outcome("ADD", 64, [0.9] * 5)).verdict == "not reproduced"


def test_the_transition_of_what_is_never_learned_is_a_lower_bound() -> None:
    mixed = [
        outcome("MAX+MED+ADD", width, values)
        for width, values in ((8, [0.1] * 3), (16, [0.2] * 3), (32, [1.0] * 3), (64, [1.0] * 5))
    ]
    alone = [outcome("ADD", width, [0.1] * n) for width, n in ((8, 3), (16, 3), (32, 3), (64, 5))]
    claim = judge("b", *mixed, *alone)
    assert claim.verdict == "reproduced" and "factor ≥" in claim.ours and claim.values["ratio"] > 3
    learned = [
        outcome("ADD", width, values)
        for width, values in ((8, [0.1] * 3), (16, [0.2] * 3), (32, [1.0] * 3), (64, [1.0] * 5))
    ]
    assert judge("b", *mixed, *learned).values["ratio"] == pytest.approx(1.0)


def test_the_order_of_difficulty() -> None:
    mixed = outcome("MAX+MED+ADD", 64, [1.0] * 5)
    easy = [outcome(name, 32, [1.0, 1.0]) for name in ("MAX", "MIN", "MED")]
    hard = [
        outcome("ADD", 32, [0.1] * 3),
        *(outcome(name, 32, [0.2, 0.2]) for name in ("PROD", "NADD")),
    ]
    assert judge("a", mixed, *easy, *hard).verdict == "reproduced"
    assert (
        judge("a", mixed, *easy, outcome("ADD", 32, [1.0, 0.1, 0.1]), *hard[1:]).verdict
        == "not reproduced"
    )


def test_shuffled_tables() -> None:
    true = outcome("MAX+MED+ADD", 64, [1.0] * 5)
    assert judge("d", true, outcome("shuffled MAX+MED+ADD", 64, [0.2, 0.3])).verdict == "reproduced"
    assert (
        judge("d", true, outcome("shuffled MAX+MED+ADD", 64, [0.9, 0.3])).verdict
        == "not reproduced"
    )


def test_what_only_full_can_test_says_so() -> None:
    claim = judge("f", outcome("MAX+MED+ADD", 64, [1.0] * 5))
    assert claim.verdict == "not tested" and "size full tests it" in claim.note


def test_no_embedding_without_a_model_that_learned() -> None:
    claim = judge(
        "g",
        outcome("MAX+MED+ADD", 64, [0.1] * 5),
        outcome("ADD", 64, [0.1] * 5),
        outcome("ADD+PROD", 64, list(np.full(3, 0.2))),
    )
    assert claim.verdict == "not tested" and "no embedding to average" in claim.note
