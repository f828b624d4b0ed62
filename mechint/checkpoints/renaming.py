"""Tensors of another project under mechint's names and in its shapes, by a table of names.

A table says for each name of ours which tensor it is: its name in the file, that name with an
einops pattern, or a tensor that the file does not hold. ``{layer}`` and ``{head}`` stand for
numbers; tensors of ``{head}`` are stacked along a first axis, and a name of ours that ends in
``_QKV`` stands for three tensors along the first axis.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from einops import EinopsError, rearrange
from torch import Tensor

from mechint.checkpoints.reader import (
    ParsedCheckpoint,
    StateDict,
    TrackedStateDict,
    layer_count,
    saved_states,
    settings,
    training_metadata,
    unwrapped,
)
from mechint.checkpoints.weights import fill_zeros
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.models.pair_network import PairNetworkConfig

Table = Mapping[str, str | tuple[str, str] | Tensor]
"""Our name → name in the file, that and an einops pattern, or the tensor itself."""

HEADS, ROWS = "(head d_head) d_model -> head d_model d_head", "d_out d_in -> d_in d_out"
OUT, BIAS = "d_model (head d_head) -> head d_head d_model", "(head d_head) -> head d_head"
QKV, QKV_BIAS = (
    "(qkv head d_head) d_model -> qkv head d_model d_head",
    "(qkv head d_head) -> qkv head d_head",
)
"""Patterns of linear layers to the left of what they act on."""

SHARED = ("attn.W_K", "attn.W_V", "attn.b_K", "attn.b_V")
"""Keys and values, which several heads may share (Ainslie et al. 2023)."""

QKV_BIASES = ("attn.b_Q", "attn.b_K", "attn.b_V")


def rename(
    path: Path,
    state: StateDict,
    table: Table,
    fields: Mapping[str, Any],
    *,
    ignore: Sequence[str] = (),
    all_required: bool = False,
) -> dict[str, Tensor]:
    """The tensors of `state` under our names and in our shapes.

    fields: of the configuration; the number of heads and their width cut tensors apart.
    ignore: patterns of names that are no weights; all_required: every name of the table has a
    tensor, else those that lack are left out.

    Raises:
        CheckpointError: a tensor lacks, does not fit its pattern, or has no place in the table.
    """
    tracked = TrackedStateDict(state)
    sources = {
        ours: (entry, "") if isinstance(entry, str) else entry
        for ours, entry in table.items()
        if not isinstance(entry, Tensor)
    }
    places = {ours: _places(theirs, state) for ours, (theirs, _) in sources.items()}
    # one numbering for the model, so that a tensor stays in its layer where another lacks it
    layers = sorted({at for ours, there in places.items() if "{layer}" in ours for at, _ in there})
    weights = {
        ours.replace("{layer}", str(at)): entry
        for ours, entry in table.items()
        if isinstance(entry, Tensor)
        for at in range(len(layers) if "{layer}" in ours else 1)
    }
    sizes = {"head": fields.get("n_heads"), "d_head": fields.get("d_head"), "qkv": 3}
    for ours, (theirs, pattern) in sources.items():
        if all_required and not places[ours]:
            raise CheckpointError(f"{path}: lacks {theirs}, for {ours}")
        for layer in sorted({layer for layer, _ in places[ours]}):
            names = [places[ours][key] for key in sorted(places[ours]) if key[0] == layer]
            value = [tracked[name] for name in names] if "{head}" in theirs else tracked[names[0]]
            name = ours.replace("{layer}", str(layers.index(layer) if "{layer}" in ours else 0))
            value = _shaped(path, name, names[0], value, pattern, sizes)
            if not name.endswith("_QKV"):
                weights[name] = value
            elif len(value) == 3:
                weights |= {name[:-3] + letter: value[i] for i, letter in enumerate("QKV")}
            else:
                raise CheckpointError(f"{path}: {names[0]}: {len(value)} parts of {name}, not 3")
        if (queries := weights.get("blocks.0.attn.W_Q")) is not None and queries.dim() == 3:
            sizes |= {"head": queries.shape[0], "d_head": queries.shape[2]}
    for pattern in ignore:
        tracked.asked |= set(fnmatch.filter(state, pattern))
    tracked.refuse_the_rest(path, "mechint has no place for")
    return weights


def _places(name: str, state: StateDict) -> dict[tuple[int, int], str]:
    """(layer, head) → name in `state`, for a name with ``{layer}`` and ``{head}`` in it."""
    if "{" not in name:
        return {(0, 0): name} if name in state else {}
    pattern = re.escape(name)
    for what in ("layer", "head"):
        first, *rest = pattern.split(rf"\{{{what}\}}")
        pattern = first + "".join(
            (rf"(?P<{what}>\d{{1,6}})" if not index else rf"(?P={what})") + part
            for index, part in enumerate(rest)
        )
    matches = {there: re.fullmatch(pattern, there) for there in state}
    numbers = {there: match.groupdict() for there, match in matches.items() if match}
    return {
        (int(known.get("layer") or 0), int(known.get("head") or 0)): there
        for there, known in numbers.items()
    }


def _shaped(
    path: Path,
    ours: str,
    theirs: str,
    value: Tensor | list[Tensor],
    pattern: str,
    sizes: Mapping[str, Any],
) -> Tensor:
    """One tensor rearranged, or several of one shape stacked; sizes: of axes, where known."""
    try:
        value = torch.stack(value) if isinstance(value, list) else value
        named = re.findall(r"\w+", pattern.split("->")[0])
        known = {axis: n for axis, n in sizes.items() if axis in named and isinstance(n, int)}
        if "d_head" in known:  # keys may have fewer heads than queries
            known.pop("head", None)
        return rearrange(value, pattern, **known) if pattern else value
    except (EinopsError, RuntimeError, ValueError, TypeError) as error:
        shape = tuple(value[0].shape if isinstance(value, list) else value.shape)
        said = str(error).strip().splitlines()[-1][:120] if str(error).strip() else ""
        raise CheckpointError(
            f"{path}: {theirs} of shape {shape} cannot become {ours} by {pattern!r}: {said}"
        ) from error


# --- architectures --------------------------------------------------------------------------------
def transformer_config(
    path: Path, weights: dict[str, Tensor], fields: Mapping[str, Any]
) -> ModelConfig:
    """Sizes of a transformer from its tensors; positions and biases that lack become zero, and keys
    and values that several heads share are repeated for each of them.
    """
    d_vocab, d_model = weights["embed.W_E"].shape
    n_heads, _, d_head = weights["blocks.0.attn.W_Q"].shape
    for name in [name for name in weights if name.endswith(SHARED)]:
        shared = len(weights[name])
        if n_heads % max(shared, 1):
            raise CheckpointError(f"{path}: {shared} heads of {name} for {n_heads} heads of W_Q")
        if shared < n_heads:
            weights[name] = weights[name].repeat_interleave(n_heads // shared, 0)
    biases = [name for name in weights if re.search(r"\.(b|b_\w+)$", name)]
    mlp = next((value for name, value in weights.items() if name.endswith("mlp.W_in")), None)
    positions = weights.get("pos_embed.W_pos")
    sizes = {
        "n_layers": layer_count(weights),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": None if mlp is None else mlp.shape[1],
        "d_vocab": d_vocab,
        "d_vocab_out": weights["unembed.W_U"].shape[1],
        "attn_only": mlp is None,
        "normalization_type": "LN" if "blocks.0.ln1.w" in weights else None,
        "use_bias": not all(name.endswith(QKV_BIASES) for name in biases),
        "use_qk_norm": "blocks.0.attn.q_norm.w" in weights,
    }
    if biases and not sizes["use_bias"]:
        sizes["qkv_bias"] = True
    if positions is not None:
        sizes["n_ctx"] = positions.shape[0]
    elif "n_ctx" not in fields:
        raise CheckpointError(f"{path}: has no positions; state n_ctx in the mapping")
    config = settings(ModelConfig, {**sizes, **fields}, path)
    if config.normalization_type in ("LN", "RMS") and "ln_final.w" not in weights:
        raise CheckpointError(
            f"{path}: has no final norm (ln_final.w), and none is made up; a module without one, "
            "or with norms after its layers, is given by mechint.wrap (docs/pytorch-layers.md)"
        )
    fill_zeros(config, weights)
    return config


def pair_config(
    path: Path, weights: dict[str, Tensor], fields: Mapping[str, Any]
) -> PairNetworkConfig:
    """Sizes of a network of two operands from its tensors."""
    embedding = weights["embed.W_E"]
    widths = []
    while (name := f"layers.{len(widths)}.W") in weights:
        widths.append(weights[name].shape[1])
    sizes = {
        "d_vocab": embedding.shape[0],
        "d_embed": embedding.shape[1],
        "d_vocab_out": weights["unembed.W_U"].shape[1],
        "widths": tuple(widths),
        "separate": "embed_y.W_E" in weights,
        "use_bias": "layers.0.b" in weights,
    }
    return settings(PairNetworkConfig, {**sizes, **fields}, path)


@dataclass(frozen=True)
class NameTable:
    """A table of names with the architecture whose weights it names.

    adapt: from the names in a file to those of the table; the others are those of `rename`.
    """

    table: Table = field(repr=False)
    config: Callable[[Path, dict[str, Tensor], Mapping[str, Any]], Any] = transformer_config
    ignore: Sequence[str] = ()
    adapt: Callable[[StateDict], StateDict] = dict
    all_required: bool = False

    def read(
        self, path: Path, state: StateDict, fields: Mapping[str, Any]
    ) -> tuple[Any, dict[str, Tensor]]:
        """The configuration that `state` and `fields` describe, and the weights under it."""
        weights = rename(
            path,
            self.adapt(state),
            self.table,
            fields,
            ignore=self.ignore,
            all_required=self.all_required,
        )
        try:
            return self.config(path, weights, fields), weights
        except CheckpointError:
            raise
        except KeyError as error:
            raise CheckpointError(f"{path}: has no tensor for {error}") from error
        except (IndexError, ValueError) as error:
            raise CheckpointError(f"{path}: tensors of other shapes: {error}") from error

    def parsed(
        self, path: Path, content: Any, state: StateDict, fields: Mapping[str, Any]
    ) -> ParsedCheckpoint:
        """Weights, configuration and history of a file whose weights are `state`."""
        config, weights = self.read(path, state, fields)
        step, metrics = training_metadata(content)
        return ParsedCheckpoint(
            config=config,
            weights=weights,
            step=step,
            metrics=metrics,
            reshape=(lambda other: self.read(path, state, {**fields, "n_heads": other.n_heads})[1])
            if "n_heads" in fields
            else None,
            series={
                at: lambda then=then: self.read(path, unwrapped(then), fields)[1]
                for at, then in saved_states(content).items()
            },
        )
