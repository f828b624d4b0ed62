"""The shape of a HookedTransformer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from mechint.config.settings import Settings, setting
from mechint.errors import ParameterError

if TYPE_CHECKING:
    from mechint.task import Task


DEEPEST = 4096
"""Blocks that a forward may pass through."""


def centers(norm: str | None) -> bool:
    """Return whether a norm of this type takes out the mean, as layer norm does."""
    return norm is not None and norm.startswith("LN")


def has_weight(norm: str | None) -> bool:
    """Return whether a norm of this type multiplies by weights of its own."""
    return norm in ("LN", "RMS")


def has_bias(norm: str | None) -> bool:
    """Return whether a norm of this type may add a bias of its own."""
    return norm == "LN"


LLAMA: Mapping[str, Any] = {
    "normalization_type": "RMS",
    "positional_embedding_type": "rotary",
    "gated_mlp": True,
    "act_fn": "silu",
    "use_bias": False,
    "attn_only": False,
}
"""Fields of a ModelConfig whose blocks are those of Llama (Touvron et al. 2023)."""


@dataclasses.dataclass(frozen=True)
class ModelConfig(Settings):
    """Shape of a HookedTransformer, in TransformerLens's field names, with what the papers need
    beyond it.

    `n_loops` applies the same blocks several times (weights tied); pass r of block l has the hooks
    of block ``r * n_layers + l``. `attention_rate` mixes softmax attention with constant attention
    (all ones, at later positions too) as ``rate * softmax + (1 - rate)`` (Zhong et al. 2023, Sec.
    2). `d_vocab_out` counts the classes of all output groups together.
    """

    n_layers: int = setting(1, "blocks with weights of their own", low=1, high=1000)
    d_model: int = setting(128, "width of the residual stream", low=1, high=2**16)
    n_heads: int = setting(4, "attention heads per block", low=1, high=4096)
    d_head: int | None = setting(
        None, "width of a head; d_model / n_heads when none", low=1, high=2**16
    )
    d_mlp: int | None = setting(None, "neurons per MLP; 4 d_model when none", low=1, high=2**20)
    n_ctx: int = setting(3, "positions", low=1, high=2**20)
    d_vocab: int = setting(114, "tokens read", low=1, high=2**22)
    d_vocab_out: int = setting(
        113, "classes answered, all output groups together", low=1, high=2**22
    )
    act_fn: str = setting(
        "relu", "activation of the MLP", choices=("relu", "gelu", "gelu_new", "silu")
    )
    normalization_type: str | None = setting(
        None,
        "layer norm (LN) or RMS norm (RMS), without weights of its own (Pre), or none",
        choices=("LN", "LNPre", "RMS", "RMSPre"),
    )
    positional_embedding_type: str = setting(
        "standard",
        "learned positions, added to the tokens, or rotations of queries and keys (Su et al. 2021)",
        choices=("standard", "rotary"),
    )
    rotary_base: float = setting(
        10000.0, "rotations turn by base^(-2i/d_head) at each position", low=1, high=1e12
    )
    rotary_scaling: tuple[float, float, float, float] | None = setting(
        None,
        "slower rotations, as in Llama 3: factor, low and high frequency factor, positions before",
        low=1e-6,
        high=1e9,
    )
    gated_mlp: bool = setting(
        False, "the neurons' activations are multiplied by a second product (Shazeer 2020)"
    )
    use_qk_norm: bool = setting(False, "an RMS norm of each head's query and key, before rotation")
    attn_only: bool = setting(False, "no MLPs")
    attention_dir: str = setting(
        "causal", "what a position may attend to", choices=("causal", "bidirectional")
    )
    use_bias: bool = setting(True, "biases in attention, MLP and unembedding")
    qkv_bias: bool | None = setting(
        None, "biases of queries, keys and values; as use_bias when none"
    )
    n_loops: int = setting(1, "how often the blocks are applied, weights tied", low=1, high=1000)
    attention_rate: float = setting(
        1.0, "share of softmax attention in the mix with constant attention", low=0, high=1
    )
    dropout: float = setting(
        0.0, "dropout on the output of attention and MLP, in training only", low=0, high=0.999
    )
    eps: float = setting(1e-5, "epsilon of the norms", low=0, high=1)
    attn_scale: float | None = setting(
        None, "attention scores are divided by it; sqrt(d_head) when none", low=1e-6, high=1e6
    )
    init_mode: str = setting(
        "gpt2",
        (
            "gpt2: N(0, 0.8/sqrt(d_model)); d_model: N(0, 1/sqrt(d_model)); he: N(0, "
            "sqrt(2/fan_in)); normal: N(0, 0.02); torch: PyTorch's uniform; copy: gpt2, with "
            "W_V W_O the identity over all heads"
        ),
        choices=("gpt2", "d_model", "he", "normal", "torch", "copy"),
    )
    initializer_range: float | None = setting(
        None, "standard deviation in place of init_mode's own", low=0, high=1e6
    )
    embed_std: float | None = setting(
        None,
        "standard deviation of token and position embeddings; init_mode's own when none",
        low=0,
        high=1e6,
    )
    output_sizes: tuple[int, ...] | None = setting(
        None, "classes of every output group; one group when none", low=1, high=2**22
    )
    read_layers: tuple[int, ...] | None = setting(
        None,
        "for every output group, after how many blocks it is read; all after the last when none",
        low=1,
        high=10**6,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth > DEEPEST:
            self.reject(
                "n_loops", f"at most {DEEPEST} blocks passed through, repeated ones counted"
            )
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ParameterError(
                    f"model: d_model={self.d_model} does not divide into "
                    f"n_heads={self.n_heads}; set d_head or change one"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.positional_embedding_type == "rotary" and (self.d_head or 0) % 2:
            self.reject("d_head", "an even number, whose halves rotations pair")
        if self.d_mlp is None:
            object.__setattr__(self, "d_mlp", 4 * self.d_model)
        if self.output_sizes is None:
            object.__setattr__(self, "output_sizes", (self.d_vocab_out,))
        if sum(self.output_sizes or ()) != self.d_vocab_out:
            self.reject("output_sizes", f"sizes that add up to d_vocab_out={self.d_vocab_out}")
        if self.read_layers is not None and (
            len(self.read_layers) != len(self.output_sizes or ())
            or max(self.read_layers) > self.depth
        ):
            self.reject(
                "read_layers",
                (
                    f"one number from 1 to {self.depth} for each of "
                    f"{len(self.output_sizes or ())} output groups"
                ),
            )

    @classmethod
    def label(cls) -> str:
        return "model"

    @classmethod
    def for_task(cls, task: Task, **values: Any) -> Self:
        """The configuration with the task's positions, tokens and outputs and the given values."""
        sizes = [output.n_classes for output in task.outputs]
        shape = {"n_ctx": task.n_ctx, "d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
        return cls.from_dict({**shape, "output_sizes": sizes, **values})

    @property
    def embeds_positions(self) -> bool:
        """True where the model adds an embedding of the position, so that it has ``pos_embed``."""
        return self.positional_embedding_type == "standard"

    @property
    def depth(self) -> int:
        """Blocks passed through, repeated ones counted."""
        return self.n_layers * self.n_loops

    @property
    def reads_back_only(self) -> bool:
        """True if no position reads a later one: not where a constant part of attention reads all.

        >>> ModelConfig().reads_back_only, ModelConfig(attention_rate=0.5).reads_back_only
        (True, False)
        """
        return self.attention_dir == "causal" and self.attention_rate == 1

    @property
    def scale(self) -> float:
        """The number by which attention scores are divided."""
        return math.sqrt(self.d_head) if self.attn_scale is None else self.attn_scale  # type: ignore[arg-type]
