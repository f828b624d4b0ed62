"""Measures of a language model with an injected comparison: accuracy along training, the order in
its embedding, how gradients interfere, and what an interchange of one dimension does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from mechint.probe import run as run_probe
from mechint.studies.study import untrained
from mechint.subject import Subject
from mechint.training import Run

LEARNED = 0.9
"""Accuracy on held-out instances from which a model counts as having learned; chance is 0.5."""

COMPONENTS = 3
"""Principal components of the words' embeddings from which their order is read."""

EMBEDDING = "blocks.0.hook_resid_pre"
OPERANDS = {"rank of a": 0, "rank of b": 1}
"""The compared words' variables → their position."""

SEARCH: Mapping[str, Any] = {
    **{"dimensions": (1,), "control_seeds": 1, "steps": 200},
    **{"pairs": 512, "held_out": 256, "null_samples": 99},
}
"""Settings of the `das` probe for one dimension."""


def measure(run: Run, labels: Mapping[str, Any]) -> dict[str, Any]:
    """Last accuracy; curves of the task's and the reference task's accuracy, and of the loss on all
    other tokens; R² of the order; cosines while learning; interchange accuracies of a model that
    learned; parameters.
    """
    task: Any = run.spec.task
    rows = run.metrics
    subject = run.subject()
    share = task.frequency / (task.n_ctx - 1)
    other = [(row["test.loss"] - share * row["test.loss.task"]) / (1 - share) for row in rows]
    curve = {
        "step": [row["step"] for row in rows],
        "task": [row["test.greedy.accuracy.task"] for row in rows],
        "sums": [row["test.greedy.accuracy.sums"] for row in rows],
        "task_loss": [row["test.loss.task"] for row in rows],
        "other_loss": other,
    }
    start = untrained(run)
    found: dict[str, Any] = {
        "accuracy": float(curve["task"][-1]),
        "curve": curve,
        "r2": mean_r2(subject, task),
        "r2_untrained": mean_r2(start, task),
        "parameters": sum(value.numel() for value in subject.model.parameters()),
        "tokens": (run.spec.train.batch_size or 1) * task.n_ctx,
        "cosines": cosines(run, subject),
    }
    if found["accuracy"] >= LEARNED:
        found["interchange"] = {name: interchange(subject, name) for name in OPERANDS}
    return found


def mean_r2(subject: Subject, task: Any) -> float:
    """`order_r2` of the hidden rank, mean over operands."""
    return float(np.mean([order_r2(subject, task, pos) for pos in OPERANDS.values()]))


def order_r2(subject: Subject, task: Any, pos: int, hook: str = EMBEDDING) -> float:
    """R² of the hidden rank of the words, read from COMPONENTS principal components of the
    activations at `hook` and position `pos`, every word predicted from the others.
    """
    words = task.injection.token_words[: task.injected_task.n].to(subject.device)
    tokens = words[:1].expand(len(words), pos + 1).clone()  # (word, pos + 1)
    tokens[:, pos] = words
    with torch.no_grad():
        _, cache = subject.model.run_with_cache(tokens, names_filter=hook)
    x = cache[hook][:, pos].double().cpu()
    return leading_r2(x.numpy(), task.injected_task.ranks.double().numpy(), COMPONENTS)


def leading_r2(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, " n"], components: int) -> float:
    """R² of least squares of y on the leading principal components of x, every example predicted
    from the others (hat-matrix shortcut); below 0 where guessing the mean would do better.

    >>> x = np.arange(6.0)[:, None]
    >>> round(leading_r2(x, 2 * np.arange(6.0) + 1, 1), 6)
    1.0
    """
    u, s, _ = np.linalg.svd(x - x.mean(0), full_matrices=False)
    design = np.concatenate([u[:, :components] * s[:components], np.ones((len(x), 1))], 1)
    hat = design @ np.linalg.pinv(design)
    errors = (y - hat @ y) / (1 - np.diag(hat)).clip(1e-9)
    return float(1 - (errors**2).sum() / ((y - y.mean()) ** 2).sum())


def cosines(run: Run, subject: Subject) -> dict[str, float]:
    """Over the checkpoints between the first and the last at which the task is not yet learned:
    mean size of the background batches' cosine with the task's reference gradient ("background"),
    that over the size a random direction has ("over_random"), and the task tokens' mean signed
    cosine ("task"). Empty without such a checkpoint.
    """
    rows = {row["step"]: row["test.greedy.accuracy.task"] for row in run.metrics}
    learned = min((step for step, at in rows.items() if at >= LEARNED), default=math.inf)
    found = []
    for step in (s for s in sorted(subject.series)[1:-1] if s < learned):
        result = run_probe(
            "interference",
            subject.at_step(step),
            batches=max(4, subject.task.to_dict()["gap"]),  # type: ignore[union-attr]
            batch_size=run.spec.train.batch_size,
            null_samples=1,
        )
        column = np.array(result.tables["batches"].columns["background"], dtype=float)
        size = float(np.nanmean(np.abs(column)))
        random = math.sqrt(2 / (math.pi * result.metrics["parameters"]))
        found.append((size, size / random, float(result.metrics["cosine.task"])))
    names = ("background", "over_random", "task")
    return dict(zip(names, np.mean(found, 0).tolist(), strict=True)) if found else {}


def interchange(subject: Subject, variable: str) -> dict[str, float]:
    """Interchange accuracy of a 1-D subspace for one operand over all layers, and of the same
    search for permuted ranks.
    """
    metrics = run_probe("das", subject, variable=variable, **SEARCH).metrics
    return {"iia": float(metrics["iia"]), "permuted": float(metrics["iia_arbitrary"])}
