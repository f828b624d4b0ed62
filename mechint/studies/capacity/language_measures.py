"""What the language models of the capacity study show, measured once each: accuracy on the injected
task, where its order lies, and how gradients interfere.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from mechint.errors import TrainingError
from mechint.probe import run as run_probe
from mechint.run_table.entries import Entry
from mechint.run_table.table import Runs as Table
from mechint.studies.core.claims import Part
from mechint.studies.core.study import Runs, model_of, task_of
from mechint.training import Run

LEARNED = 0.9
"""Accuracy on held-out instances from which a model counts as having learned the task; chance is
about 0.5.
"""

COMPONENTS = 3
"""Principal components of the tokens' mean residuals from which their order is read."""

SHARE = 8
"""One in so many neurons of a layer is a task neuron, in every width: those of largest gradient
times activation, in the layer where they matter most.
"""

OPERANDS = {"rank of a": 0, "rank of b": 1}
"""The compared words' variables → their position."""

SEARCH = {
    "embedding": True,
    "dimensions": (1,),
    "control_seeds": 1,
    "steps": 200,
    "pairs": 512,
    "held_out": 256,
    "null_samples": 99,
}
"""Distributed alignment search for one dimension."""

EMBEDDING, BEHIND = "blocks.0.hook_resid_pre", "blocks.1.hook_resid_pre"
"""The residual stream before block 0, which is embedding plus position, and behind it."""


def place_of(hook: str) -> str:
    """A hook in words."""
    return f"the words' embedding ({hook})" if hook == EMBEDDING else hook


class Measures:
    """The study's runs, with what the probes say of each language model."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.interchanges = cache(self._interchanges)
        self.all_behind = cache(self._behind)
        self.cosines = cache(self._cosines)

    def names(self, **labels: Any) -> list[str]:
        """Names of the language models with these labels that have finished."""
        return [
            name
            for name in self.runs.names(arm="language", **labels)
            if self.runs.status(name) in ("finished", "stopped")
        ]

    def axis(self, label: str, **labels: Any) -> list[Any]:
        """The values of a label, as planned, among the runs with these labels."""
        return self.runs.values_of(label, arm="language", **labels)

    def per_seed(self, measure: Callable[[str], float], **labels: Any) -> dict[int, float]:
        """Seed → mean over its runs with these labels; TrainingError where none has finished."""
        names = self.names(**labels)
        if not names:
            raise TrainingError(f"no language model has finished with {labels}")
        return self.by_seed(names, measure)

    def by_seed(self, names: Sequence[str], measure: Callable[[str], float]) -> dict[int, float]:
        """Seed → mean over its runs among `names`."""
        found: dict[int, list[float]] = {}
        for name in names:
            found.setdefault(self.runs.labels[name]["seed"], []).append(measure(name))
        return {seed: float(np.mean(values)) for seed, values in found.items()}

    def accuracy(self, name: str) -> float:
        """Accuracy on held-out instances of the injected task, at the end."""
        return float(self.runs[name].final["test.greedy.accuracy.task"])

    def learned_where_frequent(self) -> Part:
        """The control of what is compared between widths: at the highest frequency the widest
        model learns the task, on average over gaps and seeds.
        """
        widest, most = max(self.axis("width")), max(self.axis("frequency"))
        found = self.per_seed(self.accuracy, frequency=most, width=widest)
        mean = float(np.mean(list(found.values())))
        return Part("learned where frequent", mean >= LEARNED, f"{mean:.2f}", len(found))

    def learned(self) -> list[str]:
        """The models that learned the task."""
        return [name for name in self.names() if self.accuracy(name) >= LEARNED]

    def interchange(self, name: str, operand: str) -> dict[str, Any]:
        """What `interchanges` says of one of the models that learned."""
        return self.interchanges(operand)[name]

    def behind(self, name: str, operand: str) -> dict[str, Any]:
        """What the search says of the operand's own position behind block 0."""
        return self.all_behind(operand)[name]

    def _interchanges(self, operand: str) -> dict[str, dict[str, Any]]:
        """What distributed alignment search says of a 1-D subspace for one operand, over all
        layers, of each model that learned, beside the same search for ranks dealt out anew and in
        the untrained model.
        """
        columns = {"iia": "iia", "full swap": "iia_full_swap", "p": "iia.p", "hook": "hook"}
        controls = {"shuffled ranks": "iia_arbitrary", "untrained model": "iia_untrained"}
        return self._search(operand, columns | controls)

    def _behind(self, operand: str) -> dict[str, dict[str, Any]]:
        """The same at the operand's own position behind block 0 alone."""
        return self._search(operand, {"iia": "iia", "full swap": "iia_full_swap"}, hook=BEHIND)

    def _search(
        self, operand: str, columns: dict[str, str], **settings: Any
    ) -> dict[str, dict[str, Any]]:
        """Name of each model that learned → `columns` of the search; kept beside the runs, so that
        no search is repeated.

        Raises:
            TrainingError: a model could not be searched.
        """
        paths = {name: self.runs[name].path for name in self.learned()}
        entries = tuple(Entry(path, name) for name, path in paths.items() if path is not None)
        table = Table(entries, workers=max(1, torch.get_num_threads()))
        rows = table.probe("das", variable=operand, **SEARCH, **settings).rows()
        for row in rows:
            if "das.error" in row:
                raise TrainingError(f"{row['name']}: {row['das.error']}")
        return {
            row["name"]: {key: row[f"das.{column}"] for key, column in columns.items()}
            for row in rows
        }

    def site(self, operand: str) -> str:
        """The hook at which the search succeeds most often in the models that learned."""
        learned = self.learned()
        if not learned:
            raise TrainingError(f"no model reached an accuracy of {LEARNED} on held-out instances")
        return Counter(self.interchange(name, operand)["hook"] for name in learned).most_common()[
            0
        ][0]

    def order_r2(self, name: str) -> float:
        """`order_r2` at each operand's own site, mean over operands."""
        run = self.runs[name]
        return float(np.mean([order_r2(run, self.site(one), pos) for one, pos in OPERANDS.items()]))

    def while_learning(self, name: str) -> list[int]:
        """The steps of the model's checkpoints between the first and the last at which it had not
        learned the task.
        """
        accuracies = {
            row["step"]: row["test.greedy.accuracy.task"] for row in self.runs[name].metrics
        }
        learned = min((step for step, at in accuracies.items() if at >= LEARNED), default=math.inf)
        return [step for step in sorted(self.runs[name].subject().series)[1:-1] if step < learned]

    def comparable(self) -> list[tuple[str, str]]:
        """Pairs of models of one condition and seed, the narrowest and the widest, both with a
        checkpoint while they learned.
        """
        widths = self.axis("width")
        pairs = []
        for name in self.names(width=min(widths)):
            own = self.runs.labels[name]
            same = {label: own[label] for label in ("frequency", "gap", "seed")}
            pairs += [(name, wide) for wide in self.names(width=max(widths), **same)]
        return [pair for pair in pairs if all(self.cosines(name) for name in pair)]

    def _cosines(self, name: str) -> dict[str, float]:
        """Over the checkpoints `while_learning`: mean size of a batch's cosine with the task's
        reference gradient over the size a random direction has, for the background's and the
        task's tokens; the background's cosine itself; the task's mean signed cosine. Empty without
        such a checkpoint.
        """
        run = self.runs[name]
        subject, rows = run.subject(), []
        for step in self.while_learning(name):
            found = run_probe(
                "interference",
                subject.at_step(step),
                neurons=max(2, 4 * model_of(run).d_model // SHARE),
                batches=max(4, task_of(run).gap),
                batch_size=run.spec.train.batch_size,
                null_samples=1,
            )
            columns = found.tables["batches"].columns
            level = math.sqrt(2 / (math.pi * found.metrics["parameters"]))
            sizes = {
                part: float(np.nanmean(np.abs(np.array(columns[part], dtype=float))))
                for part in ("task", "background")
            }
            rows.append(
                {part: size / level for part, size in sizes.items()}
                | {"raw": sizes["background"], "signed": float(found.metrics["cosine.task"])}
            )
        return (
            {part: float(np.mean([row[part] for row in rows])) for part in rows[0]} if rows else {}
        )


def order_r2(run: Run, hook: str, pos: int) -> float:
    """R² of the hidden rank of the words, read from COMPONENTS principal components of the
    activations at `hook` and position `pos`.

    Every word stands there after one and the same first word (where `pos` is above 0). Least
    squares, each word predicted from the others; at most 1, and below 0 where guessing the mean
    would do better.
    """
    subject, task = run.subject(), task_of(run)
    words = task.injection.token_words[: task.injected_task.n].to(subject.device)
    tokens = words[:1].expand(len(words), pos + 1).clone()  # (word, pos + 1)
    tokens[:, pos] = words
    with torch.no_grad():
        _, kept = subject.model.run_with_cache(tokens, names_filter=hook)
    x = kept[hook][:, pos].double().cpu()
    x = x - x.mean(0)
    u, s, _ = torch.linalg.svd(x, full_matrices=False)
    ones = torch.ones(len(x), 1, dtype=torch.float64)
    components = torch.cat([u[:, :COMPONENTS] * s[:COMPONENTS], ones], 1)
    return left_out_r2(components.numpy(), task.injected_task.ranks.double().numpy())


def left_out_r2(x: Float[np.ndarray, "n k"], y: Float[np.ndarray, " n"]) -> float:
    """R² of least squares of y (n,) on x (n, k) with every example predicted from the others
    (hat-matrix shortcut).

    >>> x = np.stack([np.arange(6.0), np.ones(6)], 1)
    >>> round(left_out_r2(x, 2 * np.arange(6.0) + 1), 6)
    1.0
    """
    hat = x @ np.linalg.pinv(x)
    errors = (y - hat @ y) / (1 - np.diag(hat)).clip(1e-9)
    return float(1 - (errors**2).sum() / ((y - y.mean()) ** 2).sum())


def by_width(widths: Sequence[int], values: Sequence[float], digits: int = 2) -> str:
    """Values in words, width by width."""
    pairs = zip(widths, values, strict=True)
    return ", ".join(f"{value:.{digits}f} at width {width}" for width, value in pairs)


def differences(one: dict[int, float], other: dict[int, float]) -> list[float]:
    """one - other, each seed → value, seed by seed."""
    return [one[seed] - other[seed] for seed in one if seed in other]
