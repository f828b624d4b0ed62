"""The parameters of a transformer: names, shapes and initial values; weights of all blocks side by
side, and the QK and OV circuits, under TransformerLens's names.

A model with the capability HEAD_WEIGHTS has `W_Q`, `W_K`, `W_V` (layer, head, d_model, d_head) and
`W_O` (layer, head, d_head, d_model). A HookedTransformer has these and what else is below, a bridge
of TransformerLens its own, of equal names and shapes (its `W_K` and `W_V` have fewer heads where
several queries share one), a wrapped module those that `wrap` was given.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from mechint.config import ModelConfig, has_bias, has_weight
from mechint.errors import ParameterError

if TYPE_CHECKING:
    from transformer_lens import FactoredMatrix

HEAD_WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


class Capability(Enum):
    """Abilities that some models have and others lack."""

    REINITIALIZE = "draw new initial weights"
    RESUME = "resume a forward from a site of the residual stream"
    EDIT_WEIGHTS = "load edited weights"
    HEAD_WEIGHTS = "show its heads' weights as W_Q, W_K, W_V and W_O"


def qk_circuit(model: Any) -> FactoredMatrix:
    """W_Q W_Kᵀ of every head, (layer, head, d_model, d_model): rows are what a query reads, columns
    what a key reads (Elhage et al. 2021). Cost: none before a product is formed.

    >>> from mechint.models import build
    >>> model = build(ModelConfig(d_model=8, n_heads=2, d_head=3))
    >>> circuit = qk_circuit(model)
    >>> tuple(circuit.shape), tuple(circuit[0, 1].S.shape), torch.allclose(
    ...     circuit[0, 1].AB, model.W_Q[0, 1] @ model.W_K[0, 1].T)
    ((1, 2, 8, 8), (3,), True)
    """
    n_heads = model.W_Q.shape[1]
    return factored(model.W_Q, per_head(model.W_K, n_heads).transpose(-2, -1))


def ov_circuit(model: Any) -> FactoredMatrix:
    """W_V W_O of every head, (layer, head, d_model, d_model) (Elhage et al. 2021)."""
    return factored(per_head(model.W_V, model.W_O.shape[1]), model.W_O)


def factored(
    left: Float[Tensor, "*head d_left rank"], right: Float[Tensor, "*head rank d_right"]
) -> FactoredMatrix:
    """left @ right as TransformerLens's FactoredMatrix, (*head, d_left, d_right)."""
    from transformer_lens import FactoredMatrix

    return FactoredMatrix(left, right)


def per_head(
    weight: Float[Tensor, "layer some d_model d_head"], n_heads: int
) -> Float[Tensor, "layer head d_model d_head"]:
    """Keys or values once per query head, where several share one (grouped-query attention)."""
    return weight.repeat_interleave(n_heads // weight.shape[1], 1)


def _stack(name: str, doc: str) -> property:
    """The property that stacks the weight `name` of every block: AttributeError where the blocks
    have none, so that ``hasattr`` tells; zeros for a bias of a model without biases, as in
    TransformerLens.
    """

    def stacked(model: WeightStacks) -> Tensor:
        config, weights = model.config, model.weights()
        names = [f"blocks.{layer}.{name}" for layer in range(config.n_layers)]
        if names[0] in weights:
            return torch.stack([weights[each] for each in names])
        shapes = parameter_shapes(dataclasses.replace(config, use_bias=True, qkv_bias=None))
        if names[0] not in shapes:
            raise AttributeError(f"a model of this configuration has no {name}")
        return weights["embed.W_E"].new_zeros(config.n_layers, *shapes[names[0]])

    return property(stacked, doc=doc)


class WeightStacks:
    """The stacks of a model whose parameters have TransformerLens's names; a block whose weights
    are passed through several times is there once.
    """

    config: ModelConfig

    def weights(self) -> Mapping[str, Tensor]:
        """The parameters by name."""
        raise NotImplementedError

    W_Q = _stack("attn.W_Q", "Queries of every head, (layer, head, d_model, d_head).")
    W_K = _stack("attn.W_K", "Keys of every head, (layer, head, d_model, d_head).")
    W_V = _stack("attn.W_V", "Values of every head, (layer, head, d_model, d_head).")
    W_O = _stack("attn.W_O", "Output weights of every head, (layer, head, d_head, d_model).")
    W_gate = _stack("mlp.W_gate", "Weights of the neurons' gates, (layer, d_model, d_mlp).")
    W_in = _stack("mlp.W_in", "Input weights of the neurons, (layer, d_model, d_mlp).")
    W_out = _stack("mlp.W_out", "Output weights of the neurons, (layer, d_mlp, d_model).")
    b_Q = _stack("attn.b_Q", "Biases of queries, (layer, head, d_head).")
    b_K = _stack("attn.b_K", "Biases of keys, (layer, head, d_head).")
    b_V = _stack("attn.b_V", "Biases of values, (layer, head, d_head).")
    b_O = _stack("attn.b_O", "Biases of what attention writes, (layer, d_model).")
    b_in = _stack("mlp.b_in", "Biases of the neurons, (layer, d_mlp).")
    b_out = _stack("mlp.b_out", "Biases of what the MLP writes, (layer, d_model).")

    @property
    def b_U(self) -> Float[Tensor, " d_vocab_out"]:
        """Bias of the unembedding."""
        weights = self.weights()
        unembedding = weights["unembed.W_U"]
        return weights.get("unembed.b_U", unembedding.new_zeros(unembedding.shape[1]))

    @property
    def QK(self) -> FactoredMatrix:
        """`qk_circuit` of the model."""
        return qk_circuit(self)

    @property
    def OV(self) -> FactoredMatrix:
        """`ov_circuit` of the model."""
        return ov_circuit(self)

    def all_composition_scores(
        self, mode: str
    ) -> Float[Tensor, "n_layers n_heads n_layers n_heads"]:
        """‖A B‖ / (‖A‖ ‖B‖) of every head's OV circuit A and a later head's B: the QK circuit for
        "Q", its transpose for "K", the OV circuit for "V" (Elhage et al. 2021); zero elsewhere.

        >>> from mechint.models import build
        >>> model = build(ModelConfig(n_layers=2, d_model=8, n_heads=2))
        >>> scores = model.all_composition_scores("V")
        >>> a, b = model.OV[0, 1].AB, model.OV[1, 0].AB
        >>> torch.isclose(scores[0, 1, 1, 0], (a @ b).norm() / a.norm() / b.norm()).item()
        True
        """
        from transformer_lens.utilities.matrix import composition_scores  # and the whole package

        if mode not in ("Q", "K", "V"):
            raise ParameterError(f"mode={mode!r}: expected Q, K or V")
        right = {"Q": self.QK, "K": self.QK.T, "V": self.OV}[mode]
        scores = composition_scores(self.OV, right)
        layers = torch.arange(len(scores), device=scores.device)
        return scores * (layers[:, None, None, None] < layers[:, None])


# --- before training ------------------------------------------------------------------------------
def parameter_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every parameter, in TransformerLens's order."""
    d, heads, d_head, d_mlp = config.d_model, config.n_heads, config.d_head, config.d_mlp
    assert d_head is not None and d_mlp is not None  # filled in by ModelConfig
    shapes: dict[str, tuple[int, ...]] = {"embed.W_E": (config.d_vocab, d)}
    if config.embeds_positions:
        shapes["pos_embed.W_pos"] = (config.n_ctx, d)
    qkv_bias = config.use_bias if config.qkv_bias is None else config.qkv_bias
    for layer in range(config.n_layers):
        block: dict[str, tuple[int, ...]] = {
            f"attn.W_{which}": (heads, d, d_head) for which in "QKV"
        }
        block["attn.W_O"] = (heads, d_head, d)
        block |= {f"attn.b_{which}": (heads, d_head) for which in "QKV"} if qkv_bias else {}
        block |= {"attn.b_O": (d,)} if config.use_bias else {}
        if config.use_qk_norm:
            block |= {f"attn.{which}_norm.w": (d_head,) for which in "qk"}
        if not config.attn_only:
            block |= {"mlp.W_gate": (d, d_mlp)} if config.gated_mlp else {}
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
    kind = config.normalization_type
    weight = {f"{name}.w": (config.d_model,)} if has_weight(kind) else {}
    bias = {f"{name}.b": (config.d_model,)} if has_bias(kind) and config.use_bias else {}
    return weight | bias


def initialize(config: ModelConfig, seed: int | None) -> dict[str, Tensor]:
    """Initial parameters, float32 on the CPU; a function of config and seed alone, and of any
    values without a seed, where others are loaded in their place.
    """
    if seed is None:
        return {name: torch.empty(shape) for name, shape in parameter_shapes(config).items()}
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
