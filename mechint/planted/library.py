"""Plants and controls of a seed, shared by the calibrations of several probes.

A plant is a function of (noise, seed): the seed draws the truth where it can vary, and the basis of
the residual stream. A control is a function of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float

from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import Planted, make_task
from mechint.planted.bottleneck import bottleneck as plant_bottleneck
from mechint.planted.composition import composition
from mechint.planted.groups import group_product
from mechint.planted.induction import induction_head
from mechint.planted.lookup import lookup_table
from mechint.planted.modular import modular_addition
from mechint.planted.ordering import comparison
from mechint.results import ProbeResult
from mechint.subject import Subject

P = 31
"""Modulus of the planted addition."""


# --- plants ---------------------------------------------------------------------------------------
def addition(noise: float, seed: int) -> Planted:
    """Addition mod 31 by three frequencies that the seed draws."""
    frequencies = np.random.default_rng(seed).choice(np.arange(1, (P + 1) // 2), 3, replace=False)
    return modular_addition(
        P, tuple(int(k) for k in frequencies), noise=noise, rotation_seed=seed, seed=seed
    )


def underconfident_addition(noise: float, seed: int) -> Planted:
    """Addition with logits twenty times too small: every example asks for the same larger ones."""
    plant = addition(noise, seed)
    with torch.no_grad():
        plant.subject.model.W_U.mul_(0.05)
    return plant


def order(noise: float, seed: int) -> Planted:
    """Which of two numbers is larger, by one direction of the embedding."""
    angle = math.pi * seed / 7
    return comparison(40, angle=angle, noise=noise, rotation_seed=seed, seed=seed)


def pointer_doubling(noise: float, seed: int) -> Planted:
    """Composition of permutations, 1, 2 and 4 hops, by doubling the hops in each layer."""
    return composition(5, 4, noise=noise, rotation_seed=seed, seed=seed)


def induction(noise: float, seed: int) -> Planted:
    """A previous-token head and an induction head."""
    return induction_head(12, 6, noise=noise, rotation_seed=seed, seed=seed)


def harmonics(noise: float, seed: int) -> Planted:
    """Addition mod 31 by a frequency that the seed draws and its second harmonic."""
    k = int(np.random.default_rng(seed).integers(1, 8))
    return modular_addition(P, (k, 2 * k), noise=noise, rotation_seed=seed, seed=seed)


def soft_induction(noise: float, seed: int) -> Planted:
    """A previous-token head and an induction head that attend elsewhere as well."""
    return induction_head(12, 6, sharpness=3.0, noise=noise, rotation_seed=seed, seed=seed)


def product(noise: float, seed: int) -> Planted:
    """S4 by one of its two faithful representations of dimension 3."""
    irrep = ("standard", "standard⊗sign")[seed % 2]
    return group_product("S4", (irrep,), noise=noise, rotation_seed=seed, seed=seed)


def bottleneck(noise: float, seed: int) -> Planted:
    """An encoder that holds the nine features of largest utility."""
    return plant_bottleneck(
        width=9, noise=noise, rotation_seed=seed, seed=seed, n=24, n_tasks=4, rank=6, rotation=seed
    )


# --- controls -------------------------------------------------------------------------------------
Controls = dict[str, Callable[[int], Subject]]


def untrained(plant: Callable[[float, int], Planted]) -> Controls:
    """The plant's architecture with initial weights."""
    return {"untrained": lambda seed: plant(0.0, seed).subject.untrained(seed)}


def lookup(task: str, **parameters: Any) -> Controls:
    """All answers of the task memorized, each by a neuron of its own."""
    return {
        "lookup": lambda seed: (
            lookup_table(make_task(task, **parameters), rotation_seed=seed, seed=seed).subject
        )
    }


def shuffled(task: str, **parameters: Any) -> Controls:
    """Shuffled answers memorized."""

    def build(seed: int) -> Subject:
        chosen = make_task(task, **parameters, labels="shuffled", label_seed=seed)
        return lookup_table(chosen, rotation_seed=seed, seed=seed).subject

    return {"shuffled labels": build}


def untrained_on_shuffled(seed: int) -> Subject:
    """Initial weights and shuffled answers: examples that teach each other nothing."""
    model = addition(0.0, seed).subject.untrained(seed).model
    return Subject(model, make_task("modular-arithmetic", p=P, labels="shuffled", label_seed=seed))


def memorizing(seed: int, p: int = 13, steps: int = 100) -> Subject:
    """A model trained, by full batches of AdamW, until it has shuffled answers by heart."""
    task = make_task("modular-arithmetic", p=p, labels="shuffled", label_seed=seed)
    config = ModelConfig(
        n_layers=1,
        d_model=32,
        n_heads=2,
        d_head=16,
        d_mlp=128,
        n_ctx=task.n_ctx,
        d_vocab=task.d_vocab,
        d_vocab_out=task.d_vocab_out,
    )
    model, data = HookedTransformer(config, seed=seed), task.examples()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(data.tokens)[:, -1], data.targets[:, -1, 0])
        loss.backward()
        optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None
    return Subject(model, task)


def another(name: str, plant: Callable[[float, int], Planted]) -> Controls:
    """A plant of another mechanism, as a control."""
    return {name: lambda seed: plant(0.0, seed).subject}


def no_waves() -> Controls:
    """Answers memorized, by neurons of their own and by training: no frequency anywhere."""
    return (
        lookup("modular-arithmetic", p=13)
        | shuffled("modular-arithmetic", p=13)
        | {"memorized by training": memorizing}
    )


# --- errors ---------------------------------------------------------------------------------------
def misses(
    estimate: Callable[[ProbeResult], Any], truth: Callable[[Planted], Any]
) -> Callable[[ProbeResult, Planted], float]:
    """How many elements are in one of two sets and not in the other."""
    return lambda result, plant: float(len(set(estimate(result)) ^ set(truth(plant))))


def angle_between(a: Float[np.ndarray, "d k"], b: Float[np.ndarray, "d m"]) -> float:
    """Largest principal angle, in degrees, between the columns of a (d, k) and b (d, m ≥ k).

    >>> round(angle_between(np.array([[1.0], [1.0]]), np.array([[1.0], [0.0]])))
    45
    """
    a, b = np.linalg.qr(np.atleast_2d(a.T).T)[0], np.linalg.qr(b)[0]
    return math.degrees(math.acos(min(1.0, float(np.linalg.svd(a.T @ b)[1].min()))))


def head(role: str) -> Callable[[Planted], str]:
    """The name "L0H1" of the head that plays `role` in a plant."""
    return lambda plant: "L{}H{}".format(*plant.truth["heads"][role])
