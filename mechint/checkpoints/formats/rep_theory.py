"""Models of Chughtai et al. 2023, A Toy Model of Universality: transformers with x_embed and
y_embed, and networks of two operands (``W_x``, ``W_y``, ``W``, ``W_U``).

``cfg.json`` beside the file names the group: cyclic groups are modular addition and dihedral groups
have mechint's order of elements. The order of the permutations is written nowhere, so for symmetric
and alternating groups the task is the multiplication table that the model itself answers with, and
that is listed as assumed. Pairs are trained on by ``torch.randperm`` after ``manual_seed``; seed 0
leaves them in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.formats.group_answers import answers, group_table
from mechint.checkpoints.formats.transformer_lens import interpret
from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    StateDict,
    checked_seed,
    plain_values,
    read_sibling_json,
    state_dict,
)
from mechint.checkpoints.splits import SplitRule
from mechint.config import Settings
from mechint.errors import CheckpointError, DataError
from mechint.models import build
from mechint.models.pair_config import PairNetworkConfig

BUFFERS = ("x_embed", "y_embed")
KNOWN = {"act_fn": "relu", "attention_dir": "causal", "normalization_type": None}
"""What all transformers of that project have in common."""

LETTERS = {"CyclicGroup": "C", "DihedralGroup": "D", "SymmetricGroup": "S", "AlternatingGroup": "A"}
METRICS = ("train_loss", "test_loss", "train_acc", "test_acc")
MAX_ORDER = 1024


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A model of the rep-theory code, with its task where cfg.json is beside it."""
    state = state_dict(content)
    if state is None:
        return None
    config: Settings
    if {"W_x", "W_y", "W_U"} <= set(state):
        config, weights = _network(path, state)
    elif {*BUFFERS, "embed.W_E"} <= set(state):
        bare = {name: value for name, value in state.items() if name not in BUFFERS}
        config, weights, _ = interpret(path, bare, KNOWN)
    else:
        return None
    given = read_sibling_json(path.with_name("cfg.json"))
    given = given if isinstance(given, Mapping) and "group" in given else {}
    recorded = read_sibling_json(path.with_name("summary_metrics.json"))
    metrics = recorded if isinstance(recorded, Mapping) else {}
    task, parameters, assumed = _task(given, config, weights)
    seed, fraction = checked_seed(given.get("seed")), given.get("frac_train")
    split = None
    if task and isinstance(fraction, float):
        parameters["train_fraction"] = fraction
        split = None if seed is None else SplitRule("torch-randperm-or-sorted", seed, fraction)
    return ParsedCheckpoint(
        config=config,
        weights=weights,
        task=task,
        parameters=parameters,
        step=_whole(given.get("num_epochs")),
        metrics={name: metrics[name] for name in METRICS if name in metrics},
        seed=seed,
        split=split,
        assumed=assumed,
        extra={"config": plain_values(given)} if given else {},
    )


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _network(path: Path, state: StateDict) -> tuple[PairNetworkConfig, dict[str, Tensor]]:
    """A network of two operands: concatenated before one layer, or multiplied where there is
    none.
    """
    hidden = "W" in state
    weights = {
        "embed.W_E": state["W_x"],
        "embed_y.W_E": state["W_y"],
        "unembed.W_U": state["W_U"],
    } | ({"layers.0.W": state["W"]} if hidden else {})
    unknown = set(state) - {"W_x", "W_y", "W", "W_U"}
    if unknown or any(value.dim() != 2 for value in state.values()):
        raise CheckpointError(
            f"{path}: a network of the rep-theory code, but damaged: expected matrices W_x, W_y, "
            f"W and W_U, got {', '.join(sorted(state)[:6])}"
        )
    config = PairNetworkConfig(
        d_vocab=state["W_x"].shape[0],
        d_vocab_out=state["W_U"].shape[1],
        d_embed=state["W_x"].shape[1],
        widths=(state["W"].shape[1],) if hidden else (),
        join="concat" if hidden else "multiply",
    )
    return config, weights


def _task(
    given: Mapping[str, Any], config: Any, weights: StateDict
) -> tuple[str | None, dict[str, Any], dict[str, Assumption]]:
    """Name and parameters of the task, and what was assumed where it was read from the model."""
    group, n = given.get("group"), given.get("group_parameter")
    if group not in LETTERS or not isinstance(n, int):
        return None, {}, {}
    equals = {"equals": config.n_ctx == 3}
    if group == "CyclicGroup":
        return "modular-arithmetic", {"p": n, **equals}, {}
    if group == "DihedralGroup":
        return "groups", {"group": f"D{n}", **equals}, {}
    unknown_order = f"the order of the elements of {group}({n}) is not recorded"
    if config.d_vocab_out > MAX_ORDER:
        return None, {}, {}
    try:
        table, differing = group_table(_answers(config, weights))
    except DataError as error:
        why = f"{unknown_order}, and the model's answers are not a group's ({error})"
        return None, {}, {"task": Assumption(None, why)}
    noted = f"; {differing} of its answers are not that group's" if differing else ""
    assumed = Assumption(
        "the multiplication table that the model answers with", f"{unknown_order}{noted}"
    )
    return "groups", {"group": f"{LETTERS[group]}{n}", "table": table, **equals}, {"task": assumed}


def _answers(config: Any, weights: StateDict) -> Tensor:
    """The model's answers to all pairs, (n, n)."""
    model = build(config).eval()
    if all(value.dtype == torch.float64 for value in weights.values()):
        model = model.double()
    model.load_weights(weights)
    last = config.d_vocab - 1 if config.n_ctx == 3 else None
    return answers(model, config.d_vocab_out, last)
