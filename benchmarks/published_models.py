"""Published figures of models that others trained, each with the function that measures it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.published_measures import (
    accuracy_with_block_at,
    carry_dimensions,
    chance_of_the_right_digit,
    copied_right,
    induction_score,
    interchange,
    loss,
    lost_without_attention,
    maximum_right,
    names,
    number,
    sorted_right,
    whole,
)

Value = float | tuple[Any, ...]


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
        """Return whether `ours` is the published figure to within the tolerance."""
        if isinstance(self.theirs, tuple) or isinstance(ours, tuple):
            return self.theirs == ours
        return abs(self.theirs - ours) <= self.tolerance


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


def _mechanism(file: str, theirs: str) -> Figure:
    measure = names("clock-pizza", "mechanism")
    return Figure(file, "mechanism", (theirs,), measure)


def _keys(file: str, *keys: int) -> Figure:
    measure = names("fourier", "logits.key_frequencies")
    return Figure(file, "key frequencies of the logits", keys, measure)


def _zoo(
    folder: str, measure: Callable[[int, int], Callable[[Path], float]], theirs: Sequence[float]
) -> list[Figure]:
    """Exact matches by length, of a model in decompiling_transformers' zoo."""
    bins = ((0, 50), (51, 100), (101, 150))
    return [
        Figure(
            f"hf-zoo/{folder}",
            f"lists of {first} to {last} right",
            value,
            measure(first, last),
            0.03,
            "ours on 200 random lists of distinct numbers",
        )
        for (first, last), value in zip(bins, theirs, strict=True)
    ]


GROUPS, PIZZA, PROGRESS = "rep-theory", "pizza", "progress-measures"
LOSS_CURVE = f"{PROGRESS}/wd_10-1_mod_addition_loss_curve.pth"
SYMMETRY = number("clock-pizza", "gradient_symmetricity")
IRRELEVANCE = number("clock-pizza", "distance_irrelevance")
WRONG = number("clock-pizza", "distance_irrelevance_wrong")

CENTERED = "theirs centers the logits over classes alone"
DRAWN = "over other random sums than theirs"
INEXACT = "their matrices of the two representations are inexact; ours have the golden ratio"

TRACR = "tracr-pickled"
COMPILED = "compiled, so right by construction"

INDUCTION = f"{PROGRESS}/induction_head_infinite.pth"
SOFT_HEADS = ("L1H1", "L1H2", "L1H3")
IN_BLOCKS = "on sequences of token 0 and three blocks of 28 tokens, a copy in each"

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
    _mechanism(f"{PIZZA}/model_18c9ev5v5p.pt", "pizza"),
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
    _mechanism(f"{PIZZA}/model_p99zdpze5l.pt", "pizza"),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "gradient symmetricity", 0.9937, SYMMETRY, 0.01),
    Figure(f"{PIZZA}/model_p99zdpze5l.pt", "distance irrelevance", 0.1717, IRRELEVANCE, 0.005),
    _mechanism(f"{PIZZA}/model_l8k1hzciux.pt", "clock"),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "gradient symmetricity", 0.334, SYMMETRY, 0.02),
    Figure(f"{PIZZA}/model_l8k1hzciux.pt", "distance irrelevance", 0.848, IRRELEVANCE, 0.005),
    _keys(f"{PIZZA}/model_hpv2jgskwe.pt"),
    *_shares(LOSS_CURVE, {23: 0.24, 6: 0.17, 37: 0.15, 41: 0.14, 39: 0.13}),
    Figure(LOSS_CURVE, "train loss (nats)", 9.202e-9, loss("train"), 5e-12),
    Figure(LOSS_CURVE, "test loss (nats)", 4.988e-7, loss("test"), 5e-11),
    _keys(f"{PROGRESS}/low_precision_mod_addition.pth", 3, 6, 23, 39),
    Figure(INDUCTION, "induction heads", SOFT_HEADS, names("attention", "induction.heads")),
    *(
        Figure(
            INDUCTION,
            f"induction score of {name}",
            0.345,
            induction_score(name),
            0.03,
            "theirs is 0.34 to 0.35, of 32 sequences, which varies by 0.02",
        )
        for name in SOFT_HEADS
    ),
    Figure(
        INDUCTION,
        "accuracy inside repeats",
        0.625,
        whole("accuracy"),
        0.03,
        "theirs is 0.60 to 0.65",
    ),
    Figure(
        INDUCTION,
        "accuracy lost without the second attention layer",
        0.84,
        lost_without_attention("accuracy"),
        0.03,
        IN_BLOCKS,
    ),
    Figure(
        INDUCTION,
        "loss gained without the second attention layer (nats)",
        3.3,
        lost_without_attention("loss"),
        0.15,
        IN_BLOCKS,
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
    Figure(
        "arena/sum_model.pt", "dimensions that hold a carry after layer 0", 1.0, carry_dimensions
    ),
    _keys("bare-progress-measures/baseline.pt", 14, 35, 41, 42, 52),
    _keys("rib/model_epoch_60000.pt", 1, 8, 15, 18, 56),
    *_zoo("sort-1l1h256d3lr01drop", sorted_right, (0.978, 1.0, 1.0)),
    *_zoo("unique_copy-2l1h64d3lr01drop", copied_right, (1.0, 1.0, 0.9905)),
    Figure(f"{TRACR}/make_hist/tl_model.pt", "accuracy", 1.0, whole("accuracy"), 0.0, COMPILED),
    Figure(
        f"{TRACR}/make_reverse/tl_model.pt",
        "accuracy, unembedding at dimension 63",
        1.0,
        accuracy_with_block_at(63),
        0.0,
        f"{COMPILED}; as shipped it reads dimensions 0 to 9 and is at chance",
    ),
    *(
        Figure(f"one-hot-addition/{name}.pth", "loss (nats)", theirs, whole("loss"), 0.01 * theirs)
        for name, theirs in (
            ("p_23_dmlp_512_Quad_single-freq_scale_0.02_decay_0-9800", 0.007364174816757441),
            ("p_97_dmlp_1024_ReLU_random_scale_0.1_decay_0-4800", 0.003535039257258177),
        )
    ),
    Figure("mapping/max_of_list_other_names.pt", "accuracy on all lists", 1.0, maximum_right, 1e-4),
    *(
        Figure(
            "siit/palindromes.pt",
            f"interchange accuracy of {variable} at {head} @ {position}",
            theirs,
            interchange(int(variable[-1]), int(head[-1]), position),
            tolerance,
            note,
        )
        for variable, head, position, theirs, tolerance, note in (
            ("pair_1", "L0H0", 3, 1.0, 0.001, "trained so"),
            ("pair_0", "L0H1", 4, 1.0, 0.001, "trained so"),
        )
    ),
)
"""The comparisons; every model of the folder of which a figure is published."""
