"""The probe progress: how far a model has got in computing by key frequencies, before its test
accuracy shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Num
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.groups.finite import cyclic
from mechint.groups.spectrum import Harmonics
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Null, ProbeResult
from mechint.probes import spectra
from mechint.probes.operands import embedding_rows, own_orders
from mechint.probes.spectra import MOST, PERMUTED_CLASSES, Cycle, KeyRule, Spectrum, share_of_gain
from mechint.probes.words import in_words, named
from mechint.subject import Subject
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class ProgressMeasures(Probe):
    """How much of the loss do the key frequencies carry?

    With L the logits, μ their mean over all inputs, P the projection, over the inputs, on
    cos w·answer and sin w·answer of the key frequencies, w = 2πk/n:

        restricted loss = loss of μ + P(L − μ)         excluded loss = loss of L − P(L − μ)

    and the trigonometric share of the logits' variance, the Gini coefficient of the embedding's
    Fourier amplitudes, the sum of squared weights.
    """

    name: ClassVar[str] = "progress"
    topic: ClassVar[str] = "arithmetic and groups"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking via mechanistic interpretability, Sec. "
        "5.1 and App. C"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.FINITE, Need.ANSWERS, Need.EMBEDDING)
    lead_rank: ClassVar[int] = 40
    level: ClassVar[float] = KeyRule.alpha

    keys: tuple[int, ...] | None = setting(
        None, "key frequencies; those of the run's last checkpoint when none", low=1
    )
    output: str | None = setting(
        None, "the output; of those with a cyclic group the one with most classes when none"
    )
    samples: int = setting(50, "sets of other frequencies that the keys stand beside", low=1)
    permutations: int = setting(499, "permutations of the classes in the null", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None and len(set(self.keys)) < len(self.keys):
            self.reject("keys", "each frequency once")

    def unmet(self, subject: Subject) -> str | None:
        cycles = spectra.cycles(subject)
        if not cycles:
            return "no cyclic group acts on its answers"
        if self.output is not None and self.output not in {cycle.output for cycle in cycles}:
            return (
                f"output {self.output!r} has no cyclic group (those that have: "
                f"{', '.join(cycle.output for cycle in cycles)})"
            )
        chosen = self._cycle(subject)
        wrong = [k for k in self.keys or () if k > chosen.n // 2]
        return (
            f"frequency {wrong[0]} is above n/2 = {chosen.n // 2} of output {chosen.output!r}"
            if wrong
            else None
        )

    def _cycle(self, subject: Subject) -> Cycle:
        return max(
            (cycle for cycle in spectra.cycles(subject) if self.output in (None, cycle.output)),
            key=lambda cycle: cycle.n,
        )

    @property
    def rule(self) -> KeyRule:
        """The rule by which a frequency counts as key: as in the probe fourier."""
        return KeyRule(permutations=self.permutations)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library, trained
        from mechint.planted.calibration import Calibration, Trial

        def keys(result: ProbeResult) -> list[int]:
            return result.metrics["key_frequencies"]

        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.no_waves(),
            library.misses(keys, lambda plant: plant.truth["frequencies"]),
            "frequencies missed or made up",
            detects=lambda result: bool(keys(result)),
            half_trained=trained.half_trained,
            false_claims=trained.not_needed(keys),
        )
        return Calibration((addition,), {"samples": 9})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycle, report = self._cycle(subject), Report(self, subject)
        spectrum = spectra.cycle_spectrum(subject, cycle, self.rule, seed)
        keys: Sequence[Any] = self.keys or self._last_keys(subject, cycle, spectrum, seed)
        logits = CycleLogits.of(subject, cycle)
        measures = measure_losses(logits, keys)
        report.metric("key_frequencies", list(keys))
        report.metric("frequencies", " ".join(map(str, keys)) or "none")
        report.update(measures)
        share = sum(spectrum.by_label[k] ** 2 for k in keys)
        report.metric("trigonometric_share", share)
        squares = (weight.detach().double().square().sum() for weight in subject.model.parameters())
        report.metric("weights.sum_of_squares", float(sum(squares)))
        if (order := spectra.value_tokens(subject)) is not None:
            rows = embedding_rows(subject, *own_orders(subject, order)).cpu().numpy()
            amplitudes = np.sqrt(Harmonics(cyclic(len(order))).energies(rows))
            report.metric("embedding.gini", gini(amplitudes))
        beside = self._other_sets(report, logits, spectrum, keys, seed)
        self._add_finding(report, cycle, spectrum, keys, beside, len(logits.values))
        self._draw(report, keys, beside)
        return report.result()

    def _last_keys(
        self, subject: Subject, cycle: Cycle, spectrum: Spectrum, seed: int
    ) -> Sequence[Any]:
        """The key frequencies of the last checkpoint of the subject's run, by `spectrum` where that
        is its own, that carry some of its loss.
        """
        step, last = subject.provenance["checkpoint"].get("step"), max(subject.series, default=None)
        if step is None or last is None or step == last:
            return carrying(CycleLogits.of(subject, cycle), spectrum.keys)
        last_one = subject.at_step(last)
        found = spectra.cycle_spectrum(last_one, cycle, self.rule, seed)
        return carrying(CycleLogits.of(last_one, cycle), found.keys)

    def _other_sets(
        self,
        report: Report,
        logits: CycleLogits,
        spectrum: Spectrum,
        keys: Sequence[Any],
        seed: int,
    ) -> float | None:
        """The excluded loss of as many other frequencies, mean of random sets; None where there are
        not as many. The sets are nulls of share and excluded loss, but decide nothing: keys that
        were found in these logits exceed the others by choice.
        """
        others = [k for k in spectrum.labels if k not in keys]
        if not keys or len(others) < len(keys):
            return None
        draw = rng("progress null", seed)
        sets = [draw.choice(others, len(keys), replace=False).tolist() for _ in range(self.samples)]
        samples = {
            "trigonometric_share": [
                sum(spectrum.by_label[k] ** 2 for k in chosen) for chosen in sets
            ],
            "excluded_loss.all": [
                loss(logits.values - logits.projected(chosen), logits.exponents) for chosen in sets
            ],
        }
        for name, values in samples.items():
            how = "as many other frequencies"
            report.nulls[name] = Null.sampled(name, report.metrics[name], values, how)
        return float(np.mean(samples["excluded_loss.all"]))

    def _add_finding(
        self,
        report: Report,
        cycle: Cycle,
        spectrum: Spectrum,
        keys: Sequence[Any],
        beside: float | None,
        n: int,
    ) -> None:
        metrics = report.metrics
        full, restricted, excluded = (
            metrics[f"{name}.all"] for name in ("loss", "restricted_loss", "excluded_loss")
        )
        largest = max((spectrum.by_label[k] for k in keys), default=spectrum.observed)
        tested = replace(spectrum, observed=largest).test("largest_cosine", PERMUTED_CLASSES)
        report.metric("largest_cosine", largest, null=tested)
        bare = metrics["restricted_loss_without_mean.all"]
        share = share_of_gain(full, restricted, cycle.n)
        report.metric("carried", share, unit="share of what the loss is below that of equal logits")
        some = in_words(len(keys), "frequency").capitalize()
        carry = "carries" if len(keys) == 1 else "carry"
        part = "" if share >= MOST else " part of"
        report.finding(
            Claim(
                f"{some} {carry}{part} the loss, {min(share, 1):.0%} of its gain: {named(keys)}.",
                no=f"Not all of {named(keys)} carry the loss."
                if keys
                else "No frequency stands out in the logits.",
                unclear="Key frequencies of the logits are unclear.",
                doubt="" if keys else spectrum.undecided,
                lead=share >= MOST,
                caveat=f"with the mean logits kept; {bare:.2g} nats without",
                outputs=[cycle.output],
            ),
            Effect(
                excluded - full,
                "nats",
                "loss added by excluding them",
                None if beside is None else beside - full,
                f"{len(keys)} others",
            )
            if keys  # excluding none adds nothing
            else Effect(largest, "", "largest cosine", tested.mean, "permuted classes"),
            holds=bool(keys) and set(keys) <= set(spectrum.keys) and share > 0,
            null="largest_cosine",
            n=n,
            scope=report.scope(len(report.subject.data), len(keys), len(spectrum.labels)),
        )

    def _draw(self, report: Report, keys: Sequence[Any], beside: float | None) -> None:
        """The loss without each key frequency."""
        metrics = report.metrics
        each = metrics["excluded_loss.each.all"]
        names = [*map(str, keys), "all keys", "all but the keys"]
        values = [
            *(each[k] for k in keys),
            metrics["excluded_loss.all"],
            metrics["restricted_loss.all"],
        ]
        levels = {"nothing excluded": metrics["loss.all"]}
        if beside is not None:
            levels["as many other frequencies"] = beside
        report.figure(
            "excluded",
            figures.bars(
                names,
                {"loss": np.maximum(values, 1e-12)},
                title="Loss with frequencies excluded",
                x_title="frequency excluded from the logits",
                y_title="loss (nats)",
                y_log=True,
                levels={name: max(level, 1e-12) for name, level in levels.items()},
                caption=(
                    "Excluded loss of each key frequency and of all; restricted loss, with all but "
                    "the key frequencies excluded."
                ),
            ),
        )


LEAST_RISE = 0.1
"""Rise of the loss, as a share of it, from which a frequency carries some of it."""


# --- losses ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class CycleLogits:
    """Logits in the order of the cycle and exponents of the answers, of the inputs whose answers
    lie on it; splits: "train", "test", "all" → rows.
    """

    values: Float[Tensor, "example n"]
    exponents: Int[Tensor, " example"]
    splits: dict[str, Int[Tensor, " _row"]]

    @classmethod
    def of(cls, subject: Subject, cycle: Cycle) -> CycleLogits:
        """Memory: all logits at once, in float64."""
        exponents = cycle.exponents(subject)
        on = exponents >= 0
        values = subject.logits()[on][:, cycle.columns(subject)].double()
        row = torch.cumsum(on, 0) - 1
        splits = {name: index.to(on.device) for name, index in (subject.split or {}).items()}
        chosen = {
            name: row[index[on[index]]]
            for name, index in splits.items()
            if name in ("train", "test") and bool(on[index].any())
        }
        every = torch.arange(len(values), device=on.device)
        return cls(values, exponents[on], {**chosen, "all": every})

    def projected(self, keys: Sequence[int]) -> Float[Tensor, "example n"]:
        """P(L − μ): the centered logits projected, over the inputs, on cos w·answer and sin
        w·answer of `keys`.
        """
        if not len(keys):
            return torch.zeros_like(self.values)
        n = self.values.shape[1]
        k = torch.tensor([*keys], dtype=torch.float64, device=self.values.device)
        angles = 2 * np.pi / n * torch.outer(self.exponents.double(), k)
        waves = torch.cat([angles.cos(), angles.sin()[:, 2 * k != n]], 1)  # Nyquist has no sine
        basis = torch.linalg.qr(waves - waves.mean(0))[0]
        return basis @ (basis.T @ (self.values - self.values.mean(0)))


def carrying(logits: CycleLogits, keys: Sequence[Any]) -> Sequence[Any]:
    """Those of `keys` without which alone the loss rises by `LEAST_RISE`; all, where it does for
    none.
    """
    full = loss(logits.values, logits.exponents)
    rises = {k: loss(logits.values - logits.projected([k]), logits.exponents) - full for k in keys}
    return [k for k in keys if rises[k] > LEAST_RISE * full] or keys


def measure_losses(logits: CycleLogits, keys: Sequence[int]) -> dict[str, Any]:
    """Loss, restricted loss and excluded losses (nats) on train, test and all inputs."""
    mean, within = logits.values.mean(0), logits.projected(keys)
    variants = {
        "loss": logits.values,
        "restricted_loss": within + mean,
        "excluded_loss": logits.values - within,
    }
    found: dict[str, Any] = {
        f"{name}.{split}": loss(values[rows], logits.exponents[rows])
        for name, values in variants.items()
        for split, rows in logits.splits.items()
    }
    found["restricted_loss_without_mean.all"] = loss(within, logits.exponents)
    each = {k: logits.values - logits.projected([k]) for k in keys}
    for split in [name for name in ("train", "all") if name in logits.splits]:
        rows = logits.splits[split]
        found[f"excluded_loss.each.{split}"] = {
            k: loss(values[rows], logits.exponents[rows]) for k, values in each.items()
        }
    return found


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
    weighted = 2 * (np.arange(1, n + 1) * ordered).sum() / (n * max(ordered.sum(), 1e-24))
    return float(weighted - (n + 1) / n)
