"""k-fold composition by doubling: hop 1 in the first layer, twice as many in every further one
(log₂k + 1 layers).

The residual stream at position (i, j) holds i, j and π_i(j) (from the position), σ_i(j) (from the
token), and one slot a layer for the hop that it found. Layer 1 attends from (i, j) to (i, π_i(j))
and copies σ_i(π_i(j)); layer ℓ + 1 attends from (i, j) to (i + 2^{ℓ−1}, hop_i^{2^{ℓ−1}}(j)) and
copies the hop found there (composition, Theorem on expressivity).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mechint.errors import ParameterError
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


def composition(
    n: int = 6,
    k: int = 4,
    *,
    noise: float = 0.0,
    rotation_seed: int | None = None,
    seed: int = 0,
    **task: Any,
) -> Planted:
    """The doubling construction for `k` hidden permutations of `n` points; accuracy 1.0 on every
    hop when noise is 0.

    One head per layer, bidirectional, attention only; the width is k + (log₂k + 4) n.

    Args:
        n, k: points, and permutations (a power of 2); `task` are further parameters of the
            composition task.
        noise, rotation_seed, seed: see `Perturbation`; the permutations are drawn by the
            task's own seed.

    Returns:
        truth: "heads" {"hop 1": (0, 0), "hop 2": (1, 0), …}, "subspaces" {residual stream after
            layer ℓ: hop 2^ℓ}.

    Raises:
        ParameterError: k or a hop that is asked for is not a power of 2.

    >>> plant = composition(n=3, k=2)
    >>> plant.truth["heads"]
    {'hop 1': (0, 0), 'hop 2': (1, 0)}
    """
    hops = [2**layer for layer in range(k.bit_length())]
    made = make_task("composition", **{"n": n, "k": k, "hops": hops, **task})
    if k != hops[-1] or not set(made.hops) <= set(hops):
        raise ParameterError(
            f"planted: k={k}, hops={made.hops}: doubling finds only the hops "
            f"{', '.join(map(str, hops))}; expected powers of 2"
        )
    slots = Slots(row=k, column=n, target=n, value=n, **{f"hop {hop}": n for hop in hops})
    shape: dict[str, Any] = {"n_layers": len(hops), "n_heads": 1, "d_head": k + n}
    kind: dict[str, Any] = {"attn_only": True, "attention_dir": "bidirectional", "use_bias": False}
    config = config_for(made, slots, **shape, **kind)
    weights, eye = blank(config), torch.eye(n, dtype=torch.float64)
    _write_embedding(weights, slots, torch.as_tensor(made.tables()["permutations"]))
    for layer, hop in enumerate(hops):
        step, pointer, copied = (
            (0, "target", "value")
            if layer == 0
            else (hop // 2, f"hop {hop // 2}", f"hop {hop // 2}")
        )
        _write_hop(weights, f"blocks.{layer}.attn", slots, k, step, pointer, copied, f"hop {hop}")
    for hop, part in zip(made.hops, made.output_slices.values(), strict=True):
        weights["unembed.W_U"][slots[f"hop {hop}"], part] = SHARP * eye
    truth = {
        "mechanism": "composition by doubling",
        "heads": {f"hop {hop}": (layer, 0) for layer, hop in enumerate(hops)},
        "subspaces": {
            f"blocks.{layer}.hook_resid_post": slots.basis(f"hop {hop}")
            for layer, hop in enumerate(hops)
        },
    }
    return assemble(config, weights, made, truth, Perturbation(noise, rotation_seed, seed))


def _write_embedding(weights: dict[str, Tensor], slots: Slots, permutations: Tensor) -> None:
    """Token i n + v says that σ_i(j) = v; position (i, j) knows its row, column and π_i(j)."""
    k, n = permutations.shape
    eye = torch.eye(n, dtype=torch.float64)
    rows, columns = torch.arange(k).repeat_interleave(n), torch.arange(n).repeat(k)
    weights["embed.W_E"][:, slots["value"]] = eye[columns]
    weights["pos_embed.W_pos"][:, slots["row"]] = torch.eye(k, dtype=torch.float64)[rows]
    weights["pos_embed.W_pos"][:, slots["column"]] = eye[columns]
    weights["pos_embed.W_pos"][:, slots["target"]] = eye[permutations.flatten()]


def _write_hop(
    weights: dict[str, Tensor],
    at: str,
    slots: Slots,
    k: int,
    step: int,
    pointer: str,
    copied: str,
    found: str,
) -> None:
    """Head 0 of layer `at` looks from (i, j) at (i + step, `pointer`), copies `copied`."""
    n = slots[found].stop - slots[found].start
    row, column = (
        torch.eye(k + n, dtype=torch.float64)[:k],
        torch.eye(k + n, dtype=torch.float64)[k:],
    )
    # rows beyond the last are asked for by no key: what is found there is no hop and nobody reads
    # it
    ahead = torch.zeros_like(row)
    ahead[: k - step] = row[step:]
    weights[f"{at}.W_Q"][0, slots["row"]] = SHARP * ahead
    weights[f"{at}.W_Q"][0, slots[pointer]] = SHARP * column
    weights[f"{at}.W_K"][0, slots["row"]] = row
    weights[f"{at}.W_K"][0, slots["column"]] = column
    weights[f"{at}.W_V"][0, slots[copied]] = column[:, k:] @ column
    weights[f"{at}.W_O"][0, k:, slots[found]] = torch.eye(n, dtype=torch.float64)
