"""Runs of the study of clock and pizza: additions by learned and by uniform attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mechint.studies.one_family.claims import CLAIMS, CONSTANT, FALLING, UNIFORM
from mechint.studies.one_family.figures import draw
from mechint.studies.one_family.measures import measure
from mechint.studies.study import PlannedRun, Sentence, Study, arm

SEED = 4000
SEEDS = {"smoke": (1, 1, 1), "laptop": (16, 16, 4), "fresh": (0, 0, 0), "overnight": (64, 64, 8)}
"""Runs of each arm, in the order of ARMS."""

KEPT: Mapping[str, Any] = {
    **{"evaluate_every": 25, "checkpoints": "linear", "n_checkpoints": 20},
    **{"stop_accuracy": 0.999, "weight_decay": 2.0, "grokfast": "ema"},
}
STEADY = {**KEPT, "steps": 1500, "lr": 0.003}
FALLS = {**KEPT, "steps": 800, "lr": 0.005, "schedule": "cosine", "batch_size": 512}
LARGE = {"p": 59, "train_fraction": 0.6}
ARMS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]] = {
    CONSTANT: (LARGE, {}, STEADY),
    FALLING: ({"p": 31, "train_fraction": 0.9}, {"d_model": 64}, FALLS),
    UNIFORM: (LARGE, {"attention_rate": 0.0}, STEADY),
}
"""Arm → task, model, training."""


def plan(size: str) -> list[PlannedRun]:
    """The arms of `size`, one run a seed."""
    few = {"steps": 40, "n_checkpoints": 4} if size == "smoke" else {}
    return [
        one
        for (name, (task, model, train)), n in zip(ARMS.items(), SEEDS[size], strict=True)
        for one in arm(
            name,
            "modular-arithmetic",
            range(SEED, SEED + n),
            {**task, "p": 11} if few else task,
            model,
            {**train, **few},
        )
    ]


STUDY = Study(
    name="one-family",
    title="Are clock and pizza one family?",
    paper="Our own study",
    summary=(
        "Models of modular addition with learned attention, clocks, and with uniform attention, "
        "pizzas, have been told apart, and have been said to add alike, by neurons that read a sum "
        "of the same waves of both operands. The hypothesis: it depends on the training. At a "
        "constant rate the sum of one function of both operands is enough for the answers, though "
        "more is used; at a falling rate it is not."
    ),
    here="addition mod 59 at a constant rate, mod 31 at a falling one; one layer",
    there="nobody's, as far as we know",
    before=(
        "Zhong et al. 2023 (arXiv 2306.17844) tell clocks and pizzas apart; arXiv 2512.25060 holds "
        "that they add alike. Models of seeds 0 to 31 of the same plans suggested the claims."
    ),
    claims=CLAIMS,
    sentences=(
        Sentence(
            "mod 59, at a constant rate, g(x) + g(y) is enough for the answers of most models",
            ("a",),
            "mod 59",
        ),
        Sentence("mod 31, at a falling rate, it is not", ("b",), "mod 31, 800 steps"),
        Sentence("most models use nothing but that sum", ("c",), "mod 59"),
        Sentence(
            "most models have their final frequencies before they answer held-out sums",
            ("d",),
            "mod 59",
        ),
    ),
    costs={"laptop": 0.4, "overnight": 1.6},
    plan=plan,
    measure=measure,
    draw=draw,
)
