"""Models that answer with a set of symbols, asked about one member."""

from __future__ import annotations

import dataclasses

import torch

from mechint.errors import ParameterError
from mechint.models.transformer import HookedTransformer


def of_member(model: HookedTransformer, symbol: int) -> HookedTransformer:
    """The model that answers 1 where `symbol` is in the set that a model gives, and else 0.

    A model that was trained by binary cross-entropy, as on the next symbols that a formal language
    allows, has a symbol in its set where its logit is above 0. The logits of the new model are 0
    and that logit, so that its probabilities are those of the old one's sigmoid; all else is
    shared.

    Raises:
        ParameterError: no such symbol, or another kind of model.

    >>> from mechint.planted import modular_addition
    >>> model = modular_addition(5, (1,)).subject.model
    >>> tokens = torch.tensor([[1, 2, 5]])
    >>> asked = of_member(model, 3)
    >>> bool((asked(tokens)[..., 1] - model(tokens)[..., 3]).abs().max() < 1e-5)
    True
    """
    if not isinstance(model, HookedTransformer):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ParameterError(f"member {symbol}: a {type(model).__name__} is no model of mechint's")
    width = model.config.d_vocab_out
    if not 0 <= symbol < width:
        raise ParameterError(f"member {symbol}: the model has logits of symbols 0 to {width - 1}")
    made = HookedTransformer(dataclasses.replace(model.config, d_vocab_out=2, output_sizes=(2,)))
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    for name in ("unembed.W_U", "unembed.b_U"):
        if name in weights:
            column = weights[name][..., symbol]
            weights[name] = torch.stack([torch.zeros_like(column), column], -1)
    made.load_weights(weights)
    return made.requires_grad_(False).eval()
