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

from dataclasses import dataclass

from mechint.config import Settings, setting

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
        if self.join == "each" and not self.widths:
            self.reject("widths", "at least one layer, through which each operand passes")

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
