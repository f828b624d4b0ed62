"""The ablation probe: its settings, what it says, and when it says nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import sign_flips
from mechint.errors import counted
from mechint.interventions import Site
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.probe.report import performance
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._ablation.measures import (
    NEURON_EXAMPLES,
    Examples,
    Harm,
    compare_neurons,
    neuron_importance,
    scores,
    with_answer,
    with_others,
)
from mechint.probes.ties import tied
from mechint.probes.words import listed
from mechint.subject.components import DEFAULT, list_components
from mechint.task import ACCURACY, LOSS

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


KIND = {"mlp": "MLP", "attention": "attention layer"}
"""Kind of a site → what it is called."""


@dataclass(frozen=True)
class Ablation(Probe):
    """Which ablation breaks which answer: what does every output lose without a layer, head or
    neuron?

        harm(c) = mean over examples of  loss(c ablated) − loss

    A component is replaced, at all positions, by zero, its mean, or another example's. It is needed
    where harm is at least `least` of the model's advantage over chance and above no effect: signs
    of the examples' changes drawn at random, family-wise over components. Neurons are ranked by
    |∂loss/∂a · (a − r)| and held against random sets of their layer.
    """

    name: ClassVar[str] = "ablation"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = "Nanda et al. 2023, Sec. 4; Chan et al. 2022 (resampling ablation)"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.RESIDUAL)
    lead_rank: ClassVar[int] = 50
    intervenes: ClassVar[bool] = True

    components: tuple[str, ...] | None = setting(
        None, "kinds that are ablated; when none, all that the model gives", choices=DEFAULT
    )
    mode: str = setting("mean", "what replaces an activation", choices=("zero", "mean", "resample"))
    neurons: int = setting(
        16, "neurons with the largest first-order estimates, ablated one by one and together", low=0
    )
    examples: int = setting(1024, "examples, of the subject's that have the answer", low=2)
    least: float = setting(
        0.05, "least rise of the loss, as a share of the model's advantage over chance", low=0
    )
    null_samples: int = setting(99, "random sets of neurons", low=1)
    sign_flips: int = setting(999, "samples of the null of no effect", low=1)

    def unmet(self, subject: Subject) -> str | None:
        asked = self.components is None or self.components
        if asked or (self.neurons and not unmet_need(Need.MLP, subject)):
            return None
        return "nothing is left to ablate"

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        roles = ("previous token", "induction")
        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction) | library.wrong_answers(library.addition),
            library.misses(_needed, lambda plant: [library.head(role)(plant) for role in roles]),
            "heads missed or made up",
            settings={"examples": 64, "neurons": 0},
        )
        small = {"examples": 64, "null_samples": 9, "neurons": 4}
        return Calibration((induction,), small)

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        every = with_answer(subject, subject.data)
        examples = Examples(every)
        if self.mode == "resample":
            examples = with_others(subject, every, seed)
        examples = examples.sample(self.examples, seed)
        given = list_components(subject, self.components)
        importance, layer, chosen = self._rank(subject, examples)
        ablated = [*given.sites, *(Site.neurons(layer, [one]) for one in chosen)]
        plain, changed = scores(subject, examples, ablated, self.mode)
        base, effect = plain.nanmean(0), (changed - plain).nanmean(1)  # (output, 2), (component, …)
        change = (changed - plain).nanmean(2).numpy()  # (component, example, 2)
        in_nats, harm = self._harm(subject, base, change)
        report = Report(self, subject)
        how = "the sign of every example's change drawn at random, each component on its own scale"
        for one in dict.fromkeys((in_nats.metric, harm.metric)):
            each = in_nats if one == in_nats.metric else harm
            test = sign_flips(each.changes, self.sign_flips, seed)
            first, needed = self._first(subject, each, test.p_values)
            null = test.null(each.metric, first[0], how)
            report.metric(each.metric, null.observed, null=null, unit=each.unit)
        report.update(self._metrics(subject, ablated, base, effect, harm, first, needed))
        if broken := report.metrics.get("breaks_by_output"):
            columns = {"output": [*broken], "broken by": [*broken.values()]}
            report.table("summary", columns, "the ablation that costs each output most")
        report.metric("examples", len(examples))
        if importance is not None:
            some = examples.sample(NEURON_EXAMPLES, seed)
            settings = {"mode": self.mode, "n": self.null_samples, "seed": seed}
            width = importance.shape[1]
            null = compare_neurons(subject, some, layer, chosen, width=width, **settings)
            report.metric(null.metric, null.observed, null=null, unit="nats")
            report.update({"important_neurons": chosen, "neurons_layer": layer})
            report.array("neuron_importance", importance.cpu().numpy())
        outputs = [output.name for output in subject.task.outputs]
        names = list(map(str, ablated))
        numbers = {
            "accuracy_change": effect[..., ACCURACY],
            "loss_change": effect[..., LOSS],
            "accuracy": (base + effect)[..., ACCURACY],
        }
        columns: dict[str, Any] = {"component": np.repeat(names, len(outputs)).tolist()}
        columns |= {"output": outputs * len(names)}
        columns |= {name: one.flatten().tolist() for name, one in numbers.items()}
        columns |= {"p_value": np.repeat(test.p_values, len(outputs)).tolist()}
        caption = (
            "One row per component and output: with the ablation minus without; p_value against "
            "no effect, family-wise over the components, each on its own scale, for the mean over "
            "outputs."
        )
        units = {"loss_change": "nats", "accuracy_change": "share", "accuracy": "share"}
        report.table("effects", columns, caption, units)
        gained = effect[..., LOSS].mean(-1).tolist()
        report.by_head(zip(names, gained, strict=True), "loss without it, nats more")
        report.array("loss_change", effect[..., LOSS].numpy())
        report.array("accuracy_change", effect[..., ACCURACY].numpy())
        report.figure("components", effects_figure(names, outputs, effect, self.mode))
        report.hero("components")
        self._say(report, harm, given.caveat)
        self._say_neurons(report)
        return report.result()

    def _rank(self, subject: Subject, examples: Examples) -> tuple[Any, int, list[int]]:
        """Importance of every neuron, None where none is asked for, and the layer whose
        importance is largest in sum, and numbers of its most important ones.
        """
        hooks = {f"blocks.{layer}.mlp.hook_post" for layer in range(subject.n_layers)}
        some = not hooks <= subject.hooks  # other blocks have a mixture of experts
        if unmet_need(Need.MLP, subject) or some or not self.neurons:
            return None, 0, []
        importance = neuron_importance(subject, examples.data, self.mode, examples.others)
        layer = int(importance.sum(1).argmax())
        n = min(self.neurons, importance.shape[1])
        return importance, layer, importance[layer].topk(n).indices.tolist()

    def _harm(
        self, subject: Subject, base: Tensor, change: Float[np.ndarray, "component example 2"]
    ) -> tuple[Harm, Harm]:
        """The harm in nats, and the one that decides: in accuracy where the model's loss is no
        better than chance, as of one that is sure where it is wrong.
        """
        levels = subject.chance.values()
        loss, accuracy = float(base[:, LOSS].nanmean()), float(base[:, ACCURACY].nanmean())
        chance_loss = float(np.mean([level.loss for level in levels]))
        chance = float(np.mean([level.accuracy for level in levels]))
        in_nats = Harm("largest_loss_increase", "nats", change[..., LOSS], chance_loss - loss)
        in_accuracy = Harm(
            "largest_accuracy_loss", "0–1", -change[..., ACCURACY], accuracy - chance
        )
        return in_nats, in_nats if in_nats.advantage > 0 else in_accuracy

    def _first(
        self, subject: Subject, harm: Harm, p_values: Float[np.ndarray, " component"]
    ) -> tuple[list[int], list[int]]:
        """The component that does most harm with those that do as much, of those that are needed if
        any are; and those that are needed, most harm first.
        """
        order = tied(harm.total)
        enough = (harm.share >= self.least) & (p_values <= self.significance)
        knows = harm.advantage > 0 and any(one.beats_chance for one in performance(subject))
        needed = [i for group in order for i in group if enough[i] and knows]
        if not needed:
            return order[0], []
        (group,) = (group for group in order if needed[0] in group)
        return [needed[0], *(i for i in group if i != needed[0])], needed

    def _metrics(
        self,
        subject: Subject,
        ablated: Sequence[Site],
        base: Tensor,
        effect: Tensor,
        harm: Harm,
        first: Sequence[int],
        needed: Sequence[int],
    ) -> dict[str, Any]:
        assert subject.task is not None
        total = effect[..., LOSS].nanmean(-1).numpy()
        top, *ties = first
        kind = ablated[top].kind
        alike = [i for i, one in enumerate(ablated) if one.kind == kind and i != top]
        metrics: dict[str, Any] = {
            "loss_change": float(total[top]),
            "accuracy_change": float(effect[top, :, ACCURACY].nanmean()),
            "component": str(ablated[top]),
            "tied": [str(ablated[i]) for i in ties],
            "needed": [str(ablated[i]) for i in needed],
            "harm_in": harm.unit,
            "share_of_advantage": float(harm.share[top]),
            "others_median": float(np.median(harm.total[alike])) if alike else math.nan,
            "others": KIND.get(kind, kind),
            "mode": self.mode,
            "accuracy": float(base[:, ACCURACY].nanmean()),
            "loss": float(base[:, LOSS].nanmean()),
            "advantage": harm.advantage,
            "found": bool(needed),
        }
        if effect.shape[1] > 1:
            metrics["breaks_by_output"] = {
                output.name: str(ablated[tied(effect[:, i, LOSS].numpy())[0][0]])
                for i, output in enumerate(subject.task.outputs)
            }
        return metrics

    # --- what is said -----------------------------------------------------------------------------
    def _say(self, report: Report, harm: Harm, caveat: str) -> None:
        metrics = report.metrics
        top, needed = metrics["component"], metrics["needed"]
        fall, rise = -metrics["accuracy_change"], metrics["loss_change"]
        in_nats = harm.unit == "nats"
        lost = f"the loss rises by {rise:.2g} nats" if in_nats else f"accuracy falls by {fall:.0%}"
        median = metrics["others_median"]
        report.finding(
            Claim(
                f"Without {top} {lost}.",
                no="No single ablation breaks the answer.",
                unclear="An ablation that breaks the answer cannot be told.",
                lead=f"It needs {listed(needed[:3])}.",
                caveat=caveat,
                causal=True,
            ),
            Effect(
                float(rise if in_nats else fall),
                harm.unit.replace("0–1", "of accuracy"),
                "rise of the loss without it" if in_nats else "lost without it",
                None if math.isnan(median) else median,
                f"median of the other {metrics['others']}s",
            ),
            holds=metrics["found"],
            null=harm.metric,
            least=max(self.least * harm.advantage, 0.0) - 1e-9,
            n=metrics["examples"],
        )

    def _say_neurons(self, report: Report) -> None:
        metrics = report.metrics
        if "neurons_loss_increase" not in report.nulls or not metrics["found"]:
            return
        null, layer = report.nulls["neurons_loss_increase"], metrics["neurons_layer"]
        neurons = counted(len(metrics["important_neurons"]), "neuron")
        if len(metrics["important_neurons"]) == report.arrays["neuron_importance"].shape[1]:
            report.not_asked("neurons", f"layer {layer} has no others to compare its own with")
            return
        report.finding(
            Claim(
                f"{neurons} of L{layer} MLP matter more than random ones.",
                no=f"The strongest neurons of L{layer} MLP matter no more than random ones.",
                unclear=f"Neurons of L{layer} MLP that matter cannot be told from random ones.",
                causal=True,
            ),
            Effect.of(null, "nats", "rise of the loss", "as many random ones"),
            null="neurons_loss_increase",
        )


def _needed(result: ProbeResult) -> list[str]:
    """Heads without which the loss grows by more than half a nat, for the calibration."""
    columns = result.tables["effects"].columns
    return [
        name
        for name, change in zip(columns["component"], columns["loss_change"], strict=True)
        if "H" in name and change > 0.5
    ]


# --- table and figures ----------------------------------------------------------------------------
def effects_figure(
    names: Sequence[str],
    outputs: Sequence[str],
    effect: Float[Tensor, "component output 2"],
    mode: str,
) -> Any:
    """Loss by component; accuracy by output where there are several."""
    title = f"{mode.capitalize()} ablation of components"
    if len(outputs) == 1:
        return figures.bars(
            x=names,
            series={"ablated": effect[:, 0, LOSS].tolist()},
            title=title,
            x_title="component",
            y_title="loss increase (nats)",
            caption="How much the loss grows without it: bars to the right are needed.",
            horizontal=True,
        )
    return figures.heatmap(
        effect[..., ACCURACY].T.tolist(),
        x=names,
        y=outputs,
        title=title,
        x_title="component",
        y_title="output",
        z_title="accuracy change (share)",
        diverging=True,
        limits=(-1.0, 1.0),
        caption="Which ablation breaks which output: the bluer, the more it falls.",
    )
