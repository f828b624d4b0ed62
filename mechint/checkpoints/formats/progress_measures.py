"""Files of Nanda et al. 2023, Progress measures for grokking:
``{model, config, epoch, train_losses, …}``, and bare state dicts of that code.

The configuration names the modulus (p) and the function (fn_name); models are causal, read
``x y =`` and answer over all p + 1 tokens. Pairs are trained on by Python's shuffle of the grid. A
file of a full run holds its snapshots too (state_dicts, epochs). Models of attention alone
(induction heads, skip trigrams) have their layers in ``attn_blocks``; the data configuration of
the induction models names the repeats, not how they are drawn and placed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.checkpoints.formats.transposed import (
    activation_of,
    is_transposed,
    transpose_weights,
)
from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    checked_seed,
    plain_values,
    saved_states,
    state_dict,
    training_metadata,
)
from mechint.checkpoints.splits import SplitRule
from mechint.config import ModelConfig

OPERATIONS = {
    "add": "add",
    "subtract": "subtract",
    "multiply": "multiply",
    "x2y2": "x^2+y^2",
    "x2xyy2": "x^2+xy+y^2",
}
"""fn_name → operation; "rand" draws new answers at every call and is not a task."""

CONFIGS = ("config", "model_config")
ASSUMED = {
    "act_fn": Assumption("relu", "the file names no activation function; that code's default"),
    "attention_dir": Assumption("causal", "the file does not say; that code masks later positions"),
}
REPEATS = {
    "n": "vocab_size",
    "length": "subseq_len",
    "copies": "num_repeats",
    "context": "seq_len",
}
"""Field of repeated-tokens → entry of the data configuration."""

ASSUMED_REPEATS = {
    "distinct": Assumption(
        True,
        "the file does not say whether a token may recur in a piece; the published model is right "
        "more often where none does",
    ),
    "placement": Assumption(
        "random places without overlap among random tokens",
        "the file gives the sizes of the repeats, not how they are placed; hold the model's loss "
        "against the one recorded",
    ),
}


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A checkpoint of the progress-measures code, with its task where its configuration is in the
    file.
    """
    bare = state_dict(content)
    if not isinstance(content, Mapping):
        return None
    several = {} if bare else saved_states(content)
    state = bare or state_dict(content.get("model")) or next(reversed(several.values()), None)
    if state is None or not is_transposed(state):
        return None
    given = next((content[name] for name in CONFIGS if isinstance(content.get(name), Mapping)), {})
    activation = activation_of(given, "act_type")
    config, weights = transpose_weights(path, state, activation)
    assumed = dict(ASSUMED) if not given else {}
    if config.attn_only or "act_type" in given:
        assumed.pop("act_fn", None)
    step, metrics = training_metadata({} if bare else content)
    seed = checked_seed(given.get("seed"))
    parameters, split = _task(given, seed, config.n_ctx)
    task = "modular-arithmetic" if parameters else None
    if not task and (parameters := _repeats(content.get("data_config"), config)):
        task = "repeated-tokens"
        assumed |= ASSUMED_REPEATS
    return ParsedCheckpoint(
        config=config,
        weights=weights,
        task=task,
        parameters=parameters,
        step=step,
        metrics=metrics,
        seed=seed,
        split=split,
        series={
            at: lambda then=then: transpose_weights(path, then, activation)[1]
            for at, then in several.items()
        },
        assumed=assumed,
        extra=_shown(content, given),
    )


def _task(
    given: Mapping[str, Any], seed: int | None, n_ctx: int
) -> tuple[dict[str, Any], SplitRule | None]:
    """Parameters of modular-arithmetic, nothing where the configuration does not name it, and the
    split it was trained on.
    """
    operation = OPERATIONS.get(str(given.get("fn_name")))
    if operation is None or "p" not in given:
        return {}, None
    parameters = {"p": given["p"], "operation": operation, "equals": n_ctx == 3}
    fraction = given.get("frac_train")
    if not isinstance(fraction, float):
        return parameters, None
    split = None if seed is None else SplitRule("python-shuffle", seed, fraction)
    return parameters | {"train_fraction": fraction}, split


def _repeats(data: Any, config: ModelConfig) -> dict[str, Any]:
    """Parameters of repeated-tokens, nothing where the data configuration does not name repeats
    that the model reads.
    """
    if not isinstance(data, Mapping):
        return {}
    given = {field: data.get(name) for field, name in REPEATS.items()}
    sizes = {field: size for field, size in given.items() if type(size) is int and size >= 2}
    if len(sizes) < len(given):
        return {}
    fits = sizes["n"] == config.d_vocab and sizes["context"] <= config.n_ctx
    if not fits or sizes["copies"] * sizes["length"] > sizes["context"]:
        return {}
    return sizes | {"distinct": sizes["length"] <= sizes["n"], "held_out": False}


def _shown(content: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The configurations in the file, for showing."""
    data = content.get("data_config")
    shown = {"config": plain_values(given)} if given else {}
    return shown | ({"data": plain_values(data)} if isinstance(data, Mapping) else {})
