"""The ablation probe: its settings, what it says, and when it says nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import ROUNDING, sign_flips
from mechint.errors import plural
from mechint.interventions import Site
from mechint.probe import Need, Probe, Report
from mechint.probe.report import performance
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._ablation.measures import scores, with_answer, with_others
from mechint.probes._effects import SAME, Effects, heads_above
from mechint.probes.ties import tied
from mechint.probes.words import listed, named
from mechint.subject.components import DEFAULT, list_components
from mechint.task import ACCURACY, LOSS, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


KIND = {"mlp": "MLP", "attention": "attention layer"}
"""Kind of a site → what it is called."""
LOST = 0.1
"""Share of the answers that a model loses, at least, without what a verdict says that it needs."""


@dataclass(frozen=True)
class Ablation(Probe):
    """Which ablation breaks which answer: what does every output lose without a layer or head?

        harm(c) = mean over examples of  loss(c ablated) − loss

    A component is replaced, at all positions, by zero, its mean, or another example's. It is needed
    where harm is at least `least` of the model's advantage over chance and above no effect: signs
    of the examples' changes drawn at random, family-wise over components.
    """

    name: ClassVar[str] = "ablation"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = "Nanda et al. 2023, Sec. 4; Chan et al. 2022 (resampling ablation)"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.RESIDUAL)
    lead_rank: ClassVar[int] = 50
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 1

    components: tuple[str, ...] | None = setting(
        None, "kinds that are ablated; when none, all that the model gives", choices=DEFAULT
    )
    mode: str = setting("mean", "what replaces an activation", choices=("zero", "mean", "resample"))
    examples: int = setting(1024, "examples, of the subject's that have the answer", low=2)
    least: float = setting(
        0.05, "least rise of the loss, as a share of the model's advantage over chance", low=0
    )
    null_samples: int = setting(999, "draws of the signs", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components is not None and not self.components:
            self.reject("components", f"at least one of {', '.join(DEFAULT)}")

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        roles = ("previous token", "induction")
        induction = Trial(
            "induction head",
            library.induction,
            library.untrained(library.induction) | library.wrong_answers(library.addition),
            library.misses(
                heads_above(0.5), lambda plant: [library.head(role)(plant) for role in roles]
            ),
            "heads missed or made up",
            settings={"examples": 64},
        )
        return Calibration((induction,), {"examples": 64})

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # harm(c) = mean over examples of loss(c ablated) − loss, as a share of the advantage over
        # chance; p by the signs of the examples' changes, family-wise over the components
        # (Westfall & Young 1993).
        if subject.answer == "all":  # one answer of each example is asked, the last
            subject = subject.with_answer(-1)
        data, others = with_answer(subject, subject.data), None
        if self.mode == "resample":
            data, others = with_others(subject, data, seed)
        order = np.sort(rng("ablation", seed).permutation(len(data))[: self.examples])
        rows = torch.from_numpy(order).to(data.tokens.device)
        others = None if others is None else others[rows]
        given = list_components(subject, self.components)
        plain, changed = scores(subject, data[rows], others, given.sites, self.mode)
        answered = ~plain[..., LOSS].isnan().all(0)  # (output,)
        plain, changed = plain[:, answered], changed[:, :, answered]
        outputs = [subject.known_task.outputs[i].name for i in answered.nonzero().flatten()]
        base, effect = plain.nanmean(0), (changed - plain).nanmean(1)  # (output, 2), (component, …)
        report = Report(self, subject)
        how = "the sign of every example's change drawn at random, each component on its own scale"
        for metric, (unit, harm) in self._harm(subject, outputs, plain, changed).items():
            test = sign_flips(harm.moved, self.null_samples, seed)
            first, needed = self._first(subject, harm, test.p_values)
            null = test.null(metric, first[0], how)
            report.metric(metric, null.observed, null=null, unit=unit)
        report.update(self._metrics(subject, given.sites, base, effect, harm, first, needed))
        report.update({"harm_in": unit, "examples": len(rows)})
        if len(outputs) > 1:
            largest = effect[..., LOSS].T.numpy()
            broken = [named([given.sites[i] for i in tied(losses)[0]], 3) for losses in largest]
            columns: dict[str, Any] = {"output": outputs, "broken by": broken}
            report.table("summary", columns, "the ablation that costs each output most")
        names = list(map(str, given.sites))
        numbers = {
            "accuracy_change": effect[..., ACCURACY],
            "loss_change": effect[..., LOSS],
            "accuracy": (base + effect)[..., ACCURACY],
        }
        columns = {"component": np.repeat(names, len(outputs)).tolist()}
        columns |= {"output": outputs * len(names)}
        columns |= {name: values.flatten().tolist() for name, values in numbers.items()}
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
        report.figure("components", effects_figure(names, outputs, effect, self.mode))
        span = np.abs(harm.end - harm.base).max()
        knows = any(one.beats_chance for one in report.performance)
        same = SAME * bool(knows and np.nanmax(np.abs(harm.moved)) <= ROUNDING * span)
        self._say(report, metric, given.caveat, same, len(outputs))
        return report.result()

    def _harm(
        self,
        subject: Subject,
        outputs: Sequence[str],
        plain: Float[Tensor, "example output 2"],
        changed: Float[Tensor, "component example output 2"],
    ) -> dict[str, tuple[str, Effects]]:
        """Cost of each ablation by the name of the largest, with its unit, as effects toward
        chance: in nats, and last, what decides, in accuracy where the model's loss is no better
        than chance, as of one that is sure where it is wrong.
        """
        found, levels = {}, [subject.chance[name] for name in outputs]
        for name, unit, kind, sign in (
            ("largest_loss_increase", "nats", LOSS, 1),
            ("largest_accuracy_loss", "0–1", ACCURACY, -1),
        ):
            chance = np.mean([(level.accuracy, level.loss)[kind] for level in levels])
            base, after = (
                sign * measured.nanmean(-2)[..., kind].numpy() for measured in (plain, changed)
            )
            end, units = np.full(len(base), sign * chance), np.arange(len(base))
            found[name] = unit, Effects(base, end, after, units)
            if found[name][1].span[0] > 0:
                break
        return found

    def _first(
        self, subject: Subject, harm: Effects, p_values: Float[np.ndarray, " component"]
    ) -> tuple[list[int], list[int]]:
        """The component that does most harm with those that do as much, of those that are needed if
        any are; and those that are needed, most harm first.
        """
        order = tied(harm.mean(harm.moved))
        enough = (harm.share >= self.least) & (p_values <= self.significance)
        knows = harm.span[0] > 0 and any(skill.beats_chance for skill in performance(subject))
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
        harm: Effects,
        first: Sequence[int],
        needed: Sequence[int],
    ) -> dict[str, Any]:
        total, (top, *ties) = harm.mean(harm.moved), first
        shares = harm.shares()
        kind = ablated[top].kind
        alike = [i for i, site in enumerate(ablated) if site.kind == kind and i != top]
        return {
            "loss_change": float(effect[top, :, LOSS].nanmean()),
            "accuracy_change": float(effect[top, :, ACCURACY].nanmean()),
            "component": str(ablated[top]),
            "tied": [str(ablated[i]) for i in ties],
            "needed": [str(ablated[i]) for i in needed],
            "share_of_advantage": float(shares.value[top]),
            "interval": [float(shares.low[top]), float(shares.high[top])],
            "others_median": float(np.median(total[alike])) if alike else math.nan,
            "others": f"{'median of ' * (len(alike) > 1)}the other "
            + plural(KIND.get(kind, kind), len(alike)),
            "mode": self.mode,
            "accuracy": float(base[:, ACCURACY].nanmean()),
            "loss": float(base[:, LOSS].nanmean()),
            "advantage": float(harm.mean(harm.end - harm.base)[0]),
        }

    # --- what is said -----------------------------------------------------------------------------
    def _say(self, report: Report, metric: str, caveat: str, doubt: str, outputs: int) -> None:
        metrics = report.metrics
        top, needed = metrics["component"], metrics["needed"]
        if report.subject.model_description.n_heads == 1:  # then a head is its attention layer
            needed = [one for one in needed if f"{one.split('H')[0]} attention" not in needed]
        fall, rise = -metrics["accuracy_change"], metrics["loss_change"]
        unit = metrics["harm_in"]
        in_nats, own = unit == "nats", report.subject.known_task.own_choices
        mean = f" of {outputs} outputs, in the mean," * (outputs > 1)
        lost = (
            f"the loss{' of its first choice' * own}{mean} rises by {rise:.3g} nats"
            if in_nats
            else f"its first choice changes in {fall:.0%} of prompts"
            if own
            else f"accuracy{mean} falls by {100 * fall:.0f} points"
        )
        median, ties = metrics["others_median"], metrics["tied"]
        like = f"as much without {named(ties, 3)} alone" * bool(ties)
        report.finding(
            Claim(
                f"Without {top} {lost}.",
                no=f"No single ablation breaks {'its first choice' if own else 'the answer'}.",
                unclear="An ablation that breaks the answer cannot be told.",
                lead=fall < LOST  # most answers stay: then the loss is what is told
                or f"{'Its first choices need' if own else 'It needs'} "
                f"{named(needed, 3) if needed[3:] else listed(needed)}.",
                doubt=doubt,
                caveat="; ".join(filter(None, (caveat, like))),
                causal=True,
            ),
            Effect(
                float(rise if in_nats else fall),
                unit.replace("0–1", "of prompts" if own else "of accuracy"),
                "rise of the loss without it" if in_nats else "lost without it",
                None if math.isnan(median) else median,
                metrics["others"],
            ),
            holds=bool(needed),
            null=metric,
            least=max(self.least * metrics["advantage"], 0.0) - 1e-9,
            n=metrics["examples"],
            scope=report.scope(metrics["examples"]),
        )


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
