"""What the remainders study measures on its runs; what is measured once is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache

import numpy as np
from jaxtyping import Float

from mechint.errors import DataError
from mechint.probe import run as probe
from mechint.results import ProbeResult
from mechint.studies.core.claims import Part
from mechint.studies.core.study import Runs
from mechint.subject import Subject
from mechint.training import Run

EASY = (2, 3, 5, 7)
"""The primes that the paper sees first, and that its masked control leaves out."""

GENERALIZED = 0.9
"""Held-out accuracy from which a prime counts as generalized at the end: far from chance (at most
1/2) and from what memorizing gives, and below 1 because dropout noise and weight decay move single
examples at the size of a laptop.
"""

HALFWAY = 0.5
"""Onset: the first step at which accuracy is so far from chance, 1/q, to 1. A bar on the accuracy
itself would come later for large q by arithmetic alone.
"""

SHARE = 0.4
"""What the share of main runs that show it exceeds, by its exact interval."""

FIT = 0.99
"""Training accuracy from which a prime counts as fitted."""


class Measures:
    """The study's runs, with label "arm", under its probes."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs
        self.subject = cache(self._subject)
        self.fourier = cache(self._fourier)
        self.embedding = cache(self._embedding)
        self.power = cache(self._power)

    def names(self, arm: str) -> list[str]:
        """Finished runs of an arm.

        Raises:
            DataError: there is none. TrainingError: one has failed.
        """
        names = self.trained(arm)
        if not names:
            raise DataError(f"the study has no finished run of the arm {arm!r} at this size")
        for name in names:
            assert self.runs[name] is not None  # raises where it has failed
        return names

    def trained(self, arm: str) -> list[str]:
        """The runs of an arm that are over, those that failed too; none where it was not
        trained.
        """
        return [name for name in self.runs.names(arm=arm) if self.runs.status(name) in _READABLE]

    def _subject(self, name: str) -> Subject:
        return self.runs[name].subject()

    def _fourier(self, name: str, step: int | None = None) -> ProbeResult:
        """At a kept checkpoint, or at the end."""
        orders = {"permutations": 999}  # p = 0.001
        subject = self.subject(name)
        return probe("fourier", subject if step is None else subject.at_step(step), **orders)

    def checkpoint(self, name: str, arm: str) -> int:
        """The last step of which a run has kept a checkpoint and which every run of `arm`, that it
        is compared with, has reached.
        """
        end = min(self.runs[other].step for other in self.names(arm))
        return max(step for step in self.subject(name).series if step <= end)

    def _embedding(self, name: str) -> ProbeResult:
        return probe("embedding", self.subject(name))

    def curves(self, name: str, split: str = "test") -> dict[int, tuple[list[int], list[float]]]:
        """Prime → (steps, accuracies)."""
        return curves(self.runs[name], split)

    def final(self, name: str, split: str = "test") -> dict[int, float]:
        """Prime → accuracy at the last step."""
        return {q: values[-1] for q, (_, values) in self.curves(name, split).items()}

    def generalized(self, name: str) -> list[int]:
        """The primes at GENERALIZED at the last step."""
        return [q for q, accuracy in self.final(name).items() if accuracy >= GENERALIZED]

    def onsets(self, name: str) -> dict[int, float]:
        """Prime → the first step half-way from chance to 1; infinity where it never gets there."""
        return {
            q: _first(steps, [halfway(value, q) for value in values])
            for q, (steps, values) in self.curves(name).items()
        }

    def late_onsets(self, name: str) -> dict[int, float]:
        """The same of the primes that come after the easy ones."""
        return {q: step for q, step in self.onsets(name).items() if q not in EASY}

    def late_halfway(self, name: str) -> dict[int, bool]:
        """The same primes → whether they are half-way from chance to 1 at the last step."""
        return {q: halfway(value, q) for q, value in self.final(name).items() if q not in EASY}

    def later_primes(self, name: str) -> tuple[float, float]:
        """When the later primes generalize: the first step at which one is half-way from chance to
        1, and that at which each has been at GENERALIZED; infinity where that never comes.
        """
        reached = [
            _first(steps, [value >= GENERALIZED for value in values])
            for q, (steps, values) in self.curves(name).items()
            if q not in EASY
        ]
        return min(self.late_onsets(name).values()), max(reached)

    def every_run(self, what: str, arm: str, holds: Callable[[str], bool]) -> Part:
        """A control: what every run of an arm must show."""
        flags = [holds(name) for name in self.names(arm)]
        return Part(what, all(flags), f"{sum(flags)} of {len(flags)}", len(flags))

    def all_halfway(self) -> Part:
        """The control of when the later primes are learned: in every main run each gets
        half-way.
        """
        return self.every_run(
            "every later prime half-way",
            "main",
            lambda name: all(map(math.isfinite, self.late_onsets(name).values())),
        )

    def that_learned(self) -> list[str]:
        """The main runs that have every prime at GENERALIZED at the last step."""
        return [
            name
            for name in self.names("main")
            if len(self.generalized(name)) == len(self.final(name))
        ]

    def enough_learned(self, least: int) -> Part:
        """The control of what is judged over the main runs that learned all primes."""
        learned, n = len(self.that_learned()), len(self.names("main"))
        return Part("main runs learn all", learned >= least, f"{learned} of {n}", learned)

    def addition_learned(self) -> Part:
        """The control of what is compared with addition: every run of it generalizes."""
        return self.every_run(
            "addition learned",
            "addition",
            lambda name: float(self.runs[name].final["test.accuracy"]) >= GENERALIZED,
        )

    def digits(self, name: str) -> Float[np.ndarray, "example head digit"]:
        """Attention from the answer to x0 and to x1; what they leave of 1 goes to the answer's own
        position.
        """
        return (
            self.subject(name)
            .activation("blocks.0.attn.hook_pattern", at="answer")[..., :2]
            .double()
            .cpu()
            .numpy()
        )

    def _power(self, name: str) -> tuple[list[int], Float[np.ndarray, "frequency checkpoint"]]:
        """Steps of the kept checkpoints, and the power of every frequency at each."""
        subject = self.subject(name)
        steps = sorted(subject.series)
        return steps, np.stack([neuron_power(subject.at_step(step)) for step in steps], axis=1)


_READABLE = ("finished", "stopped", "failed")


def halfway(accuracy: float, q: int) -> bool:
    """Whether the accuracy of the remainder by q is HALFWAY from chance, 1/q, to 1.

    >>> halfway(0.75, 2), halfway(0.52, 2), halfway(0.52, 43)
    (True, False, True)
    """
    return (accuracy - 1 / q) / (1 - 1 / q) >= HALFWAY


def _first(steps: Sequence[int], flags: Sequence[bool]) -> float:
    """The first step with a flag; infinity where none has."""
    flagged = (float(step) for step, flag in zip(steps, flags, strict=True) if flag)
    return next(flagged, math.inf)


def neuron_power(subject: Subject) -> Float[np.ndarray, " frequency"]:
    """Power of every frequency 1 … (p - 1)/2 of either digit in the neurons after the ReLU at the
    answer, over all p² inputs and all neurons.

    A neuron is a p by p image; frequency k has the power of all its 2-D Fourier coefficients
    (k, j) and (j, k).
    """
    neurons = subject.activation("blocks.0.mlp.hook_post", at="answer")  # (example, d_mlp)
    p = math.isqrt(len(neurons))
    images = neurons.double().cpu().numpy().reshape(p, p, -1)
    spectrum = np.abs(np.fft.fft2(images, axes=(0, 1))) ** 2  # (k, j, neuron)
    power = spectrum.sum(-1)
    half = np.arange(1, (p - 1) // 2 + 1)
    return np.sum([power[k].sum(-1) + power[:, k].sum(0) for k in (half, p - half)], axis=0)


def active_over_time(power: Float[np.ndarray, "frequency checkpoint"]) -> list[int]:
    """(checkpoint,) active frequencies by the authors' rule: every frequency is divided by its sum
    over time, and counts where it is above μ + 2σ of all frequencies and times.

    >>> active_over_time(np.array([[0.0, 9.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]]))
    [0, 1, 0, 0]
    """
    share = power / power.sum(1, keepdims=True)
    return (share > share.mean() + 2 * share.std()).sum(0).tolist()


def active_within(power: Float[np.ndarray, "frequency checkpoint"]) -> list[int]:
    """(checkpoint,) active frequencies with μ and σ over the frequencies of one checkpoint."""
    return (power > power.mean(0) + 2 * power.std(0)).sum(0).tolist()


def curves(run: Run, split: str) -> dict[int, tuple[list[int], list[float]]]:
    """Prime → (steps, accuracies) of a run on remainders."""
    steps = [int(row["step"]) for row in run.metrics]
    names = {output.name: output.n_classes for output in run.spec.task.outputs}
    return {
        q: (steps, [row[f"{split}.accuracy.{name}"] for row in run.metrics])
        for name, q in names.items()
    }


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Spearman's, infinities last of all; 0 where one of them does not vary.

    >>> round(rank_correlation([1, 2, 3], [5.0, float("inf"), 7.0]), 3)
    0.5
    """
    from scipy import stats

    if min(len(set(x)), len(set(y))) < 2:
        return 0.0
    found = stats.spearmanr(stats.rankdata(x), stats.rankdata(y))
    return float(found.statistic)  # type: ignore[attr-defined]


def in_steps(onsets: Sequence[Mapping[int, float]], lead: Sequence[int]) -> str:
    """Median onsets over runs, each prime → step: those of `lead` one by one, the first and the
    last of the rest.

    >>> in_steps([{2: 10, 3: 20, 5: 90, 7: 70}, {2: 30, 3: 40, 5: 90, 7: float("inf")}], (2, 3))
    '2 at step 20, 3 at step 30, the rest from step 90 to never (medians of 2 runs)'
    """
    medians = {q: float(np.median([first[q] for first in onsets])) for q in onsets[0]}
    rest = [step for q, step in medians.items() if q not in lead]
    words = [f"{q} at {step_or_never(medians[q])}" for q in lead if q in medians]
    words += (
        [f"the rest from {step_or_never(min(rest))} to {step_or_never(max(rest))}"] if rest else []
    )
    return f"{', '.join(words)} (medians of {len(onsets)} runs)"


def beside(words: Mapping[str, str], learned: Sequence[str]) -> str:
    """What is said of every run, those that did not learn all primes apart.

    >>> beside({"main-0": "4", "main-1": "2"}, ["main-0"])
    'main-0: 4; not judged, since not all primes are learned: main-1: 2'
    """
    rest = [name for name in words if name not in learned]
    judged, apart = (
        "; ".join(f"{name}: {words[name]}" for name in names) for names in (learned, rest)
    )
    apart = f"not judged, since not all primes are learned: {apart}" if rest else ""
    return "; ".join(filter(None, (judged, apart)))


def step_or_never(step: float) -> str:
    """A step in words, infinity as never.

    >>> step_or_never(950.0), step_or_never(math.inf)
    ('step 950', 'never')
    """
    return f"step {step:g}" if math.isfinite(step) else "never"


def listed(values: Iterable[object]) -> str:
    """Values with commas between them."""
    return ", ".join(map(str, values))
