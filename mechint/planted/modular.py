"""Modular addition by chosen frequencies: sine and cosine lookup, product, cosine readout.

Embedding (remainders, Eq. 3): token x ↦ cos wx, sin wx for w = 2πk/p. Feed-forward (Eq. 4):
products of the two operands' waves. Unembedding (Eq. 5): logit(c) ∝ Σ_k cos w_k(a + b − c).

The products come from ReLUs: over the phases φ, relu(cos(wa + φ) + cos(wb + φ + δ)) = relu(2
cos(w(a−b)/2 − δ/2) · cos(w(a+b)/2 + φ + δ/2)) has the second harmonic |cos(w(a−b)/2 − δ/2)| ·
(4/3π) cos(w(a+b) + 2φ + δ). Summing over several shifts δ makes the first factor nearly constant
(3% at four), over an odd number n of phases leaves of the other harmonics only those of order 2n ±
2 (0.4% at fifteen).

With constant attention (Zhong et al. 2023) both operands arrive as one sum, δ is 0 for all neurons,
and the factor
|cos(w(a−b)/2)| stays: the "pizza" mechanism. It cannot tell a from a + p/2, so p must be odd there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.errors import ParameterError
from mechint.planted.assembly import (
    Perturbation,
    Planted,
    Slots,
    assemble,
    attend,
    blank,
    config_for,
    make_task,
)

PHASES, SHIFTS = 15, 4

MARGIN = 20.0
"""By how much the right logit exceeds all others where the products are exact."""


def waves(p: int, frequencies: Sequence[int]) -> Float[Tensor, "p column"]:
    """(p, 2F) cos and sin of 2πkx/p for every frequency k, interleaved, float64."""
    x, k = torch.arange(p, dtype=torch.float64), torch.tensor(frequencies, dtype=torch.float64)
    angle = 2 * math.pi / p * torch.outer(x, k)
    return torch.stack([angle.cos(), angle.sin()], -1).flatten(1)


def modular_addition(
    p: int,
    frequencies: Sequence[int],
    *,
    constant_attention: bool = False,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
) -> Planted:
    """a + b mod p by the frequencies given; accuracy 1.0 when noise is 0.

    Two heads carry one operand each to the last position; with `constant_attention` one head sums
    both.

    Args:
        p: modulus, at least 3; odd with `constant_attention`.
        frequencies: different integers from 1 to (p−1)/2 whose greatest common divisor with p is 1
            together: else the answer is not determined.
        noise, rotation_seed, seed: see `Perturbation`.

    Returns:
        truth: "frequencies" (ascending), "heads" {"a": (0, 0), "b": (0, 1)} or {"sum": (0, 0)},
            "clusters" {frequency: its neurons}, "subspaces" of the embedding and of the answer.

    Raises:
        ParameterError: a frequency out of range, or a set that cannot determine the answer.

    >>> modular_addition(11, (2, 5)).subject.accuracy()
    {'answer': 1.0}
    """
    frequencies = _checked(p, frequencies, constant_attention)
    n = len(frequencies)
    slots = Slots(a=2 * n, b=2 * n, answer=2 * n, position=3)
    shifts = [0.0] if constant_attention else [2 * math.pi * j / SHIFTS for j in range(SHIFTS)]
    task = make_task("modular-arithmetic", p=p)
    config = config_for(
        task,
        slots,
        n_heads=1 if constant_attention else 2,
        d_head=2 * n,
        d_mlp=n * PHASES * len(shifts),
        attention_rate=0.0 if constant_attention else 1.0,
        use_bias=False,
    )
    weights, table = blank(config), waves(p, frequencies)
    weights["embed.W_E"][:p, slots["a"]] = table
    heads = _write_attention(weights, slots, constant_attention)
    clusters = _write_products(weights, slots, frequencies, shifts, constant_attention)
    # by how much Σ cos w(a + b − c) is smaller at the best wrong c
    closest = n - float((table[1:] @ table[0]).max())
    weights["unembed.W_U"][slots["answer"]] = MARGIN / closest * table.T
    truth = {
        "mechanism": "modular addition, constant attention"
        if constant_attention
        else "modular addition",
        "frequencies": frequencies,
        "heads": heads,
        "clusters": clusters,
        "subspaces": {
            "hook_embed": slots.basis("a"),
            "blocks.0.hook_resid_post": slots.basis("answer"),
        },
    }
    return assemble(config, weights, task, truth, Perturbation(noise, rotation_seed, seed))


def _checked(p: int, frequencies: Sequence[int], constant_attention: bool) -> tuple[int, ...]:
    chosen = tuple(sorted(frequencies))
    if (
        not chosen
        or len(set(chosen)) < len(chosen)
        or not all(1 <= k <= (p - 1) // 2 for k in chosen)
    ):
        raise ParameterError(
            f"planted: frequencies={tuple(frequencies)}: expected different integers from 1 "
            f"to {(p - 1) // 2}"
        )
    if math.gcd(p, *chosen) > 1:
        raise ParameterError(
            f"planted: frequencies={chosen} share the factor {math.gcd(p, *chosen)} with "
            f"p={p}: they determine a + b only up to it"
        )
    if constant_attention and p % 2 == 0:
        raise ParameterError(
            f"planted: p={p} with constant attention: a sum of waves cannot tell a from a + "
            "p/2; expected an odd p"
        )
    return chosen


def _write_attention(
    weights: dict[str, Tensor], slots: Slots, constant_attention: bool
) -> dict[str, tuple[int, int]]:
    """Carry the operands' waves to the last position; returns who does it."""
    width = slots["a"].stop - slots["a"].start
    eye = torch.eye(width, dtype=torch.float64)
    if constant_attention:
        weights["blocks.0.attn.W_V"][0, slots["a"]] = eye
        # written into the slot that "b" has in the other variant: at the operands' own positions it
        # must not add to the embedding
        weights["blocks.0.attn.W_O"][0, :, slots["b"]] = eye
        return {"sum": (0, 0)}
    weights["pos_embed.W_pos"][:, slots["position"]] = torch.eye(3, dtype=torch.float64)
    for head, slot in enumerate(("a", "b")):
        attend(weights, slots, head, 2, head)
        weights["blocks.0.attn.W_V"][head, slots["a"]] = eye
        weights["blocks.0.attn.W_O"][head, :, slots[slot]] = eye
    return {"a": (0, 0), "b": (0, 1)}


def _write_products(
    weights: dict[str, Tensor],
    slots: Slots,
    frequencies: Sequence[int],
    shifts: Sequence[float],
    summed: bool,
) -> dict[int, list[int]]:
    """Neurons over phases and shifts; returns frequency → its neurons."""
    w_in, w_out = weights["blocks.0.mlp.W_in"], weights["blocks.0.mlp.W_out"]
    clusters: dict[int, list[int]] = {k: [] for k in frequencies}
    neuron = 0
    for i, k in enumerate(frequencies):
        rows = {slot: slots[slot].start + 2 * i for slot in ("a", "b", "answer")}
        for shift in shifts:
            for step in range(PHASES):
                phase = 2 * math.pi * step / PHASES
                for slot, angle in (
                    (("b", phase),) if summed else (("a", phase), ("b", phase + shift))
                ):
                    # cos(wx + angle) from cos wx and sin wx
                    w_in[rows[slot], neuron], w_in[rows[slot] + 1, neuron] = (
                        math.cos(angle),
                        -math.sin(angle),
                    )
                # the neuron's second harmonic is cos(w(a+b) + 2 phase + shift): correlate with it;
                # the sum has amplitude 1
                gain = 3 * math.pi**2 / (4 * PHASES * len(shifts))
                w_out[neuron, rows["answer"]] = gain * math.cos(2 * phase + shift)
                w_out[neuron, rows["answer"] + 1] = -gain * math.sin(2 * phase + shift)
                clusters[k].append(neuron)
                neuron += 1
    return clusters
