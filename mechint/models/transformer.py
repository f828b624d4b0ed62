"""HookedTransformer: `mechint.models.forward` as a module with TransformerLens's names, shapes
and hooks.

Same parameter names and shapes as TransformerLens's HookedTransformer (2.x, 3.x), so a state dict
goes both ways, and the same hook names in the same order. The mathematics lives in
`mechint.models.forward`, the initial weights are those of `mechint.models.initial`; this module
holds the parameters and the hook points.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
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
from mechint.models.initial import initialize, parameter_shapes
from mechint.models.rows import RowLayout
from mechint.models.stacks import WeightStacks


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
            first, layout = 0, RowLayout.dense(tokens)
            x = forward.embed(layout)
        else:
            x, first, layout = tokens, start_at_layer, RowLayout.dense(tokens[..., 0].long())
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
