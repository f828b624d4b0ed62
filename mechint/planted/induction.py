"""An induction head: two layers of attention that continue a repeated sequence.

Layer 0, previous-token head: position t attends to t − 1 and copies its token into a slot of its
own. Layer 1, induction head: position t attends to the position whose previous token is the token
at t, and copies the token there to the output (Olsson et al. 2022, In-context Learning and
Induction Heads).
"""

from __future__ import annotations

import torch
from torch import Tensor

from mechint.planted.assembly import (
    SHARP,
    Perturbation,
    Planted,
    Slots,
    assemble,
    blank,
    config_for,
    make_task,
)
from mechint.task import rng

N_HEADS = 3
"""Heads of a layer, of which one is planted; the others attend at random and write nothing."""


def induction_head(
    n: int = 20,
    length: int = 10,
    *,
    sharpness: float = SHARP,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
) -> Planted:
    """Two attention-only layers of `n_heads` heads, one of each a planted one; accuracy 1.0 on the
    task repeated-tokens.

    Args:
        n, length: of the task.
        sharpness: attention score by which the planted heads prefer their key; at 3 they are soft.
        noise, rotation_seed, seed: see `Perturbation`; `seed` also draws which heads are planted.

    Returns:
        truth: "heads" {"previous token": (0, h), "induction": (1, h)}, "subspaces" of the copied
            tokens.
    """
    task = make_task("repeated-tokens", n=n, length=length, held_out=False)
    slots = Slots(token=n, position=task.n_ctx, previous=n, answer=n)
    d_head = max(n, task.n_ctx)
    shape = {"n_layers": 2, "n_heads": N_HEADS, "d_head": d_head}
    config = config_for(task, slots, **shape, attn_only=True, use_bias=False)
    weights, draw = blank(config), rng("planted heads", seed)
    eye = torch.eye(d_head, dtype=torch.float64)
    weights["embed.W_E"][:, slots["token"]] = eye[:n, :n]
    weights["pos_embed.W_pos"][:, slots["position"]] = eye[: task.n_ctx, : task.n_ctx]
    for layer in range(2):  # every head attends somewhere, moderately, and writes nothing
        for which in "QK":
            weight = weights[f"blocks.{layer}.attn.W_{which}"]  # (head, d_model, d_head)
            idle = torch.from_numpy(draw.standard_normal(tuple(weight.shape)))
            weight += idle / weight.shape[-1] ** 0.5
    first, second = (int(head) for head in draw.integers(0, N_HEADS, 2))
    _write_heads(weights, slots, first, second, sharpness)
    weights["unembed.W_U"][slots["answer"]] = SHARP * eye[:n, :n]
    truth = {
        "mechanism": "induction head",
        "heads": {"previous token": (0, first), "induction": (1, second)},
        "subspaces": {
            "blocks.0.hook_resid_post": slots.basis("previous"),
            "blocks.1.hook_resid_post": slots.basis("answer"),
        },
    }
    return assemble(config, weights, task, truth, Perturbation(noise, rotation_seed, seed))


def _write_heads(
    weights: dict[str, Tensor], slots: Slots, first: int, second: int, sharpness: float
) -> None:
    """Head `first` of layer 0 copies the token before, head `second` of layer 1 what followed."""
    layer0, layer1 = "blocks.0.attn", "blocks.1.attn"
    eye = torch.eye(weights[f"{layer0}.W_Q"].shape[-1], dtype=torch.float64)
    n = slots["token"].stop - slots["token"].start
    tokens, positions = eye[:n], eye[: slots["position"].stop - slots["position"].start]
    for at, head in ((layer0, first), (layer1, second)):
        weights[f"{at}.W_Q"][head] = weights[f"{at}.W_K"][head] = 0
    # position t asks for t - 1
    weights[f"{layer0}.W_Q"][first, slots["position"]] = sharpness * positions.roll(-1, 1)
    weights[f"{layer0}.W_K"][first, slots["position"]] = positions
    weights[f"{layer1}.W_Q"][second, slots["token"]] = sharpness * tokens
    weights[f"{layer1}.W_K"][second, slots["previous"]] = tokens
    # position 0 has nobody before it and copies itself: no query may take that for a previous token
    weights[f"{layer1}.W_K"][second, slots["position"].start, :n] = -1.0
    for at, head, slot in ((layer0, first, "previous"), (layer1, second, "answer")):
        weights[f"{at}.W_V"][head, slots["token"]] = tokens
        weights[f"{at}.W_O"][head, :n, slots[slot]] = tokens[:, :n]
