"""Measures of a run: what is left of its answers where what the MLP reads is a sum of one function
of both operands, and when the frequencies that its embedding ends with were first key.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from mechint.interventions import Replace, Site, logits_under
from mechint.probes.operands import embedding_rows
from mechint.probes.spectra import KeyRule, cycles, share_spectrum, value_tokens
from mechint.subject import Subject
from mechint.task import rng
from mechint.training import Run

SOLVED = 0.95
SITE = Site.of("resid_mid", 0, "answer")
"""What the MLP reads at the answer."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy held out, what the sum keeps, and the steps at which held-out accuracy is SOLVED and
    at which the embedding's final frequencies are key for good.
    """
    task: Any = run.spec.task
    subject = run.subject(data=task.examples())
    curve = [(int(row["step"]), float(row["test.accuracy"])) for row in run.metrics]
    solved = next((float(step) for step, at in curve if at >= SOLVED), math.inf)
    found = {"accuracy": curve[-1][1], "solved_at": solved, **sum_alone(subject, labels["seed"])}
    keys = {step: keys_of(subject.at_step(step)) for step in sorted(subject.series)}
    since = key_since(keys)
    return found | {
        "keys": sorted(keys[max(keys)]),
        "key_at": float(since),
        "key_at_first": since == min(keys),
    }


def key_since(keys: Mapping[int, set[Any]]) -> int:
    """The step from which on all frequencies that are key at the end are; keys: step → keys.

    >>> key_since({0: set(), 10: {1, 2}, 20: {2}, 30: {1, 2}, 40: {1, 2, 3}, 50: {1, 2}})
    30
    """
    lacking = [step for step, found in keys.items() if not keys[max(keys)] <= found]
    return min(step for step in keys if step > max(lacking, default=-1))


def keys_of(subject: Subject) -> set[Any]:
    """The key frequencies of the embedding."""
    (cycle,), order = cycles(subject), value_tokens(subject)
    assert order is not None
    rows = embedding_rows(subject, order).cpu().numpy()
    return set(share_spectrum(cycle.harmonics, rows, KeyRule(), 0).keys)


def sum_alone(subject: Subject, seed: int) -> dict[str, float]:
    """Shares of the accuracy on half of the pairs that are left with what the MLP reads replaced,
    by fits to the other half: "sum" by its best fit g(x) + g(y), "rest" with the rest of another
    pair added, "permuted" by g(x) + g(π(y)), π a permutation; "explained" is R² of the sum.
    """
    p = subject.known_task.grid[0]
    x, y = np.indices((p, p)).reshape(2, -1)
    draw = rng("one family", seed)
    order = draw.permutation(p * p)
    fitted, judged = order[: p * p // 2], order[p * p // 2 :]
    read = subject.activation(SITE.hook, at="answer")
    own = subject.correct()[judged].double().mean().item()

    def kept(value: Float[Tensor, "pair d"]) -> float:
        right = subject.correct(logits_under(subject, [Replace(SITE, value)]))
        return right[judged].double().mean().item() / max(own, 1e-12)

    summed = best_sum(read, x, y, fitted)
    rest, turned = torch.zeros_like(read), draw.permutation(judged)
    rest[judged] = (read - summed)[turned]
    missed = (read - summed)[judged].square().sum()
    spread = (read[judged] - read[judged].mean(0)).square().sum()
    return {
        "sum": kept(summed),
        "rest": kept(summed + rest),
        "permuted": kept(best_sum(read, x, draw.permutation(p)[y], fitted)),
        "explained": 1 - float(missed / spread),
    }


def best_sum(
    read: Float[Tensor, "pair d"],
    x: Int[np.ndarray, " pair"],
    y: Int[np.ndarray, " pair"],
    fitted: Int[np.ndarray, " fitted"],
) -> Float[Tensor, "pair d"]:
    """g(x) + g(y) of every pair, with the function g that fits the pairs `fitted` best.

    >>> x, y = np.indices((3, 3)).reshape(2, -1)
    >>> read = torch.tensor((x + y)[:, None] ** 1.0)
    >>> torch.allclose(best_sum(read, x, y, np.arange(8)), read, atol=1e-6)
    True
    """
    n = int(max(x.max(), y.max())) + 1
    design = torch.from_numpy(np.eye(n)[x] + np.eye(n)[y]).to(read)
    return design @ (torch.linalg.pinv(design[fitted]) @ read[fitted])
