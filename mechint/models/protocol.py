"""What may be asked of any model: its hooks, its shape, and what it is capable of.

A HookedTransformer, a student, a TransformerLens bridge and a wrapped ``nn.Module`` all are
`HookedModel`s. Probes ask for a `Capability` and read a `ModelDescription`; they never ask for a
class or for an attribute that only some models have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

Hooks = Sequence[tuple[str, Callable[..., Any]]]
"""(hook name, function(activation, hook)) pairs, as TransformerLens takes them."""


class Capability(Enum):
    """What some models can do and others cannot."""

    REINITIALIZE = "draw new initial weights"
    RESUME = "resume a forward from a site of the residual stream"
    EDIT_WEIGHTS = "load edited weights"


class HookedModel(Protocol):
    """A module whose activations are reached by name."""

    training: bool

    @property
    def hook_dict(self) -> Mapping[str, Any]:
        """Hook name → TransformerLens HookPoint."""
        ...

    def __call__(self, tokens: Tensor) -> Tensor: ...

    def run_with_hooks(self, tokens: Tensor, *, fwd_hooks: Any) -> Any:
        """Logits under hooks that are gone afterwards."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]: ...

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]: ...

    def modules(self) -> Iterator[nn.Module]: ...

    def state_dict(self) -> Mapping[str, Tensor]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...

    def eval(self) -> Self: ...


@dataclass(frozen=True)
class ModelDescription:
    """The shape of a model, from its configuration or, where it states none, from its weights.

    n_layers: blocks passed through, repeated passes counted; 0 for a model without blocks.
    d_model, n_heads, d_mlp, d_vocab, d_vocab_out, n_ctx: None where the model has no such size.
    attention_dir: "causal" or "bidirectional", None without attention.
    """

    n_layers: int
    d_model: int | None = None
    n_heads: int | None = None
    d_mlp: int | None = None
    d_vocab: int | None = None
    d_vocab_out: int | None = None
    n_ctx: int | None = None
    attention_dir: str | None = None


def capabilities(model: Any) -> frozenset[Capability]:
    """What `model` says that it can do; a foreign model that says nothing can have its weights
    edited, as any module can.
    """
    return getattr(model, "capabilities", frozenset({Capability.EDIT_WEIGHTS}))


def describe(model: Any) -> ModelDescription:
    """The shape of `model`: of its `description` where it states one, else of its configuration,
    with what is missing there taken from its hooks and weights.

    >>> from mechint.config import ModelConfig
    >>> from mechint.models import build
    >>> describe(build(ModelConfig(n_layers=2, d_model=8, n_heads=2))).n_layers
    2
    """
    stated = getattr(model, "description", None)
    if stated is not None:
        return stated
    config = getattr(model, "cfg", None)
    if config is None:
        config = getattr(model, "config", None)
    embedding, unembedding = (getattr(model, name, None) for name in ("W_E", "W_U"))
    hooks = list(model.hook_dict)
    attends = any(name.endswith("attn.hook_pattern") for name in hooks)

    def stands(name: str, otherwise: int | None = None) -> int | None:
        value = getattr(config, name, None)
        return value if isinstance(value, int) and value > 0 else otherwise

    return ModelDescription(
        n_layers=stands("depth") or stands("n_layers") or n_blocks(hooks),
        d_model=stands("d_model", size_of(embedding, -1)),
        n_heads=stands("n_heads") if attends else None,
        d_mlp=stands("d_mlp") if any(name.endswith("mlp.hook_post") for name in hooks) else None,
        d_vocab=stands("d_vocab", size_of(embedding, 0)),
        d_vocab_out=stands("d_vocab_out", size_of(unembedding, -1)) or stands("d_vocab"),
        n_ctx=stands("n_ctx"),
        attention_dir=(getattr(config, "attention_dir", None) or "causal") if attends else None,
    )


def n_blocks(hooks: Iterable[str]) -> int:
    """How many blocks the hook names speak of.

    >>> n_blocks(["hook_embed", "blocks.0.mlp.hook_post", "blocks.1.mlp.hook_post"])
    2
    """
    layers = [int(match[1]) for name in hooks if (match := re.match(r"blocks\.(\d+)\.", name))]
    return max(layers, default=-1) + 1


def size_of(weight: Any, axis: int) -> int | None:
    """Length of `weight` along `axis`, None where there is no such weight."""
    return weight.shape[axis] if isinstance(weight, torch.Tensor) else None
