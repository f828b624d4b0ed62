"""State dicts of TransformerLens 4's own models, ``TransformerBridge.boot_native(…).state_dict()``.

The tensors do not show the number of heads, so it comes from a configuration or is assumed, as are
the activation function and the direction of attention.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from mechint.checkpoints.configurations import model_config
from mechint.checkpoints.formats.transformer_lens import interpret, parsed, refuse_options
from mechint.checkpoints.reader import Assumption, ParsedCheckpoint, StateDict, find_state
from mechint.checkpoints.renaming import BIAS, HEADS, OUT, ROWS, Table
from mechint.checkpoints.renaming import rename as renamed
from mechint.errors import CheckpointError

NOT_FOLLOWED = (
    "parallel_attn_mlp",
    "use_local_attn",
    "scale_attn_by_inverse_layer_idx",
    "num_experts",
)
"""Options that a configuration of TransformerLens 4 may state and that its own models (its
`sources.native.model`) ignore: they compute the same with and without.
"""

IMPLIED = {"positional_embedding_type": "standard", "parallel_attn_mlp": False}
"""Options that its tensors decide: it has a position embedding, and its MLPs follow attention."""


TABLE: Table = {
    "embed.W_E": "embed.weight",
    "pos_embed.W_pos": "pos_embed.weight",
    **{
        f"{norm}.{ours}": f"{norm}.{theirs}"
        for norm in ("blocks.{layer}.ln1", "blocks.{layer}.ln2", "ln_final")
        for ours, theirs in (("w", "weight"), ("b", "bias"))
    },
    **{
        f"blocks.{{layer}}.attn.{kind}_{part}": (
            f"blocks.{{layer}}.attn.{part.lower()}.{name}",
            pattern,
        )
        for part in "QKV"
        for kind, name, pattern in (("W", "weight", HEADS), ("b", "bias", BIAS))
    },
    "blocks.{layer}.attn.W_O": ("blocks.{layer}.attn.o.weight", OUT),
    "blocks.{layer}.attn.b_O": "blocks.{layer}.attn.o.bias",
    "blocks.{layer}.mlp.W_in": ("blocks.{layer}.mlp.in.weight", ROWS),
    "blocks.{layer}.mlp.b_in": "blocks.{layer}.mlp.in.bias",
    "blocks.{layer}.mlp.W_out": ("blocks.{layer}.mlp.out.weight", ROWS),
    "blocks.{layer}.mlp.b_out": "blocks.{layer}.mlp.out.bias",
    "unembed.W_U": ("unembed.weight", ROWS),
    "unembed.b_U": "unembed.bias",
}


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A state dict of a TransformerLens 4 native model, with or without its configuration."""
    state = find_state(content)
    if state is None or not {"embed.weight", "blocks.0.attn.q.weight"} <= set(state):
        return None
    given = model_config(path, content, state["embed.weight"].shape[-1])
    refuse_options(path, {name: given[name] for name in given if name not in NOT_FOLLOWED})
    if {"blocks.0.ln1.weight"} <= set(state) and "blocks.0.ln1.bias" not in state:
        raise CheckpointError(
            f"{path}: normalization_type='RMS' is not served; expected LN or none"
        )
    heads, assumed = _heads(given, state["blocks.0.attn.q.weight"].shape[0])
    # these models divide scores by sqrt(d_head) where use_attn_scale is false
    scale = ("use_attn_scale", "attn_scale") if given.get("use_attn_scale") is False else ()
    kept = {n: v for n, v in given.items() if n not in (*NOT_FOLLOWED, *scale)} | IMPLIED

    def rename(then: StateDict, n_heads: int = heads) -> StateDict:
        return renamed(path, _without_components(then), TABLE, {"n_heads": n_heads})

    found = parsed(path, content, state, kept, rename)
    return dataclasses.replace(
        found,
        reshape=lambda other: interpret(path, rename(state, other.n_heads), kept)[1],
        assumed={**found.assumed, **assumed},
    )


def _without_components(state: StateDict) -> dict[str, Tensor]:
    """Names without the part that a bridge puts before the modules it wraps."""
    part = re.compile(r"\._original_component\b|\.original_component\b")
    return {part.sub("", name): value for name, value in state.items()}


def _heads(given: Mapping[str, Any], width: int) -> tuple[int, dict[str, Assumption]]:
    """The number of heads, as stated or as assumed, where all heads together are `width` wide."""
    stated, d_head = given.get("n_heads"), given.get("d_head")
    if isinstance(stated, int) and stated > 0 and width % stated == 0:
        return stated, {}
    if isinstance(d_head, int) and d_head > 0 and width % d_head == 0:
        return width // d_head, {}
    n_heads = next(number for number in (4, 3, 2, 1) if width % number == 0)
    why = f"the tensors do not say into how many heads the {width} query components are split"
    return n_heads, {"n_heads": Assumption(n_heads, why)}
