"""State dicts of TransformerLens's HookedTransformer, bare or inside ``{model, config, …}``.

Shapes say most of the architecture. What they do not say comes from a configuration (a mapping in
the file, or a JSON or YAML file beside it, in TransformerLens's field names) and is otherwise
assumed and listed: ReLU (SiLU of gated MLPs), causal attention, MLPs after attention, and without
weights of norms LNPre where the other weights show that layer norm was folded into them, no
normalization otherwise. A table of rotations says the base of rotary positions; keys and values
that several heads share are expanded to one for each head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mechint.checkpoints.configurations import model_config, task_of
from mechint.checkpoints.reader import (
    Assumption,
    ParsedCheckpoint,
    StateDict,
    find_state,
    layer_count,
    saved_states,
    settings,
    training_metadata,
    unwrapped,
)
from mechint.checkpoints.weights import fill_zeros
from mechint.config import ModelConfig
from mechint.errors import CheckpointError

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_new",
    "gelu_pytorch_tanh": "gelu_new",
    "silu": "silu",
    "swish": "silu",
}
ASSUMED = {
    "act_fn": Assumption(
        "relu", "the file does not say; ReLU is TransformerLens 4's default, earlier ones have none"
    ),
    "attention_dir": Assumption(
        "causal", "the file does not say; causal is TransformerLens's default"
    ),
    "normalization_type": Assumption(None, "the file has no layer norm weights"),
}
FOLDED = Assumption(
    "LNPre",
    "the file has no layer norm weights, and its weights are centered as folding a layer norm "
    "leaves them",
)
GATED = Assumption("silu", "the file does not say; gated MLPs have SiLU in Llama and most others")
EPS = Assumption(1e-5, "the file does not say; 1e-5 is TransformerLens's default")
SCALE = Assumption(
    "sqrt(d_head)", "the file does not say what scores are divided by; TransformerLens's default"
)
ARCHITECTURE = Assumption(
    "positions added to the stream, MLPs after attention, no caps, no local attention, scores "
    "scaled alike in all layers",
    "no configuration says otherwise, and other models (shortformer, ALiBi, MLPs beside attention) "
    "have the same tensors; TransformerLens's defaults",
)
STATES_ARCHITECTURE = {"positional_embedding_type", "parallel_attn_mlp", "use_local_attn"}
STATES_ARCHITECTURE |= {"attn_scores_soft_cap", "output_logits_soft_cap"}
STATES_ARCHITECTURE |= {"scale_attn_by_inverse_layer_idx"}
"""Options that change the function and no tensor."""
RMS = ("RMS", "RMSPre")
"""Norms without means."""

UNSERVED = {
    "parallel_attn_mlp": (False, None),
    "use_local_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "attn_scores_soft_cap": (-1.0, 0.0, None),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "num_experts": (None,),
    "positional_embedding_type": ("standard", "rotary", None),
    "rotary_adjacent_pairs": (False, None),
    "rotary_base_local": (None,),
    "use_NTK_by_parts_rope": (False, None),
    "use_yarn_rope": (False, None),
    "use_normalization_before_and_after": (False, None),
}
"""Options of TransformerLens that change the mathematics → the values under which mechint's is the
same.
"""


BUFFERS = (".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")
"""Endings of tensors that are no weights."""


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A state dict of TransformerLens's HookedTransformer, with or without its configuration."""
    state = find_state(content)
    if (
        state is None
        or "embed.W_E" not in state
        or state.get("blocks.0.attn.W_Q", torch.empty(0)).dim() != 3
    ):
        return None
    return parsed(path, content, state, model_config(path, content, state["embed.W_E"].shape[-1]))


def parsed(
    path: Path,
    content: Any,
    state: StateDict,
    given: Mapping[str, Any],
    rename: Callable[[StateDict], StateDict] = dict,
) -> ParsedCheckpoint:
    """The file whose weights are `state`, under TransformerLens's names by `rename`, and whose
    configuration is `given`.
    """
    config, weights, assumed = interpret(path, rename(state), given)
    step, metrics = training_metadata(content)  # a bare state dict records nothing
    return ParsedCheckpoint(
        config=config,
        weights=weights,
        step=step,
        metrics=metrics,
        series={
            at: lambda then=then: interpret(path, rename(unwrapped(then)), given)[1]
            for at, then in saved_states(content).items()
        },
        assumed=assumed,
        **task_of(path, content, config),
    )


def interpret(
    path: Path, state: StateDict, given: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor], dict[str, Assumption]]:
    """Configuration, weights under it, and what had to be assumed.

    Raises:
        CheckpointError: the model uses what mechint's HookedTransformer does not have.
    """
    _refuse(path, state, given)
    state = _with_all_heads(state)
    attn_only = "blocks.0.mlp.W_in" not in state
    said, assumed = stated_or_assumed(path, given, state, attn_only)
    (d_vocab, d_model), (n_heads, _, d_head) = (
        state["embed.W_E"].shape,
        state["blocks.0.attn.W_Q"].shape,
    )
    shape = {
        "n_layers": layer_count(state),
        "d_model": d_model,
        "n_heads": n_heads,
        "d_head": d_head,
        "d_mlp": None if attn_only else state["blocks.0.mlp.W_in"].shape[1],
        "n_ctx": _n_ctx(path, state, given),
        "d_vocab": d_vocab,
        "d_vocab_out": state["unembed.W_U"].shape[1],
        "attn_only": attn_only,
        "eps": given.get("eps", 1e-5),
        "attn_scale": attn_scale(given),
        "gated_mlp": "blocks.0.mlp.W_gate" in state,
        "use_qk_norm": "blocks.0.attn.q_norm.w" in state,
        **_rotations(path, state, given, d_head),
    }
    config = settings(ModelConfig, {**shape, **said}, path)
    weights = {name: value for name, value in state.items() if not name.endswith(BUFFERS)}
    if missing := fill_zeros(config, weights):
        assumed["zero"] = Assumption(missing, "the file has no such parameters")
    return config, weights, assumed


def stated_or_assumed(
    path: Path, given: Mapping[str, Any], state: StateDict, attn_only: bool
) -> tuple[dict[str, Any], dict[str, Assumption]]:
    """Activation, attention direction and normalization: as stated, else as assumed, with the list
    of what was.
    """
    defaults = ASSUMED | ({"normalization_type": FOLDED} if _folded(state) else {})
    if "blocks.0.mlp.W_gate" in state:
        defaults |= {"act_fn": GATED}
    said = {name: given.get(name, item.value) for name, item in defaults.items()}
    assumed = {name: item for name, item in defaults.items() if name not in given}
    if "blocks.0.ln1.w" in state:
        said["normalization_type"] = "LN" if "blocks.0.ln1.b" in state else "RMS"
        assumed.pop("normalization_type", None)
    if "eps" not in given and said["normalization_type"] is not None:
        assumed["eps"] = EPS
    if "attn_scale" not in given and "use_attn_scale" not in given:
        assumed["attn_scale"] = SCALE
    if not given.keys() >= STATES_ARCHITECTURE:
        assumed["architecture"] = ARCHITECTURE
    if attn_only:
        assumed.pop("act_fn", None)
        said["act_fn"] = "relu"
    elif str(said["act_fn"]) not in ACTIVATIONS:
        raise CheckpointError(
            f"{path}: act_fn={said['act_fn']!r} is not served; expected one of "
            f"{', '.join(ACTIVATIONS)}"
        )
    return said | {"act_fn": ACTIVATIONS[said["act_fn"]]}, assumed


def _folded(state: StateDict) -> bool:
    """Return whether layer norm weights were folded in: TransformerLens then centers what reads the
    residual stream, to within the rounding of the file's numbers.
    """
    reads = state["blocks.0.attn.W_Q"]
    # a mean of d_model rounding errors; 0.6 exceeds the largest of many random heads
    rounding = max(1e-6, 0.6 * torch.finfo(reads.dtype).eps / reads.shape[1] ** 0.5)
    reads = reads.to(torch.promote_types(reads.dtype, torch.float32))
    return bool(reads.abs().max() > 0) and bool(
        reads.mean(1).abs().max() < rounding * reads.abs().max()
    )


def attn_scale(given: Mapping[str, Any]) -> float | None:
    """Divisor of attention scores, where the configuration states it; else None."""
    if given.get("use_attn_scale") is False:
        return 1.0
    scale = given.get("attn_scale")
    return float(scale) if isinstance(scale, int | float) and scale > 0 else None


def _with_all_heads(state: StateDict) -> StateDict:
    """Keys and values that several heads share, expanded to one for each head."""
    found = dict(state)
    for name, value in state.items():
        block, _, part = name.rpartition(".")
        if part in ("_W_K", "_W_V", "_b_K", "_b_V"):
            n_heads = len(state[f"{block}.W_Q"])
            if len(value) == 0 or n_heads % len(value):
                return state  # what is wrong with their shapes is said where weights are checked
            found[f"{block}.{part[1:]}"] = value.repeat_interleave(n_heads // len(value), 0)
            del found[name]
    return found


def _rotations(
    path: Path, state: StateDict, given: Mapping[str, Any], d_head: int
) -> dict[str, Any]:
    """Fields of a model that rotates its queries and keys; none of one that embeds positions.

    Raises:
        CheckpointError: it rotates in another way than ours.
    """
    table = state.get("blocks.0.attn.rotary_sin")
    if table is None and given.get("positional_embedding_type") != "rotary":
        return {}
    base = float(given.get("rotary_base", 10000))
    width = given.get("rotary_dim") or d_head
    if width != d_head:
        raise CheckpointError(
            f"{path}: uses rotary_dim={width!r} of heads {d_head} wide, which mechint's "
            "HookedTransformer does not have"
        )
    if table is not None:
        if "rotary_base" not in given and table.dim() == 2 and d_head > 2 and len(table) > 1:
            base = float(f"{float(table[1, 1].asin()) ** (-d_head / 2):.4g}")  # of its second rate
        place = torch.arange(len(table), dtype=torch.float64)
        rates = base ** (-torch.arange(0, d_head, 2, dtype=torch.float64) / d_head)
        ours = torch.outer(place, rates).sin().repeat(1, 2)
        if table.shape != ours.shape or (table - ours).abs().max() > 1e-2:
            raise CheckpointError(
                f"{path}: its table of rotations is not that of rotary_base={base:g}; scaled "
                "rotations are not served"
            )
    return {"positional_embedding_type": "rotary", "rotary_base": base}


def _n_ctx(path: Path, state: StateDict, given: Mapping[str, Any]) -> int:
    """Positions: of the position embedding or the table of rotations, else as configured, else of
    the attention mask.
    """
    for name in ("pos_embed.W_pos", "blocks.0.attn.rotary_sin"):
        if name in state:
            return state[name].shape[0]
    mask = state.get("blocks.0.attn.mask", torch.empty(0))
    if isinstance(given.get("n_ctx"), int) or mask.numel():  # version 3 keeps an empty mask
        return given.get("n_ctx") or mask.shape[-1]
    raise CheckpointError(
        f"{path}: neither a position embedding nor a mask nor a configuration says how many "
        "positions it reads"
    )


def refuse_options(path: Path, given: Mapping[str, Any]) -> None:
    """CheckpointError for options that would make another function of the same weights."""
    for name, served in UNSERVED.items():
        value = given.get(name)
        if value not in served:
            raise CheckpointError(
                f"{path}: uses {name}={value!r}, which mechint's HookedTransformer does not have"
            )


def _refuse(path: Path, state: StateDict, given: Mapping[str, Any]) -> None:
    """CheckpointError for what would make another function of the same weights."""
    refuse_options(path, given)
    normed, weighted = given.get("normalization_type"), "blocks.0.ln1.w" in state
    of_weights = "LN" if "blocks.0.ln1.b" in state else "RMS"
    is_rms = normed in RMS or (weighted and of_weights == "RMS")
    stated = given.get("positional_embedding_type")
    turned = "blocks.0.attn.rotary_sin" in state
    embedded = "pos_embed.W_pos" in state or stated in ("standard", "rotary") or turned
    like_llama = turned or "blocks.0.mlp.W_gate" in state
    masks = [mask.bool() for name, mask in state.items() if name.endswith(".attn.mask")]
    local = any(
        mask.numel() and not torch.equal(mask, torch.ones_like(mask).tril()) for mask in masks
    )
    lacking = "which mechint's HookedTransformer does not have"
    for wrong, said in (
        (
            normed not in ("LN", "LNPre", *RMS, None),
            f"normalization_type={normed!r} is not served; expected LN, LNPre, RMS, RMSPre or none",
        ),
        (
            weighted and normed is not None and (normed in RMS) != (of_weights == "RMS"),
            f"its configuration says normalization_type={normed!r}, its weights are those of "
            f"{of_weights}",
        ),
        (
            given.get("final_rms") and not is_rms,
            f"uses final_rms=True, {lacking} beside layer norms",
        ),
        (
            like_llama and not weighted and "normalization_type" not in given,
            "has no weights of norms, and no configuration says whether they were folded; state "
            "normalization_type in a configuration",
        ),
        ("unembed.W_U" not in state, "a HookedTransformer without unembed.W_U"),
        (
            not embedded,
            "uses rotary positions, since it has no position embedding; expected a configuration "
            "with positional_embedding_type and rotary_base",
        ),
        (local, f"uses local attention, {lacking}"),
    ):
        if wrong:
            raise CheckpointError(f"{path}: {said}")
