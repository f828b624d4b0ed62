"""The linear models of Zhong et al. 2023 (alpha to delta): ``embed.weight``, ``l1``, ``l2``,
``unembed.weight``.

``model_type`` of the JSON file beside them says how the operands are joined: A and B add the
embeddings, C and G pass each through the first layer and add what comes, D concatenates, X adds
embeddings of their own. The tensors tell concatenation and separate embeddings apart; between the
others they cannot, so where the type does not decide, the reading that answers best is taken and
listed as assumed. All answer x + y modulo the number of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    StateDict,
    matrix,
    plain_values,
)
from mechint.errors import CheckpointError
from mechint.models.pair_config import PairNetworkConfig
from mechint.models.pair_network import PairNetwork

JOINS = {"A": "add", "B": "add", "C": "each", "D": "concat", "G": "each", "X": "add"}
"""model_type → how the embeddings are joined."""


def is_linear(state: StateDict) -> bool:
    """Whether a state dict is that of a linear model of the pizza code."""
    return {"unembed.weight", "l1.weight"} <= set(state) and bool(
        {"embed.weight", "embed1.weight"} & set(state)
    )


def read(path: Path, state: StateDict, given: Mapping[str, Any]) -> ParsedCheckpoint:
    """A linear model, with the task its code trains."""
    try:
        weights, shape = _convert(state)
        join, why = _join(given.get("model_type"), shape, weights)
    except (KeyError, ValueError, IndexError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: a linear model of the pizza code, but damaged or incomplete: {error}"
        ) from error
    known = set(_names(state))
    if set(state) - known:
        raise CheckpointError(
            f"{path}: a linear model of the pizza code with "
            f"{', '.join(sorted(set(state) - known)[:4])}, which none of its types has"
        )
    fraction, epoch = given.get("frac"), given.get("epoch")
    share = {"train_fraction": fraction} if isinstance(fraction, float) else {}
    assumed = {"join": Assumption(join, why)} if why else {}
    if not given:
        assumed["task"] = Assumption(
            "x + y modulo the number of tokens",
            "the linear models of that code answer nothing else",
        )
    return ParsedCheckpoint(
        config=PairNetworkConfig(join=join, **shape),
        weights=weights,
        task="modular-arithmetic",
        parameters={"p": shape["d_vocab"], "operation": "add", "equals": False, **share},
        step=epoch if isinstance(epoch, int) else None,
        assumed=assumed,
        extra={"config": plain_values(given)} if given else {},
    )


def _names(state: StateDict) -> list[str]:
    layers = [f"l{index}.{kind}" for index in (1, 2, 3) for kind in ("weight", "bias")]
    return ["embed.weight", "embed1.weight", "embed2.weight", "unembed.weight", *layers]


def _convert(state: StateDict) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Weights in the pair network's names and shapes, and all of its configuration but the join."""
    separate = "embed1.weight" in state
    first = state["embed1.weight" if separate else "embed.weight"]
    weights = {"embed.W_E": first, "unembed.W_U": matrix(state, "unembed.weight").T}
    if separate:
        weights["embed_y.W_E"] = state["embed2.weight"]
    widths: list[int] = []
    while f"l{len(widths) + 1}.weight" in state:
        index, name = len(widths), f"l{len(widths) + 1}"
        weights[f"layers.{index}.W"] = matrix(state, f"{name}.weight").T
        if "l1.bias" in state:
            weights[f"layers.{index}.b"] = state[f"{name}.bias"]
        widths.append(state[f"{name}.weight"].shape[0])
    shape = {
        "d_vocab": first.shape[0],
        "d_vocab_out": state["unembed.weight"].shape[0],
        "d_embed": first.shape[1],
        "widths": tuple(widths),
        "separate": separate,
        "use_bias": "l1.bias" in state,
    }
    return weights, shape


def _join(
    kind: Any, shape: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> tuple[str, str | None]:
    """How the operands are joined, and why that is assumed where the file does not say."""
    d_in = weights["layers.0.W"].shape[0]
    if d_in == 2 * shape["d_embed"]:
        return "concat", None
    if d_in != shape["d_embed"]:
        raise ValueError(f"l1 reads {d_in} numbers, an embedding has {shape['d_embed']}")
    scores = {join: _accuracy(join, shape, weights) for join in ("add", "each", "multiply")}
    best = max(scores, key=lambda join: scores[join])
    said = JOINS.get(str(kind))
    if said in scores and scores[said] >= scores[best] - 0.01:
        return said, None
    told = f"model_type {kind!r}" if kind is not None else "no file beside it"
    return best, (
        f"{told} does not decide; read so it answers {scores[best]:.0%} of x + y, "
        + ", ".join(f"as {join!r} {score:.0%}" for join, score in scores.items() if join != best)
    )


def _accuracy(join: str, shape: Mapping[str, Any], weights: Mapping[str, Tensor]) -> float:
    """Share of the pairs whose sum modulo the number of tokens the network answers."""
    p = shape["d_vocab"]
    if p > 1024:
        raise ValueError(f"{p} tokens, expected at most 1024")
    model = PairNetwork(PairNetworkConfig(join=join, **shape)).to(weights["embed.W_E"].dtype)
    model.load_weights(weights)
    pairs = torch.cartesian_prod(torch.arange(p), torch.arange(p))
    with torch.no_grad():
        right = [
            (model(part)[:, -1].argmax(-1) == part.sum(-1) % p).double().sum()
            for part in pairs.split(1 << 16)
        ]
    return float(torch.stack(right).sum()) / len(pairs)
