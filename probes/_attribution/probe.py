"""The attribution probe: what every component writes straight to the answer, what the answer loses
without it, and how well a gradient estimates that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from probes._ablation.nulls import no_effect
from probes._attribution.measures import Effects, measured
from probes._circuits.choosing import ablation_setting, paired, stand_in, variable_setting
from probes._circuits.effects import correlation
from probes._lens.readout import Readout
from probes.ties import as_much, not_told_apart, or_one_of, tied

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

UNIT = "nats of logit"
WHICH = "which head or MLP costs the score most"
INSTEAD = {"counterfactual": "the source's", "resample": "another example's"}
"""What stands in for an activation, by ablation; else its mean."""


@dataclass(frozen=True)
class Attribution(Probe):
    """Which components write the answer, what is lost without each, and does a gradient tell it?

    Score = logit of the right answer above the mean class (above the source's answer, where a
    `variable` is named). Of every component, embedding, head or MLP:

    - direct: its output at the answer · M / s, with the scale s of the final norm held fixed and M
      = (norm weights) W_U; all of them and the biases add up to the score, and `sum_error` says how
      exactly (direct logit attribution, Elhage et al. 2021). Where they do not, by more than a
      thousandth of the largest score, as where a norm follows attention or MLP (OLMo 2), it is left
      out with all that is computed from it;
    - exact: what the score loses when its activation, at every position, is replaced by its mean
      over the examples that have it (by the source's, where a variable is named);
    - first_order: (activation - replacement) · gradient of the score, the estimate of exact from
      one backward (attribution patching, Nanda 2023; Syed et al. 2023).

    `correlation` of first_order and exact over the components and `worst`, the component where they
    differ most, say what the estimate is worth; exact minus the direct part of the same replacement
    is what the component does through others. Beside the largest stand those that these examples do
    not tell from it (`not_told_apart`, `writers_not_told_apart`: mean difference over the examples
    within 3 standard errors). Null: the sign of every example's loss, the mean over the answers
    asked of it, drawn at random, the largest mean over the components. Found: p ≤ 0.01 (six
    examples cannot give it) on a model that answers most of them right.

    Examples of a generated task are drawn anew, unless the subject was given some (`with_data`).
    Cost: two forwards, one backward, and one forward per component, stacked.
    """

    name: ClassVar[str] = "attribution"
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
    intervenes: ClassVar[bool] = True

    variable: str | None = variable_setting()
    ablation: str | None = ablation_setting("replaces an activation")
    examples: int = setting(
        256, "examples; answers of examples where all are asked", low=2, high=2**20
    )
    only_correct: bool = setting(True, "only examples that the model answers correctly")
    null_samples: int = setting(999, "draws of the signs", low=1)

    def unmet(self, subject: Subject) -> str | None:
        if not all(hasattr(subject.model, part) for part in ("cfg", "W_U", "unembed", "blocks")):
            return "the model has no unembedding and blocks of TransformerLens's names"
        if getattr(subject.model.cfg, "read_layers", None) is not None:
            return "its output groups leave after different layers, so no one sum answers"
        if Readout.error(subject) > 1e-3:
            return "its logits are not its final norm and W_U on the last residual stream"
        return None

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
        assert subject.task is not None
        ablation, variable = stand_in(self, subject, self.ablation, self.variable)
        every, share = paired(subject, ablation, variable, self.examples, seed, self.only_correct)
        pairs = every[: self.examples]
        effects = measured(subject, pairs, ablation)
        report = Report(self, subject)
        inner = [i for i, site in enumerate(effects.sites) if site.layer is not None]
        exact, first = effects.exact.mean(1), effects.first_order.mean(1)
        top, *ties = _largest(exact, inner)
        near = not_told_apart(effects.exact, top, set(inner) - {top, *ties})
        worst = max(range(len(exact)), key=lambda i: float(abs(exact[i] - first[i])))
        report.metric(
            "largest_loss",
            float(exact[top]),
            null=no_effect(effects.exact[inner], self.null_samples, seed),
            how="the sign of every example's loss drawn at random, largest mean of a component",
            unit=UNIT,
        )
        names = [str(site) for site in effects.sites]
        report.update(
            {
                "score": float(effects.score.mean()),
                "component": names[top],
                "tied": [names[i] for i in ties],
                "not_told_apart": [names[i] for i in near],
                "sum_error": effects.sum_error,
                "correlation": correlation(exact, first),
                "worst": names[worst],
                "worst_exact": float(exact[worst]),
                "worst_first_order": float(first[worst]),
                "ablation": ablation,
                "variable": "none" if variable is None else variable.name,
                "examples": len(effects.score),
                "answers": len(pairs),
                "answered": share,
            }
        )
        if effects.adds_up:
            direct = effects.direct.mean(1)
            writer, *others = _largest(direct, inner)
            report.update({"writer": names[writer], "written": float(direct[writer])})
            report.metric("writers_tied", [names[i] for i in others])
            near = not_told_apart(effects.direct, writer, set(inner) - {writer, *others})
            report.metric("writers_not_told_apart", [names[i] for i in near])
        self._show(report, names, effects)
        self._say(report)
        return report.result()

    def _show(self, report: Report, names: Sequence[str], effects: Effects) -> None:
        shown = ["first_order", "exact"]
        caption = (
            "One row per component, means over examples: what the score loses when it is "
            "replaced, by the gradient and exactly."
        )
        if effects.adds_up:
            shown = ["direct", "direct_effect", *shown]
            caption = (
                "One row per component, means over examples: direct, what it writes to the score; "
                "the other three, what the score loses when it is replaced: straight to the "
                "logits, by the gradient, and exactly."
            )
        columns: dict[str, Any] = {"component": list(names)}
        columns |= {name: getattr(effects, name).mean(1).tolist() for name in shown}
        units = {name: UNIT for name in columns if name != "component"}
        report.table("components", columns, caption, units)
        report.figure(
            "estimate",
            figures.scatter(
                columns["first_order"],
                columns["exact"],
                title="Attribution patching against patching",
                x_title="first-order estimate (nats of logit)",
                y_title="exact loss of the score (nats of logit)",
                groups=[name.split()[0] for name in names],
                text=list(names),
                caption="One point per component; on the diagonal the gradient tells the effect.",
            ),
        )
        report.figure(
            "components",
            figures.bars(
                list(names),
                {name: columns[name] for name in shown if name != "direct"},
                title="What the score loses without each component",
                x_title="component",
                y_title="loss of the score (nats of logit)",
                caption="Exact and direct differ by what a component does through later ones."
                if effects.adds_up
                else "By the gradient, and exactly.",
            ),
        )

    def _say(self, report: Report) -> None:
        metrics = report.metrics
        told = f"correlate {metrics['correlation']:.2f} with the exact losses; they "
        asked, counted = "examples", f"{metrics['examples']} examples"
        if report.subject.answer == "all":
            asked, counted = "answers", f"{metrics['answers']} answers of {counted}"
        numbers = (
            f"{metrics['largest_loss']:.2f} of {metrics['score']:.2f} nats over "
            f"{counted}. {_straight(metrics)}. First-order estimates "
            f"{'' if math.isnan(metrics['correlation']) else told}are farthest off for "
            f"{metrics['worst']}, {metrics['worst_first_order']:.2f} for "
            f"{metrics['worst_exact']:.2f}"
        )
        if metrics["answered"] <= 0.5:
            report.abstain(
                f"the model answers {metrics['answered']:.0%} of {asked} drawn without selection; "
                f"replacing {metrics['component']} costs the score {numbers}",
                WHICH,
            )
            return
        instead = INSTEAD.get(metrics["ablation"], "its mean")
        report.finding(
            f"Of heads and MLPs {metrics['component']}{as_much(metrics['tied'])}"
            f"{or_one_of(metrics['not_told_apart'])}, replaced by {instead}, costs the score most: "
            f"{numbers}",
            question=WHICH,
            otherwise=f"With any one head or MLP replaced by {instead} ({metrics['component']} "
            f"at most) what the score loses is not told from chance: {numbers}",
            effect=metrics["largest_loss"],
            n=metrics["examples"],
            least_n=math.ceil(-math.log2(self.significance)),  # signs of n give no p below 2⁻ⁿ
            causal=True,
        )


def _largest(values: Float[np.ndarray, " component"], inner: Sequence[int]) -> list[int]:
    """Which of the components `inner` have the largest of `values`: several where they tie."""
    return [inner[i] for i in tied(values[list(inner)])[0]]


def _straight(metrics: Mapping[str, Any]) -> str:
    """What is written straight to the logits, or why that is not said."""
    if "writer" not in metrics:
        return (
            "What each of these writes straight to the logits is not told: the parts do not add up "
            f"to the score (off by up to {metrics['sum_error']:.2g} nats), as where a norm follows "
            "attention or MLP"
        )
    near = or_one_of(metrics["writers_not_told_apart"])
    written = f"{metrics['written']:.2f} ({metrics['writer']}{as_much(metrics['writers_tied'])}"
    written += f"{near})"
    if metrics["written"] > metrics["score"]:
        return f"Parts written straight to the logits cancel: the largest of these is {written}"
    if metrics["written"] > 0:
        return (
            f"The largest part of it that one of these writes straight to the logits is {written}"
        )
    return f"None of these writes any of it straight to the logits, at most {written}"


def strong(result: ProbeResult) -> list[str]:
    """Heads and MLPs without which the score loses more than half, for the calibration."""
    columns, whole = result.tables["components"].columns, result.metrics["score"]
    return [
        name
        for name, loss in zip(columns["component"], columns["exact"], strict=True)
        if loss > 0.5 * whole and name.startswith("L")
    ]
