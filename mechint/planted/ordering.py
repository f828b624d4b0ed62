"""Comparison by a one-dimensional order direction: tokens lie on a line, and the difference of two
is read.

The embedding of value v is (v − mean) · u + a random nuisance orthogonal to u, with u at a chosen
angle in the plane of the first two coordinates. Two heads carry the coordinates along u, one
operand each; the feed-forward layer turns their difference into the answer (capacity, Sec. on the
injected comparison task).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import (
    SHARP,
    Perturbation,
    Planted,
    Slots,
    assemble,
    attend,
    blank,
    config_for,
    make_task,
)
from mechint.task import Batch, FiniteTask, rng

NUISANCE = 6


def comparison(
    n: int = 20,
    angle: float = 0.0,
    *,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
    **task: Any,
) -> Planted:
    """a < b by a line at `angle`; accuracy 1.0 when noise is 0.

    Args:
        n: values; `task` are further parameters of the comparison task.
        angle: radians, of the order direction in the plane of the first two coordinates before any
            rotation.
        noise, rotation_seed, seed: see `Perturbation`; `seed` also draws the nuisance.

    Returns:
        truth: "heads" {"a": (0, 0), "b": (0, 1)}, "direction" (d_model,) unit vector of the order
            in the embedding,
        "subspaces" {"hook_embed": that direction, "blocks.0.hook_resid_mid": where the two operands
        arrive}, "read" (d_model, 1) the direction of the embedding that the MLP reads of a, which
        noise on the weights turns away from the planted one.
    """
    made = make_task("comparison", n=n, **task)
    data = made.examples()
    read, n_ctx = data.reads[-1], data.tokens.shape[1]
    slots = Slots(plane=2, nuisance=NUISANCE, a=1, b=1, position=n_ctx, answer=1)
    config = config_for(made, slots, n_heads=2, d_head=2, d_mlp=2)
    weights = blank(config)
    u = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)
    across = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=torch.float64)
    _write_embedding(weights, slots, _values(made, data), u, across, seed)
    weights["pos_embed.W_pos"][:, slots["position"]] = torch.eye(n_ctx, dtype=torch.float64)
    for head, slot in enumerate(("a", "b")):
        attend(weights, slots, head, read, head)
        weights["blocks.0.attn.W_V"][head, slots["plane"], 1] = u
        weights["blocks.0.attn.W_O"][head, 1, slots[slot]] = 1.0
    # neighboring values are 2/(n−1) apart: b − a in steps of one, clipped to 0 … 1 by two ReLUs
    step = (n - 1) / 2
    weights["blocks.0.mlp.W_in"][slots["a"]], weights["blocks.0.mlp.W_in"][slots["b"]] = -step, step
    weights["blocks.0.mlp.b_in"][1] = -1.0
    weights["blocks.0.mlp.W_out"][:, slots["answer"]] = torch.tensor(
        [[1.0], [-1.0]], dtype=torch.float64
    )
    # class 1 is "a < b"
    sign = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    weights["unembed.W_U"][slots["answer"]] = SHARP * sign
    weights["unembed.b_U"][:] = -SHARP / 2 * sign
    direction = slots.basis("plane") @ u.unsqueeze(1)
    truth = {
        "mechanism": "comparison by an order direction",
        "heads": {"a": (0, 0), "b": (0, 1)},
        "subspaces": {
            "hook_embed": direction,
            "blocks.0.hook_resid_mid": torch.cat([slots.basis("a"), slots.basis("b")], 1),
        },
    }
    plant = assemble(config, weights, made, truth, Perturbation(noise, rotation_seed, seed))
    return Planted(plant.subject, {**plant.truth, "read": _read_direction(plant.subject.model)})


def _read_direction(model: HookedTransformer) -> Tensor:
    """(d_model, 1) float64 unit vector: what the MLP reads of the first operand's embedding."""
    found = {name: weight.detach().double() for name, weight in model.weights().items()}
    value, out = (found[f"blocks.0.attn.W_{letter}"][0] for letter in "VO")
    read = value @ out @ found["blocks.0.mlp.W_in"].sum(1, keepdim=True)
    return read / read.norm()


def _values(task: FiniteTask, data: Batch) -> dict[int, int]:
    """Token → its value, for the tokens that stand as first operand."""
    first = next(variable for variable in task.variables.values() if variable.positions == (0,))
    return dict(zip(data.tokens[:, 0].tolist(), first.value_of(data.tokens).tolist(), strict=True))


def _write_embedding(
    weights: dict[str, Tensor],
    slots: Slots,
    values: Mapping[int, int],
    u: Tensor,
    across: Tensor,
    seed: int,
) -> None:
    """Value v of n at 2v/(n−1) − 1 along u, random coordinates in all directions orthogonal."""
    draw, n = rng("planted nuisance", seed), len(values)
    for token, value in values.items():
        weights["embed.W_E"][token, slots["plane"]] = (2 * value / (n - 1) - 1) * u + float(
            draw.standard_normal()
        ) / 2 * across
        weights["embed.W_E"][token, slots["nuisance"]] = (
            torch.from_numpy(draw.standard_normal(NUISANCE)) / 2
        )
