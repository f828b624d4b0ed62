"""nanoGPT's ckpt.pt: ``{model, optimizer, model_args, iter_num, best_val_loss, config}``.

Its activation is the exact GELU; files from before June 2023 were made with the tanh approximation
and do not say so, so what was taken is listed as assumed. The unembedding is the embedding,
or its own matrix where the file has one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from einops import rearrange
from torch import Tensor

from mechint.checkpoints.reader import (
    AskedFor,
    Assumption,
    ParsedCheckpoint,
    matrix,
    plain_values,
    state_dict,
    training_metadata,
    unwrapped,
)
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError

ASSUMED = Assumption(
    "gelu", "the exact GELU, nanoGPT's since June 2023; older files used gelu_new and do not say so"
)


def read(path: Path, content: Any) -> ParsedCheckpoint | None:
    """A checkpoint of nanoGPT, compiled or not, with or without biases."""
    if not isinstance(content, Mapping) or not isinstance(content.get("model_args"), Mapping):
        return None
    state = state_dict(content.get("model"))
    if state is None:
        raise CheckpointError(f"{path}: a nanoGPT checkpoint whose model is not a state dict")
    taken = AskedFor(unwrapped(state, ("_orig_mod.", "module.")))
    try:
        config, weights = _convert(taken, content["model_args"])
    except (KeyError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{path}: a nanoGPT checkpoint, but damaged or incomplete: {error}"
        ) from error
    taken.refuse_the_rest(path)
    step, metrics = training_metadata(content)
    given = content.get("config")
    return ParsedCheckpoint(
        config=config,
        weights=weights,
        step=step,
        metrics=metrics,
        extra={"config": plain_values(given)} if isinstance(given, Mapping) else {},
        assumed={"act_fn": ASSUMED},
    )


def _convert(
    state: Mapping[str, Tensor], given: Mapping[str, Any]
) -> tuple[ModelConfig, dict[str, Tensor]]:
    n_heads, embedding, positions = (
        given["n_head"],
        state["transformer.wte.weight"],
        state["transformer.wpe.weight"],
    )
    unembedding = state.get("lm_head.weight", embedding)
    d_vocab, d_model = embedding.shape
    if not isinstance(n_heads, int) or n_heads < 1 or d_model % n_heads:
        raise ParameterError(f"n_head={n_heads!r} does not divide n_embd={d_model}")
    n_layers = len({name.split(".")[2] for name in state if name.startswith("transformer.h.")})
    biased = "transformer.ln_f.bias" in state
    config = ModelConfig(
        n_layers=n_layers,
        d_model=d_model,
        n_heads=n_heads,
        d_mlp=state["transformer.h.0.mlp.c_fc.weight"].shape[0],
        n_ctx=positions.shape[0],
        d_vocab=d_vocab,
        d_vocab_out=unembedding.shape[0],
        act_fn="gelu",
        normalization_type="LN",
        use_bias=biased,
        dropout=float(given.get("dropout", 0.0)),
    )
    weights = {"embed.W_E": embedding, "pos_embed.W_pos": positions, "unembed.W_U": unembedding.mT}
    if biased:
        weights["unembed.b_U"] = unembedding.new_zeros(unembedding.shape[0])
    weights |= _named(
        state,
        {"transformer.ln_f.weight": "ln_final.w", "transformer.ln_f.bias": "ln_final.b"},
        biased,
    )
    for layer in range(n_layers):
        weights |= {
            f"blocks.{layer}.{name}": value
            for name, value in _block(state, f"transformer.h.{layer}.", n_heads, biased).items()
        }
    return config, weights


def _named(
    state: Mapping[str, Tensor], names: Mapping[str, str], biased: bool
) -> dict[str, Tensor]:
    return {new: state[old] for old, new in names.items() if biased or not old.endswith(".bias")}


def _block(state: Mapping[str, Tensor], at: str, n_heads: int, biased: bool) -> dict[str, Tensor]:
    """One block: weights stand on the left there (torch's Linear), q, k and v in one matrix."""
    block = _named(
        state,
        {
            f"{at}ln_{i}.{old}": f"ln{i}.{new}"
            for i in (1, 2)
            for old, new in (("weight", "w"), ("bias", "b"))
        },
        biased,
    )
    block |= _named(
        state,
        {
            f"{at}mlp.c_fc.bias": "mlp.b_in",
            f"{at}mlp.c_proj.bias": "mlp.b_out",
            f"{at}attn.c_proj.bias": "attn.b_O",
        },
        biased,
    )
    block |= {
        "mlp.W_in": matrix(state, f"{at}mlp.c_fc.weight").T,
        "mlp.W_out": matrix(state, f"{at}mlp.c_proj.weight").T,
    }
    for which, rows in zip("QKV", state[f"{at}attn.c_attn.weight"].chunk(3), strict=True):
        block[f"attn.W_{which}"] = rearrange(
            rows, "(head d_head) d_model -> head d_model d_head", head=n_heads
        )
    for which, bias in zip(
        "QKV", state[f"{at}attn.c_attn.bias"].chunk(3) if biased else (), strict=biased
    ):
        block[f"attn.b_{which}"] = rearrange(bias, "(head d_head) -> head d_head", head=n_heads)
    block["attn.W_O"] = rearrange(
        matrix(state, f"{at}attn.c_proj.weight"),
        "d_model (head d_head) -> head d_head d_model",
        head=n_heads,
    )
    return block
