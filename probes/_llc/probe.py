"""The local learning coefficient: how fast the volume of low loss around a model shrinks.

λ̂ = nβ (E[L_n(w)] − L_n(w*)), the expectation over the posterior ∝ exp(−nβ L_n(w) − γ/2 ‖w − w*‖²)
around the model's own weights w*, with β = 1 / ln n (Lau et al. 2023, Eq. 9). Regular models have
λ = d/2, models with degenerate directions less. The smaller it is, the simpler the model is at
equal loss.

Chains cannot tell a direction without curvature from one whose curvature h is small beside the
pull, nβh < γ: it adds ½ nβh / (nβh + γ) where it should add ½. So the curvature at w* is asked for
too: λ is at least half the number of directions along which the loss curves upward.

Cost: one forward and backward on a batch per chain and step, (3/2 chains + 1) · (burn_in + draws)
of them, some hundred for the size of a step and a few hundred to a few thousand for the curvature.
Memory: four copies of the weights per chain.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.errors import MechintError
from mechint.models.foreign.untouched import untouched
from mechint.probe import Probe, Report
from mechint.probe.results import EACH, Effect, Figure, Null, ProbeResult, Scope
from mechint.probes._llc.diagnostics import LOOSE, Chains
from mechint.probes._llc.sampler import (
    FLAT,
    Chain,
    Curving,
    Sampler,
    training_data,
    without_gradient,
)
from mechint.subject import Subject
from mechint.task import IGNORE

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

LEAST = 0.1
"""Share of d/2 by which a degenerate model lies below it, at least."""
POINTS = 200
"""Points of a chain that are drawn."""


@dataclass(frozen=True)
class LLC(Probe):
    r"""What is the local learning coefficient, and is it below the d/2 of a regular model?

    lambda = n beta (E[L_n(w)] - L_n(w*)) over SGLD chains w around the weights w*, held there by
    localization gamma, at inverse temperature n beta = n / ln n. Null: Student's t over chains. The
    estimate is always reported; it is unclear where chains disagree, drift, diverge, depend on the
    localization, leave a lower loss within reach, or are held down along curved directions.
    """

    name: ClassVar[str] = "llc"
    topic: ClassVar[str] = "learning and capacity"
    source: ClassVar[str] = (
        "Lau, Furman, Wang, Murfet & Wei 2023, The Local Learning Coefficient (arXiv 2308.12108), "
        "Eq. 9 and 10; Watanabe 2009"
    )

    chains: int = setting(
        6, "chains; half as many run at a quarter of the localization", low=2, high=64
    )
    draws: int = setting(1_000, "steps of a chain whose loss is used", low=8, high=1_000_000)
    burn_in: int = setting(300, "steps of a chain before that", low=0, high=1_000_000)
    batch_size: int = setting(
        512, "examples per step; all of them where there are fewer", low=1, high=1_000_000
    )
    step_size: float | None = setting(
        None,
        "ε; when none, a tenth of what the largest curvature where the chains go allows",
        low=1e-30,
        high=1e3,
    )
    localization: float = setting(
        1.0, "γ, the pull of every weight back to the model's own", low=0, high=1e12
    )
    temperature: float | None = setting(
        None, "nβ, by which the mean loss is multiplied; n / ln n when none", low=1e-6, high=1e12
    )
    tolerance: float = setting(
        0.2,
        "unreliable where the 95% interval over chains, the drift, the effect of the localization, "
        "or what descent gains is a larger share of it",
        low=0.001,
        high=1,
    )
    split: str = setting(
        "train",
        "examples of a finite task whose loss it is, all where the model's split is not known",
        choices=("train", "all"),
    )

    def unmet(self, subject: Subject) -> str | None:
        targets = subject.data.targets
        scored = targets.is_floating_point() or bool((targets != IGNORE).any())
        if len(subject.data) < 2 or not scored:
            return "its data have no targets whose loss could be taken"
        try:
            with untouched(subject.model):
                without_gradient(subject.model, subject.task, subject.data[:1], 1)
        except MechintError as error:
            return f"its loss cannot be taken example by example: {error}"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.probes._llc.calibration import calibration

        return calibration()

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        data = training_data(subject, self.split)
        n = len(data)
        temperature = n / math.log(n) if self.temperature is None else self.temperature
        sampler = Sampler(
            subject.model,
            subject.task,
            data,
            temperature=temperature,
            localization=self.localization,
            batch_size=self.batch_size,
            chunk=subject.chunk,
        )
        step_size = sampler.choose_step(seed) if self.step_size is None else self.step_size
        chains = self._chains(sampler, step_size, seed)
        report = Report(self, subject)
        report.update(
            {
                "n_parameters": sampler.n_parameters,
                "n_examples": n,
                "temperature": temperature,
                "step_size": step_size,
                "loss": float(sampler.baseline.mean()),
            }
        )
        report.units["loss"] = "nats per example"
        self._judge(report, chains, sampler, seed)
        kept = np.concatenate([chains.whole, chains.loose])[:, self.burn_in :]
        report.table(
            "chains",
            {
                "localization": [1.0] * len(chains.whole) + [LOOSE] * len(chains.loose),
                "estimate": kept.mean(1).tolist(),
            },
            "one row per chain; its estimate alone is no result where the chains disagree",
            {"localization": "share of γ"},
        )
        report.figure("chains", _figure(chains))
        return report.result()

    def _chains(self, sampler: Sampler, step_size: float, seed: int) -> Chains:
        """All chains, half as many that are held less, and descent alone."""
        few = max(2, self.chains // 2)
        kinds = [Chain(step_size)] * self.chains + [Chain(step_size, LOOSE)] * few
        kinds += [Chain(step_size, noise=0)]
        trace = sampler.temperature * sampler.sample(kinds, self.burn_in + self.draws, seed).numpy()
        return Chains(trace[: self.chains], trace[self.chains : -1], self.burn_in, trace[-1])

    def _judge(self, report: Report, chains: Chains, sampler: Sampler, seed: int) -> None:
        """Report the estimate, and whether it is reliable and below d/2."""
        parameters = sampler.n_parameters
        regular = parameters / 2
        reason = chains.doubt(self.tolerance)
        low, high = chains.interval
        report.update({"llc": chains.value, "llc_low": low, "llc_high": high})
        for name, reference, sign, how in (
            ("t_below_regular", regular, -1, "a regular model, of coefficient d/2: Student's t"),
            ("t_above_minimum", 0.0, 1, "no rise of the loss: Student's t"),
        ):
            t, p_value = chains.t_statistic(reference, sign)
            how = f"{how} over {len(chains.whole)} chains"
            report.metric(name, t, null=Null(name, t, 0.0, 1.0, p_value, how))
        report.update(
            {
                "relative_interval": chains.relative_interval,
                "fall": chains.fall,
                "drift": chains.drift,
                "pull_change": chains.pull_change,
            }
        )
        if reason is None:
            curved = sampler.curving(seed)
            report.metric("share_curved", curved.share, unit="share of directions, 0–1")
            report.metric("curvature_asymmetry", curved.asymmetry, unit="share of the largest")
            reason = _too_low(chains, curved, regular, self.tolerance)
            reason = reason or self._too_coarse(sampler, curved)
        report.metric("estimate", "unreliable" if reason else "reliable")
        if not reason:
            report.metric("llc_without_pull", chains.without_pull)
            report.metric("share_of_regular", chains.value / regular)
        used, every = report.metrics["n_examples"], len(report.subject.data)
        report.finding(
            Claim(
                "The model is degenerate: its learning coefficient is below d/2.",
                no="The learning coefficient is not clearly below d/2.",
                unclear="The local learning coefficient is unclear.",
                doubt=reason or "",
                at_chance=True,
            ),
            Effect(
                1 - chains.without_pull / regular, "of d/2", "below a regular model", 0.0, "regular"
            ),
            null=("t_below_regular", "t_above_minimum"),
            least=LEAST,
            scope=Scope(used, inputs=f"the {used:,} of {every:,} inputs of the training split")
            if used < every
            else EACH,
        )

    def _too_coarse(self, sampler: Sampler, curved: Curving) -> str | None:
        """The reason for which a direction that counts as flat may still add to the coefficient, or
        None: of what it would add without the pull, ½, it adds nβh / (nβh + γ).
        """
        unseen = sampler.temperature * FLAT * curved.largest
        added = unseen / (unseen + self.localization) if unseen else 0.0
        if added <= self.tolerance:
            return None
        return (
            f"a direction of less than {FLAT:g} of the largest curvature, {curved.largest:.3g}, "
            f"counts as flat and may add {added:.0%} of what it would without localization"
        )


def _too_low(chains: Chains, found: Curving, regular: float, tolerance: float) -> str | None:
    """The reason for which an estimate below d/2 is the pull's and not the model's, or may be, or
    None: half the number of the directions along which the loss curves upward is a bound from
    below.
    """
    curved = found.share
    if chains.without_pull >= (1 - LEAST) * regular:
        return None
    if found.asymmetry > FLAT:
        return (
            "along how many directions the loss curves upward is not known: differences of its "
            f"gradients are not symmetric, as where ReLUs switch, by {found.asymmetry:.2g} of the "
            "largest curvature"
        )
    most = max(chains.interval[1], chains.without_pull)
    if curved < 1 - LEAST and (1 - tolerance) * curved * regular <= most:
        return None
    return (
        f"the loss curves upward along {curved:.0%} of directions, so the coefficient is at least "
        f"{curved * regular:.4g}; chains rise by {chains.value:.4g} only: set a smaller "
        "localization and more draws"
    )


def _figure(chains: Chains) -> Figure:
    """Running estimates of every chain, from the first step, burn-in included."""
    steps = chains.whole.shape[1]
    at = np.unique(np.linspace(0, steps - 1, min(POINTS, steps)).round().astype(int))
    width = max(1, steps // 20)
    ones = np.convolve(np.ones(steps), np.ones(width))[:steps]  # fewer than width at the beginning
    return figures.lines(
        (at + 1).tolist(),
        {
            f"{kind} {i + 1}": (np.convolve(trace, np.ones(width))[:steps] / ones)[at]
            for kind, traces in (("chain", chains.whole), ("held less", chains.loose))
            for i, trace in enumerate(traces)
        },
        title="Rise of the loss along each chain",
        x_title="step of the chain",
        y_title="nβ (L(w) − L(w*)), running mean (nats)",
        caption=(
            f"Means over {width} steps. Where all chains are level and agree after "
            f"{chains.burn_in} steps of burn-in, their height is the local learning coefficient."
        ),
    )
