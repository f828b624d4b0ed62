"""HookedTransformer: `mechint.models.forward` as a module with TransformerLens's names, shapes
and hooks.

Same parameter names and shapes as TransformerLens's HookedTransformer (2.x, 3.x), so a state dict
goes both ways, the same hook names in the same order, and the same everyday behavior: return
types, `ActivationCache`, `cfg`, stacked weights and biases, tokens from text, so that
TransformerLens's own functions (`patching`, the cache's decompositions) run on it. The mathematics
is in `mechint.models.forward`, the initial weights in `mechint.models.parameters`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError
from mechint.models.foreign.local import opening_of
from mechint.models.forward import Forward
from mechint.models.generation import generate
from mechint.models.hook_points import HookPoint
from mechint.models.layers import linear, no_hook, norm
from mechint.models.parameters import WeightStacks, initialize, parameter_shapes
from mechint.models.protocol import Capability, NativeModel
from mechint.models.rows import RowLayout
from mechint.task.batch import Vocabulary

if TYPE_CHECKING:
    from transformer_lens import ActivationCache

RETURN_TYPES = ("logits", "loss", "both", None)


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
        turned = () if config.embeds_positions else ("hook_rot_q", "hook_rot_k")
        self.attn = _Hooks(
            "hook_q",
            "hook_k",
            "hook_v",
            *turned,
            "hook_attn_scores",
            "hook_pattern",
            "hook_z",
            "hook_result",
        )
        if config.use_qk_norm:
            self.attn.q_norm, self.attn.k_norm = _Hooks(), _Hooks()
        if not config.attn_only:
            self.ln2 = _Hooks(*norm)
            gated = ("hook_pre_linear",) if config.gated_mlp else ()
            self.mlp = _Hooks("hook_pre", *gated, "hook_post")


class _Embed(_Hooks):
    def forward(self, tokens: Int[Tensor, "*batch pos"]) -> Float[Tensor, "*batch pos d_model"]:
        """Token embeddings."""
        return self.W_E[tokens]  # type: ignore[index, return-value]


class _FinalNorm(_Hooks):
    def __init__(self, config: ModelConfig) -> None:
        names = ("hook_scale", "hook_normalized") if config.normalization_type else ()
        super().__init__(*names)
        self.config = config

    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_model"]:
        """Norm before the unembedding; the identity where the model has none."""
        weights = {f"ln_final.{name}": weight for name, weight in self.named_parameters()}
        return norm(weights, "ln_final", "", self.config, x, no_hook)


class _Unembed(_Hooks):
    def forward(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab_out"]:
        """Logits of the normed residual stream."""
        return linear(x, self.W_U, getattr(self, "b_U", None))  # type: ignore[arg-type]


class TransformerLensConfig:
    """The fields of a model's `ModelConfig`, and its state, under TransformerLens's names."""

    n_key_value_heads = None  # those of files are expanded to one for each head
    final_rms = parallel_attn_mlp = rotary_adjacent_pairs = False
    use_split_qkv_input = use_attn_in = use_hook_mlp_in = False

    def __init__(self, model: HookedTransformer) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # while it is copied
            raise AttributeError(name)
        return getattr(self._model.config, name)

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return self._model.device

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights."""
        return self._model.W_E.dtype

    @property
    def rotary_dim(self) -> int | None:
        """Entries of a head that are turned by its position; None where none are."""
        config = self._model.config
        return None if config.embeds_positions else config.d_head

    @property
    def attn_scale(self) -> float:
        """Divisor of attention scores."""
        return self._model.config.scale

    @property
    def n_params(self) -> int:
        """Numbers in the weights."""
        return sum(weight.numel() for weight in self._model.parameters())

    @property
    def default_prepend_bos(self) -> bool | None:
        """BOS before a text; None where the tokenizer's own rule holds."""
        return self._model.default_prepend_bos

    @default_prepend_bos.setter
    def default_prepend_bos(self, value: bool | None) -> None:
        self._model.default_prepend_bos = value

    @property
    def use_attn_result(self) -> bool:
        """True where ``attn.hook_result`` runs."""
        return self._model.use_attn_result

    @use_attn_result.setter
    def use_attn_result(self, value: bool) -> None:
        self._model.set_use_attn_result(value)


class HookedTransformer(NativeModel, WeightStacks):
    """A transformer with a hook at every activation.

    Pass r of the weight-tied block l has the hooks of block ``r * n_layers + l``: ``model.blocks``
    has `config.depth` entries, of which the first `n_layers` hold the weights.
    `set_use_attn_result` makes ``attn.hook_result`` (batch, pos, head, d_model) run. `W_Q` to
    `W_out` and `b_Q` to `b_out` are the weights of all blocks, `QK` and `OV` the heads' circuits as
    TransformerLens `FactoredMatrix`. `tokenizer`, of a language model, makes tokens of text;
    without one `vocabulary` does, which a `Subject` sets from its task.

    Example:
        >>> from mechint.config import ModelConfig
        >>> model = HookedTransformer(ModelConfig(d_model=8, n_heads=2, d_vocab=5, d_vocab_out=4),
        ...     seed=0)
        >>> logits, cache = model.run_with_cache(torch.tensor([[1, 2, 4]]))
        >>> tuple(logits.shape), tuple(cache["post", 0].shape), tuple(cache["pattern", 0].shape)
        ((1, 3, 4), (1, 3, 32), (1, 2, 3, 3))
    """

    capabilities = frozenset(Capability)
    tokenizer: Any = None
    default_prepend_bos: bool | None = None
    vocabulary: Vocabulary | None

    def __init__(self, config: ModelConfig, seed: int | None = 0) -> None:
        super().__init__()
        self.config, self.vocabulary = config, None
        self.use_attn_result = False
        self.hook_embed = HookPoint()
        if config.embeds_positions:
            self.hook_pos_embed = HookPoint()
        self.embed, self.pos_embed, self.unembed = _Embed(), _Hooks(), _Unembed()
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.depth))
        self.ln_final = _FinalNorm(config)
        for name, value in initialize(config, seed).items():
            owner, _, kind = name.rpartition(".")
            self.get_submodule(owner).register_parameter(kind, nn.Parameter(value))
        self.setup()

    def reset(self, seed: int) -> None:
        """Take the initial weights of `seed`, which `reinitialized` gives to another module."""
        self._copy(initialize(self.config, seed))

    @property
    def cfg(self) -> TransformerLensConfig:
        """The configuration under TransformerLens's names, with the model's device."""
        return TransformerLensConfig(self)

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

    def forward(
        self,
        tokens: Int[Tensor, "#batch pos"]
        | Int[Tensor, " pos"]
        | Float[Tensor, "batch pos d_model"]
        | str
        | Sequence[str],
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        prepend_bos: bool | None = None,
    ) -> Any:
        """Logits (batch, pos, d_vocab_out) of tokens (batch, pos), or of text where there is a
        tokenizer or a vocabulary.

        Args:
            tokens: with `start_at_layer` the residual stream before that block stands here.
            return_type: "logits", "loss", "both" as (logits, loss), or None.
            loss_per_token: losses (batch, pos - 1) in place of their mean.
            start_at_layer: begin with this block; below zero, counted from the end.
            stop_at_layer: return the residual stream before this block instead; counted likewise,
                and after the last where there is no such block.
            prepend_bos: of a text, as for `to_tokens`.

        Raises:
            ParameterError: more positions than n_ctx, a token outside the vocabulary, no such
                return type, or a loss where classes are not tokens.
        """
        if return_type not in RETURN_TYPES:
            expected = ", ".join(map(repr, RETURN_TYPES))
            raise ParameterError(f"return_type={return_type!r}: expected one of {expected}")
        forward = Forward(self.weights(), self.config, HookPointCaller(self))
        if start_at_layer is None:
            tokens = self._as_tokens(tokens, prepend_bos)
            self._check(tokens)
            layout = RowLayout.dense(tokens)
            x = forward.embed(layout)
        else:
            assert isinstance(tokens, Tensor)
            x, layout = tokens, RowLayout.dense(tokens[..., 0].long())
        first, stop, _ = slice(start_at_layer, stop_at_layer).indices(self.config.depth)
        if stop_at_layer is not None:
            return forward.blocks(x, layout, start=first, stop=stop)
        logits = forward.read_out(x, layout, start=first)
        if return_type is None:
            return None
        if return_type == "logits":
            return logits
        if start_at_layer is not None:
            raise ParameterError("a loss needs the tokens: start_at_layer gives none")
        loss = self.loss_fn(logits, tokens, loss_per_token)
        return loss if return_type == "loss" else (logits, loss)

    def loss_fn(
        self,
        logits: Float[Tensor, "batch pos d_vocab_out"],
        tokens: Int[Tensor, "batch pos"],
        per_token: bool = False,
    ) -> Float[Tensor, ""] | Float[Tensor, "batch pos-1"]:
        """Cross-entropy of the next token in nats.

        Raises:
            ParameterError: a model whose classes are not its tokens.
        """
        config = self.config
        if config.d_vocab != config.d_vocab_out:
            raise ParameterError(
                f"loss: got d_vocab_out={config.d_vocab_out} classes for d_vocab={config.d_vocab} "
                "tokens, so that no class is the next token; mechint.Subject(model, task) has the "
                "loss at the answer"
            )
        targets = tokens[:, 1:].to(logits.device)
        losses = nn.functional.cross_entropy(
            logits[:, :-1].flatten(0, 1), targets.flatten(), reduction="none"
        ).view(targets.shape)
        return losses if per_token else losses.mean()

    def run_with_cache(
        self,
        *args: Any,
        return_cache_object: bool = True,
        remove_batch_dim: bool = False,
        **kw: Any,
    ) -> tuple[Any, ActivationCache | dict[str, Tensor]]:
        """Run the model: its output, and activations as TransformerLens's cache."""
        result, kept = super().run_with_cache(*args, remove_batch_dim=remove_batch_dim, **kw)
        if not return_cache_object:
            return result, kept
        from mechint.models.foreign.lens_cache import NormedCache  # the rest of TransformerLens

        return result, NormedCache(kept, self, has_batch_dim=not remove_batch_dim)

    def generate(
        self,
        input: Int[Tensor, "batch pos"] | str | Sequence[str],
        max_new_tokens: int = 10,
        *,
        return_type: str = "input",
        **options: Any,
    ) -> Int[Tensor, "batch new_pos"] | str | list[str]:
        """Return the input followed by what the model writes, as `mechint.models.generation` does:
        tokens for tokens and, unless `return_type` is "tokens", text for text.
        """
        given = self._as_tokens(input, options.pop("prepend_bos", None))
        options.setdefault("eos_token_id", getattr(self.tokenizer, "eos_token_id", None))
        tokens = generate(self, given, max_new_tokens, **options)
        if isinstance(input, Tensor) or return_type == "tokens":
            return tokens
        texts = (
            self.to_string(tokens)
            if self.tokenizer is None
            else self.tokenizer.batch_decode(tokens, skip_special_tokens=True)
        )
        return texts[0] if isinstance(input, str) else texts

    def set_use_attn_result(self, use_attn_result: bool) -> None:
        """Turn on ``attn.hook_result``, what each head writes: (batch, pos, head, d_model)."""
        self.use_attn_result = use_attn_result

    # --- tokens and text --------------------------------------------------------------------------
    def _known_vocabulary(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ParameterError(
                "this model has no vocabulary, so text has no tokens; give token ids (batch, pos), "
                "or set model.vocabulary = task.vocabulary or model.tokenizer"
            )
        return self.vocabulary

    def _as_tokens(self, tokens: Any, prepend_bos: bool | None = None) -> Tensor:
        if isinstance(tokens, Tensor):
            return tokens if tokens.dim() != 1 else tokens[None]
        return self.to_tokens(tokens, prepend_bos)

    def _encode(self, text: str, prepend_bos: bool | None) -> list[int]:
        if self.tokenizer is None:
            return self._known_vocabulary().encode(text)
        asked = self.default_prepend_bos if prepend_bos is None else prepend_bos
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return [*opening_of(self.tokenizer, asked), *ids]

    def to_tokens(
        self, text: str | Sequence[str], prepend_bos: bool | None = None, **_: Any
    ) -> Int[Tensor, "batch pos"]:
        """Token ids of a text, or of several of one length.

        prepend_bos: BOS before each, where there is a tokenizer; by its own rule when None.

        Raises:
            ParameterError: no vocabulary, or texts of unlike length. DataError: a word that the
                vocabulary lacks.
        """
        texts = [text] if isinstance(text, str) else text
        rows = [self._encode(text, prepend_bos) for text in texts]
        if len({len(row) for row in rows}) > 1:
            lengths = ", ".join(str(len(row)) for row in rows)
            raise ParameterError(f"texts of {lengths} tokens; expected texts of one length")
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    def to_string(self, tokens: Any) -> str | list[str]:
        """The text of tokens (pos,), or the texts of (batch, pos)."""
        tokens = torch.as_tensor(tokens)
        if tokens.dim() == 2:
            return [str(self.to_string(row)) for row in tokens]
        if self.tokenizer is not None:
            return self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)
        return self._known_vocabulary().decode(tokens.flatten())

    def to_str_tokens(self, text: Any, prepend_bos: bool | None = None, **_: Any) -> list[str]:
        """The tokens of one text, or of ids (pos,) or (1, pos), as text."""
        ids = self._as_tokens(text, prepend_bos).flatten().tolist()
        return [self.to_single_str_token(token) for token in ids]

    def to_single_token(self, text: str) -> int:
        """The id of a text that is one token; ParameterError where it is several."""
        ids = self._encode(text, False)
        if len(ids) != 1:
            raise ParameterError(f"{text!r} is {len(ids)} tokens; expected one")
        return ids[0]

    def to_single_str_token(self, token: int) -> str:
        """The text of one token id."""
        return str(self.to_string([token]))

    def tokens_to_residual_directions(
        self, tokens: str | int | Int[Tensor, " ..."]
    ) -> Float[Tensor, "... d_model"]:
        """The column of W_U of each class, along which its logit rises."""
        index = self.to_single_token(tokens) if isinstance(tokens, str) else tokens
        return self.W_U.T[torch.as_tensor(index, device=self.device)]

    # --- biases and names of components -----------------------------------------------------------
    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Float[Tensor, " d_model"]:
        """Sum of what biases before `layer` write, with its attention's where `mlp_input`."""
        attention = self.b_O[: layer + int(mlp_input)].sum(0)
        with_mlp = include_mlp_biases and not self.config.attn_only
        return attention + self.b_out[:layer].sum(0) if with_mlp else attention

    def all_head_labels(self) -> list[str]:
        """L0H0, L0H1, … of every head."""
        config = self.config
        return [
            f"L{layer}H{head}" for layer in range(config.depth) for head in range(config.n_heads)
        ]

    # --- weights ----------------------------------------------------------------------------------
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
        parameters = self.weights()
        for name, value in parameters.items():
            if name not in state:
                raise CheckpointError(f"state dict lacks {name}, shape {tuple(value.shape)}")
        for name, value in state.items():
            buffer = name.endswith((".mask", ".IGNORE"))
            zero_bias = name.rpartition(".")[2].startswith("b") and not bool(torch.any(value))
            if name not in parameters and not buffer and not zero_bias:
                raise CheckpointError(f"state dict has {name}, which this model has no place for")
        self._copy(state)

    def transformer_lens_state(self) -> dict[str, Tensor]:
        """TransformerLens's state dict of the model, with zero biases where it has none."""
        state = {name: value.detach().clone() for name, value in self.weights().items()}
        for name, shape in parameter_shapes(
            dataclasses.replace(self.config, use_bias=True, qkv_bias=None)
        ).items():
            state.setdefault(name, torch.zeros(shape, device=self.device))
        return state


class HookPointCaller:
    """The hook of a module's forward: every activation goes through its hook point."""

    def __init__(self, model: HookedTransformer) -> None:
        self.points, self.wants_result = model.hook_dict, model.use_attn_result

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        return self.points[name](tensor)
