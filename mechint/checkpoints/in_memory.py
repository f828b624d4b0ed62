"""A model that is already in memory, as one that probes can hook."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from torch import nn

from mechint.checkpoints.mapping import builtin_mappings
from mechint.checkpoints.weights import build_model
from mechint.errors import ParameterError


def hooked(source: Any, hooks: Mapping[str, Any] | None) -> tuple[Any, Any]:
    """`source` as a hooked model, and its tokenizer, None where it has none.

    A GPT-2 of transformers becomes a HookedTransformer with a copy of its weights; any other of its
    causal language models is bridged, and keeps its weights.

    Raises:
        ParameterError: no module, or a module of one's own without `hooks`.
        CheckpointError: TransformerLens has no bridge for the model.
    """
    if not isinstance(source, nn.Module):
        raise ParameterError(
            f"load: got a {type(source).__name__}; expected a path, or a model: an nn.Module"
        )
    if hooks is not None:
        from mechint.models.wrapped import wrap

        return wrap(source, hooks), None
    if hasattr(source, "run_with_hooks"):
        return source.eval(), getattr(source, "tokenizer", None)
    kind = getattr(getattr(source, "config", None), "model_type", None)
    if kind is None:
        raise ParameterError(
            f"load: a {type(source).__name__} needs hooks: mechint.load(module, task, hooks="
            "{'blocks.0.hook_resid_post': 'layers.0'}), hook name → submodule; mechint.wrap takes "
            "weights and sizes, too"
        )
    gpt2 = next(mapping for mapping in builtin_mappings() if mapping.name == "gpt2")
    config = cast(Any, source).config.to_dict()
    content = {"model": dict(source.state_dict()), **config}
    parsed = gpt2(Path(kind), content) if serves_gpt2(config) else None
    if parsed is None:
        from mechint.models.bridge import bridge_of

        return bridge_of(source), None
    return build_model(Path(kind), parsed).eval(), None


def serves_gpt2(config: Mapping[str, Any]) -> bool:
    """Return whether the configuration is of a GPT-2 that a HookedTransformer expresses."""
    return config.get("model_type") == "gpt2" and not any(config.get(name) for name in UNSERVED)


UNSERVED = ("scale_attn_by_inverse_layer_idx", "add_cross_attention", "quantization_config")
"""Options of GPT-2 that mechint's HookedTransformer does not have: the bridge serves them."""
