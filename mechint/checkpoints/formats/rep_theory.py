"""Models of Chughtai et al. 2023, A Toy Model of Universality: TransformerLens state dicts with
x_embed and y_embed.

``cfg.json`` beside the file names the group: cyclic groups are modular addition and dihedral groups
have mechint's order of elements. The order of the permutations is written nowhere, so for symmetric
and alternating groups the task is the multiplication table that the model itself answers with, if
that is a group's; ``extra`` says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.formats.transformer_lens import interpret
from mechint.checkpoints.reader import Found, json_beside, plain_values, state_dict
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, DataError
from mechint.groups.finite import FiniteGroup
from mechint.models.transformer import HookedTransformer

BUFFERS = ("x_embed", "y_embed")
KNOWN = {"act_fn": "relu", "attention_dir": "causal", "normalization_type": None}
"""What all transformers of that project have in common."""


def read(path: Path, content: Any) -> Found | None:
    """A transformer of the rep-theory code, with its task where cfg.json is beside it."""
    state = state_dict(content)
    if state is None:
        return None
    if {"W_x", "W_y", "W_U"} <= set(state):
        raise CheckpointError(
            f"{path}: an MLP of the rep-theory code; only its transformers are read"
        )
    if not {*BUFFERS, "embed.W_E"} <= set(state):
        return None
    config, weights, _ = interpret(
        path, {name: value for name, value in state.items() if name not in BUFFERS}, KNOWN
    )
    given = json_beside(path.with_name("cfg.json"))
    given = given if isinstance(given, Mapping) and "group" in given else {}
    recorded = json_beside(path.with_name("summary_metrics.json"))
    metrics = recorded if isinstance(recorded, Mapping) else {}
    task, parameters, note = _task(given, config, weights)
    if task and isinstance(given.get("frac_train"), float):
        parameters["train_fraction"] = given["frac_train"]
    return Found(
        config=config,
        weights=weights,
        task=task,
        parameters=parameters,
        step=given.get("num_epochs"),
        metrics={
            name: metrics[name]
            for name in ("train_loss", "test_loss", "train_acc", "test_acc")
            if name in metrics
        },
        extra=({"config": plain_values(given)} if given else {}) | note,
    )


def _task(
    given: Mapping[str, Any], config: ModelConfig, weights: Mapping[str, Tensor]
) -> tuple[str | None, dict[str, Any], dict[str, str]]:
    """Name and parameters of the task, and a note where it was read from the model."""
    group, n = given.get("group"), given.get("group_parameter")
    if group == "CyclicGroup":
        return "modular-arithmetic", {"p": n}, {}
    if group == "DihedralGroup":
        return "groups", {"group": f"D{n}"}, {}
    if group is None:
        return None, {}, {}
    table = _answers(config, weights)
    try:
        FiniteGroup(table)
    except DataError as error:
        return (
            None,
            {},
            {
                "task": (
                    f"the model's answers are no group's ({error}), and the order of the elements "
                    f"of {group} is not recorded"
                )
            },
        )
    note = {
        "task": (
            "the multiplication table the model answers with, since the order of the elements of "
            f"{group}({n}) is not recorded"
        )
    }
    return "groups", {"group": f"{group[0]}{n}", "table": table}, note


def _answers(config: ModelConfig, weights: Mapping[str, Tensor]) -> list[list[int]]:
    """The model's answers to all pairs, (n, n)."""
    model, n = HookedTransformer(config).eval(), config.d_vocab_out
    model.load_weights(weights)
    pairs = torch.cartesian_prod(torch.arange(n), torch.arange(n))
    prompts = torch.cat([pairs, torch.full((n * n, 1), config.d_vocab - 1)], 1)
    with torch.no_grad():
        return (
            torch.cat([model(part)[:, -1].argmax(-1) for part in prompts.split(4096)])
            .view(n, n)
            .tolist()
        )
