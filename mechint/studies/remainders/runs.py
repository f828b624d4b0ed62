"""What the remainders study trains: Syrkis and Søgaard, Mechanistic Interpretability on
(Multi-task) Irreducible Integer Identifiers.

laptop: p = 47 with 80% train, where all primes are known to generalize within minutes. So much data
leaves little to grok, 47 is 1 modulo 23, and a run is a ninth as long as the paper's: it shows what
one model learns and how (a, c to g), and not in which order (b). overnight: the paper's p = 113
with 30% train, run by run, the main arm first. full: five seeds, and the 50% of the authors' code
beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mechint.studies.core.study import FRESH, Analysis, PlannedRun, Runs, Study, plan
from mechint.studies.remainders import figures as drawn
from mechint.studies.remainders.claims import CLAIMS
from mechint.studies.remainders.measures import EASY, Measures

LAPTOP_MODEL = {
    "d_model": 128,
    "n_heads": 4,
    "d_mlp": 512,
    "use_bias": False,
    "dropout": 0.1,
    "init_mode": "d_model",
    "normalization_type": None,
}
LAPTOP_TRAIN = {
    "steps": 7000,
    "lr": 1e-3,
    "betas": (0.9, 0.98),
    "weight_decay": 1.0,
    "grokfast": "ema",
    "grokfast_lamb": 2.0,
    "grokfast_alpha": 0.98,
    "grokfast_start": "zero",
    "output_weights": "log",
    "evaluate_every": 50,
    "checkpoints": "log",
    "n_checkpoints": 28,
}
LAPTOP_DATA = {"p": 47, "train_fraction": 0.8, "validation_fraction": 0.0}

PAPER_MODEL = {**LAPTOP_MODEL, "d_model": 256, "d_mlp": 1024, "init_mode": "he"}
PAPER_TRAIN = {
    **LAPTOP_TRAIN,
    "steps": 65_536,
    "lr": 3e-4,
    "weight_decay": 1 / 3,
    "grokfast_lamb": 0.5,
    "grokfast_start": "first",
    "evaluate_every": 128,
    "n_checkpoints": 33,
}
PAPER_DATA = {"p": 113, "train_fraction": 0.3, "validation_fraction": 1000 / 12769}

DENSE = {"n_checkpoints": 65}
"""Of the main arm at the paper's length: a factor of 1.2 between checkpoints, so that some lie
between the later primes' onsets and the end, where the active frequencies are to fall again.
"""

ALL = ("main", "addition", "masked", "shuffled", "no dropout", "no grokfast")
"""The arms in the order in which a night reaches them."""


def arm_runs(
    arm: str,
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    train: Mapping[str, Any],
    seeds: int,
    stage: int | None = None,
    first: int = 0,
    **more: Any,
) -> list[PlannedRun]:
    """The runs of one arm, all of as many steps as the main runs unless `more` says otherwise;
    from `stage` on a stage each, or all in one where it is None. first: of the `seeds`.
    """
    task, parameters = "remainders", dict(data)
    model, train = dict(model), {**train, **more}
    if arm == "no grokfast":
        train["grokfast_lamb"] = 0.0
    elif arm == "no dropout":
        model["dropout"] = 0.0
    elif arm == "masked":
        parameters["masked"] = tuple(q for q in EASY if q < data["p"])
    elif arm == "shuffled":
        parameters["labels"] = "shuffled"
    elif arm == "addition":
        task = "modular-arithmetic"
    return [
        plan(
            arm.replace(" ", "-"),
            task,
            parameters,
            model,
            train,
            seed=FRESH + seed,
            stage=0 if stage is None else stage + seed,
            arm=arm,
        )
        for seed in range(first, first + seeds)
    ]


def smoke() -> list[PlannedRun]:
    """Every arm on the primes below 17 for a few steps."""
    data = {"p": 17, "train_fraction": 0.7, "validation_fraction": 0.0}
    model = {**LAPTOP_MODEL, "d_model": 16, "d_mlp": 32}
    train = {**LAPTOP_TRAIN, "steps": 20, "evaluate_every": 5, "n_checkpoints": 4}
    return [one for arm in ALL for one in arm_runs(arm, data, model, train, 2)]


def laptop() -> list[PlannedRun]:
    """Ten seeds of the main arm, so that a run or two which differ leave a share decided, and new
    ones, since nineteen had been judged by earlier criteria; addition generalizes and shuffled
    labels are learned by heart in hundreds of steps, and their arms are shorter.
    """
    planned = arm_runs("main", LAPTOP_DATA, LAPTOP_MODEL, LAPTOP_TRAIN, 10, first=19)
    for arm in ("addition", "shuffled"):
        planned += arm_runs(arm, LAPTOP_DATA, LAPTOP_MODEL, LAPTOP_TRAIN, 3, steps=2000)
    return planned


def overnight() -> list[PlannedRun]:
    """The paper's p and epochs, one run after the other: five seeds of the main arm, the fewest
    that decide a share, and three of every other.
    """
    planned: list[PlannedRun] = []
    for arm in ALL:
        seeds, more = (5, DENSE) if arm == "main" else (3, {})
        planned += arm_runs(
            arm, PAPER_DATA, PAPER_MODEL, PAPER_TRAIN, seeds, stage=len(planned), **more
        )
    return planned


def full() -> list[PlannedRun]:
    """Five seeds of every arm, and the main arm on half of the inputs."""
    planned = arm_runs("main", PAPER_DATA, PAPER_MODEL, PAPER_TRAIN, 5, **DENSE)
    for arm in ALL[1:]:
        planned += arm_runs(arm, PAPER_DATA, PAPER_MODEL, PAPER_TRAIN, 5)
    half = {**PAPER_DATA, "train_fraction": 0.5}
    return [*planned, *arm_runs("half train", half, PAPER_MODEL, PAPER_TRAIN, 3)]


class RemaindersStudy(Study):
    """Remainders by all primes below p, learned by one block at once, with its controls."""

    name: ClassVar[str] = "remainders"
    title: ClassVar[str] = "Remainders by all primes at once"
    paper: ClassVar[str] = (
        "Syrkis and Søgaard, Mechanistic Interpretability on (Multi-task) Irreducible Integer "
        "Identifiers"
    )
    summary: ClassVar[str] = (
        "A one-block transformer reads two base-p digits and predicts the remainders of the "
        "number by every prime below p. It learns 2, 3, 5 and 7 first and the others together "
        "later, and while it does the number of frequencies in its neurons spikes. Position "
        "embeddings, singular values and heads show that it tells the digits apart; shuffled "
        "labels show none of its periodicity."
    )
    claims = CLAIMS

    def runs(self, size: str) -> list[PlannedRun]:
        """The arms of `size`, one run per seed."""
        return {"smoke": smoke, "laptop": laptop, "overnight": overnight, "full": full}[size]()

    def analyze(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to i, and draw what the paper draws."""
        analysis, measures = Analysis(self.name, size, runs.say), Measures(runs)
        for spec in self.claims:
            analysis.add_claim(spec, measures)
        drawn.draw(analysis, measures)
        return analysis
