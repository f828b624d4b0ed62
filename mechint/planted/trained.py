"""Models trained within a second: shuffled answers by heart, wholly and half, sums by heart, and
addition half learned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.planted.assembly import make_task
from mechint.probe.results import ProbeResult
from mechint.subject import Subject

MODULUS, STEPS = 11, 200
"""Numbers of the tasks, and updates at most."""


@cache
def memorizing(seed: int, until: float = 1.0) -> Subject:
    """A model trained, by full batches of AdamW, until it has a share `until` of the shuffled
    answers by heart.
    """
    task = make_task("modular-arithmetic", p=MODULUS, labels="shuffled", label_seed=seed)
    return _trained(task, seed, until)


half_memorized = partial(memorizing, until=0.5)
"""The same, stopped when half of the answers are right; no rule gives them."""


@cache
def sums_by_heart(seed: int, p: int = MODULUS) -> Subject:
    """A model trained on a part of the sums until it has all of that part right, long before others
    follow from it.
    """
    task = make_task("modular-arithmetic", p=p)
    return _trained(task, seed, 1.0, task.split(seed)["train"])


sums_mod_13_by_heart = partial(sums_by_heart, p=13)
"""The same modulo 13."""


@cache
def half_trained(seed: int) -> Subject:
    """A model trained on addition and stopped when half of the answers are right: part of the true
    rule may be there already.
    """
    return _trained(make_task("modular-arithmetic", p=MODULUS), seed, 0.5)


def small_transformer(task: Any, seed: int, width: int, neurons: int) -> HookedTransformer:
    """One layer of two heads on a task, with the initial weights of a seed."""
    config = ModelConfig.for_task(task, d_model=width, n_heads=2, d_mlp=neurons)
    return HookedTransformer(config, seed=seed)


def _trained(
    task: Any, seed: int, until: float, part: Int[Tensor, " _index"] | None = None
) -> Subject:
    model, data = small_transformer(task, seed, 24, 96), task.examples()
    data = data if part is None else data[part]
    targets = data.targets[:, -1, 0]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(data.tokens)[:, -1]
        if float((logits.argmax(-1) == targets).float().mean()) >= until:
            break
        F.cross_entropy(logits, targets).backward()
        optimizer.step()
    for parameter in model.parameters():
        parameter.grad = None
    return Subject(model, task, split_seed=seed if part is not None else 0)


def loss_without(subject: Subject, frequency: int) -> float:
    """Loss (nats) with a frequency taken out of the numbers' rows of W_E by NumPy's FFT; of the
    model as it is at frequency 0.
    """
    weight, p = subject.model.W_E, MODULUS
    kept = weight.detach().clone()
    spectrum = np.fft.fft(kept[:p].double().cpu().numpy(), axis=0)  # (number, d_model)
    if frequency:
        spectrum[[frequency, p - frequency]] = 0
    try:
        weight.data[:p] = torch.from_numpy(np.fft.ifft(spectrum, axis=0).real).to(kept)
        logits = subject.model(subject.data.tokens)[:, -1].detach().double()
    finally:
        weight.data.copy_(kept)
    return float(F.cross_entropy(logits, subject.data.targets[:, -1, 0]))


def not_needed(named: Callable[[ProbeResult], Iterable[int]]) -> Callable[..., float]:
    """The number of frequencies that a probe names on a half-trained model and that it needs no
    more than unnamed ones: without them the loss rises less than without an unnamed one, mean.
    """

    def count(result: ProbeResult, subject: Subject) -> float:
        keys = set(named(result))
        whole = loss_without(subject, 0)
        rises = {k: loss_without(subject, k) - whole for k in range(1, (MODULUS + 1) // 2)}
        others = [rise for k, rise in rises.items() if k not in keys]
        usual = float(np.mean(others)) if others else 0.0
        return float(sum(rises[k] <= max(usual, 0.0) for k in keys))

    return count
