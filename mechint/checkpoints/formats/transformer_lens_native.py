"""State dicts of TransformerLens 4's own models, ``TransformerBridge.boot_native(…).state_dict()``:
``blocks.{l}.attn.q.weight`` and so on, as torch's Linear keeps them.

How many heads the queries are cut into is written nowhere in the tensors; it comes from a
configuration or is assumed, as are the activation function and the direction of attention.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from einops import rearrange
from torch import Tensor

from mechint.checkpoints.formats.sibling import model_config, task_of
from mechint.checkpoints.formats.transformer_lens import (
    ASSUMED,
    PREFIXES,
    UNSERVED,
    attn_scale,
    bare_state,
    refuse_options,
    stated_or_assumed,
)
from mechint.checkpoints.reader import (
    AskedFor,
    Assumption,
    ParsedCheckpoint,
    StateDict,
    layer_count,
    matrix,
    saved_states,
    settings,
    training_metadata,
    unwrapped,
)
from mechint.config import ModelConfig
from mechint.errors import CheckpointError

FOREIGN = (
    (r"mlp\.gate\.", "gated feed-forward layers"),
    (r"mlp\.ln\.", "SoLU"),
    (r"\.(q_norm|k_norm)\.", "normalized queries and keys"),
)

NOT_FOLLOWED = (
    "parallel_attn_mlp",
    "use_local_attn",
    "scale_attn_by_inverse_layer_idx",
    "num_experts",
)
"""Options that a configuration of TransformerLens 4 may state and that its own models (its
`sources.native.model`) do not look at: they compute the same with and without.
"""


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A state dict of a TransformerLens 4 native model, with or without its configuration."""
    state = bare_state(content)
    if state is None or not {"embed.weight", "blocks.0.attn.q.weight"} <= set(state):
        return None
    state = _without_components(state)
    given = model_config(path, content, state["embed.weight"].shape[-1])
    config, assumed = _interpret(path, state, given)
    step, metrics = training_metadata(content)
    series = {
        at: lambda then=then: _weights(path, _without_components(unwrapped(then, PREFIXES)), config)
        for at, then in saved_states(content).items()
    }
    return ParsedCheckpoint(
        config=config,
        weights=_weights(path, state, config),
        reshape=lambda other: _weights(path, state, other),
        step=step,
        metrics=metrics,
        series=series,
        assumed=assumed,
        **task_of(path, content, config),
    )


def _without_components(state: StateDict) -> dict[str, Tensor]:
    """Names without the part that a bridge puts before what it wraps."""
    part = re.compile(r"\._original_component\b|\.original_component\b")
    return {part.sub("", name): value for name, value in state.items()}


def _interpret(
    path: Path, state: StateDict, given: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Assumption]]:
    """The configuration, and what of it had to be assumed."""
    refuse_options(path, {name: given[name] for name in given if name not in NOT_FOLLOWED})
    for pattern, what in FOREIGN:
        if any(re.search(pattern, name) for name in state):
            raise CheckpointError(
                f"{path}: uses {what}, which mechint's HookedTransformer does not have"
            )
    if "pos_embed.weight" not in state:
        raise CheckpointError(
            f"{path}: has no position embedding, so it uses rotary positions, which mechint's "
            "HookedTransformer does not have"
        )
    (d_vocab, d_model), queries = state["embed.weight"].shape, state["blocks.0.attn.q.weight"]
    if queries.shape != state["blocks.0.attn.k.weight"].shape:
        raise CheckpointError(
            f"{path}: uses grouped keys and values, which mechint's HookedTransformer does not have"
        )
    normed = "blocks.0.ln1.weight" in state
    if normed and "blocks.0.ln1.bias" not in state:
        raise CheckpointError(
            f"{path}: normalization_type='RMS' is not served; expected LN or none"
        )
    attn_only = "blocks.0.mlp.in.weight" not in state
    norm = "LN" if normed else ASSUMED["normalization_type"]
    said, assumed = stated_or_assumed(path, given, norm, attn_only)
    n_heads, assumed_heads = _heads(given, queries.shape[0])
    shape = {
        "n_layers": layer_count(state),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": queries.shape[0] // n_heads,
        "d_mlp": None if attn_only else state["blocks.0.mlp.in.weight"].shape[0],
        "n_ctx": state["pos_embed.weight"].shape[0],
        "d_vocab": d_vocab,
        "d_vocab_out": state["unembed.weight"].shape[0],
        "attn_only": attn_only,
        "eps": given.get("eps", 1e-5),
        # without use_attn_scale this model divides by sqrt(d_head); HookedTransformer does not
        "attn_scale": None if given.get("use_attn_scale") is False else attn_scale(given),
    }
    assumed |= assumed_heads | _not_followed(given)
    return settings(ModelConfig, {**shape, **said}, path), assumed


def _not_followed(given: Mapping[str, Any]) -> dict[str, Assumption]:
    """What is taken in place of the options that are stated and not followed."""
    return {
        name: Assumption(
            UNSERVED[name][0],
            f"the configuration says {given[name]!r}, which TransformerLens 4's own models do not "
            "follow",
        )
        for name in NOT_FOLLOWED
        if given.get(name) not in UNSERVED[name]
    }


def _heads(given: Mapping[str, Any], width: int) -> tuple[int, dict[str, Assumption]]:
    """How many heads, as stated or as assumed, where all heads together are `width` wide."""
    stated, d_head = given.get("n_heads"), given.get("d_head")
    if isinstance(stated, int) and stated > 0 and width % stated == 0:
        return stated, {}
    if isinstance(d_head, int) and d_head > 0 and width % d_head == 0:
        return width // d_head, {}
    n_heads = next(number for number in (4, 3, 2, 1) if width % number == 0)
    return n_heads, {
        "n_heads": Assumption(
            n_heads,
            f"the tensors do not say how many heads the {width} query components are cut into",
        )
    }


def _weights(path: Path, state: StateDict, config: ModelConfig) -> dict[str, Tensor]:
    """The weights in TransformerLens 2's names and shapes, under `config`'s number of heads."""
    heads = config.n_heads
    state = AskedFor(state)
    zeros = state["embed.weight"].new_zeros
    weights = {
        "embed.W_E": state["embed.weight"],
        "pos_embed.W_pos": state["pos_embed.weight"],
        "unembed.W_U": matrix(state, "unembed.weight").T,
        "unembed.b_U": state.get("unembed.bias", zeros(config.d_vocab_out)),
    }
    try:
        for layer in range(config.n_layers):
            block, to = f"blocks.{layer}.", f"blocks.{layer}."
            for letter in "qkv":
                weight = matrix(state, f"{block}attn.{letter}.weight")
                bias = state[f"{block}attn.{letter}.bias"]
                name = letter.upper()
                weights[f"{to}attn.W_{name}"] = rearrange(
                    weight, "(head d_head) d_model -> head d_model d_head", head=heads
                )
                weights[f"{to}attn.b_{name}"] = rearrange(
                    bias, "(head d_head) -> head d_head", head=heads
                )
            weights[f"{to}attn.W_O"] = rearrange(
                matrix(state, f"{block}attn.o.weight"),
                "d_model (head d_head) -> head d_head d_model",
                head=heads,
            )
            weights[f"{to}attn.b_O"] = state[f"{block}attn.o.bias"]
            if not config.attn_only:
                for part in ("in", "out"):
                    weights[f"{to}mlp.W_{part}"] = matrix(state, f"{block}mlp.{part}.weight").T
                    weights[f"{to}mlp.b_{part}"] = state[f"{block}mlp.{part}.bias"]
        if config.normalization_type == "LN":
            for norm in _norms(config):
                weights[f"{norm}.w"] = state[f"{norm}.weight"]
                weights[f"{norm}.b"] = state[f"{norm}.bias"]
    except (KeyError, ValueError, RuntimeError, IndexError) as error:
        raise CheckpointError(
            f"{path}: a TransformerLens native model, but damaged or incomplete: {error}"
        ) from error
    state.refuse_the_rest(path)
    return weights


def _norms(config: ModelConfig) -> list[str]:
    inner = ("ln1",) if config.attn_only else ("ln1", "ln2")
    blocks = [f"blocks.{layer}.{name}" for layer in range(config.n_layers) for name in inner]
    return [*blocks, "ln_final"]
