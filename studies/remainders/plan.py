"""Runs of the remainders study.

laptop: p = 47 with 80% train, where all primes generalize within minutes. So much data leaves
little to grok, 47 is 1 modulo 23, and a run is a ninth as long as the paper's: it shows what a
model learns and how, not in which order: the paper's p = 113 with 30% train takes about 25
core-hours a run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mechint.studies.remainders.claims import CLAIMS
from mechint.studies.remainders.figures import draw
from mechint.studies.remainders.measures import EASY, measure
from mechint.studies.study import FRESH, PlannedRun, Sentence, Study, arm

SEED = 3000
MODEL: Mapping[str, Any] = {
    **{"d_model": 128, "n_heads": 4, "d_mlp": 512, "use_bias": False, "dropout": 0.1},
    **{"init_mode": "d_model", "normalization_type": None},
}
TRAIN: Mapping[str, Any] = {
    **{"steps": 7000, "lr": 1e-3, "betas": (0.9, 0.98), "weight_decay": 1.0},
    **{"grokfast": "ema", "grokfast_lamb": 2.0, "grokfast_alpha": 0.98, "grokfast_start": "zero"},
    **{"output_weights": "log", "evaluate_every": 50, "checkpoints": "log", "n_checkpoints": 28},
}
DATA: Mapping[str, Any] = {"p": 47, "train_fraction": 0.8, "validation_fraction": 0.0}

ARMS: Mapping[str, Mapping[str, Any]] = {
    "main": {},
    "addition": {"task": "modular-arithmetic"},
    "shuffled": {"data": {"labels": "shuffled"}},
    "masked": {"data": {"masked": EASY}},
    "no dropout": {"model": {"dropout": 0.0}},
    "no grokfast": {"train": {"grokfast_lamb": 0.0}},
    "long": {"train": {"n_checkpoints": 112}},
}
"""Arm → what differs from the main one."""

LAPTOP = {"main": (10, 7000), "addition": (4, 2000), "shuffled": (8, 7000)}
"""Arm → runs and steps; addition generalizes in hundreds."""

AGAIN = {"main": (6, 5000), "shuffled": (4, 2000), "addition": (3, 2000)}
"""Of size fresh: for the order of the easy primes, and the early structure of the controls."""

WITHOUT = ("masked", "no dropout", "no grokfast")
LONG = {"long": (10, 7000), **dict.fromkeys(WITHOUT, (5, 7000))}
"""Of size fresh, on seeds of their own: long enough for every onset."""

OVERNIGHT = {"main": (10, 28_000), "addition": (4, 2000), "shuffled": (8, 7000)}
"""Runs long enough for the number of active frequencies to fall again."""


def plan(size: str) -> list[PlannedRun]:
    """The arms of `size`, one run a seed."""
    if size == "smoke":
        data = {**DATA, "p": 17, "train_fraction": 0.7}
        model = {**MODEL, "d_model": 16, "d_mlp": 32}
        train = {**TRAIN, "evaluate_every": 5, "n_checkpoints": 4}
        return _arms(dict.fromkeys(ARMS, (1, 20)), data, model, train)
    if size == "fresh":
        later = _arms(LONG, DATA, MODEL, TRAIN, FRESH + 10)
        return [*_arms(AGAIN, DATA, MODEL, TRAIN, FRESH), *(replace(run, stage=1) for run in later)]
    return _arms(LAPTOP if size == "laptop" else OVERNIGHT, DATA, MODEL, TRAIN)


def _arms(
    budget: Mapping[str, tuple[int, int]],
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    train: Mapping[str, Any],
    first: int = SEED,
) -> list[PlannedRun]:
    planned: list[PlannedRun] = []
    for name, (seeds, steps) in budget.items():
        differs = ARMS[name]
        more = dict(differs.get("data", {}))
        if "masked" in more:
            more["masked"] = tuple(q for q in EASY if q < data["p"])
        planned += arm(
            name,
            differs.get("task", "remainders"),
            range(first, first + seeds),
            {**data, **more},
            {**model, **differs.get("model", {})},
            {**train, "steps": steps, **differs.get("train", {})},
        )
    return planned


STUDY = Study(
    name="remainders",
    title="Remainders by all primes at once",
    paper=(
        "Syrkis and Søgaard, Mechanistic Interpretability on (Multi-task) Irreducible Integer "
        "Identifiers"
    ),
    summary=(
        "A one-block transformer reads two base-p digits and predicts the remainders of the "
        "number by every prime below p. It learns 2, 3, 5 and 7 first and the others together "
        "later, and while it does the number of frequencies in its neurons spikes. Position "
        "embeddings, singular values and heads show that it tells the digits apart; shuffled "
        "labels show none of its periodicity."
    ),
    here="p = 47, 14 primes, 80% train, 7,000 steps",
    there="p = 113, 29 primes, 30% train, 65,536 steps",
    claims=CLAIMS,
    sentences=(
        Sentence("one model learns the remainders by all primes", ("a",)),
        Sentence(
            "2, 3, 5, 7 come in that order, the others later and in none",
            ("b1", "b3", "b2"),
        ),
        Sentence("frequencies spike and fall again", ("e",)),
        Sentence(
            "positions are opposed, unlike those of addition, and heads read one digit",
            ("c2", "c1", "g1", "g2"),
        ),
        Sentence("shuffled labels leave nothing periodic", ("f",)),
        Sentence("without Grokfast or dropout nothing but 2 and 3 is learned", ("h1", "h2")),
        Sentence(
            "embedding and frequencies are more diffuse than with noise",
            ("d2", "j3"),
            own=True,
        ),
    ),
    costs={"laptop": 1.8, "fresh": 3.0, "overnight": 4.7},
    plan=plan,
    measure=measure,
    draw=draw,
)
