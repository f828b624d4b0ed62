"""Models of which the program is known, asked by prompts: planted by hand, trained on a known rule,
or trained on answers without a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.task import rng

INPUTS = 1200
"""Distinct prompts of a model, half of them judged."""
BATCH = 128
"""Examples a step."""


@dataclass(frozen=True)
class Made:
    """A model with its prompts; truth: tokens → answers."""

    subject: Subject
    truth: Callable[[Tensor], Tensor]


def subject_of(model: HookedTransformer, tokens: Tensor) -> Subject:
    """A model on distinct prompts, asked at the last position for its own answers."""
    tokens = torch.unique(tokens, dim=0)
    order = torch.from_numpy(rng("calibration order").permutation(len(tokens)))[:INPUTS]
    task = Prompts.of(
        [{"prompt": row} for row in tokens[order].tolist()],
        None,
        model.config.d_vocab,
        None,
        n_classes=model.config.d_vocab_out,
    )
    task.take_answers(model)
    return Subject(model, task)


# --- models ---------------------------------------------------------------------------------------
def config_of(vocab: int, ctx: int, classes: int, **more: Any) -> ModelConfig:
    """A small transformer."""
    sizes: dict[str, Any] = {"d_model": 32, "n_heads": 2, "d_mlp": 64, "n_layers": 1} | more
    return ModelConfig(d_vocab=vocab, d_vocab_out=classes, n_ctx=ctx, **sizes)


def train(
    config: ModelConfig,
    data: tuple[Tensor, Tensor],
    steps: int,
    seed: int,
    lr: float = 4e-3,
    decay: float = 0.1,
) -> HookedTransformer:
    """A model trained with AdamW on x, answered at the last position with y."""
    (x, y), model = data, HookedTransformer(config, seed=seed)
    draw, weights = torch.Generator().manual_seed(seed), list(model.parameters())
    for weight in weights:
        weight.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights, lr=lr, weight_decay=decay)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / 30) * (1 - 0.9 * step / steps)
        rows = torch.randint(len(x), (BATCH,), generator=draw)
        loss = torch.nn.functional.cross_entropy(model(x[rows])[:, -1], y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for weight in weights:
        weight.requires_grad_(False)
    return model


def prompts(vocab: int, ctx: int, n: int, seed: int, end: bool = True) -> Tensor:
    """Random tokens, and a mark at the end."""
    tokens = torch.from_numpy(rng("calibration prompts", seed).integers(0, vocab, (n, ctx)))
    return torch.cat([tokens, torch.full((n, 1), vocab)], 1) if end else tokens


def accuracy(model: HookedTransformer, x: Tensor, y: Tensor) -> float:
    """Share of right answers."""
    return float((model(x)[:, -1].argmax(1) == y).double().mean())


KNOWN: dict[str, tuple[int, int, int, Callable[[Tensor], Tensor], dict[str, Any]]] = {
    "largest": (12, 5, 12, lambda t: t[:, :5].amax(1), {"n_heads": 1, "attn_only": True}),
    "smallest": (12, 5, 12, lambda t: t[:, :5].amin(1), {"n_heads": 1, "attn_only": True}),
    "first plus last": (9, 4, 9, lambda t: (t[:, 0] + t[:, 3]) % 9, {"d_mlp": 128}),
    "majority": (2, 9, 2, lambda t: (t[:, :9].sum(1) > 4).long(), {"n_heads": 1}),
    "count": (5, 8, 9, lambda t: (t[:, :8] == 2).sum(1), {"n_heads": 1}),
    "equal": (8, 4, 2, lambda t: (t[:, 0] == t[:, 2]).long(), {}),
}
"""Rule → vocabulary, positions, classes, answers, configuration."""


def trained(seed: int) -> Made | None:
    """A model trained on a known rule; None where it has not learned it."""
    vocab, ctx, classes, truth, more = list(KNOWN.values())[seed % len(KNOWN)]
    x = prompts(vocab, ctx, 6000, seed)
    config = config_of(vocab + 1, ctx + 1, classes, **more)
    model = train(config, (x[:4500], truth(x[:4500])), 1000, seed)
    return (
        Made(subject_of(model, x), truth)
        if accuracy(model, x[4500:], truth(x[4500:])) >= 0.99
        else None
    )


Kind = int | str
"""Targets of a planted head: a position, "largest", "smallest", or "all"."""


def build(
    n: int,
    ctx: int,
    kinds: Sequence[Kind],
    table: Callable[[int, int], int] | None = None,
    classes: int = 0,
    seed: int = 0,
    noise: float = 0.01,
) -> HookedTransformer:
    """A model whose weights are set by hand, on `ctx` of n tokens and a mark that answers: heads
    that attend by a rule and write the token; the answer is the sum of what they write, or a table
    of what the first two bring.
    """
    classes = classes or n
    token, place, size, mark, out = 0, n, n + ctx + 1, n + ctx + 2, n + ctx + 3
    width, two = out + len(kinds) * n + classes, table is not None
    config = ModelConfig(
        d_model=width, n_heads=len(kinds), d_head=n, d_mlp=max(n * n, 4), d_vocab=n + 1,
        d_vocab_out=classes, n_ctx=ctx + 1, attn_only=not two,
    )  # fmt: skip
    model = HookedTransformer(config, seed=0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.embed.W_E[:n, token : token + n] = torch.eye(n)
        model.embed.W_E[:n, size] = torch.arange(1, n + 1).float()
        model.embed.W_E[n, mark] = 1.0
        model.pos_embed.W_pos[:, place : place + ctx + 1] = torch.eye(ctx + 1)
        attention, answer = model.blocks[0].attn, out + len(kinds) * n
        for head, kind in enumerate(kinds):
            attention.W_Q[head, mark, 0] = 0.0 if kind == "all" else 12.0 * n**0.5
            if isinstance(kind, int):
                attention.W_K[head, place + kind, 0] = 1.0
            else:  # the mark has no size: it must not be the smallest
                attention.W_K[head, size, 0] = 1.0 if kind == "largest" else -1.0
                attention.W_K[head, mark, 0] = 0.0 if kind == "largest" else -2.0 * n
            attention.W_V[head, token : token + n] = torch.eye(n)
            start = out + head * n
            attention.W_O[head, :, start : start + n] = torch.eye(n)
            if not two:
                model.unembed.W_U[start : start + n, :n] = 15.0 * torch.eye(n)
        if table is not None:
            mlp = model.blocks[0].mlp
            for unit, (a, b) in enumerate((a, b) for a in range(n) for b in range(n)):
                mlp.W_in[out + a, unit] = mlp.W_in[out + n + b, unit] = 1.0
                mlp.b_in[unit] = -1.5
                mlp.W_out[unit, answer + table(a, b)] = 30.0
            model.unembed.W_U[answer : answer + classes] = torch.eye(classes)
        draw = torch.Generator().manual_seed(seed)
        for weight in model.parameters():
            weight += noise * torch.randn(weight.shape, generator=draw)
            weight.requires_grad_(False)
    return model


def plant(seed: int) -> Made:
    """A model whose weights are set by hand: heads that attend by a rule and write the token, and
    an answer that is the token or a table of two, with noise on all weights.
    """
    draw = rng("calibration plant", seed)
    n, ctx = int(draw.integers(5, 9)), int(draw.integers(4, 7))
    two = bool(draw.random() < 0.5)
    places = draw.permutation(ctx)[:2].tolist()
    kinds = (
        ["position", "position"] if two else [str(draw.choice(["largest", "smallest", "position"]))]
    )
    if two and draw.random() < 0.4:
        kinds[0] = str(draw.choice(["largest", "smallest"]))
    function = str(draw.choice(list(TABLES))) if two else "copy"
    if kinds[0] != "position" and function in ("max", "less"):
        function = "sum"  # the largest is never below another
    heads = [places[i] if kind == "position" else kind for i, kind in enumerate(kinds)]
    table = partial(TABLES[function], n=n) if two else None
    model = build(n, ctx, heads, table, 2 if function in ("equal", "less", "carry") else n, seed)

    def brought(t: Tensor, head: int) -> Tensor:
        if kinds[head] == "position":
            return t[:, places[head]]
        return t[:, :ctx].amax(1) if kinds[head] == "largest" else t[:, :ctx].amin(1)

    def truth(t: Tensor) -> Tensor:
        a = brought(t, 0)
        if not two:
            return a
        b = brought(t, 1)
        values = [TABLES[function](x, y, n) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
        return torch.tensor(values)

    subject = subject_of(model, prompts(n, ctx, 4000, seed))
    return Made(subject, truth)


NAMES = {n: rng("calibration group", n).permutation(n).tolist() for n in range(5, 9)}
"""Order of a cyclic group → names of its elements, by which no sum is seen."""
TABLES: dict[str, Callable[[int, int, int], int]] = {
    "sum": lambda a, b, n: (a + b) % n,
    "max": lambda a, b, n: max(a, b),
    "equal": lambda a, b, n: int(a == b),
    "less": lambda a, b, n: int(a < b),
    "carry": lambda a, b, n: (a + b) // n,
    "group": lambda a, b, n: NAMES[n][(NAMES[n].index(a) + NAMES[n].index(b)) % n],
}


# --- without a program ----------------------------------------------------------------------------
SHAPES = ((6, 4, 500), (16, 3, 400), (4, 5, 600), (10, 4, 400))
"""Vocabulary, positions and prompts of models that know answers by rote."""


def by_rote(seed: int) -> Subject:
    """A model that knows random answers to a few hundred prompts, asked about these."""
    vocab, ctx, count = SHAPES[seed % len(SHAPES)]
    x = torch.unique(prompts(vocab, ctx, count, seed), dim=0)
    y = torch.from_numpy(rng("rote", seed).integers(0, vocab, len(x)))
    wide = config_of(vocab + 1, ctx + 1, vocab, d_model=64, d_mlp=256)
    return subject_of(train(wide, (x, y), 900, seed, 6e-3, 0.0), x)


def permuted(seed: int) -> Subject:
    """A model trained until it is sure on the permuted answers of a rule."""
    vocab, ctx, classes, truth, more = list(KNOWN.values())[seed % len(KNOWN)]
    x = torch.unique(prompts(vocab, ctx, 700, seed), dim=0)
    y = truth(x)[torch.from_numpy(rng("shuffled", seed).permutation(len(x)))]
    more = {**more, "d_model": 64, "d_mlp": 256, "attn_only": False}
    config = config_of(vocab + 1, ctx + 1, classes, **more)
    return subject_of(train(config, (x, y), 900, seed, 6e-3, 0.0), x)


def untrained(seed: int) -> Subject:
    """Initial weights of several shapes, with unembeddings scaled until answers are sure."""
    vocab, ctx = (6, 10, 20)[seed % 3], (4, 7)[seed % 2]
    config = config_of(
        vocab + 1,
        ctx + 1,
        vocab,
        n_layers=1 + seed % 3,
        n_heads=(1, 2, 4)[seed % 3],
        normalization_type=("LN", None)[seed % 2],
        attn_only=seed % 5 == 0,
    )
    model = HookedTransformer(config, seed=seed)
    with torch.no_grad():
        model.unembed.W_U.mul_((1, 10, 40, 200)[seed % 4])
        for block in model.blocks if seed % 8 >= 4 else ():  # attention as sharp as a trained one
            block.attn.W_Q.mul_(20)
    for weight in model.parameters():
        weight.requires_grad_(False)
    return subject_of(model, prompts(vocab, ctx, 4000, seed))
