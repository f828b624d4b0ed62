"""The feed-forward networks of two operands that the papers train beside transformers.

Each operand is embedded, the two embeddings are joined, pass through hidden layers, and are
unembedded:

- Chughtai et al. 2023: separate embeddings, concatenated, one hidden layer without bias; or
  multiplied, with no hidden layer.
- Zhong et al. 2023, Appendix on linear models: one embedding; added (alpha), added with two layers
  (beta), each through the first layer and then added (gamma), concatenated (delta).
- arXiv 2602.16849: the sum of one-hot vectors, one hidden layer of ReLU or squares.

Parameters: embed.W_E (d_vocab, d_embed), embed_y.W_E for a separate second embedding,
layers.{i}.W (d_in, d_out), layers.{i}.b, unembed.W_U (d_out, d_vocab_out).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.config import Settings, setting
from mechint.errors import ParameterError
from mechint.models.hook_points import HookPoint
from mechint.models.protocol import ModelDescription, NativeModel

JOINS = ("concat", "add", "multiply", "each")
"""Ways to join the embeddings; "each" passes both through the first layer and adds what comes."""
ACTIVATIONS = ("relu", "square")


@dataclass(frozen=True)
class PairNetworkConfig(Settings):
    """Shape of a network of two operands.

    >>> PairNetworkConfig(d_vocab=5, d_embed=4, widths=(6,), join="concat").d_in
    8
    """

    d_vocab: int = setting(113, "values of an operand", low=1, high=100_000)
    d_vocab_out: int = setting(113, "classes answered", low=1, high=100_000)
    d_embed: int = setting(256, "width of an embedding", low=1, high=1_000_000)
    widths: tuple[int, ...] = setting((128,), "width of every hidden layer", low=1, high=1_000_000)
    join: str = setting("concat", "how the two embeddings are joined", choices=JOINS)
    separate: bool = setting(True, "whether the second operand has an embedding of its own")
    use_bias: bool = setting(False, "biases in the hidden layers")
    act_fn: str = setting("relu", "activation of the hidden layers", choices=ACTIVATIONS)
    n_ctx: int = setting(2, "positions; the answer is read at the last", low=2, high=3)

    def __post_init__(self) -> None:
        super().__post_init__()
        layers = self.widths or self.join != "each"
        self.require("widths", layers, "at least one layer, through which each operand passes")

    @classmethod
    def label(cls) -> str:
        return "model"

    @property
    def d_in(self) -> int:
        """Width of what the first layer reads."""
        return self.d_embed * (2 if self.join == "concat" else 1)


def parameter_shapes(config: PairNetworkConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter."""
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.d_vocab, config.d_embed)}
    if config.separate:
        shapes["embed_y.W_E"] = (config.d_vocab, config.d_embed)
    d_in = config.d_in
    for index, width in enumerate(config.widths):
        shapes[f"layers.{index}.W"] = (d_in, width)
        if config.use_bias:
            shapes[f"layers.{index}.b"] = (width,)
        d_in = width
    shapes["unembed.W_U"] = (d_in, config.d_vocab_out)
    return shapes


# --- the module -----------------------------------------------------------------------------------
class _Part(nn.Module):
    """A namespace of parameters and hook points."""


class PairNetwork(NativeModel):
    """A feed-forward network of two operands under the transformer's hook names.

    Hooks: hook_embed (batch, 2, d_embed); blocks.{i}.mlp.hook_pre and hook_post (batch, pos, width)
    of hidden layer i. The network answers at the last position; what stands at the others is zero
    and read by nobody.

    Example:
        >>> model = PairNetwork(PairNetworkConfig(d_vocab=5, d_vocab_out=4, d_embed=3, widths=(6,)))
        >>> logits, cache = model.run_with_cache(torch.tensor([[1, 2], [0, 4]]))
        >>> tuple(logits.shape), tuple(cache["blocks.0.mlp.hook_post"].shape)
        ((2, 2, 4), (2, 2, 6))
    """

    embed: Any
    embed_y: Any
    layers: Any
    blocks: Any

    def __init__(self, config: PairNetworkConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.hook_embed = HookPoint()
        self.embed, self.unembed = _Part(), _Part()
        if config.separate:
            self.embed_y = _Part()
        self.layers = nn.ModuleList(_Part() for _ in config.widths)
        self.blocks = nn.ModuleList(_Part() for _ in config.widths)
        for block in self.blocks:
            block.mlp = _Part()
            block.mlp.hook_pre, block.mlp.hook_post = HookPoint(), HookPoint()
        generator = torch.Generator().manual_seed(seed)
        for name, shape in parameter_shapes(config).items():
            owner, _, kind = name.rpartition(".")
            std = 0.0 if kind == "b" else 1 / math.sqrt(shape[1] if kind == "W_E" else shape[0])
            value = torch.randn(shape, generator=generator, dtype=torch.float32) * std
            self.get_submodule(owner).register_parameter(kind, nn.Parameter(value))
        self.setup()

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_embed"]:
        """Embedding of the first operand (d_vocab, d_embed)."""
        return self.embed.W_E  # type: ignore[return-value]

    @property
    def W_U(self) -> Float[Tensor, "d_out d_vocab_out"]:
        """Unembedding (d_out, d_vocab_out)."""
        return self.unembed.W_U  # type: ignore[return-value]

    @property
    def description(self) -> ModelDescription:
        """The shape in the words that probes ask in."""
        config = self.config
        return ModelDescription(
            n_layers=len(config.widths),
            d_model=config.d_embed,
            d_mlp=config.widths[0] if config.widths else None,
            d_vocab=config.d_vocab,
            d_vocab_out=config.d_vocab_out,
            n_ctx=config.n_ctx,
        )

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_vocab_out"]:
        """Logits of tokens x, y and, where n_ctx is 3, a last token that is not read.

        Raises:
            ParameterError: fewer than two positions, more than n_ctx, or a value outside d_vocab.
        """
        config = self.config
        pairs = tokens[:, :2]
        if not 2 <= tokens.shape[1] <= config.n_ctx:
            raise ParameterError(
                f"model: tokens of shape {tuple(tokens.shape)}: expected (batch, {config.n_ctx})"
            )
        if pairs.numel() and not 0 <= int(pairs.min()) <= int(pairs.max()) < config.d_vocab:
            raise ParameterError(
                f"model: token {int(pairs.max())} is outside d_vocab={config.d_vocab}"
            )
        second = self.embed_y.W_E if config.separate else self.W_E
        embedded = torch.stack([self.W_E[pairs[:, 0]], second[pairs[:, 1]]], 1)  # (batch, 2, d)
        x, y = self.hook_embed(embedded).unbind(1)
        joined = x * y if config.join == "multiply" else x + y
        hidden = torch.cat([x, y], -1) if config.join == "concat" else joined
        act = F.relu if config.act_fn == "relu" else torch.square
        for index, (layer, block) in enumerate(zip(self.layers, self.blocks, strict=True)):
            bias = layer.b if config.use_bias else None
            if index == 0 and config.join == "each":
                pre = F.linear(x, layer.W.T, bias) + F.linear(y, layer.W.T, bias)
            else:
                pre = F.linear(hidden, layer.W.T, bias)
            pre = block.mlp.hook_pre(_at_last(pre, tokens.shape[1]))
            hidden = block.mlp.hook_post(act(pre))[:, -1]
        return _at_last(hidden @ self.W_U, tokens.shape[1])


def _at_last(x: Float[Tensor, "batch d"], positions: int) -> Float[Tensor, "batch pos d"]:
    """`x` at the last of `positions`, zeros at the others."""
    return F.pad(x[:, None], (0, 0, positions - 1, 0))
