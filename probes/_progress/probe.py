"""The probe of progress measures: how far a model has got in computing by waves, before its test
accuracy shows it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import Null, ProbeResult, Table
from mechint.subject import Subject
from mechint.task import rng
from probes import answers
from probes._fourier.cosines import RELABELED
from probes._fourier.spectra import KeyFrequencyRule, Spectrum
from probes._progress import drawing
from probes._progress import measures as progress_measures
from probes.answers import Cycle

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Progress(Probe):
    """How much of the loss do the key frequencies carry: restricted and excluded loss, Gini,
    weights, trigonometric share?

    L is the logits (input, class), μ their mean over all inputs (the bias of the mean logits), P
    the orthogonal projection, over the inputs, on cos w·answer and sin w·answer of the key
    frequencies, w = 2πk/n:

    - restricted loss: cross-entropy of μ + P(L − μ): the waves of the key frequencies alone;
    - excluded loss, all keys: of L − P(L − μ): everything but them; excluded loss, one key: the
      same for one frequency. With `keep_bias` false μ is left out of the restricted logits;
    - trigonometric share: share of the variance of the logits, centered over classes and inputs,
      along cos w(answer − class);
    - Gini coefficient of the amplitudes of the token embedding's Fourier components, 0 (flat) … 1
      (one component);
    - sum of squared weights.

    Key frequencies are found by the rule of the probe fourier, or given as `keys`. All losses in
    nats, float64, on the training split, the test split and all inputs (the split is the one the
    model was trained with; where it is not known, on all inputs alone). Source: Nanda et al. 2023,
    Sec. 5.1 and App. C; the published code's variants: "excluded, all keys" on the training set.

    Found where the largest cosine of a key frequency with the answers' wave exceeds what the
    classes in random order reach at any frequency, with and without the answers, at p ≤ 0.002, and
    the loss rises without the keys. Beside it stand as many frequencies drawn from the others; keys
    that were found in the same logits exceed those by choice, so they decide nothing. Cost: one
    forward over the data, the nulls included. Memory: all logits at once.
    """

    name: ClassVar[str] = "progress"
    source: ClassVar[str] = (
        "Nanda et al. 2023, Progress measures for grokking via mechanistic interpretability, Sec. 5"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.FINITE, Need.ANSWERS, Need.EMBEDDING)

    keys: tuple[int, ...] | None = setting(
        None, "key frequencies; found in the logits when none", low=1
    )
    output: str | None = setting(
        None,
        (
            "the output that is looked at; of those with a cyclic group the one with most classes "
            "when none"
        ),
    )
    keep_bias: bool = setting(True, "whether the restricted logits keep the mean logits")
    samples: int = setting(50, "random sets of frequencies in the null", low=1)
    steps: int = setting(20, "checkpoints of a run that are looked at; 0 for none", low=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys is not None and len(set(self.keys)) < len(self.keys):
            self.reject("keys", "each frequency once")

    def unmet(self, subject: Subject) -> str | None:
        cycles = answers.cycles(subject)
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
            (cycle for cycle in answers.cycles(subject) if self.output in (None, cycle.output)),
            key=lambda cycle: cycle.n,
        )

    @property
    def significance(self) -> float:
        return KeyFrequencyRule().alpha

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
            settings={"steps": 0},
            detects=lambda result: bool(keys(result)),
            half_trained=trained.half_trained,
            false_claims=trained.not_needed(keys),
        )
        return Calibration((addition,), {"samples": 9})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        cycle, report = self._cycle(subject), Report(self, subject)
        spectrum = answers.logit_spectrum(subject, cycle, KeyFrequencyRule(), seed)
        keys = spectrum.keys if self.keys is None else list(self.keys)
        measures = progress_measures.measure_progress(subject, cycle, keys, self.keep_bias)
        report.metric("key_frequencies", keys)
        report.update(measures)
        report.metric("weights.sum_of_squares", progress_measures.sum_of_squares(subject.model))
        report.update(progress_measures.embedding_gini(subject))
        self._add_nulls(report, cycle, spectrum, keys, seed)
        sentence, otherwise = drawing.sentences(report.metrics, keys, spectrum.keys)
        report.finding(
            sentence,
            question="whether the model computes by key frequencies",
            otherwise=otherwise,
            holds=bool(keys) and set(keys) <= set(spectrum.keys),
            null="largest_cosine",
            effect=measures["excluded_loss.all"] - measures["loss.all"],
            n=int(answers.answer_positions(cycle, subject.targets[:, cycle.index])[1].sum()),
        )
        report.table("losses", drawing.loss_table(measures))
        report.figure("excluded", drawing.excluded_losses(measures, keys))
        if self.steps and len(subject.series) > 1:
            report.table("steps", self._over_steps(subject, cycle, keys))
            report.figure("steps", drawing.over_steps(report.tables["steps"]))
        return report.result()

    def _add_nulls(
        self, report: Report, cycle: Cycle, spectrum: Spectrum, keys: Sequence[int], seed: int
    ) -> None:
        """The largest cosine of a key against elements in random order; the trigonometric share of
        as many other frequencies, and the loss without them, where there are enough.
        """
        others = [k for k in range(1, cycle.n // 2 + 1) if k not in keys]
        if keys and len(others) >= len(keys):
            logits, exponents, _ = progress_measures.cycle_logits(report.subject, cycle)
            generator = rng("progress null", seed)
            drawn = [
                generator.choice(others, len(keys), replace=False).tolist()
                for _ in range(self.samples)
            ]
            sampled = {
                "trigonometric_share": [
                    float(np.square(spectrum.values[np.array(some) - 1]).sum()) for some in drawn
                ],
                "excluded_loss.all": [
                    progress_measures.loss(
                        logits - progress_measures.projected(logits, exponents, cycle.n, some),
                        exponents,
                    )
                    for some in drawn
                ],
            }
            how = f"{len(keys)} frequencies drawn from those that are not key"
            for name, samples in sampled.items():
                report.nulls[name] = Null.sampled(name, report.metrics[name], samples, how)
        looked_at = [k - 1 for k in keys] or slice(None)
        largest = float(spectrum.values[looked_at].max())
        tested = replace(spectrum, observed=largest).test(
            "largest_cosine", f"{RELABELED}, of all frequencies"
        )
        report.metric("largest_cosine", largest, null=tested)

    def _over_steps(self, subject: Subject, cycle: Cycle, keys: Sequence[int]) -> Table:
        """The measures at up to `steps` checkpoints, with the key frequencies of the subject
        itself.
        """
        columns: dict[str, list[Any]] = {}
        for step, now in answers.checkpoints(subject, self.steps):
            measures = progress_measures.measure_progress(now, cycle, keys, self.keep_bias)
            gini = progress_measures.embedding_gini(now).get("embedding.gini", float("nan"))
            row = {
                "step": step,
                **{
                    name: measures[name]
                    for name in measures
                    if not isinstance(measures[name], dict)
                },
                "embedding.gini": gini,
            }
            row["weights.sum_of_squares"] = progress_measures.sum_of_squares(now.model)
            for name, value in row.items():
                columns.setdefault(name, []).append(value)
        return Table(
            columns,
            f"one row per checkpoint; key frequencies of the last: {', '.join(map(str, keys))}",
            {"step": "optimizer steps", "loss.train": "nats"},
        )
