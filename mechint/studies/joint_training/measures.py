"""What a run of the joint-training study shows: accuracy, the embedding's layout, norm ratios where
a step begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from mechint.errors import DataError
from mechint.registry import PROBES
from mechint.results import ProbeResult
from mechint.studies.core.study import Runs
from mechint.studies.joint_training.arms import THREE_LAYERS
from mechint.studies.joint_training.transitions import Transitions, judged_accuracy
from mechint.subject import Subject
from mechint.task import Batch, FiniteTask, rng
from mechint.training import Run

SOLVED = 0.9
"""Accuracy from which a run has learned its operation: the paper's own bar for the embeddings it
averages.
"""

CONVERGED = 0.95
"""Accuracy from which two models are compared by their norm ratios; the paper's two are at 0.99."""

DRAWS = 80
"""Times that models are drawn again: two of them are the tail of a 95% interval."""

MIXTURES = ("ADD in MAX+MED+ADD", "ADD in ADD+PROD")
"""Arms in which ADD is learned beside others."""


class Measures(Transitions):
    """The runs of the study by arm; what is measured once is kept."""

    def __init__(self, runs: Runs, size: str) -> None:
        super().__init__(runs)
        self.size = size
        self.layout = cache(self._layout)
        self.layouts_again = cache(self._layouts_again)
        self.pairs = cache(self._pairs)
        self.residues = cache(self._residues)

    def triplets(self, arm: str, width: int | None = None, init: str = "normal") -> list[Run]:
        """Finished runs of an arm on triplets, at the widest width where none is named.

        Raises:
            DataError: the size has none.
        """
        name = f"triplets {arm}"
        found = self.runs.finished(arm=name, width=width or self.widest(arm), init=init)
        if not found:
            raise DataError(f"the study has no finished run of {arm} on triplets at this size")
        return found

    def widths(self, arm: str) -> list[int]:
        """Widths of an arm on triplets, the narrowest first."""
        return sorted(self.runs.values_of("width", arm=f"triplets {arm}", init="normal"))

    def widest(self, arm: str) -> int:
        """The largest width of an arm on triplets; DataError where it has none."""
        widths = self.widths(arm)
        if not widths:
            raise DataError(f"the study has no run of {arm} on triplets at this size")
        return widths[-1]

    def learned(self, arm: str, bar: float = SOLVED) -> list[Run]:
        """Runs of a nested arm, of any width, whose accuracy on ADD is at least `bar`."""
        return [
            run
            for run in self.runs.finished(arm=arm, init="normal")
            if judged_accuracy(run, "ADD") >= bar
        ]

    def _layout(self, arm: str) -> ProbeResult | None:
        """The embedding probe on the averaged similarity of the values, the first half of the
        components searched; None where no run learned.
        """
        learned = self.learned(arm)
        if not learned:
            return None
        n = learned[0].spec.task.to_dict()["n"]
        probe = PROBES["embedding"].from_dict({"components": n // 2})
        return probe.average([run.subject() for run in learned])

    def drawn_again(self, arm: str, residue: str) -> list[float]:
        """(DRAWS,) p-values of the separation by `residue` in the layout of models of the arm that
        learned, drawn again with replacement.
        """
        null = f"{residue}.separation"
        return [result.null[null].p_value for result in self.layouts_again(arm)]

    def _layouts_again(self, arm: str) -> list[ProbeResult]:
        learned, generator = self.learned(arm), rng("embeddings drawn again", 0)
        subjects = [run.subject() for run in learned]
        n = learned[0].spec.task.to_dict()["n"]
        probe = PROBES["embedding"].from_dict({"components": n // 2, "permutations": 99})
        draws = generator.integers(len(subjects), size=(DRAWS, len(subjects)))
        return [probe.average([subjects[i] for i in drawn]) for drawn in draws]

    def _residues(self, arm: str, width: int) -> list[dict[int, float]]:
        return [residue_accuracies(run) for run in self.triplets(arm, width)]

    def _pairs(self) -> list[dict[str, dict[str, float]]]:
        """For every pair of a converged mixture and a converged run of ADD alone, of three layers
        each, what `ratio_difference` says of both sublayers.
        """
        mixed, alone = (self.learned(arm, CONVERGED) for arm in THREE_LAYERS)
        found = []
        for first, second in zip(mixed, alone, strict=False):
            sums = second.spec.task.sample(200, seed=0, split="test")
            a, b = (norm_ratios(run.subject(), sums) for run in (first, second))
            found.append({kind: ratio_difference(a[kind], b[kind]) for kind in a})
        return found

    def proficiency(self, width: int) -> dict[str, float]:
        """Mean accuracy on MAX and on MED of the curriculum's runs of a width when ADD comes in."""
        found = self.runs.finished(arm="curriculum", width=width, init="normal")
        rows = [row_before(run, run.spec.task.to_dict()["ramp_start"]) for run in found]
        return {
            name: float(np.mean([row[f"test.greedy.accuracy.{name}"] for row in rows]))
            for name in ("MAX", "MED")
        }


def row_before(run: Run, step: int) -> dict[str, float]:
    """The last evaluation of a run up to `step`."""
    return [row for row in run.metrics if row["step"] <= step][-1]


def last(run: Run) -> float:
    """Accuracy at the last step on what is judged of a run on triplets."""
    return float(run.final["test.greedy.accuracy"])


def held(runs: Sequence[Run], name: str, n: int) -> Float[np.ndarray, "run evaluation"]:
    """(run, `n`) a metric at every evaluation, the last value on where a run has ended before."""
    rows = ([float(row[name]) for row in run.metrics] for run in runs)
    return np.array([row + [row[-1]] * (n - len(row)) for row in rows])


def reached(run: Run) -> float:
    """The first step at which the run is at SOLVED; infinite where it never is."""
    steps = (float(row["step"]) for row in run.metrics if row["test.greedy.accuracy"] >= SOLVED)
    return next(steps, math.inf)


def solved(accuracies: Sequence[float]) -> int:
    """How many have learned."""
    return sum(accuracy >= SOLVED for accuracy in accuracies)


def residue_accuracies(run: Run, moduli: Sequence[int] = (2, 5)) -> dict[int, float]:
    """Modulus → share of the held-out triplets whose predicted value has the right remainder.

    A model that knows the sum mod 5 and not its parity is right on half of the sums mod 10.
    """
    task = run.spec.task
    assert isinstance(task, FiniteTask)
    index = task.split(run.spec.data_seed)["test"]
    subject = run.subject(data=task.examples()[index])
    found, right = subject.logits().argmax(-1), subject.targets[:, 0]
    n = task.to_dict()["n"]
    digit = found < n  # values are the vocabulary's first tokens
    return {m: float(((found % m == right % m) & digit).float().mean()) for m in moduli}


def norm_ratios(subject: Subject, data: Batch) -> dict[str, Float[np.ndarray, " _position"]]:
    """Sublayer → (position,) ‖output‖ / ‖input‖ in the last layer, where a step or the answer
    begins: at every ``=`` and ``>``.
    """
    vocabulary = subject.task.vocabulary  # type: ignore[union-attr]
    marks = torch.tensor([vocabulary.tokens.index(mark) for mark in "=>"])
    asked = torch.isin(data.tokens, marks.to(data.tokens.device))
    if data.lengths is not None:
        asked &= torch.arange(data.tokens.shape[1]) < data.lengths[:, None]
    layer = f"blocks.{subject.n_layers - 1}"
    sublayers = {
        "attention": ("hook_attn_out", "hook_resid_pre"),
        "MLP": ("hook_mlp_out", "hook_resid_mid"),
    }
    names = [f"{layer}.{hook}" for pair in sublayers.values() for hook in pair]
    with torch.no_grad():
        _, cache_ = subject.model.run_with_cache(data.tokens, names_filter=names)
    return {
        kind: (cache_[f"{layer}.{output}"].norm(dim=-1) / cache_[f"{layer}.{given}"].norm(dim=-1))[
            asked
        ]
        .double()
        .numpy()
        for kind, (output, given) in sublayers.items()
    }


def ratio_difference(
    a: Float[np.ndarray, " first"], b: Float[np.ndarray, " second"]
) -> dict[str, float]:
    """How two samples differ, a minus b: Cohen's d with the pooled variance, Kolmogorov and
    Smirnov's distance, Wasserstein's.

    >>> a = np.array([1.0, 2.0, 3.0])
    >>> {name: round(value, 3) for name, value in ratio_difference(a + 1, a).items()}
    {'d': 1.0, 'ks': 0.333, 'wasserstein': 1.0}
    """
    from scipy import stats

    n, m = len(a), len(b)
    # scipy has no types, and its result is a tuple class made at run time
    distance = stats.ks_2samp(a, b).statistic  # pyright: ignore[reportAttributeAccessIssue]
    pooled = ((n - 1) * a.var(ddof=1) + (m - 1) * b.var(ddof=1)) / (n + m - 2)
    return {
        "d": float((a.mean() - b.mean()) / math.sqrt(pooled)),
        "ks": float(distance),
        "wasserstein": float(stats.wasserstein_distance(a, b)),
    }


def steps_in_words(steps: Sequence[float]) -> str:
    """Steps, or "never"."""
    return ", ".join(f"{step:g}" if math.isfinite(step) else "never" for step in steps)


def table_of(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Columns of a Table from its rows."""
    return {name: [row[i] for row in rows] for i, name in enumerate(columns)}
