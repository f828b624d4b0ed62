"""The remainders study: one block learns the remainders of two-digit numbers by all primes at once.

Syrkis and Søgaard, Mechanistic Interpretability on (Multi-task) Irreducible Integer Identifiers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from mechint.studies.core.study import Analysis, Planned, Runs, Stated, Study, plan
from mechint.studies.remainders import figures as drawn
from mechint.studies.remainders import measures as measured

EASY = (2, 3, 5, 7)
"""The primes that the paper sees first, and that its masked control leaves out."""

GENERALISED = 0.9
"""Held-out accuracy from which a prime counts as generalised: far from chance (at most 1/2) and
from what memorising gives, and below 1 because dropout noise and weight decay move single examples
at the size of a laptop.
"""

STATED = (
    Stated(
        "a",
        "one model learns the remainders by all primes below p",
        "validation accuracy 1 for all 29 primes (p = 113, 65,536 epochs)",
        (
            f"the least held-out accuracy of any prime at the last step is at least {GENERALISED} "
            "in every main run"
        ),
        (
            "the last step, never the best; at p = 47 a run is a ninth as long as the paper's and "
            "some primes still rise at its end"
        ),
    ),
    Stated(
        "b",
        "2, 3, 5 and 7 generalise first and in that order, the others later in no order",
        "2, 3, 5, 7 in that order, the other 25 around epoch 40,000 in no particular order",
        f"in every main run the first steps at {GENERALISED} of 2, 3, 5, 7 do not fall, none "
        "of the others comes before 7, and the rank "
        "correlation of the others' first steps with their size has p > 0.05",
        "ties within one evaluation are no disorder; a rank correlation is how an order would show",
    ),
    Stated(
        "c",
        "position embeddings are alike for addition, which commutes, and opposed for remainders",
        "Pearson correlation 0.95 for addition, -0.64 for remainders",
        "above 0.5 in every addition run, below 0 in every main run",
        (
            "the sign is the claim; 0.5 is half of what the paper saw, and 128 coordinates give "
            "chance correlations of 0.09"
        ),
    ),
    Stated(
        "d",
        (
            "the singular values of the token embedding are more diffuse for remainders than for "
            "addition"
        ),
        "more components for 50% and for 90% of the variance (Fig. 9)",
        "both ranks are larger in every main run than in every addition run",
        (
            "the two ranks are what the paper marks; no overlap between runs is the plainest "
            "comparison of a few seeds"
        ),
    ),
    Stated(
        "e",
        (
            "the number of active frequencies of the neurons spikes while the later primes "
            "generalise, and falls again"
        ),
        "0, 0, 10, 18, 10 at epochs 256, 1,024, 4,096, 16,384, 65,536",
        "in every main run the largest count comes after the first later prime has "
        "generalised, exceeds the first checkpoint's, and exceeds "
        "the last checkpoint's",
        (
            "rise, and fall at the end, are the claim; the rule ω > μ + 2σ allows at most a fifth "
            "of the frequencies, so counts scale with p"
        ),
    ),
    Stated(
        "f",
        "with shuffled labels neither embedding nor neurons are periodic",
        "no periodicity in either (Fig. 14, 16)",
        "largest share of a frequency against tokens in random order: p > 0.01 in embedding "
        "and neurons of every shuffled run, and p ≤ 0.01 "
        "in both of every main run",
        (
            "the permuted null says what no order looks like; the main runs show that the "
            "measurement can see one"
        ),
    ),
    Stated(
        "g",
        "heads attend to one digit each",
        "from the answer to x0 all or nothing, in 4 of 4 heads (Fig. 19)",
        (
            "in every main run at least three of four heads give one and the same digit 80% of "
            "the attention both digits get, on average over inputs"
        ),
        "80% is four times what the other digit gets; the paper itself says that heads tend to",
    ),
    Stated(
        "h",
        "without Grokfast it does not converge; without dropout it overfits all primes but 2 and 3",
        "λ = 0 did not converge; validation diverged without dropout",
        f"at the last step of the run without Grokfast some prime is below {GENERALISED} and "
        "fewer primes are at it than in any main run; at the last "
        "step of the run without dropout all training accuracies are at least 0.99 and "
        f"held-out accuracy is at least {GENERALISED} for 2 and 3 alone",
        (
            "the same thresholds as for the main runs, at the end of the run; runs without "
            "dropout are stopped early because they fit within hundreds of steps"
        ),
    ),
    Stated(
        "i",
        (
            "without 2, 3, 5, 7 the primes 11, 13, 17, 19 come first, and the rest is not notably "
            "delayed"
        ),
        "11, 13, 17, 19 first, no notable delay (App. A)",
        (
            f"11 and 13 reach {GENERALISED}, no other prime does before 17 and 19 have, and 11 "
            "and 13 do so in at most 1.5 times the main runs' mean steps"
        ),
        (
            "half as long again would be a notable delay; what is not reached counts as "
            "infinitely late"
        ),
    ),
)

Arms = Mapping[str, tuple[str, Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], int]]
"""Arm → task, its parameters, the model, the training, the number of seeds."""

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
    "evaluate_every": 100,
    "checkpoints": "linear",
    "n_checkpoints": 28,
}
LAPTOP_DATA = {"p": 47, "train_fraction": 0.8, "validation_fraction": 0.0}


def arms(
    data: Mapping[str, Any],
    model: Mapping[str, Any],
    train: Mapping[str, Any],
    steps: Mapping[str, int],
    seeds: int,
) -> Arms:
    """The arms of the paper: the task, its controls, and modular addition as the known reference;
    `steps` where an arm has its own.
    """

    def training(arm: str, **more: Any) -> dict[str, Any]:
        return {**train, **more, **({"steps": steps[arm]} if arm in steps else {})}

    addition = {name: value for name, value in data.items() if name != "masked"}
    return {
        "main": ("remainders", data, model, training("main"), seeds),
        "no grokfast": ("remainders", data, model, training("no grokfast", grokfast_lamb=0.0), 1),
        "no dropout": ("remainders", data, {**model, "dropout": 0.0}, training("no dropout"), 1),
        "masked": (
            "remainders",
            {**data, "masked": tuple(q for q in EASY if q < data["p"])},
            model,
            training("masked"),
            1,
        ),
        "shuffled": ("remainders", {**data, "labels": "shuffled"}, model, training("shuffled"), 1),
        "addition": ("modular-arithmetic", addition, model, training("addition"), 1),
    }


def sizes(size: str) -> Arms:
    """The arms of `size`.

    laptop: p = 47 with 80% train, where all primes are known to generalise within minutes. Arms
    that need not last as long as the main runs are shorter: addition generalises and shuffled
    labels are learned by heart in hundreds of steps. full: the paper's p, width and epochs with 30%
    train, and once more with the 50% of its code.
    """
    if size == "smoke":
        data, model = (
            {"p": 17, "train_fraction": 0.7, "validation_fraction": 0.0},
            {**LAPTOP_MODEL, "d_model": 16, "d_mlp": 32},
        )
        return arms(
            data,
            model,
            {**LAPTOP_TRAIN, "steps": 20, "evaluate_every": 5, "n_checkpoints": 4},
            {},
            2,
        )
    if size == "laptop":
        shorter = {"no dropout": 4000, "masked": 5000, "shuffled": 2000, "addition": 2000}
        return arms(LAPTOP_DATA, LAPTOP_MODEL, LAPTOP_TRAIN, shorter, 2)
    data = {"p": 113, "train_fraction": 0.3, "validation_fraction": 1000 / 12769}
    model = {**LAPTOP_MODEL, "d_model": 256, "d_mlp": 1024, "init_mode": "he"}
    own = {
        "steps": 65_536,
        "lr": 3e-4,
        "weight_decay": 1 / 3,
        "grokfast_lamb": 0.5,
        "grokfast_start": "first",
        "checkpoints": "log",
        "n_checkpoints": 33,
    }
    train = {**LAPTOP_TRAIN, **own}
    whole = dict(arms(data, model, train, {}, 5))
    whole["half train"] = ("remainders", {**data, "train_fraction": 0.5}, model, train, 2)
    return whole


class RemaindersStudy(Study):
    """Remainders by all primes below p, learned by one block at once, with its controls."""

    name: ClassVar[str] = "remainders"
    title: ClassVar[str] = "Remainders by all primes at once"
    summary: ClassVar[str] = (
        "A one-block transformer reads two base-p digits and predicts the remainders of the "
        "number by every prime below p. It learns 2, 3, 5 and 7 "
        "first and the others together later, and while it does the number of frequencies in "
        "its neurons spikes. Position embeddings, singular values "
        "and heads show that it tells the digits apart; shuffled labels show none of its "
        "periodicity."
    )

    def runs(self, size: str) -> list[Planned]:
        """The arms of `size`, a run a seed."""
        return [
            plan(arm.replace(" ", "-"), task, data, model, train, seed=seed, arm=arm)
            for arm, (task, data, model, train, seeds) in sizes(size).items()
            for seed in range(seeds)
        ]

    def analyse(self, runs: Runs, size: str) -> Analysis:
        """Judge claims a to i, and draw what the paper draws."""
        book = Analysis(self.name, size)
        study = measured.Measures(runs, EASY, GENERALISED)
        for stated in STATED:
            book.judge(stated, getattr(study, f"claim_{stated.letter}"))
        drawn.draw(book, study)
        return book
