"""The golden runs and probe measurements: what is trained and measured, with which seeds.

Everything the guard takes from the toolkit is imported and called here, so a rename is followed in
this file alone while ``curves.json`` and ``probes.json`` stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import mechint
import probes
import tasks
from mechint import planted

SEEDS = (3, 4)
"""Both train together, so that the vectorized ensemble is covered."""


@dataclass(frozen=True)
class Training:
    """One tiny training job: a task, and overrides on its default model and training."""

    task: str
    parameters: Mapping[str, Any]
    model: Mapping[str, Any]
    train: Mapping[str, Any]


@dataclass(frozen=True)
class Measurement:
    """One probe on one subject. `atol` is for metrics that count examples of a fitted model, or are
    rounding themselves.
    """

    probe: str
    subject: Callable[[], Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    atol: float = 1e-6


RUNS = {
    "modular arithmetic, full batch": Training(
        "modular-arithmetic",
        {"p": 13},
        {"d_model": 32, "d_mlp": 64},
        {"steps": 20, "lr": 2e-3, "evaluate_every": 4},
    ),
    "listops, packed rows, layer norm, dropout": Training(
        "listops",
        {},
        {"d_model": 32, "n_layers": 2, "n_heads": 2, "normalization_type": "LN", "dropout": 0.1},
        {"steps": 12, "batch_size": 12, "evaluate_every": 4, "eval_examples": 32},
    ),
    "remainders, several outputs": Training(
        "remainders",
        {"p": 13},
        {"d_model": 32, "d_mlp": 64, "n_heads": 2},
        {"steps": 20, "lr": 1e-3, "evaluate_every": 5},
    ),
    "composition": Training(
        "composition",
        {"n": 4, "k": 2, "hops": [1, 2]},
        {"d_model": 32, "n_heads": 2, "n_layers": 2},
        {"steps": 20, "batch_size": 16, "evaluate_every": 5, "eval_examples": 128},
    ),
    "regression mixture": Training(
        "regression-mixture",
        {"n": 16, "n_tasks": 3, "rank": 4, "gap": 4},
        {"width": 6},
        {"steps": 20, "batch_size": 64, "warmup": 4, "evaluate_every": 4, "eval_examples": 256},
    ),
    "single index": Training(
        "single-index",
        {"d": 16, "n_directions": 4},
        {"width": 24, "init_norm": 0.5},
        {"steps": 20, "batch_size": 64, "lr": 0.05, "evaluate_every": 4, "eval_examples": 256},
    ),
}


def curves(name: str) -> dict[str, list[dict[str, float]]]:
    """Seed → the recorded evaluations of the run `name`, in order."""
    job = RUNS[name]
    task = tasks.make(job.task, **job.parameters)
    settings = {"checkpoints": "last", **job.train}  # whose steps alone would be evaluated, too
    runs = mechint.train(task, job.model, settings, seeds=SEEDS)
    return {f"seed {seed}": run.metrics for seed, run in zip(SEEDS, runs, strict=True)}


# --- subjects -------------------------------------------------------------------------------------
# Weight noise breaks ties between planted components, so that no choice hangs on the last digit.
NOISE = {"noise": 0.05, "rotation_seed": 1, "seed": 1}


@cache
def addition() -> Any:
    return planted.modular_addition(31, (3, 8, 12), **NOISE).subject


@cache
def product() -> Any:
    return planted.group_product("S4", ("standard",), **NOISE).subject


@cache
def induction() -> Any:
    return planted.induction_head(12, 6, **NOISE).subject


@cache
def order() -> Any:
    return planted.comparison(40, angle=1.0, **NOISE).subject


@cache
def doubling() -> Any:
    return planted.composition(5, 4, **NOISE).subject


@cache
def bottleneck() -> Any:
    return planted.bottleneck(width=9, **NOISE, n=24, n_tasks=4, rank=6, rotation=1).subject


@cache
def linear_network() -> Any:
    return planted.linear_network((5, 3), 2, n=256, seed=1).subject


@cache
def lookup() -> Any:
    task = tasks.make("modular-arithmetic", p=13)
    return planted.lookup_table(task, **NOISE).subject


@cache
def untrained() -> Any:
    return addition().untrained(5)


@cache
def trained() -> Any:
    """Half-learned addition, whose losses and gradients are far from zero."""
    job = {"steps": 60, "lr": 3e-3, "checkpoints": "linear", "n_checkpoints": 3}
    task = tasks.make("modular-arithmetic", p=13)
    (run,) = mechint.train(task, {"d_model": 32, "d_mlp": 64}, job, seeds=[3])
    return run.subject()


SHUFFLES = {"permutations": 199}
ORDER = {"variable": "rank of a", "hook": "hook_embed"}
ONE = {"dimensions": (1,)}
FITTED = {"steps": 100, "pairs": 512, "held_out": 256, "null_samples": 99}
RIDGE = {"ridge": 1e-3}
NUMBER = {"kind": "number", "pos": 0, **RIDGE}

MEASUREMENTS = {
    "fourier on planted addition": Measurement("fourier", addition, SHUFFLES),
    "fourier on lookup table": Measurement("fourier", lookup, SHUFFLES),
    "fourier on trained addition": Measurement("fourier", trained, SHUFFLES),
    "progress on planted addition": Measurement("progress", addition),
    "progress on trained addition": Measurement("progress", trained),
    "irreps on planted product": Measurement("irreps", product, {"permutations": 199}),
    "embedding on planted addition": Measurement("embedding", addition, {"permutations": 199}),
    "embedding on untrained model": Measurement("embedding", untrained, {"permutations": 199}),
    "attention on planted induction": Measurement("attention", induction, {"samples": 99}),
    "das on planted order": Measurement("das", order, {**ORDER, **ONE, **FITTED}, atol=0.04),
    "patching on planted addition": Measurement(
        "patching", addition, {"variable": "x", "pairs": 32}
    ),
    "ablation on planted induction": Measurement("ablation", induction, {"examples": 128}),
    "interference on trained addition": Measurement(
        "interference", trained, {"examples": 64, "batches": 4}
    ),
    "norms on planted doubling": Measurement("norms", doubling, {"null_examples": 32}),
    "lens on planted induction": Measurement("lens", induction),
    "linear on planted doubling": Measurement(
        "linear", doubling, {"variable": "2-hop of 0", "pos": 0, **RIDGE}, atol=0.01
    ),
    "linear on planted order": Measurement("linear", order, {**ORDER, **NUMBER}),
    "gradients on trained addition": Measurement(
        "gradients", trained, {"permutations": 3, "split": "all"}
    ),
    "subspace on planted bottleneck": Measurement("subspace", bottleneck),
    "circuits on planted induction": Measurement(
        "circuits", induction, {"pairs": 96, "held_out": 48, "null_samples": 99}
    ),
    "attribution on planted induction": Measurement("attribution", induction, {"examples": 128}),
    "weights on planted induction": Measurement("weights", induction),
    "neurons on planted product": Measurement("neurons", product),
    "clock-pizza on planted addition": Measurement("clock-pizza", addition),
    "llc on planted linear network": Measurement(
        "llc",
        linear_network,
        {"chains": 2, "draws": 60, "burn_in": 30},
        atol=1e-4,  # the asymmetry of the curvature is rounding of single precision
    ),
}


def measure(name: str) -> tuple[Mapping[str, Any], dict[str, dict[str, Any]], str]:
    """Metrics of a measurement, metric → its null (mean, p_value, samples), and the verdict."""
    case = MEASUREMENTS[name]
    result = probes.run(case.probe, case.subject(), seed=2, **case.settings)
    kept = ("mean", "p_value", "samples")
    nulls = {name: {key: getattr(null, key) for key in kept} for name, null in result.null.items()}
    return result.metrics, nulls, result.verdict
