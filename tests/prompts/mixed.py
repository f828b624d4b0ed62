"""Prompts of several lengths for a small random model, and the same with another filler."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.prompts import Prompts
from mechint.subject import Subject

VOCABULARY = 12


def mixed(lengths: tuple[int, ...] = (3, 4, 6), pairs: int = 5) -> Subject:
    """Pairs of prompts that differ in their second token, `pairs` of each length, answered by what
    the model says: a random one of two layers.
    """
    config = ModelConfig(
        n_layers=2,
        d_model=16,
        n_heads=2,
        d_mlp=8,
        n_ctx=max(lengths),
        d_vocab=VOCABULARY,
        d_vocab_out=VOCABULARY,
        normalization_type="LN",
        init_mode="d_model",
    )
    model = HookedTransformer(config, seed=1).double()
    with torch.no_grad():
        model.get_parameter("unembed.W_U").mul_(4)
        for layer in range(2):
            model.get_parameter(f"blocks.{layer}.attn.W_O").mul_(4)
    generator, rows, seen = np.random.default_rng(0), list[object](), set[tuple[int, ...]]()

    def answered(prompt: list[int]) -> dict[str, object]:
        with torch.no_grad():
            answer = int(model(torch.tensor([prompt]))[0, -1].argmax())
        return {"prompt": prompt, "answer": answer}

    for length in lengths:
        kept = 0
        while kept < pairs:
            base = generator.integers(0, VOCABULARY, length).tolist()
            other = [base[0], int(generator.integers(VOCABULARY)), *base[2:]]
            one, two = answered(base), answered(other)
            if one["answer"] == two["answer"] or seen & {tuple(base), tuple(other)}:
                continue
            seen |= {tuple(base), tuple(other)}
            rows.append(one | {"counterfactual": two})
            kept += 1
    return Subject(model, Prompts.of(rows, None, VOCABULARY, max(lengths)))


def refilled(subject: Subject) -> Subject:
    """The same examples, with another token behind the end of the shorter ones at every place."""
    data = subject.data
    assert data.lengths is not None
    own = torch.arange(data.tokens.shape[1]) < data.lengths[:, None]
    random = torch.randint(VOCABULARY, own.shape, generator=torch.Generator().manual_seed(3))
    return subject.with_data(replace(data, tokens=data.tokens.where(own, random)))
