"""Measures of a run of the joint-training study: accuracies, the layout of the embedding, norm
ratios.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from mechint.decide.null import p_values
from mechint.groups.layouts import beyond_isotropy, find_layouts
from mechint.probes._norms.probe import sublayers
from mechint.subject import Subject
from mechint.training import Run

SOLVED = 0.9
"""Accuracy from which a run has learned its operation: the paper's own bar for embeddings."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters; accuracies at the end by operation and the judged one; the first step at SOLVED;
    the curve; the similarity of the digits' embeddings, and their Gram matrix beyond isotropy; of
    runs over sizes the effect of a line at every kept checkpoint, and norm ratios on sums.
    """
    subject = run.subject()
    prefix = "test.greedy.accuracy."
    by_operation = {
        name.removeprefix(prefix): float(value)
        for name, value in run.final.items()
        if name.startswith(prefix)
    }
    judged = labels.get("judged") or ""
    column = prefix + judged if prefix + judged in run.final else prefix[:-1]
    curve = [(int(row["step"]), float(row[column])) for row in run.metrics]
    rows = digits(subject)
    found: dict[str, Any] = {
        "parameters": sum(value.numel() for value in subject.model.parameters()),
        "accuracy": curve[-1][1],
        "by_operation": by_operation,
        "solved_at": float(next((s for s, at in curve if at >= SOLVED), math.inf)),
        "curve": list(map(list, zip(*curve[:: max(1, len(curve) // 40)], strict=True))),
        "similarity": np.corrcoef(rows).tolist(),
        "beyond_isotropy": beyond_isotropy(rows).tolist(),
    }
    if labels["arm"].endswith("by size"):
        found["line"] = line_over_steps(subject)
        held_out = subject.split["test"]  # type: ignore[index]
        found["ratios"] = norm_ratios(subject, subject.data[held_out])
    if labels["arm"] == "curriculum":
        start = run.spec.task.to_dict()["ramp_start"]
        before = [row for row in run.metrics if row["step"] <= start][-1]
        found["proficiency"] = {name: float(before[prefix + name]) for name in ("MAX", "MED")}
    return found


def digits(subject: Subject) -> Float[np.ndarray, "n d_model"]:
    """The embeddings of the digits, in their order."""
    n = subject.task.to_dict()["n"]  # type: ignore[union-attr]
    return subject.model.get_parameter("embed.W_E")[:n].detach().double().cpu().numpy()


def line_over_steps(subject: Subject) -> list[list[float]]:
    """Steps of the kept checkpoints, and the effect of a line on the digits' embeddings at each."""
    steps = sorted(subject.series)
    each = (beyond_isotropy(digits(subject.at_step(step))) for step in steps)
    return [[*map(float, steps)], [find_layouts(one, 199).effects["line"] for one in each]]


def parity_separation(
    similar: Float[np.ndarray, "n n"], components: int, orders: int = 999
) -> tuple[float, int, float]:
    """The separation of even from odd by one of the first components of a similarity matrix: the
    largest share of a component's variance that lies between the two, which component (from 1), and
    its p-value against values in random order.

    >>> even = np.arange(6) % 2 == 0
    >>> share, component, _ = parity_separation(np.outer(even - 0.5, even - 0.5), 2)
    >>> round(share, 6), component
    (1.0, 1)
    """
    left, singular, _ = np.linalg.svd(similar - similar.mean(0))
    scores = (left * singular)[:, :components]
    scores = scores - scores.mean(0)
    total = (scores**2).sum(0).clip(1e-12)
    generator, even = np.random.default_rng(0), np.arange(len(similar)) % 2 == 0

    def shares(group: Bool[np.ndarray, " n"]) -> Float[np.ndarray, " component"]:
        between = sum(scores[one].mean(0) ** 2 * one.sum() for one in (group, ~group))
        return between / total

    found = shares(even)
    drawn = np.array([shares(generator.permutation(even)).max() for _ in range(orders)])
    return float(found.max()), int(found.argmax()) + 1, float(p_values(drawn, float(found.max())))


def norm_ratios(subject: Subject, data: Any) -> dict[str, float]:
    """Sublayer, "L0 attention", → mean log of ‖output‖ / ‖input‖ at every ``=`` and ``>``, where a
    step or the answer begins.
    """
    vocabulary = subject.task.vocabulary  # type: ignore[union-attr]
    marks = torch.tensor([vocabulary.ids[mark] for mark in "=>" if mark in vocabulary.ids])
    asked = torch.isin(data.tokens, marks.to(data.tokens.device))
    if data.lengths is not None:
        asked &= torch.arange(data.tokens.shape[1]) < data.lengths[:, None]
    with torch.no_grad():
        _, cache = subject.model.run_with_cache(data.tokens)
    found = {}
    for name, pair in sublayers(subject).items():
        output, given = (cache[hook][asked].double().norm(dim=-1) for hook in pair)
        found[name] = float((output / given).log().mean())
    return found
