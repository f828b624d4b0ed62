"""Plants and controls of a seed, shared by the calibrations of several probes.

A plant is a function of (noise, seed): the seed draws the truth where it can vary, and the basis of
the residual stream. A control is a function of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from mechint.planted._bottleneck import bottleneck as plant_bottleneck
from mechint.planted._composition import composition
from mechint.planted.assembly import SHARP, Planted, make_task
from mechint.planted.groups import group_product
from mechint.planted.induction import induction_head
from mechint.planted.lookup import lookup_table
from mechint.planted.modular import modular_addition
from mechint.planted.ordering import comparison
from mechint.planted.trained import half_memorized, memorizing, sums_by_heart, sums_mod_13_by_heart
from mechint.probe.results import ProbeResult
from mechint.subject import Subject
from mechint.task import Task

P = 17
"""Modulus of the planted addition."""
ORDERED, POINTS = 20, 4
"""Numbers that are compared; points of the permutations that are composed."""


# --- plants ---------------------------------------------------------------------------------------
def addition(noise: float, seed: int, constant_attention: bool = False) -> Planted:
    """Addition mod 17 by three frequencies that the seed draws."""
    drawn = np.random.default_rng(seed).choice(np.arange(1, (P + 1) // 2), 3, replace=False)
    blur: dict[str, Any] = {"noise": noise, "rotation_seed": seed, "seed": seed}
    return modular_addition(P, drawn.tolist(), constant_attention=constant_attention, **blur)


pizza = partial(addition, constant_attention=True)
"""The same with constant attention."""


def underconfident_addition(noise: float, seed: int) -> Planted:
    """Addition with logits twenty times too small: every example asks for the same larger ones."""
    plant = addition(noise, seed)
    with torch.no_grad():
        plant.subject.model.W_U.mul_(0.05)
    return plant


def order(noise: float, seed: int, n: int = ORDERED) -> Planted:
    """The larger of two numbers, by one direction of the embedding."""
    angle = math.pi * seed / 7
    return comparison(n, angle=angle, noise=noise, rotation_seed=seed, seed=seed)


fine_order = partial(order, n=2 * ORDERED)
"""The same with twice as many numbers."""


def pointer_doubling(noise: float, seed: int) -> Planted:
    """Composition of permutations, 1, 2 and 4 hops, by doubling the hops in each layer."""
    return composition(POINTS, 4, noise=noise, rotation_seed=seed, seed=seed)


def induction(noise: float, seed: int) -> Planted:
    """A previous-token head and an induction head."""
    return induction_head(10, 5, noise=noise, rotation_seed=seed, seed=seed)


def prompted_induction(noise: float, seed: int, pairs: int = 24) -> Planted:
    """The same with pairs of prompts for its data: a list, its beginning again, and what followed
    it; the other prompt has another token there, so that the induction head alone moves the answer.
    """
    from mechint.prompts import Prompts

    plant = induction(noise, seed)
    draw, rows = np.random.default_rng(seed), []
    for _ in range(pairs):
        *piece, other = draw.permutation(10)[:6].tolist()
        place = int(draw.integers(1, 4))
        again = piece[:place]
        changed = [*piece[:place], other, *piece[place + 1 :]]
        both = {"prompt": [*changed, *again], "answer": other}
        rows.append({"prompt": [*piece, *again], "answer": piece[place], "counterfactual": both})
    model, task = plant.subject.model, plant.subject.task
    assert task is not None
    made = Prompts.of(rows, None, task.d_vocab, task.n_ctx)
    return replace(plant, subject=Subject(model, made))


def harmonics(noise: float, seed: int) -> Planted:
    """Addition mod 17 by a frequency that the seed draws and its second harmonic."""
    k = int(np.random.default_rng(seed).integers(1, (P - 1) // 4 + 1))
    return modular_addition(P, (k, 2 * k), noise=noise, rotation_seed=seed, seed=seed)


def soft_induction(noise: float, seed: int) -> Planted:
    """A previous-token head and an induction head that attend elsewhere as well."""
    return induction_head(10, 5, sharpness=3.0, noise=noise, rotation_seed=seed, seed=seed)


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


def in_one_subspace(plant: Callable[[float, int], Planted]) -> Controls:
    """Initial weights of heads that all read and write one random quarter of the stream."""

    def build(seed: int) -> Subject:
        subject = plant(0.0, seed).subject.untrained(seed)
        width = subject.model_description.d_model or 0
        draw = np.random.default_rng(seed).standard_normal((width, width // 4))
        basis = torch.from_numpy(np.linalg.qr(draw)[0]).float()
        onto = basis @ basis.T
        with torch.no_grad():
            for name, weight in subject.model.weights().items():
                if name.endswith(("attn.W_Q", "attn.W_K", "attn.W_V")):
                    weight.copy_(onto @ weight)
                elif name.endswith("attn.W_O"):
                    weight.copy_(weight @ onto)
        return subject

    return {"random heads in one subspace": build}


def fixed_distance(seed: int) -> Subject:
    """The answers of `induction`, by a head that looks back by the length of the piece."""
    plant = induction(0.0, seed)
    weights = plant.subject.model.weights()
    layer, head = plant.truth["heads"]["induction"]
    places = weights["pos_embed.W_pos"].detach()  # (n_ctx, d_model), orthonormal rows
    n_ctx = len(places)
    with torch.no_grad():
        for name, rows in (("W_Q", places.roll(1 - n_ctx // 2, 0)), ("W_K", SHARP * places)):
            weight = weights[f"blocks.{layer}.attn.{name}"][head]  # (d_model, d_head)
            weight.zero_()
            weight[:, :n_ctx] = rows.T
    return plant.subject


def lookup(task: str | Task, **parameters: Any) -> Controls:
    """All answers of the task memorized, each by a neuron of its own."""
    return {
        "lookup": lambda seed: (
            lookup_table(make_task(task, **parameters), rotation_seed=seed, seed=seed).subject
        )
    }


def lookup_in_waves(seed: int) -> Subject:
    """Sums mod 11 memorized, whose unembedding writes frequencies 2 and 3 alone."""
    subject = lookup_table(make_task("modular-arithmetic", p=11), rotation_seed=seed).subject
    angles = 2 * math.pi * torch.arange(11) / 11
    waves = torch.stack([wave(k * angles) for k in (2, 3) for wave in (torch.cos, torch.sin)])
    with torch.no_grad():
        subject.model.unembed.W_U.copy_(subject.model.W_U @ (waves.T @ waves) * 2 / 11)
    return subject


def shuffled(task: str | Task, **parameters: Any) -> Controls:
    """Shuffled answers memorized."""

    def build(seed: int) -> Subject:
        chosen = make_task(task, **parameters, labels="shuffled", label_seed=seed)
        return lookup_table(chosen, rotation_seed=seed, seed=seed).subject

    return {"shuffled labels": build}


def untrained_on_shuffled(seed: int) -> Subject:
    """Initial weights and shuffled answers: examples that teach each other nothing."""
    model = addition(0.0, seed).subject.untrained(seed).model
    return Subject(model, make_task("modular-arithmetic", p=P, labels="shuffled", label_seed=seed))


def wrong_answers(plant: Callable[[float, int], Planted]) -> Controls:
    """The plant's model asked for shuffled answers: it computes something, and not the answers."""

    def build(seed: int) -> Subject:
        subject = plant(0.0, seed).subject
        assert subject.task is not None
        fields = subject.task.to_dict() | {"labels": "shuffled", "label_seed": seed}
        return Subject(subject.model, make_task(subject.task.name, **fields))

    return {"another rule": build}


def another(name: str, plant: Callable[[float, int], Planted]) -> Controls:
    """A plant of another mechanism, as a control."""
    return {name: lambda seed: plant(0.0, seed).subject}


def another_mixture(seed: int) -> Subject:
    """A bottleneck that holds the best features of another mixture than the one it is asked for."""
    plant, other = bottleneck(0.0, seed), bottleneck(0.0, seed + 10_000)
    return Subject(plant.subject.model, other.subject.task)


def no_waves() -> Controls:
    """Answers memorized, by neurons or by training, wholly or in part: no frequency elsewhere."""
    return (
        lookup("modular-arithmetic", p=11)
        | shuffled("modular-arithmetic", p=11)
        | {"memorized by training": memorizing, "half memorized": half_memorized}
        | {"sums by heart": sums_by_heart, "sums mod 13 by heart": sums_mod_13_by_heart}
    )


# --- errors ---------------------------------------------------------------------------------------
def misses(
    estimate: Callable[[ProbeResult], Any], truth: Callable[[Planted], Any]
) -> Callable[[ProbeResult, Planted], float]:
    """The number of elements that are in one of two sets and not in the other."""
    return lambda result, plant: float(len(set(estimate(result)) ^ set(truth(plant))))


def angle_between(a: Float[np.ndarray, "d k"], b: Float[np.ndarray, "d m"]) -> float:
    """Largest principal angle, in degrees, between the columns of a (d, k) and b (d, m ≥ k).

    >>> round(angle_between(np.array([[1.0], [1.0]]), np.array([[1.0], [0.0]])))
    45
    """
    a, b = np.linalg.qr(np.atleast_2d(a.T).T)[0], np.linalg.qr(b)[0]
    return math.degrees(math.acos(min(1.0, float(np.linalg.svd(a.T @ b)[1].min()))))


def readout_angle(plant: Planted, hook: str, a: np.ndarray, b: np.ndarray) -> float:
    """Degrees between the activations at position 0 along a (d_model,) and along b, centered: the
    arc cosine of their correlation over the examples.
    """
    x = plant.subject.activation(hook, at=0).double().cpu().numpy()
    x = x - x.mean(0)
    cosine = float((x @ a) @ (x @ b) / np.linalg.norm(x @ a) / np.linalg.norm(x @ b))
    return math.degrees(math.acos(min(1.0, abs(cosine))))


def head(role: str) -> Callable[[Planted], str]:
    """The name "L0H1" of the head that plays `role` in a plant."""
    return lambda plant: "L{}H{}".format(*plant.truth["heads"][role])
