"""The attribution probe: what every component writes straight to the answer, what the answer loses
without it, and how well a gradient estimates that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import ROUNDING, sign_flips
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._attribution.measures import AttributionEffects, measured
from mechint.probes._circuits.choosing import ablation_setting, paired, stand_in, variable_setting
from mechint.probes._effects import SAME, Effects
from mechint.probes._lens.probe import Readout
from mechint.probes.ties import tied
from mechint.probes.words import in_words, listed, mostly_wrong

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

UNIT = "nats of logit"


@dataclass(frozen=True)
class Attribution(Probe):
    """Which components write the answer, what is lost without each, and does a gradient tell it?

        direct = output · (norm weights) W_U / scale          (direct logit attribution)
        exact = score − score with the activation replaced     (activation patching)
        first_order = (activation − replacement) · ∂score      (attribution patching)

    score: logit of the right answer above the mean class, or above the source's answer; an
    activation is replaced by its mean, or the source's. Null: signs of the examples' losses.
    """

    name: ClassVar[str] = "attribution"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits (direct logit "
        "attribution); Nanda 2023, Attribution Patching; Syed et al. 2023, Attribution Patching "
        "Outperforms Automated Circuit Discovery"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.TASK,
        Need.ANSWERS,
        Need.RESIDUAL,
        Need.EMBEDDING,
        Need.ATTENTION,
    )
    lead_rank: ClassVar[int] = 45
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 1

    variable: str | None = variable_setting()
    ablation: str | None = ablation_setting("replaces an activation")
    examples: int = setting(
        256, "examples; answers of examples where all are asked", low=2, high=2**20
    )
    only_correct: bool = setting(True, "only examples that the model answers correctly")
    null_samples: int = setting(999, "draws of the signs", low=1)

    def unmet(self, subject: Subject) -> str | None:
        if not hasattr(subject.model, "cfg"):
            return "the biases that a wrapped module adds to its stream are not known"
        return Readout.unmet(subject)

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        def trial(name: str, plant: Any, *mlps: str) -> Trial:
            return Trial(
                name,
                plant,
                library.untrained(plant),
                library.misses(
                    strong,
                    lambda one: [
                        *("L{}H{}".format(*place) for place in one.truth["heads"].values()),
                        *mlps,
                    ],
                ),
                "heads and MLPs missed or made up",
                settings={"examples": 128},
                control_settings={"only_correct": False},
            )

        trials = (
            trial("modular addition", library.addition, "L0 MLP"),
            trial("induction head", library.induction),
        )
        settings = {"examples": 32, "null_samples": 199, "only_correct": False}
        return Calibration(trials, settings)

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        ablation, variable = stand_in(self, subject, self.ablation, self.variable)
        every, share = paired(subject, ablation, variable, seed, self.only_correct)
        report = Report(self, subject)
        report.update({"answered": share})
        if reason := mostly_wrong(share, "examples"):
            report.unclear("What carries answers that are mostly wrong is not asked.", reason)
            return report.result()
        pairs = every[: self.examples]
        effects = measured(subject, pairs, ablation)
        if np.abs(effects.exact).max() <= ROUNDING * np.abs(effects.score).max():
            report.unclear("A component that the score needs cannot be told.", SAME)
            return report.result()
        inner = [i for i, site in enumerate(effects.sites) if site.layer is not None]
        exact = effects.exact.mean(1)
        top, *ties = _largest(exact, inner)
        names = [str(site) for site in effects.sites]
        test = sign_flips(effects.exact[inner], self.null_samples, seed)
        how = "the sign of every example's loss drawn at random"
        null = test.null("largest_loss", inner.index(top), how)
        report.metric("largest_loss", null.observed, null=null, unit=UNIT)
        score, units = effects.score, np.arange(len(effects.score))
        carried = Effects(score, 0 * score, score - effects.exact[[top]], units).shares(seed=seed)
        report.update(
            {
                "score": float(effects.score.mean()),
                "component": names[top],
                "interval": [float(end[0]) for end in carried[1:]],
                "tied": [names[i] for i in ties],
                "sum_error": effects.sum_error,
                "ablation": ablation,
                "variable": "none" if variable is None else variable.name,
                "examples": len(effects.score),
                "answers": len(pairs),
            }
        )
        if effects.adds_up:
            direct = effects.direct.mean(1)
            writer, *others = _largest(direct, inner)
            report.update(
                {
                    "writer": names[writer],
                    "written": float(direct[writer]),
                    "writers_tied": [names[i] for i in others],
                }
            )
        self._show(report, names, effects)
        others = [
            exact[i] for i in inner if i != top and effects.sites[i].kind == effects.sites[top].kind
        ]
        n, right, own = len(score), every.n_examples, " with their sources" * (ablation != "mean")
        chosen = f"{n:,} inputs drawn of the {right:,} that it answers right{own}"
        if n == right:
            chosen = f"the {n:,} of {len(subject.data):,} inputs that it answers right{own}"
        chosen *= self.only_correct and right < len(subject.data)
        self._say(report, float(np.median(others)) if others else None, chosen)
        return report.result()

    def _show(self, report: Report, names: Sequence[str], effects: AttributionEffects) -> None:
        shown = ["direct", "direct_effect"] * effects.adds_up + ["first_order", "exact"]
        columns: dict[str, Any] = {"component": list(names)}
        columns |= {name: getattr(effects, name).mean(1).tolist() for name in shown}
        caption = (
            "One row per component, means over examples: direct, what it writes to the score; the "
            "others, what the score loses when it is replaced: straight to the logits, by the "
            "gradient, and exactly."
        )
        report.table("components", columns, caption, dict.fromkeys(shown, UNIT))
        report.by_head(zip(names, columns["exact"], strict=True), f"the score loses, {UNIT}")
        report.figure(
            "components",
            figures.bars(
                list(names),
                {name: columns[name] for name in shown if name != "direct"},
                title="What the score loses without each component",
                x_title="component",
                y_title="loss of the score (nats of logit)",
                total=report.metrics["score"],
                caption="Exact and direct differ by what a component does through later ones.",
            ),
        )

    def _say(self, report: Report, median: float | None, chosen: str = "") -> None:
        """Report the largest component; chosen: the inputs in words, where these are those that
        are answered right.
        """
        metrics = report.metrics
        top = metrics["component"]
        caveat = "parts written directly do not add up, as behind a norm or of several answers"
        names, share = [top, *metrics["tied"]], metrics["largest_loss"] / metrics["score"]
        some = listed(names) if len(names) <= 3 else in_words(len(names), "component")
        each = " each" * (len(names) > 1)
        own = report.subject.task is not None and report.subject.task.own_choices
        score = "the score" + " of its first choice" * own
        lost = f"{score} loses {share:.0%}{each}"
        if share > 1:
            left = metrics["score"] - metrics["largest_loss"]
            lost = f"{score} goes from {metrics['score']:.3g} to {left:.3g} nats{each}"
        report.finding(
            Claim(
                f"Without {some} {lost}.",
                no=f"No head or MLP alone is what {score} needs.",
                unclear="A component that the score needs cannot be told.",
                lead=share >= 0.5,
                caveat="" if "writer" in metrics else caveat,
                causal=True,
            ),
            Effect(
                metrics["largest_loss"],
                "nats",
                "lost",
                median,
                "median of the others of its kind",
                tuple(end * metrics["score"] for end in metrics["interval"]),
            ),
            n=metrics["examples"],
            scope=report.scope(metrics["examples"], inputs=chosen),
        )


def _largest(values: Float[np.ndarray, " component"], inner: Sequence[int]) -> list[int]:
    """Those of the components `inner` with the largest of `values`: several where they tie."""
    return [inner[i] for i in tied(values[list(inner)])[0]]


def strong(result: ProbeResult) -> list[str]:
    """Heads and MLPs without which the score loses more than half, for the calibration."""
    columns, whole = result.tables["components"].columns, result.metrics["score"]
    return [
        name
        for name, loss in zip(columns["component"], columns["exact"], strict=True)
        if loss > 0.5 * whole and name.startswith("L")
    ]
