"""What authors published of their models, and how each figure is measured here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mechint.registry import PROBES

Value = float | tuple[Any, ...]
TASK_OF: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "baseline.pt": ("modular-arithmetic", {"p": 113}),
    "low_precision_mod_addition.pth": ("modular-arithmetic", {"p": 113}),
    "sum_model.pt": ("digit-sum", {"digits": 4}),
}
"""Files that do not name their task, and what they were trained on."""


@dataclass(frozen=True)
class Figure:
    """One published figure.

    file: within the folder; quantity: in words; theirs: a number, or a sorted tuple of names;
    tolerance: absolute, for numbers, half a unit of the last digit that was published, or what the
    two definitions allow; measure: our value from the opened checkpoint; note: where definitions
    differ.
    """

    file: str
    quantity: str
    theirs: Value
    measure: Callable[[Path], Value]
    tolerance: float = 0.0
    note: str = ""

    def agrees(self, ours: Value) -> bool:
        """Whether `ours` is the published figure to within the tolerance."""
        if isinstance(self.theirs, tuple) or isinstance(ours, tuple):
            return self.theirs == ours
        return abs(self.theirs - ours) <= self.tolerance


@cache
def _opened(path: Path) -> Any:
    from mechint.checkpoints import load_checkpoint

    task, parameters = TASK_OF.get(path.name, (None, {}))
    return load_checkpoint(path, task=task, parameters=parameters)


@cache
def _metrics(path: Path, probe: str) -> Mapping[str, Any]:
    return PROBES[probe]().run(_opened(path).subject()).metrics


def number(probe: str, metric: str, *keys: str) -> Callable[[Path], float]:
    """A metric of a probe, or an entry of one that is a mapping."""

    def read(path: Path) -> float:
        value = _metrics(path, probe)[metric]
        for key in keys:
            value = {str(name): item for name, item in value.items()}[key]
        return float(value)

    return read


def names(probe: str, metric: str) -> Callable[[Path], tuple[Any, ...]]:
    """A metric that is a list, sorted."""
    return lambda path: tuple(sorted(_metrics(path, probe)[metric]))


def loss(split: str) -> Callable[[Path], float]:
    """The mean loss on a split of the published training (nats), in float64."""

    def read(path: Path) -> float:
        subject = _opened(path).subject()
        assert subject.split is not None
        part = subject.with_data(subject.data[subject.split[split].to(subject.device)])
        return next(iter(part.loss().values()))

    return read


def whole(measure: str) -> Callable[[Path], float]:
    """ "loss" (nats) or "accuracy" over all of the task's examples."""

    def read(path: Path) -> float:
        return next(iter(getattr(_opened(path).subject(), measure)().values()))

    return read


@cache
def _chances(path: Path) -> Any:
    """(answer,) probability of the right digit, over 2,000 random sums."""
    import torch

    subject = _opened(path).subject()
    batch = subject.task.sample(2000, 0)
    with torch.no_grad():
        logits = subject.model(batch.tokens)[:, list(subject.task.answer_positions)]
    return logits.double().log_softmax(-1).gather(-1, batch.answers.targets).flatten().exp()


def chance_of_the_right_digit(summary: str) -> Callable[[Path], float]:
    """ "mean", "median", or "loss", the mean of -log, in nats."""

    def read(path: Path) -> float:
        chances = _chances(path)
        if summary == "loss":
            return float(-chances.log().mean())
        return float(getattr(chances, summary)())

    return read


def _cosines(file: str, cosines: Mapping[str, float], note: str, tolerance: float) -> list[Figure]:
    return [
        Figure(
            file,
            f"cosine of the logits with representation {name}",
            cosine,
            number("irreps", "logits.cosine", name),
            tolerance,
            note,
        )
        for name, cosine in cosines.items()
    ]


def _shares(file: str, shares: Mapping[int, float]) -> list[Figure]:
    return [
        Figure(
            file,
            f"share of the embedding at frequency {key}",
            share,
            number("fourier", "embedding.share", str(key)),
            0.006,
        )
        for key, share in shares.items()
    ]


def _keys(file: str, *keys: int) -> Figure:
    measure = names("fourier", "logits.key_frequencies")
    return Figure(file, "key frequencies of the logits", keys, measure)


GROUPS, PIZZA, PROGRESS = "rep-theory", "pizza", "progress-measures"
LOSS_CURVE = f"{PROGRESS}/wd_10-1_mod_addition_loss_curve.pth"
SYMMETRY = number("clock-pizza", "gradient_symmetricity")
IRRELEVANCE = number("clock-pizza", "distance_irrelevance")
WRONG = number("clock-pizza", "distance_irrelevance_wrong")

CENTERED = "theirs centers the logits over classes alone"
DRAWN = "over other random sums than theirs"
INEXACT = "their matrices of the two representations are inexact; ours have the golden ratio"

MLP_KEYS = (1, 4, 8, 11, 13, 16, 17, 22, 25, 32, 34, 44, 50)

FIGURES: tuple[Figure, ...] = (
    _keys(f"{GROUPS}/C113_T_seed1/model.pt", 16, 30, 56),
    *_shares(f"{GROUPS}/C113_T_seed1/model.pt", {16: 0.348, 30: 0.314, 56: 0.239}),
    _keys(f"{GROUPS}/C113_T_seed2/model.pt", 43, 49, 52, 53),
    _keys(f"{GROUPS}/C113_MLP_seed1/model.pt", *MLP_KEYS),
    Figure(
        f"{GROUPS}/S5_T_seed1/model.pt",
        "key representations",
        ("sign", "standard⊗sign"),
        names("irreps", "logits.key_irreps"),
    ),
    Figure(f"{GROUPS}/D61_T_seed1/model.pt", "loss (nats)", 0.0455117, whole("loss"), 1e-6),
    *_cosines(f"{GROUPS}/D61_T_seed1/model.pt", {"2a": 0.0191, "2d": 0.0166}, CENTERED, 0.002),
    *_cosines(f"{GROUPS}/A5_T_seed1/model.pt", {"3a": 0.795, "3b": 0.021}, INEXACT, 0.05),
    Figure(
        f"{GROUPS}/A5_T_seed3/model.pt",
        "accuracy on all products",
        0.98972,
        whole("accuracy"),
        5e-6,
        "37 of 3,600 products are wrong",
    ),
    *_shares(f"{PIZZA}/model_q9rsl94xlv.pt", {12: 0.28, 4: 0.27, 21: 0.25, 19: 0.19}),
    Figure(
        f"{PIZZA}/model_q9rsl94xlv.pt",
        "gradient symmetricity",
        0.598,
        SYMMETRY,
        0.057,
        "theirs is a mean over 100 random triples; the tolerance is two of its standard errors",
    ),
    Figure(f"{PIZZA}/model_18c9ev5v5p.pt", "gradient symmetricity", 0.997, SYMMETRY, 0.01),
    Figure(
        f"{PIZZA}/model_18c9ev5v5p.pt",
        "distance irrelevance",
        0.181,
        WRONG,
        0.005,
        "on the largest wrong logit, as in the project's tables",
    ),
    _keys(f"{PIZZA}/model_p99zdpze5l.pt", 3, 15, 17),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "gradient symmetricity", 0.9937, SYMMETRY, 0.01),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "distance irrelevance", 0.1717, IRRELEVANCE, 0.005),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "gradient symmetricity", 0.334, SYMMETRY, 0.02),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "distance irrelevance", 0.848, IRRELEVANCE, 0.005),
    _keys(f"{PIZZA}/model_hpv2jgskwe.pt"),
    *_shares(LOSS_CURVE, {23: 0.24, 6: 0.17, 37: 0.15, 41: 0.14, 39: 0.13}),
    Figure(LOSS_CURVE, "train loss (nats)", 9.202e-9, loss("train"), 5e-12),
    Figure(LOSS_CURVE, "test loss (nats)", 4.988e-7, loss("test"), 5e-11),
    _keys(f"{PROGRESS}/low_precision_mod_addition.pth", 3, 6, 23, 39),
    Figure(
        f"{PROGRESS}/induction_head_infinite.pth",
        "induction heads",
        ("L1H1", "L1H2", "L1H3"),
        names("attention", "induction.heads"),
    ),
    Figure(
        "arena/sum_model.pt", "loss (nats)", 0.007, chance_of_the_right_digit("loss"), 0.0015, DRAWN
    ),
    Figure(
        "arena/sum_model.pt",
        "mean probability of the right digit",
        0.993,
        chance_of_the_right_digit("mean"),
        0.0015,
        DRAWN,
    ),
    Figure(
        "arena/sum_model.pt",
        "median probability of the right digit",
        0.996,
        chance_of_the_right_digit("median"),
        0.0015,
        DRAWN,
    ),
    _keys("bare-progress-measures/baseline.pt", 14, 35, 41, 42, 52),
    _keys("rib/model_epoch_60000.pt", 1, 8, 15, 18, 56),
)
"""What is compared; every model of the folder of which a figure is published."""
