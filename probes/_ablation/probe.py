"""The ablation probe: its settings, what it says, and when it says nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mechint.config import setting
from mechint.errors import UnknownNameError
from mechint.interventions import Site
from mechint.probe import Need, Probe, Report, performance, unmet_need
from mechint.results import Null, ProbeResult
from probes._ablation.measures import (
    KINDS,
    Ablated,
    Examples,
    components,
    most_important,
    neuron_importance,
    scores,
    with_answer,
    with_others,
)
from probes._ablation.nulls import Harm, random_neurons, rotated
from probes._ablation.views import effects_figures, effects_table, say
from probes.ties import tied

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


@dataclass(frozen=True)
class Ablation(Probe):
    """Which ablation breaks which answer: what does every output lose without a layer, head, neuron
    or direction?

    A component's activation is replaced, at all positions, by zero, by its mean over examples (at
    each position over those that have it, not over padding) or by that of another example whose
    answer is read at the same position ("resample"; examples that have no such other are left
    out); effect = accuracy and loss with the ablation minus without, every output apart. Only
    examples that have the answer count, as others have none to lose. A component is *needed* when
    its ablation raises the mean loss by at least `least` of what the model has over chance (chance
    loss − loss) and the rise differs from no effect at p ≤ 0.01, family-wise over all components
    (signs of the per-example changes drawn at random, each component on the scale of its own
    changes). Of these the one that does most harm is named, and its p-value is that of
    `largest_loss_increase`; where another does more on average, but is not told from no effect, the
    sentence says so. Beside it stands the median rise of all other components.
    A model that is often right and sure where it is wrong has a loss no better than chance: there
    harm is counted in accuracy, with the same rule (`harm_in`). Found: some component is needed, in
    a model that answers better than chance. Components that do the same harm, to 1e-4 of the
    largest, are named together, in the order of the model.

    Neurons are ranked by mean |∂loss/∂a · (a - r)|, r what replaces the activation a: their harm to
    first order. The first of them are ablated one by one and together, against random sets of the
    same size in the same layer (no verdict where it has fewer than a hundred such sets); other sets
    may do more harm. Directions are principal components of the residual stream before each block.
    `rotated_loss_increase` says whether changes of the same norm in random directions would harm as
    much: it speaks of how far an ablation leads away from what the model knows, not of whether the
    component matters.

    Cost: one forward to record; then all components that enter the residual stream at one site run
    stacked from there on. Memory: `subject.chunk` examples at a time, stacked forwards within
    `subject.memory`.
    """

    name: ClassVar[str] = "ablation"
    source: ClassVar[str] = "Nanda et al. 2023, Sec. 4; Chan et al. 2022 (resampling ablation)"
    needs: ClassVar[tuple[Need, ...]] = (Need.ANSWERS, Need.RESIDUAL)
    intervenes: ClassVar[bool] = True

    components: tuple[str, ...] = setting(
        ("attention", "head", "mlp"), "what is ablated: attention, head, mlp, direction"
    )
    mode: str = setting("mean", "what replaces an activation", choices=("zero", "mean", "resample"))
    neurons: int = setting(
        16, "neurons with the largest first-order estimates, ablated one by one and together", low=0
    )
    directions: int = setting(
        4, "principal components per block, where directions are ablated", low=1
    )
    examples: int = setting(1024, "examples, of the subject's that have the answer", low=2)
    least: float = setting(
        0.05, "least rise of the loss, as a share of the model's advantage over chance", low=0
    )
    null_examples: int = setting(64, "examples of the rotations", low=2)
    null_samples: int = setting(99, "rotations, and random sets of neurons", low=1)
    sign_flips: int = setting(999, "samples of the null of no effect", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.components:
            if kind not in KINDS:
                raise UnknownNameError.of("ablation component", kind, KINDS)

    def unmet(self, subject: Subject) -> str | None:
        if self.components or (self.neurons and not unmet_need(Need.MLP, subject)):
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
            settings={"examples": 64, "null_examples": 8, "neurons": 0},
        )
        small = {"examples": 64, "null_examples": 16, "null_samples": 9, "neurons": 4}
        return Calibration((induction,), small)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        every = with_answer(subject, subject.data)
        examples = Examples(every)
        if self.mode == "resample":
            examples = with_others(subject, every, seed)
        examples = examples.sample(self.examples, seed)
        data = examples.data
        ablated = components(subject, data, self.components, self.directions)
        ranked = self._ranked(subject, examples)
        if ranked is not None:
            importance, layer, chosen = ranked
            ablated += [Ablated(Site.neurons(layer, (neuron,))) for neuron in chosen]
        base, changed = scores(subject, examples, ablated, self.mode)
        change = (changed - base).nanmean(-2).numpy()  # (component, example, 2)
        effect = changed.nanmean(1) - base.nanmean(0)  # (component, output, 2)
        base = base.nanmean(0)  # (output, 2)
        in_nats, report = self._in_nats(subject, base, change), Report(self, subject)
        # a loss no better than chance has none to lose
        harm = in_nats if in_nats.advantage > 0 else self._in_accuracy(subject, base, change)
        how = "signs of the per-example changes drawn at random, each component on its own scale"
        for one in (in_nats,) if harm is in_nats else (in_nats, harm):
            samples = one.no_effect(self.sign_flips, seed)
            p_values = one.p_values(samples)
            first, needed = self._first(subject, one, p_values)
            scale, observed = one.scale[first[0]], one.on_own_scale[first[0]]
            null, unit = samples * scale, one.unit
            report.metric(one.metric, float(observed * scale), null=null, how=how, unit=unit)
        report.update(self._metrics(subject, ablated, base, effect, harm, first, needed))
        report.metric("examples", len(data))
        few = examples.sample(self.null_examples, seed)
        mean = effect[..., 1].nanmean(-1)
        options = {"mode": self.mode, "n": self.null_samples, "seed": seed}
        null = rotated(subject, few, ablated, mean, **options)
        report.metric(null.metric, null.mean, null=null, unit="nats")
        if ranked is not None:
            some = examples.sample(2 * self.null_examples, seed)
            null = self._neurons(subject, some, layer, chosen, importance.shape[1], seed)
            report.metric(null.metric, null.observed, null=null, unit="nats")
            report.update({"important_neurons": chosen, "neurons_layer": layer})
            report.array("neuron_importance", importance.cpu().numpy())
        outputs = [output.name for output in subject.task.outputs]
        report.table("effects", effects_table(ablated, outputs, base, effect, p_values))
        report.array("loss_change", effect[..., 1].numpy())
        report.array("accuracy_change", effect[..., 0].numpy())
        for name, figure in effects_figures(ablated, outputs, effect, self.mode).items():
            report.figure(name, figure)
        say(report, self.least)
        return report.result()

    def _ranked(self, subject: Subject, examples: Examples) -> tuple[Any, int, list[int]] | None:
        """Importance of every neuron, and the layer and numbers of the most important ones."""
        if unmet_need(Need.MLP, subject) or not self.neurons:
            return None
        importance = neuron_importance(subject, examples.data, self.mode, examples.others)
        return importance, *most_important(importance, self.neurons)

    def _neurons(
        self, subject: Subject, some: Examples, layer: int, chosen: list[int], width: int, seed: int
    ) -> Null:
        return random_neurons(
            subject,
            some,
            layer,
            chosen,
            width=width,
            mode=self.mode,
            n=self.null_samples,
            seed=seed,
        )

    def _in_nats(self, subject: Subject, base: Any, change: np.ndarray) -> Harm:
        assert subject.task is not None
        chance = np.mean([level.loss for level in subject.chance.values()])
        loss = float(base[:, 1].nanmean())
        return Harm("largest_loss_increase", "nats", change[..., 1], float(chance) - loss)

    def _in_accuracy(self, subject: Subject, base: Any, change: np.ndarray) -> Harm:
        assert subject.task is not None
        chance = np.mean([level.accuracy for level in subject.chance.values()])
        accuracy = float(base[:, 0].nanmean())
        return Harm("largest_accuracy_loss", "0–1", -change[..., 0], accuracy - float(chance))

    def _first(
        self, subject: Subject, harm: Harm, p_values: np.ndarray
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
        ablated: list[Ablated],
        base: Any,
        effect: Any,
        harm: Harm,
        first: list[int],
        needed: list[int],
    ) -> dict[str, Any]:
        assert subject.task is not None
        total = effect[..., 1].nanmean(-1).numpy()
        top, *ties = first
        more = [i for group in tied(harm.total) for i in group if harm.total[i] > harm.total[top]]
        others = np.delete(total, top)
        metrics: dict[str, Any] = {
            "loss_change": float(total[top]),
            "accuracy_change": float(effect[top, :, 0].nanmean()),
            "component": str(ablated[top]),
            "tied": [str(ablated[i]) for i in ties],
            "needed": [str(ablated[i]) for i in needed],
            "larger_not_told": [str(ablated[i]) for i in more if i not in ties],
            "harm_in": harm.unit,
            "share_of_advantage": float(harm.share[top]),
            "others_median": float(np.median(others)) if len(others) else float("nan"),
            "mode": self.mode,
            "accuracy": float(base[:, 0].nanmean()),
            "loss": float(base[:, 1].nanmean()),
            "advantage": harm.advantage,
            "found": bool(needed),
        }
        if effect.shape[1] > 1:
            metrics["breaks_by_output"] = {
                output.name: str(ablated[tied(effect[:, i, 1].numpy())[0][0]])
                for i, output in enumerate(subject.task.outputs)
            }
        return metrics


def _needed(result: ProbeResult) -> list[str]:
    """Heads without which the loss grows by more than half a nat, for the calibration."""
    columns = result.tables["effects"].columns
    return [
        name
        for name, change in zip(columns["component"], columns["loss_change"], strict=True)
        if "H" in name and change > 0.5
    ]
