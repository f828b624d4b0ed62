"""State dicts of TransformerLens's HookedTransformer, bare or inside ``{model, config, …}``.

Shapes say most of the architecture. What they do not say comes from a configuration (a mapping in
the file, or a JSON or YAML file beside it, in TransformerLens's field names) and is otherwise
assumed and listed: ReLU, causal attention, positions added to the stream, MLPs after attention, and
without layer norm weights LNPre where the weights show that layer norm was folded into them, no
normalization otherwise.
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

UNSERVED = {
    "parallel_attn_mlp": (False, None),
    "use_local_attn": (False, None),
    "scale_attn_by_inverse_layer_idx": (False, None),
    "gated_mlp": (False, None),
    "attn_scores_soft_cap": (-1.0, 0.0, None),
    "output_logits_soft_cap": (-1.0, 0.0, None),
    "final_rms": (False, None),
    "num_experts": (None,),
    "n_key_value_heads": (None,),
    "positional_embedding_type": ("standard", None),
}
"""Options of TransformerLens that change the mathematics → the values under which mechint's is the
same.
"""


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
    }
    config = settings(ModelConfig, {**shape, **said}, path)
    weights = {
        name: value for name, value in state.items() if not name.endswith((".mask", ".IGNORE"))
    }
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
    said = {name: given.get(name, item.value) for name, item in defaults.items()}
    assumed = {name: item for name, item in defaults.items() if name not in given}
    if "blocks.0.ln1.w" in state:
        said["normalization_type"] = "LN"
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


def _n_ctx(path: Path, state: StateDict, given: Mapping[str, Any]) -> int:
    """Positions: of the position embedding, else as configured, else of the attention mask."""
    if "pos_embed.W_pos" in state:
        return state["pos_embed.W_pos"].shape[0]
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
        if value not in served and not (
            name == "n_key_value_heads" and value == given.get("n_heads")
        ):
            raise CheckpointError(
                f"{path}: uses {name}={value!r}, which mechint's HookedTransformer does not have"
            )


def _refuse(path: Path, state: StateDict, given: Mapping[str, Any]) -> None:
    """CheckpointError for what would make another function of the same weights."""
    refuse_options(path, given)
    if given.get("normalization_type") not in ("LN", "LNPre", None) or (
        "blocks.0.ln1.w" in state and "blocks.0.ln1.b" not in state
    ):
        raise CheckpointError(
            f"{path}: normalization_type={given.get('normalization_type', 'RMS')!r} is not "
            "served; expected LN, LNPre or none"
        )
    if "unembed.W_U" not in state:
        raise CheckpointError(f"{path}: a HookedTransformer without unembed.W_U")
    masks = (mask.bool() for name, mask in state.items() if name.endswith(".attn.mask"))
    foreign = ""
    if any(mask.numel() and not torch.equal(mask, torch.ones_like(mask).tril()) for mask in masks):
        foreign = "local attention"
    if "pos_embed.W_pos" not in state and given.get("positional_embedding_type") != "standard":
        foreign = "rotary positions, since it has no position embedding"
    if foreign:
        raise CheckpointError(
            f"{path}: uses {foreign}, which mechint's HookedTransformer does not have"
        )
