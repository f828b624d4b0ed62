"""p-values on random initializations: uniform where the null is that nothing was learned.

Every probe that gives a p-value has a row in UNIFORM, or stands in NOT_ASKED with the reason. The
quick tests draw a few dozen initializations, the slow ones 200.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from scipy.stats import kstest

from mechint.planted import library
from mechint.planted.trained import small_transformer
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject

QUICK, MANY = 30, 200
LEVEL = 1e-3
"""Of each Kolmogorov–Smirnov test: there are some twenty of them."""


def initial(task: str, **parameters: Any) -> Callable[[int], Subject]:
    """A small transformer with the initial weights of a seed, on a task."""
    made = TASKS[task].from_dict(parameters)

    return lambda seed: Subject(small_transformer(made, seed, 32, 64), made)


def bottleneck(seed: int) -> Subject:
    return library.bottleneck(0.0, 0).subject.untrained(seed)


addition = initial("modular-arithmetic", p=17)
shuffled = initial("modular-arithmetic", p=17, labels="shuffled")


@dataclass(frozen=True)
class Case:
    """The metrics of one probe whose p-values are uniform on the subjects that `build` makes."""

    probe: str
    metrics: tuple[str, ...]
    build: Callable[[int], Subject]
    settings: Mapping[str, Any] = field(default_factory=dict)
    quick: bool = True


UNIFORM = (
    Case(
        "attention",
        ("previous_token.largest", "induction.largest"),
        initial("repeated-tokens", n=10, length=5, held_out=False),
        {"samples": 199, "untrained": 0},
        quick=False,
    ),
    Case("clock-pizza", ("logits.largest_cosine",), addition, {"triples": 8}),
    Case(
        "embedding",
        ("svd.rank_90", "cyclic.largest_share"),
        addition,
        {"permutations": 199},
    ),
    Case(
        "fourier",
        ("embedding.largest_share", "logits.largest_cosine"),
        addition,
        {"permutations": 199, "removal_samples": 9},
    ),
    Case("gradients", ("gradients.below_shuffled",), addition, {"permutations": 19}, quick=False),
    Case(
        "interference",
        ("cosine.batch",),
        shuffled,
        {"examples": 32, "batches": 1, "batch_size": 16},
        quick=False,
    ),
    Case(
        "irreps",
        ("logits.largest_cosine", "embedding.largest_excess"),
        initial("groups", group="S4"),
        {"permutations": 199},
    ),
    # The hundreds stand at position 0, the ones, which decide the carry, behind. Not a whole grid,
    # where the values that an input has in training are missing from what is held out, so that p is
    # near 1; and two values, so that few shuffles tie with what was observed, which raises p too.
    Case(
        "linear",
        ("linear.carry_0.accuracy",),
        initial("digit-sum", digits=3),
        {"variable": "carry_0", "pos": 0, "permutations": 99, "ridge": 0.1},
    ),
    Case("neurons", ("mean_share",), addition, {"sample": 64}),
    Case(
        "norms",
        ("norms.L0 attention.deviation", "norms.L0 MLP.deviation"),
        addition,
        {"null_models": 99, "null_examples": 8},
        quick=False,
    ),
    Case("progress", ("largest_cosine",), addition),
    Case("subspace", ("subspace.signal",), bottleneck, {"samples": 99}),
)

NOT_ASKED = {
    "ablation": "the loss of an untrained model falls or rises by any part that is taken out",
    "attribution": "the loss of an untrained model falls or rises by any part that is taken out",
    "circuits": "a circuit is chosen to beat random ones, in an untrained model too",
    "das": "a search finds more than random directions do in any model; the controls search too",
    "heads": "pairs of prompts that an untrained model gets right are too few to be asked about",
    "lens": "its p-value is of the accuracy beside the best constant answer",
    "llc": "its p-value is of an estimate against a bound that holds at a minimum of the loss",
    "patching": "the source's activation carries the source's inputs in any model",
    "weights": "several nulls, of renamed tokens and rotated matrices, one for each sentence",
}
"""Probes whose null is not that nothing was learned: p may be small at initial weights, where the
gate (no sentence about the answers of a model at chance) keeps them silent."""


def deviation(p: np.ndarray, steps: np.ndarray) -> float:
    """p of the Kolmogorov–Smirnov test of p-values against the uniform distribution, each spread
    over its step, 1 / (1 + samples); 0 where there are no steps.
    """
    spread = np.random.default_rng(0).random(len(p)) * steps
    return float(kstest(p - spread, "uniform").pvalue)


CASES = [pytest.param(one, QUICK, marks=pytest.mark.full) for one in UNIFORM if one.quick]
CASES += [pytest.param(one, MANY, marks=pytest.mark.slow) for one in UNIFORM]


@pytest.mark.parametrize(("one", "n"), CASES, ids=lambda value: getattr(value, "probe", None))
def test_p_values_are_uniform_on_initial_weights(one: Case, n: int) -> None:
    probe = PROBES[one.probe].from_dict(dict(one.settings))
    results = [probe.run(one.build(seed), seed=seed) for seed in range(n)]
    for metric in one.metrics:
        p = np.array([result.null[metric].p_value for result in results])
        steps = np.array([result.null[metric].floor for result in results])
        assert deviation(p, steps) > LEVEL, (metric, np.sort(p).round(3))


def test_every_probe_with_a_p_value_is_asked() -> None:
    assert {case.probe for case in UNIFORM} | set(NOT_ASKED) >= set(PROBES.names())


def test_a_biased_null_would_be_seen() -> None:
    """p-values of a statistic that is compared with too small a null pile up near 0."""
    draw, none = np.random.default_rng(0), np.zeros(MANY)
    assert deviation(draw.random(MANY) ** 2, none) < LEVEL < deviation(draw.random(MANY), none)
