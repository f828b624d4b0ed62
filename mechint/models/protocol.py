"""The protocol of models: hooks, shape and capabilities.

A HookedTransformer, a student, a TransformerLens bridge and a wrapped ``nn.Module`` all are hooked
models: modules with `hook_dict`, hook name → TransformerLens's HookPoint, and `run_with_hooks`.
Probes ask for a `Capability` and read a `ModelDescription`; they never ask for a class or for an
attribute that only some models have.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from mechint.errors import CheckpointError, MechintError, ParameterError
from mechint.models.hook_points import HookedRootModule
from mechint.models.parameters import Capability as Capability

Hooks = Sequence[tuple[str, Callable[..., Any]]]
"""(hook name, function(activation, hook)) pairs, as TransformerLens takes them."""


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

    def width(self, positions: int, attention_of: int | None = None) -> int:
        """Numbers per position that a forward on `positions` tokens holds at once beside the
        logits: residual stream and neurons of one block, and the attention of `attention_of`
        blocks; of all of them when None, since some libraries keep it to the end.

        >>> model = ModelDescription(n_layers=2, d_model=8, n_heads=4, d_mlp=32)
        >>> model.width(positions=10), model.width(positions=10, attention_of=1)
        (192, 152)
        """
        blocks = self.n_layers if attention_of is None else attention_of
        attention = blocks * (self.n_heads or 0) * positions
        return 6 * (self.d_model or 0) + 2 * (self.d_mlp or 0) + attention


def capabilities(model: Any) -> frozenset[Capability]:
    """Capabilities that `model` states; EDIT_WEIGHTS alone where it states none."""
    if _is_bridge(model):
        from mechint.models.foreign import bridge

        return bridge.capabilities(model)
    return getattr(model, "capabilities", frozenset({Capability.EDIT_WEIGHTS}))


def hook_names(model: Any) -> frozenset[str]:
    """The hooks of `model` that run in a forward. Cost, for a bridge: one forward on two tokens."""
    if _is_bridge(model):
        from mechint.models.foreign import bridge

        return bridge.hook_names(model)
    names = frozenset(model.hook_dict)
    if getattr(model, "use_attn_result", True):
        return names
    return frozenset(name for name in names if not name.endswith("attn.hook_result"))


def read_only_hooks(model: Any) -> Mapping[str, str]:
    """Hook of `model` → why it cannot be edited; a bridge shows more than it can change. Cost, once
    per bridge: two forwards and a backward on two tokens.

    >>> from mechint.config import ModelConfig
    >>> from mechint.models import build
    >>> dict(read_only_hooks(build(ModelConfig(d_model=8, n_heads=2))))
    {}
    """
    if not _is_bridge(model):
        return {}
    from mechint.models.foreign import bridge

    return bridge.read_only_hooks(model)


def check_edits(model: Any, names: Iterable[str]) -> None:
    """ParameterError where one of the hooks `names` of `model` cannot be edited."""
    why = read_only_hooks(model)
    for name in names:
        if name in why:
            raise ParameterError(f"hook {name}: {why[name]}")


def run_hooked(
    model: Any, tokens: Shaped[Tensor, "example ..."], hooks: Hooks
) -> Float[Tensor, "example ..."]:
    """Logits under `hooks`; ParameterError where one of them never runs."""
    left = {name for name, _ in hooks}

    def see(activation: Any, hook: Any, name: str) -> None:
        left.discard(name)

    watches = [(name, partial(see, name=name)) for name in left]
    logits = model.run_with_hooks(tokens, fwd_hooks=[*watches, *hooks])
    for name in left:
        raise ParameterError(
            f"hook {name}: it did not run in this forward, so that an edit there changes nothing; "
            "where the model was compiled, give the model that was compiled"
        )
    return logits


def gradients_of(
    output: Float[Tensor, ""],
    inputs: Sequence[Tensor],
    *,
    all_used: bool = False,
    retain_graph: bool = False,
) -> tuple[Any, ...]:
    """Gradients of what a forward gave, None of an input that it does not depend on; of one forward
    several times with `retain_graph`.

    Raises:
        ParameterError: the forward keeps no gradients, or, with `all_used`, not those of an input.
    """
    keeps, gradients = output.requires_grad, tuple[Any, ...]()
    if keeps:
        gradients = torch.autograd.grad(
            output, inputs, allow_unused=True, retain_graph=retain_graph
        )
    if not keeps or (all_used and any(gradient is None for gradient in gradients)):
        raise ParameterError(
            "the model's forward keeps no gradients, which this probe takes: it runs under "
            "torch.no_grad or torch.inference_mode, or detaches; let it run without"
        )
    return gradients


def guarded(model: Any, hooks: Hooks) -> Hooks:
    """`hooks`, but one that returns an edit where `model` takes none raises ParameterError."""
    why = read_only_hooks(model)

    def guard(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(activation: Any, hook: Any) -> None:
            edited = function(activation, hook=hook)
            if edited is not None and edited is not activation:
                check_edits(model, [name])

        return run

    return [(name, guard(name, function) if name in why else function) for name, function in hooks]


def has_hooks_attached(model: Any) -> bool:
    """Return whether hooks are attached to the model or any of its hook points, so that a forward
    may not be a function of its weights alone.

    >>> from mechint.config import ModelConfig
    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2))
    >>> model.add_hook("blocks.0.hook_mlp_out", lambda activation, hook: 0 * activation)
    >>> has_hooks_attached(model)
    True
    """
    return any(
        module._forward_hooks
        or module._forward_pre_hooks
        or module._backward_hooks
        or module._backward_pre_hooks
        for module in (model, *model.hook_dict.values())
    )


def reinitialized(model: Any, seed: int) -> Any:
    """A model of the same architecture with the initial weights of `seed`, on the CPU.

    Raises:
        MechintError: `model` lacks the capability REINITIALIZE.
    """
    if Capability.REINITIALIZE not in capabilities(model):
        raise MechintError(f"a {type(model).__name__} cannot {Capability.REINITIALIZE.value}")
    if _is_bridge(model):
        from mechint.models.foreign import bridge

        return bridge.reinitialized(model, seed)
    return model.reinitialized(seed)


def check_hooked(model: Any) -> None:
    """Refuse what is not a hooked model; ParameterError says how to make it one."""
    if not hasattr(model, "hook_dict") or not hasattr(model, "run_with_hooks"):
        raise ParameterError(
            f"a {type(model).__name__} has no hooks by name; "
            "wrap it: mechint.wrap(module, hooks={name: submodule path})"
        )


def _is_bridge(model: Any) -> bool:
    return any(base.__module__.startswith(_BRIDGES) for base in type(model).__mro__)


_BRIDGES = "transformer_lens.model_bridge"


def describe(model: Any, hooks: frozenset[str] | None = None) -> ModelDescription:
    """The shape of `model`: of its `description` where it states one, else of its configuration,
    with what is missing there taken from its hooks (`hook_names`, where None) and weights.

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
    hooks = hook_names(model) if hooks is None else hooks
    attends = any(name.endswith("attn.hook_pattern") for name in hooks)
    has_neurons = any(name.endswith("mlp.hook_post") for name in hooks)

    def stands(name: str, otherwise: int | None = None) -> int | None:
        value = getattr(config, name, None)
        return value if isinstance(value, int) and value > 0 else otherwise

    return ModelDescription(
        n_layers=stands("depth") or stands("n_layers") or n_blocks(hooks),
        d_model=stands("d_model", size_of(embedding, -1)),
        n_heads=stands("n_heads") if attends else None,
        d_mlp=(size_of(_first_W_in(model), -1) or stands("d_mlp")) if has_neurons else None,
        d_vocab=stands("d_vocab", size_of(embedding, 0)),
        d_vocab_out=stands("d_vocab_out", size_of(unembedding, -1)) or stands("d_vocab"),
        n_ctx=stands("n_ctx"),
        attention_dir=(getattr(config, "attention_dir", None) or "causal") if attends else None,
    )


def _first_W_in(model: Any) -> Any:
    """Input weights of the first block's neurons, (d_model, d_mlp), where the model shows it: an
    adapter of a foreign architecture may describe another width than its weights have.
    """
    try:
        return model.blocks[0].mlp.W_in
    except (AttributeError, IndexError, TypeError):
        return None


def n_blocks(hooks: Iterable[str]) -> int:
    """Number of blocks that the hook names mention.

    >>> n_blocks(["hook_embed", "blocks.0.mlp.hook_post", "blocks.1.mlp.hook_post"])
    2
    """
    layers = [int(match[1]) for name in hooks if (match := re.match(r"blocks\.(\d+)\.", name))]
    return max(layers, default=-1) + 1


def size_of(weight: Any, axis: int) -> int | None:
    """Length of `weight` along `axis`, None where there is no such weight."""
    return weight.shape[axis] if isinstance(weight, torch.Tensor) else None


# --- models made of a configuration ---------------------------------------------------------------
class NativeModel(HookedRootModule):
    """A hooked model of `config`, made as ``type(model)(config, seed=0)``."""

    capabilities = frozenset({Capability.REINITIALIZE, Capability.EDIT_WEIGHTS})
    config: Any

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    def reinitialized(self, seed: int) -> Self:
        """A model of the same configuration with the initial weights of `seed`, on the CPU."""
        return type(self)(self.config, seed=seed)  # type: ignore[call-arg]

    def weights(self) -> dict[str, Tensor]:
        """The parameters by name, as the functions of the architecture take them."""
        return dict(self.named_parameters())

    def load_weights(self, state: Mapping[str, Tensor]) -> None:
        """Take parameters by name.

        Raises:
            CheckpointError: a name that only one of them has, or another shape.
        """
        parameters = self.weights()
        if set(parameters) != set(state):
            raise CheckpointError(
                f"state dict holds {', '.join(sorted(state))}; "
                f"expected {', '.join(sorted(parameters))}"
            )
        self._copy(state)

    def _copy(self, state: Mapping[str, Tensor]) -> None:
        parameters = self.weights()
        for name, value in parameters.items():
            if state[name].shape != value.shape:
                raise CheckpointError(
                    f"{name}: got shape {tuple(state[name].shape)}, expected {tuple(value.shape)}"
                )
        with torch.no_grad():
            for name, value in parameters.items():
                value.copy_(state[name])
