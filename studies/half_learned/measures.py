"""Measures of a run of the half-learned study: which remainders of a sum are right, and what the
best function of two digits at a time would say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from mechint.task import FiniteTask
from mechint.training import Run

FACTORS = (2, 5)
"""A sum mod 10 is its remainders mod 2 and mod 5 together."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Accuracy held out; of each factor, the numbers of trained and of held-out triplets whose
    predicted value has the right remainder, and beside them what least squares on pairs of digits
    has right of the held-out ones and with how many of the model's it agrees.
    """
    task: Any = run.spec.task
    assert isinstance(task, FiniteTask)
    split = task.split(run.spec.data_seed)
    parts = {name: split[name].numpy() for name in ("train", "test")}
    examples = task.examples()
    predicted = run.subject(data=examples).logits().argmax(-1).cpu().numpy()
    values = digits_of(task, examples)
    found: dict[str, Any] = {"factors": {}}
    for m in FACTORS:
        found["factors"][str(m)] = factor(predicted, values, m, parts, task.to_dict()["n"])
    right = predicted == values.sum(1) % task.to_dict()["n"]
    found["accuracy"] = float(right[parts["test"]].mean())
    return found


def digits_of(task: Any, examples: Any) -> Int[np.ndarray, "example 3"]:
    """The three digits of every example."""
    tokens = examples.tokens
    digits = tokens < task.to_dict()["n"]
    return torch.stack([row[keep][:3] for row, keep in zip(tokens, digits, strict=True)]).numpy()


def factor(
    predicted: Int[np.ndarray, " example"],
    values: Int[np.ndarray, "example 3"],
    m: int,
    parts: Mapping[str, Int[np.ndarray, " _"]],
    n: int = 10,
) -> dict[str, int]:
    """Numbers of triplets of each part with the right remainder mod m, of held-out ones on which
    least squares on pairs of digits is right, and of those on which the prediction agrees with it.
    A prediction that is no digit is wrong, and agrees with nothing.
    """
    wanted, digit = values.sum(1) % m, predicted < n
    residue = np.where(digit, predicted % m, -1)
    said = from_pairs(values, wanted, parts["train"])
    test = parts["test"]
    right = {name: int((residue == wanted)[index].sum()) for name, index in parts.items()}
    return {
        **right,
        **{f"n_{name}": len(index) for name, index in parts.items()},
        "pairs": int((said == wanted)[test].sum()),
        "agree": int((said == residue)[test].sum()),
    }


def from_pairs(
    values: Int[np.ndarray, "example 3"],
    wanted: Int[np.ndarray, " example"],
    train: Int[np.ndarray, " train"],
) -> Int[np.ndarray, " example"]:
    """The class that least squares on one-hot pairs of digits, fitted to the trained triplets,
    says of every triplet.

    >>> grid = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3)
    >>> of_two = (grid[:, 0] + grid[:, 1]) % 2
    >>> bool((from_pairs(grid, of_two, np.arange(0, 64, 2)) == of_two).all())
    True
    """
    n = int(values.max()) + 1
    design: Float[np.ndarray, "example pair"] = np.zeros((len(values), 3 * n * n))
    for i, (a, b) in enumerate(((0, 1), (0, 2), (1, 2))):
        design[np.arange(len(values)), i * n * n + values[:, a] * n + values[:, b]] = 1
    classes = int(wanted.max()) + 1
    target = np.eye(classes)[wanted] - 1 / classes
    return (design @ np.linalg.lstsq(design[train], target[train], rcond=None)[0]).argmax(1)
