"""HookedTransformer: `mechint.models.forward` as a module with TransformerLens's names, shapes
and hooks.

Same parameter names and shapes as TransformerLens's HookedTransformer (2.x, 3.x), so a state dict
goes both ways, and the same hook names in the same order. The mathematics lives in
`mechint.models.forward`; this module holds the parameters, the hook points and the initialization.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Self

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError
from mechint.models.capability import Capability
from mechint.models.forward import Forward
from mechint.models.rows import dense
from mechint.models.stacks import WeightStacks


def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter, in TransformerLens's order."""
    d, heads, d_head, d_mlp = config.d_model, config.n_heads, config.d_head, config.d_mlp
    assert d_head is not None and d_mlp is not None  # filled in by ModelConfig
    shapes: dict[str, tuple[int, ...]] = {
        "embed.W_E": (config.d_vocab, d),
        "pos_embed.W_pos": (config.n_ctx, d),
    }
    for layer in range(config.n_layers):
        block: dict[str, tuple[int, ...]] = {
            f"attn.W_{which}": (heads, d, d_head) for which in "QKV"
        }
        block["attn.W_O"] = (heads, d_head, d)
        if config.use_bias:
            block |= {f"attn.b_{which}": (heads, d_head) for which in "QKV"} | {"attn.b_O": (d,)}
        if not config.attn_only:
            block |= {"mlp.W_in": (d, d_mlp), "mlp.W_out": (d_mlp, d)}
            block |= {"mlp.b_in": (d_mlp,), "mlp.b_out": (d,)} if config.use_bias else {}
        for norm in ("ln1", "ln2") if not config.attn_only else ("ln1",):
            block |= _norm_shapes(config, norm)
        shapes |= {f"blocks.{layer}.{name}": shape for name, shape in block.items()}
    shapes |= _norm_shapes(config, "ln_final")
    shapes["unembed.W_U"] = (d, config.d_vocab_out)
    if config.use_bias:
        shapes["unembed.b_U"] = (config.d_vocab_out,)
    return shapes


def _norm_shapes(config: ModelConfig, name: str) -> dict[str, tuple[int, ...]]:
    if config.normalization_type != "LN":
        return {}
    return {f"{name}.w": (config.d_model,)} | (
        {f"{name}.b": (config.d_model,)} if config.use_bias else {}
    )


def initialize(config: ModelConfig, seed: int) -> dict[str, Tensor]:
    """Initial parameters, float32 on the CPU; a function of config and seed alone."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _initial(config, name, shape, generator)
        for name, shape in parameter_shapes(config).items()
    }


def _initial(
    config: ModelConfig, name: str, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    kind = name.rpartition(".")[2]
    value = torch.zeros(shape, dtype=torch.float32, device="cpu")
    if kind == "w" or kind.startswith("b"):
        return value.fill_(kind == "w")
    if config.init_mode == "copy" and kind in ("W_V", "W_O"):
        return _copying(kind, shape)
    embedding = kind in ("W_E", "W_pos")
    fan_in = {"W_O": config.n_heads * (config.d_head or 0), "W_out": config.d_mlp}.get(
        kind, config.d_model
    )
    if embedding and config.embed_std is not None:
        std = config.embed_std
    elif config.initializer_range is not None:
        std = config.initializer_range
    elif config.init_mode == "torch" and not embedding:
        bound = 1 / math.sqrt(fan_in)
        return value.uniform_(-bound, bound, generator=generator)
    elif config.init_mode == "he":
        std = math.sqrt((1 if embedding else 2) / fan_in)
    else:
        std = {
            "gpt2": 0.8 / math.sqrt(config.d_model),
            "copy": 0.8 / math.sqrt(config.d_model),
            "d_model": 1 / math.sqrt(config.d_model),
            "normal": 0.02,
            "torch": 1.0,
        }[config.init_mode]
    return value.normal_(0, std, generator=generator)


def _copying(kind: str, shape: tuple[int, ...]) -> Tensor:
    """W_V or W_O that take each head's own slice of the stream, so that Σ_heads W_V W_O is the
    identity where the heads' widths add up to d_model.
    """
    eye = partial(torch.eye, dtype=torch.float32, device="cpu")
    if kind == "W_O":  # (head, d_head, d_model)
        return eye(shape[0] * shape[1], shape[2]).reshape(shape)
    heads, d_model, d_head = shape
    return eye(d_model, heads * d_head).reshape(d_model, heads, d_head).movedim(1, 0).clone()


class _Hooks(nn.Module):
    """A namespace of hook points and, in the first pass, of parameters."""

    def __init__(self, *names: str) -> None:
        super().__init__()
        for name in names:
            setattr(self, name, HookPoint())


class _Block(_Hooks):
    """Hook points of one pass through one block."""

    def __init__(self, config: ModelConfig) -> None:
        mlp = () if config.attn_only else ("hook_resid_mid", "hook_mlp_out")
        super().__init__("hook_resid_pre", "hook_attn_out", *mlp, "hook_resid_post")
        norm = ("hook_scale", "hook_normalized") if config.normalization_type else ()
        self.ln1 = _Hooks(*norm)
        self.attn = _Hooks(
            "hook_q",
            "hook_k",
            "hook_v",
            "hook_attn_scores",
            "hook_pattern",
            "hook_z",
            "hook_result",
        )
        if not config.attn_only:
            self.ln2 = _Hooks(*norm)
            self.mlp = _Hooks("hook_pre", "hook_post")


class HookedTransformer(HookedRootModule, WeightStacks):
    """A transformer with a hook at every activation.

    Pass r of the weight-tied block l has the hooks of block ``r * n_layers + l``: ``model.blocks``
    has `config.depth` entries, of which the first `n_layers` hold the weights. `use_attn_result`
    makes ``attn.hook_result`` (batch, pos, head, d_model) run. `W_Q`, `W_K`, `W_V`, `W_O`, `W_in`
    and `W_out` are the weights of all blocks, `QK` and `OV` the heads' circuits as TransformerLens
    `FactoredMatrix`.

    Example:
        >>> from mechint.config import ModelConfig
        >>> model = HookedTransformer(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4),
        ...     seed=0)
        >>> logits, cache = model.run_with_cache(torch.tensor([[1, 2, 4]]))
        >>> tuple(logits.shape), tuple(cache["blocks.0.mlp.hook_post"].shape)
        ((1, 3, 4), (1, 3, 32))
    """

    capabilities = frozenset(Capability)

    def __init__(self, config: ModelConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = self.cfg = config
        self.use_attn_result = False
        self.hook_embed, self.hook_pos_embed = HookPoint(), HookPoint()
        self.embed, self.pos_embed, self.unembed = _Hooks(), _Hooks(), _Hooks()
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.depth))
        self.ln_final = _Hooks(
            *(("hook_scale", "hook_normalized") if config.normalization_type else ())
        )
        for name, value in initialize(config, seed).items():
            owner, _, kind = name.rpartition(".")
            self.get_submodule(owner).register_parameter(kind, nn.Parameter(value))
        self.setup()

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.W_E.device  # type: ignore[union-attr, return-value]

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embedding (d_vocab, d_model)."""
        return self.embed.W_E  # type: ignore[return-value]

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Position embedding (n_ctx, d_model)."""
        return self.pos_embed.W_pos  # type: ignore[return-value]

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        """Unembedding (d_model, d_vocab_out)."""
        return self.unembed.W_U  # type: ignore[return-value]

    def reinitialized(self, seed: int) -> Self:
        """A model of the same configuration with the initial weights of `seed`, on the CPU."""
        return type(self)(self.config, seed=seed)

    def weights(self) -> dict[str, Tensor]:
        """The parameters by name, as `mechint.models.forward` takes them."""
        return dict(self.named_parameters())

    def forward(
        self,
        tokens: Int[Tensor, "*batch pos"] | Float[Tensor, "batch pos d_model"],
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
    ) -> Float[Tensor, "batch pos d_out"]:
        """Logits (batch, pos, d_vocab_out) of tokens (batch, pos).

        Args:
            tokens: with `start_at_layer` the residual stream before that block stands here.
            start_at_layer: begin with this block.
            stop_at_layer: return the residual stream before this block instead of logits.

        Raises:
            ParameterError: more positions than n_ctx, or a token outside the vocabulary.
        """
        forward = Forward(self.weights(), self.config, HookPointCaller(self))
        if start_at_layer is None:
            self._check(tokens)
            first, layout = 0, dense(tokens)
            x = forward.embed(layout)
        else:
            x, first, layout = tokens, start_at_layer, dense(tokens[..., 0].long())
        if stop_at_layer is not None:
            return forward.blocks(x, layout, start=first, stop=stop_at_layer)
        return forward.read_out(x, layout, start=first)

    def _check(self, tokens: Tensor) -> None:
        if tokens.dim() != 2 or tokens.shape[1] > self.config.n_ctx:
            raise ParameterError(
                f"model: tokens of shape {tuple(tokens.shape)}: expected (batch, pos) with at "
                f"most n_ctx={self.config.n_ctx} positions"
            )
        if tokens.numel() and not (
            0 <= int(tokens.min()) and int(tokens.max()) < self.config.d_vocab
        ):
            raise ParameterError(
                f"model: token {int(tokens.max())} is outside the vocabulary of "
                f"d_vocab={self.config.d_vocab}"
            )

    def load_weights(self, state: Mapping[str, Tensor]) -> None:
        """Take parameters from a TransformerLens state dict.

        Buffers (``mask``, ``IGNORE``) are passed over; biases of a model without biases must be
        zero there.

        Raises:
            CheckpointError: a parameter is missing, has another shape, or is one this model does
                not have.
        """
        own = self.weights()
        for name, value in own.items():
            if name not in state:
                raise CheckpointError(f"state dict lacks {name}, shape {tuple(value.shape)}")
            if tuple(state[name].shape) != tuple(value.shape):
                raise CheckpointError(
                    f"{name}: got shape {tuple(state[name].shape)}, expected {tuple(value.shape)}"
                )
        for name, value in state.items():
            buffer = name.endswith((".mask", ".IGNORE"))
            zero_bias = name.rpartition(".")[2].startswith("b") and not bool(torch.any(value))
            if name not in own and not buffer and not zero_bias:
                raise CheckpointError(f"state dict has {name}, which this model has no place for")
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(state[name])

    def transformer_lens_state(self) -> dict[str, Tensor]:
        """TransformerLens's state dict of the model, with zero biases where it has none."""
        state = {name: value.detach().clone() for name, value in self.weights().items()}
        for name, shape in parameter_shapes(
            dataclasses.replace(self.config, use_bias=True)
        ).items():
            state.setdefault(name, torch.zeros(shape, device=self.device))
        return state


class HookPointCaller:
    """The hook of a module's forward: every activation goes through its hook point."""

    def __init__(self, model: HookedTransformer) -> None:
        self.points, self.wants_result = model.hook_dict, model.use_attn_result

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.points[name](tensor)
