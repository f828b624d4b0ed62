"""What is planted for each probe, on which controls it must stay silent, and how far its estimate
is from the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from mechint import planted
from mechint.planted import Planted
from mechint.probe import Probe
from mechint.registry import TASKS
from mechint.results import ProbeResult
from mechint.subject import Subject


def found(probe: Probe, result: ProbeResult) -> bool:
    """The probe's own rule."""
    return probe.detects(result)


@dataclass(frozen=True)
class Entry:
    """One calibration of one probe.

    plant(noise, seed) -> Planted; controls: name → subject of a seed; error(result, plant):
    distance of the estimate from the truth, described by `estimate`, right up to `tolerance`;
    settings: of the probe, small enough to run hundreds of times; control_settings: what differs on
    controls, such as not asking for pairs that are answered correctly.
    """

    probe: str
    mechanism: str
    plant: Callable[[float, int], Planted]
    controls: Mapping[str, Callable[[int], Subject]]
    error: Callable[[ProbeResult, Planted], float]
    estimate: str
    tolerance: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    control_settings: Mapping[str, Any] = field(default_factory=dict)
    detects: Callable[[Probe, ProbeResult], bool] = found


# --- plants ---------------------------------------------------------------------------------------
P = 31


def addition(noise: float, seed: int) -> Planted:
    """Addition mod 31 by three frequencies that the seed draws, in a basis that it draws, too."""
    frequencies = np.random.default_rng(seed).choice(np.arange(1, (P + 1) // 2), 3, replace=False)
    return planted.modular_addition(
        P, tuple(int(k) for k in frequencies), noise=noise, rotation_seed=seed, seed=seed
    )


def order(noise: float, seed: int) -> Planted:
    return planted.comparison(
        40, angle=math.pi * seed / 7, noise=noise, rotation_seed=seed, seed=seed
    )


def doubling(noise: float, seed: int) -> Planted:
    return planted.composition(5, 4, noise=noise, rotation_seed=seed, seed=seed)


def induction(noise: float, seed: int) -> Planted:
    return planted.induction_head(12, 6, noise=noise, rotation_seed=seed, seed=seed)


def product(noise: float, seed: int) -> Planted:
    """S4 by one of its two faithful representations."""
    irrep = ("standard", "standard⊗sign")[seed % 2]
    return planted.group_product("S4", (irrep,), noise=noise, rotation_seed=seed, seed=seed)


def bottleneck(noise: float, seed: int) -> Planted:
    return planted.bottleneck(
        width=9, noise=noise, rotation_seed=seed, seed=seed, n=24, n_tasks=4, rank=6, rotation=seed
    )


def hesitant(noise: float, seed: int) -> Planted:
    """Addition with logits twenty times too small: every example asks for the same, larger
    logits.
    """
    plant = addition(noise, seed)
    with torch.no_grad():
        plant.subject.model.W_U.mul_(0.05)
    return plant


# --- controls -------------------------------------------------------------------------------------
def untrained(plant: Callable[[float, int], Planted]) -> dict[str, Callable[[int], Subject]]:
    """The plant's architecture with initial weights."""
    return {"untrained": lambda seed: plant(0.0, seed).subject.untrained(seed)}


def lookup(task: str, **parameters: Any) -> dict[str, Callable[[int], Subject]]:
    """All answers of the task memorised, each by a neuron of its own."""
    return {
        "lookup": lambda seed: (
            planted.lookup_table(TASKS[task](**parameters), rotation_seed=seed, seed=seed).subject
        )
    }


def shuffled(task: str, **parameters: Any) -> dict[str, Callable[[int], Subject]]:
    """Shuffled answers memorised."""

    def build(seed: int) -> Subject:
        return planted.lookup_table(
            TASKS[task](**parameters, labels="shuffled", label_seed=seed),
            rotation_seed=seed,
            seed=seed,
        ).subject

    return {"shuffled labels": build}


SMALL = {"p": 13}


def unlearnable(seed: int) -> Subject:
    """Initial weights and shuffled answers: examples that teach each other nothing."""
    model = addition(0.0, seed).subject.untrained(seed).model
    return Subject(model, TASKS["modular-arithmetic"](p=P, labels="shuffled", label_seed=seed))


# --- errors ---------------------------------------------------------------------------------------
def misses(
    estimate: Callable[[ProbeResult], Any], truth: Callable[[Planted], Any]
) -> Callable[[ProbeResult, Planted], float]:
    """How many elements are in one of two sets and not in the other."""
    return lambda result, plant: float(len(set(estimate(result)) ^ set(truth(plant))))


def angle(a: np.ndarray, b: np.ndarray) -> float:
    """Largest principal angle, in degrees, between the column spaces of a (d, k) and b (d, m ≥
    k).
    """
    a, b = np.linalg.qr(np.atleast_2d(a.T).T)[0], np.linalg.qr(b)[0]
    return math.degrees(math.acos(min(1.0, float(np.linalg.svd(a.T @ b)[1].min()))))


def head(role: str) -> Callable[[Planted], str]:
    return lambda plant: "L{}H{}".format(*plant.truth["heads"][role])


def _order_angle(result: ProbeResult, plant: Planted) -> float:
    return angle(
        result.arrays["direction of rank of a"][:, None],
        plant.truth["subspaces"]["hook_embed"].numpy(),
    )


def _das_angle(result: ProbeResult, plant: Planted) -> float:
    return angle(plant.truth["subspaces"]["hook_embed"].numpy(), result.arrays["subspace"])


def _unembedding_gradient(result: ProbeResult, plant: Planted) -> float:
    """Relative error of ‖∂L/∂W_U‖ against its closed form Σ x (softmax − one-hot)ᵀ / n."""
    subject = plant.subject
    x = subject.activation("blocks.0.hook_resid_post", subject.read).double()
    error = subject.logits().double().softmax(-1)
    error[range(len(error)), subject.targets[:, 0]] -= 1
    expected = float((x.T @ error / len(x)).norm())
    return abs(result.metrics["gradients.norms"]["unembed.W_U"] - expected) / max(expected, 1e-9)


def _strong(result: ProbeResult) -> list[str]:
    """Components inside the model whose patch recovers most of the answer."""
    columns = result.tables["components"].columns
    kinds, heads, layers, recovered = (
        columns[name] for name in ("kind", "head", "layer", "recovered")
    )
    return [
        f"L{layer}H{head}"
        for kind, layer, head, share in zip(kinds, layers, heads, recovered, strict=True)
        if kind == "head" and share > 0.5
    ]


def _needed(result: ProbeResult) -> list[str]:
    """Heads without which the loss grows by more than half a nat."""
    columns = result.tables["effects"].columns
    rows = zip(columns["component"], columns["loss_change"], strict=True)
    return [
        "L{}H{}".format(*name.removeprefix("head ").split("."))
        for name, change in rows
        if name.startswith("head ") and change > 0.5
    ]


KEYS_PLANTED = "frequencies missed or made up"
NO_WAVES = lookup("modular-arithmetic", **SMALL) | shuffled("modular-arithmetic", **SMALL)

ENTRIES: tuple[Entry, ...] = (
    Entry(
        "fourier",
        "modular addition",
        addition,
        untrained(addition) | NO_WAVES,
        misses(
            lambda result: result.metrics["logits.key_frequencies"],
            lambda plant: plant.truth["frequencies"],
        ),
        KEYS_PLANTED,
        settings={"permutations": 499, "operand_permutations": 19, "steps": 0},
        detects=lambda probe, result: bool(result.metrics["logits.key_frequencies"]),
    ),
    Entry(
        "progress",
        "modular addition",
        addition,
        untrained(addition) | NO_WAVES,
        misses(
            lambda result: result.metrics["key_frequencies"],
            lambda plant: plant.truth["frequencies"],
        ),
        KEYS_PLANTED,
        settings={"steps": 0},
        detects=lambda probe, result: bool(result.metrics["key_frequencies"]),
    ),
    Entry(
        "irreps",
        "group product",
        product,
        untrained(product) | lookup("groups", group="S4") | shuffled("groups", group="S4"),
        misses(
            lambda result: result.metrics["logits.key_irreps"], lambda plant: plant.truth["irreps"]
        ),
        "representations missed or made up",
        settings={"permutations": 499},
        detects=lambda probe, result: bool(result.metrics["logits.key_irreps"]),
    ),
    Entry(
        "embedding",
        "modular addition",
        addition,
        untrained(addition) | lookup("modular-arithmetic", **SMALL),
        lambda result, plant: float(
            abs(result.metrics["svd.rank_90"] - 2 * len(plant.truth["frequencies"]))
        ),
        "dimensions missed or made up",
        settings={"permutations": 399},
        detects=lambda probe, result: result.null["cyclic.share"].p_value <= 0.005,
    ),
    Entry(
        "attention",
        "induction head",
        induction,
        untrained(induction),
        misses(
            lambda result: [
                (role, one)
                for role in ("previous_token", "induction")
                for one in result.metrics[f"{role}.heads"]
            ],
            lambda plant: [
                ("previous_token", head("previous token")(plant)),
                ("induction", head("induction")(plant)),
            ],
        ),
        "heads missed or made up",
        settings={"samples": 199},
        detects=lambda probe, result: bool(
            result.metrics["previous_token.heads"] and result.metrics["induction.heads"]
        ),
    ),
    Entry(
        "das",
        "order direction",
        order,
        untrained(order) | lookup("comparison", n=20),
        _das_angle,
        "degrees between direction found and planted",
        tolerance=5.0,
        settings={
            "variable": "rank of a",
            "hook": "hook_embed",
            "steps": 400,
            "pairs": 1024,
            "held_out": 256,
            "null_samples": 99,
        },
        control_settings={
            "only_correct": False,
            "steps": 60,
            "batch_size": 64,
            "pairs": 128,
            "held_out": 128,
        },
    ),
    Entry(
        # where no pair is answered correctly it refuses
        "patching",
        "modular addition",
        addition,
        untrained(addition),
        misses(_strong, lambda plant: [head("a")(plant)]),
        "heads missed or made up",
        settings={"variable": "x", "pairs": 64},
    ),
    Entry(
        "ablation",
        "induction head",
        induction,
        untrained(induction),
        misses(
            _needed, lambda plant: [head(role)(plant) for role in ("previous token", "induction")]
        ),
        "heads missed or made up",
        settings={"examples": 256, "null_examples": 64},
    ),
    Entry(
        "interference",
        "hesitant addition",
        hesitant,
        {"untrained, shuffled labels": unlearnable},
        lambda result, plant: float(result.metrics["cosine.batch"] <= 0),
        "sign of the cosine (0 right, 1 wrong)",
        settings={"examples": 128, "batches": 4},
    ),
    Entry(
        "norms",
        "composition by doubling",
        doubling,
        untrained(doubling),
        # the written head adds one unit vector to the sum of four orthogonal ones
        lambda result, plant: abs(result.metrics["norms.L0 attention"] - 0.5),
        "error of the first layer's ratio, 1/2 by construction",
        tolerance=0.01,
        settings={"null_examples": 32},
    ),
    Entry(
        "lens",
        "induction head",
        induction,
        untrained(induction),
        misses(
            lambda result: [result.metrics["attribution.top_component"]],
            lambda plant: [head("induction")(plant)],
        ),
        "heads missed or made up",
    ),
    Entry(
        "linear",
        "composition by doubling",
        doubling,
        untrained(doubling),
        misses(
            lambda result: [result.metrics["linear.2-hop of 0.best_at"]],
            lambda plant: [f"L{plant.truth['heads']['hop 2'][0]} attention"],
        ),
        "depths missed or made up",
        settings={"variable": "2-hop of 0", "pos": 0},
    ),
    Entry(
        "linear",
        "order direction",
        order,
        untrained(order) | lookup("comparison", n=20),
        _order_angle,
        "degrees between direction found and planted",
        tolerance=1.0,
        settings={"kind": "number", "variable": "rank of a", "hook": "hook_embed", "pos": 0},
    ),
    Entry(
        "gradients",
        "modular addition",
        addition,
        untrained(addition),
        _unembedding_gradient,
        "relative error of the unembedding's gradient norm",
        tolerance=1e-3,
        settings={"permutations": 3, "split": "all"},
    ),
    Entry(
        "subspace",
        "bottleneck",
        bottleneck,
        untrained(bottleneck),
        lambda result, plant: float(
            np.abs(
                np.array(result.metrics["subspace.features_held"]) - plant.truth["features"]
            ).max()
        ),
        "features held, largest error",
        tolerance=0.01,
    ),
)
"""One entry a planted mechanism; a probe may have several. Third parties calibrate theirs with
entries of their own.
"""
