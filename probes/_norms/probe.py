"""The norms probe: how much each sublayer changes its input, and whether two models differ in it.

r_attn = ‖Attn(LN₁ x)‖ / ‖x‖ and r_ffwd = ‖FFN(LN₂ x₁)‖ / ‖x₁‖, x₁ = x after attention, at every
position of every example (joint-training, App. on norm ratios). Where the norms are layer norms,
‖·‖ leaves out the mean over the coordinates, which no one reads: the same model with another mean
in its stream has the same ratios. Two models are compared at every layer that both have:
Kolmogorov–Smirnov statistic, Jensen–Shannon divergence in bits of the histograms over common bins
(its square root is a distance, and some call that the divergence), Wasserstein-1 distance, and
Cohen's d = (mean − other mean) / pooled standard deviation with a bootstrap 95% interval. Positions
of one example depend on each other, so bootstrap and permutations move whole examples.

Cost: one forward per model; alone, one forward on `null_examples` for each of `null_models`
untrained models, stacked. Memory: one chunk of activations, and two numbers per layer, position and
example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from mechint.checkpoints import load
from mechint.config import setting
from mechint.errors import DataError
from mechint.null import groupings
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.results import Null, ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from probes._norms.comparison import compare_samples
from probes._norms.drawing import comparison_table, histograms, layers_table
from probes._norms.measures import (
    last_layer,
    mean_ratios,
    ratios,
    share_with_input,
    sublayers,
    untrained_ratios,
    with_input,
)

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration


@dataclass(frozen=True)
class Norms(Probe):
    """How large is what each sublayer adds, relative to what it is given, and is that different in
    another model?

    Where what reads the stream are layer norms, lengths are without the mean over the coordinates.
    Alone, the ratios of the last layer are held against those of the same architecture with initial
    weights; with `other`, against the same examples dealt to the two models at random, in the last
    layer that both have. Each sublayer of it has its sentence, found at p ≤ 0.005.
    """

    name: ClassVar[str] = "norms"
    source: ClassVar[str] = (
        "Small Models, Smarter Learning: The Power of Joint Task Training, App. on norm ratios"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.TASK, Need.RESIDUAL, Need.ATTENTION)

    other: str | None = setting(
        None, "checkpoint or run directory of a model to compare with, on the same task"
    )
    bins: int = setting(100, "bins of the histograms for the Jensen–Shannon divergence", low=2)
    bootstrap: int = setting(1000, "samples of the interval and of the permutation null", low=199)
    null_models: int = setting(
        199, "untrained models of the null, where there is no other model", low=19
    )
    null_examples: int = setting(128, "examples that they look at, drawn at random", low=2)

    def unmet(self, subject: Subject) -> str | None:
        reason = unmet_need(Need.REINITIALIZE, subject)
        if self.other is None and reason:
            return f"{reason}; name a model to compare it with as norms.other"
        if not sublayers(subject):
            return "none of its sublayers has hooks of both its input and its output"
        return None

    @property
    def significance(self) -> float:
        return 0.005

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        doubling = Trial(
            "composition by doubling",
            library.pointer_doubling,
            library.untrained(library.pointer_doubling),
            # the written head adds one unit vector to the sum of four orthogonal ones
            lambda result, plant: abs(result.metrics["norms.L0 attention"] - 0.5),
            "error of the first layer's ratio, 1/2 by construction",
            tolerance=0.01,
            settings={"null_examples": 4},
        )
        small = {"null_models": 19, "null_examples": 16, "bootstrap": 199}
        return Calibration((doubling,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        if self.other is not None:
            other = load(self.other, task=subject.task, device=str(subject.device))
            return self.measure_pair(subject, other, seed)
        return self._alone(subject, seed)

    def _alone(self, subject: Subject, seed: int) -> ProbeResult:
        """The last layer's ratios against those of untrained models of the same architecture."""
        found = ratios(subject)
        last, found = last_layer(found), with_input(found)
        means = mean_ratios(found)
        order = rng("norms examples", seed).permutation(len(subject.data))
        some = torch.from_numpy(np.sort(order[: self.null_examples]))
        few = subject.with_data(subject.data[some.to(subject.device)])
        where = "" if len(few.data) == len(subject.data) else f" on {len(few.data)} examples"
        looked_at = ratios(few)
        observed = mean_ratios(looked_at)
        untrained = untrained_ratios(few, self.null_models, seed)
        report = Report(self, subject)
        report.update({f"norms.{name}": value for name, value in means.items()})
        for name in last:
            samples = untrained[name]
            question = f"whether the norms of {name} differ from those of initial weights"
            if not np.isfinite([observed[name], *samples]).all():
                report.abstain(f"the input of {name} is zero at every position{where}", question)
                continue
            center, spread = samples.mean(), samples.std(ddof=1) + 1e-12
            metric = f"norms.{name}.deviation"
            report.metric(
                metric,
                abs(observed[name] - center) / spread,
                null=np.abs(samples - center) / spread,
                how="the same architecture with initial weights, in standard deviations",
            )
            words = (
                f"{name}: output over input norm {observed[name]:.3g}{where}"
                f"{share_with_input(few.data, looked_at[name])}, untrained {center:.3g}"
            )
            report.finding(
                f"{words}.",
                question=question,
                otherwise=f"{words}, within what initial weights give.",
                null=metric,
                n=len(few.data),
                at_chance=True,
            )
        if found:
            report.table("layers", layers_table(means, found))
        report.figures |= histograms({"": found}, [name for name in last if name in found])
        return report.result()

    def measure_pair(self, subject: Subject, other: Subject, seed: int) -> ProbeResult:
        """`subject` beside `other`, each on its own data; differences are subject minus other.

        Raises:
            DataError: they have no sublayer in common.
        """
        a, b = with_input(ratios(subject)), with_input(ratios(other))
        statistics = {
            name: compare_samples(a[name], b[name], bins=self.bins, draws=self.bootstrap, seed=seed)
            for name in a
            if name in b
        }
        if not statistics:
            raise DataError(
                f"norms: {subject.describe()} and {other.describe()} share no sublayer "
                f"that has an input: {', '.join(a) or 'none'} and {', '.join(b) or 'none'}"
            )
        report = Report(self, subject)
        for name, row in statistics.items():
            report.update({f"norms.{name}.{key}": row[key] for key in row if key != "null"})
        last = last_layer(statistics)
        for name in last:
            row, metric = statistics[name], f"norms.{name}.size"
            report.metric(
                metric,
                abs(row["cohens_d"]),
                null=Null.sampled(
                    metric,
                    abs(row["cohens_d"]),
                    row["null"],
                    "the examples dealt to the two models at random: |Cohen's d|",
                    groupings([len(a[name]), len(b[name])]),
                ),
            )
            words = (
                f"{name}: norm ratio, subject minus other, d = {row['cohens_d']:+.2f} "
                f"[{row['d_low']:+.2f}, {row['d_high']:+.2f}], KS {row['ks']:.3f}"
            )
            report.finding(
                f"{words}.",
                question=f"whether the norms of {name} differ between the models",
                otherwise=f"{words}; no difference is shown.",
                null=metric,
                n=min(len(subject.data), len(other.data)),
                at_chance=True,
            )
        report.table("comparison", comparison_table(statistics))
        report.figures |= histograms({"subject ": a, "other ": b}, last)
        return report.result()
