"""Restricted and excluded loss, trigonometric share, Gini coefficient, sum of squared weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Num
from torch import Tensor

from mechint.subject import Subject
from mechint.task import FiniteTask
from probes import answers
from probes._fourier import spectra
from probes.answers import Cycle
from probes.operands import embedding_rows, own_orders


def measure_progress(
    subject: Subject, cycle: Cycle, keys: Sequence[int], keep_bias: bool = True
) -> dict[str, Any]:
    """Loss, restricted loss, excluded losses (nats) on train, test and all inputs, and the
    trigonometric share (0–1).
    """
    logits, exponents, splits = cycle_logits(subject, cycle)
    mean = logits.mean(0)
    waves = projected(logits, exponents, cycle.n, keys)
    variants = {
        "loss": logits,
        "restricted_loss": waves + mean if keep_bias else waves,
        "excluded_loss": logits - waves,
    }
    found: dict[str, Any] = {}
    for name, values in variants.items():
        found |= {
            f"{name}.{split}": loss(values[index], exponents[index])
            for split, index in splits.items()
        }
    each = {k: projected(logits, exponents, cycle.n, [k]) for k in keys}
    for split in ("train", "all"):
        if split in splits:
            index = splits[split]
            found[f"excluded_loss.each.{split}"] = {
                k: loss((logits - wave)[index], exponents[index]) for k, wave in each.items()
            }
    centered = logits - logits.mean(1, keepdim=True)
    centered = centered - centered.mean(0)
    angles = (
        2
        * np.pi
        / cycle.n
        * (exponents[:, None] - torch.arange(cycle.n, device=exponents.device)).double()
    )
    squares = centered.square().sum().clamp_min(1e-24)
    shares = [
        float(
            (centered * (wave := torch.cos(k * angles))).sum().square()
            / (squares * wave.square().sum())
        )
        for k in keys
    ]
    found["trigonometric_share"] = sum(shares)
    return found


def cycle_logits(
    subject: Subject, cycle: Cycle
) -> tuple[Float[Tensor, "example n"], Int[Tensor, " example"], dict[str, Int[Tensor, " _row"]]]:
    """Logits (example, n) float64 in the order of the cycle and exponents of the answers, where
    they lie on it; split → rows.
    """
    task = subject.task
    assert isinstance(task, FiniteTask)
    where, on = answers.answer_positions(cycle, subject.targets[:, cycle.index])
    columns = task.output_slices[cycle.output].start + torch.tensor(
        cycle.classes, device=subject.device
    )
    logits = subject.logits()[on][:, columns].double()
    row = torch.cumsum(on, 0) - 1
    splits = {name: index.to(on.device) for name, index in (subject.split or {}).items()}
    chosen = {
        name: row[index[on[index]]]
        for name, index in splits.items()
        if name in ("train", "test") and bool(on[index].any())
    }
    return logits, where[on], {**chosen, "all": torch.arange(len(logits), device=on.device)}


def projected(
    logits: Float[Tensor, "example n"],
    exponents: Int[Tensor, " example"],
    n: int,
    keys: Sequence[int],
) -> Float[Tensor, "example n"]:
    """The centered logits projected, over the inputs, on the waves of `keys` in the answer."""
    if not len(keys):
        return torch.zeros_like(logits)
    angles = (
        2
        * np.pi
        / n
        * torch.outer(
            exponents.double(),
            torch.tensor(list(keys), dtype=torch.float64, device=exponents.device),
        )
    )
    paired = [i for i, k in enumerate(keys) if 2 * k != n]  # the Nyquist frequency has no sine
    waves = torch.cat([angles.cos(), angles.sin()[:, paired]], 1)
    basis = torch.linalg.qr(waves - waves.mean(0))[0]
    return basis @ (basis.T @ (logits - logits.mean(0)))


def loss(logits: Float[Tensor, "example n"], exponents: Int[Tensor, " example"]) -> float:
    """Mean cross-entropy (nats) of the answers' exponents."""
    return float(F.cross_entropy(logits, exponents))


def gini(values: Num[np.ndarray, " n"]) -> float:
    """Gini coefficient of non-negative values: 0 when all are equal, near 1 when one holds
    everything.

    >>> gini(np.array([1.0, 1.0, 1.0])), gini(np.array([0.0, 0.0, 0.0, 1.0]))
    (0.0, 0.75)
    """
    ordered = np.sort(values)
    n = len(ordered)
    return float(
        2 * (np.arange(1, n + 1) * ordered).sum() / (n * max(ordered.sum(), 1e-24)) - (n + 1) / n
    )


def embedding_gini(subject: Subject) -> dict[str, float]:
    """Gini coefficient of the embedding's amplitude over frequencies; {} without value tokens."""
    order = answers.value_tokens(subject)
    if order is None:
        return {}
    rows = embedding_rows(subject, *own_orders(subject, order)).cpu().numpy()
    return {"embedding.gini": gini(np.sqrt(spectra.energies(rows)))}


def sum_of_squares(model: Any) -> float:
    """Sum of the squares of all weights."""
    return float(
        sum(parameter.detach().double().square().sum() for parameter in model.parameters())
    )
