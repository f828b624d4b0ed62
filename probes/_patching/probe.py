"""The patching probe: which pairs it patches, and what it says of the components."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mechint.config import setting
from mechint.counterfactuals import answered, asked_answer, choose_variable, draw
from mechint.errors import DataError, UnknownNameError
from mechint.interventions import ResidSite, Site
from mechint.pairs import Pairs
from mechint.probe import Need, Probe, Report
from mechint.results import ProbeResult
from mechint.task import Variable
from probes._patching.measures import (
    DIGITS,
    KINDS,
    effects_of,
    largest_by_chance,
    spearman,
    with_wrong_source,
)
from probes._patching.removal import MOST, Left, first_needed, left_by
from probes._patching.views import components_table, left_over, named, patching_figures
from probes.positions import position_names
from probes.ties import as_much

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


@dataclass(frozen=True)
class Patching(Probe):
    """Which layers, positions and heads carry the information that turns one answer into another?

    Pairs (base, source) differ in one causal variable (where it has fixed positions, in these
    tokens alone), and so in the answer. Each component's activation in the base run is replaced by
    its activation in the source run. Recovered = (LD_patched - LD_base) / (LD_source - LD_base), LD
    = logit of the source's answer - logit of the base's, means over pairs: 0 nothing, 1 all (the
    residual stream before the first block is 1 by construction, so it is shown and not ranked). Of
    components that recover the same, to 1e-4, the first is tested and the sentence names all.
    Flips: share of pairs then answered as the source. In a patched run a component disagrees with
    all others, as it may never do otherwise, so that one that the model does without may flip every
    answer. Left: what is left of LD_source - LD_base with the component at its mean over both, in
    both runs; where another one recovers less than -0.5, the larger of that and what is left
    without both. Beside it stands attribution patching, the first-order estimate, with the rank
    correlation of the two. Null: activations of a wrong source (of another pair, with another
    answer) destroy information but carry none; what the right source recovers beyond it, with the
    sign of each pair's difference drawn at random, the largest over all components, each on its own
    scale. Found: p ≤ 0.01 (six pairs cannot give it), a component that recovers and flips at least
    half and without which at most half is left, of several the one that recovers most, and a model
    that answers most pairs, drawn without selection, correctly; information flows through an
    untrained model, too, but decides nothing there.

    Where answers are read at different positions, as of prompts of different lengths, those of the
    components are counted back from the answer ("@ answer", "@ answer-1", …), as far as seven
    pairs have them; shares are over the pairs that do, `pairs` says how many have that of the
    component named, and a wrong source is one that is read at the same position as the base.

    Cost: two forwards to record, one backward for the estimate, then all components that enter the
    residual stream at one site run stacked, from there on, and as many again for the null; four to
    eight whole forwards for each component that recovers and flips half. A Hugging Face model runs
    one forward from the component's block for each component and position, right source and wrong;
    `layers` and `components` ask for fewer. Memory: `subject.chunk` pairs at a time.
    """

    name: ClassVar[str] = "patching"
    source: ClassVar[str] = (
        "Vig et al. 2020; Meng et al. 2022 (ROME); Nanda 2023, Attribution Patching"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESIDUAL)
    intervenes: ClassVar[bool] = True

    variable: str | None = setting(
        None, "causal variable that tells base from source; the task's first one when none"
    )
    components: tuple[str, ...] = setting(
        ("resid_pre", "head", "mlp"), "what is patched: resid_pre, attention, head, mlp"
    )
    layers: tuple[int, ...] | None = setting(None, "blocks; all when none", low=0)
    pairs: int = setting(256, "pairs", low=2)
    only_correct: bool = setting(
        True, "only pairs whose base and source the model answers correctly"
    )
    null_samples: int = setting(999, "draws of the signs under the null", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        for kind in self.components:
            if kind not in KINDS:
                raise UnknownNameError.of("patching component", kind, KINDS)
        if not self.components:
            self.reject("components", f"at least one of {', '.join(KINDS)}")

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        # where no pair is answered correctly it refuses
        addition = Trial(
            "modular addition",
            library.addition,
            library.untrained(library.addition) | library.wrong_answers(library.addition),
            library.misses(_strong, lambda plant: [library.head("a")(plant)]),
            "heads missed or made up",
            settings={"variable": "x", "pairs": 64},
            control_settings={"only_correct": False},
        )
        # the first variable of composition stands at one position, and no two permutations differ
        # in one value alone
        suited = {"composition": {"variable": "2-hop of 0"}}
        return Calibration((addition,), {"pairs": 32, "null_samples": 199}, suited)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        assert subject.task is not None
        variable = choose_variable(subject.task, self.variable)
        pairs = self._draw(subject, variable, seed, only_correct=self.only_correct)
        pairs, places = self._places(subject, pairs)
        from_answer = places is not None
        components = list(self._components(subject, places))
        effects = effects_of(subject, pairs, components, from_answer=from_answer)
        recovered = effects.recovered(effects.difference)
        estimated = effects.recovered(effects.base + effects.estimate)
        inner = [
            index
            for index, component in enumerate(components)
            if component.resid != ResidSite.pre(0)
        ] or list(range(len(components)))
        flips = effects.mean(effects.flips)
        left = left_by(subject, pairs, components, recovered, from_answer=from_answer)
        (top, *ties), tried = first_needed(inner, recovered, flips, left)
        unselected = self._draw(subject, variable, seed + 1, only_correct=False)
        report = Report(self, subject)
        share = "share of the logit difference"
        report.metric("recovered", float(recovered[top]), unit=share)
        report.metric(
            "above_wrong_source",
            round(float(effects.mean(effects.gains)[top]), DIGITS),
            null=largest_by_chance(effects, inner, top, self.null_samples, seed),
            how="largest over the components when right and wrong source change places at random",
            unit=share,
        )
        report.update(
            {
                "flips": float(flips[top]),
                "component": named(components[top], from_answer),
                "tied": [named(components[index], from_answer) for index in ties],
                **_left(tried, top, [named(one, from_answer) for one in components]),
                "components": len(components),
                "attribution_spearman": spearman(recovered, estimated),
                "variable": variable.name,
                "pairs": int(effects.there[top].sum()),
                "answered": float(answered(subject, unselected).double().mean()),
            }
        )
        wrong = effects.recovered(effects.null)
        counts = effects.there.sum(-1) if from_answer else None
        report.table(
            "components",
            components_table(components, recovered, flips, estimated, wrong, counts),
        )
        for name, array in (("recovered", recovered), ("flips", flips), ("attribution", estimated)):
            report.array(name, array)
        for name, figure in patching_figures(
            components,
            recovered,
            estimated,
            variable.name,
            None if from_answer else position_names(subject),
        ).items():
            report.figure(name, figure)
        self._say(report, from_answer)
        return report.result()

    def _say(self, report: Report, from_answer: bool) -> None:
        metrics = report.metrics
        wrong = round(metrics["recovered"] - metrics["above_wrong_source"], 2) + 0.0  # no "-0%"
        counted = ", at positions counted from the answer," * from_answer
        numbers = (
            f"recovers {metrics['recovered']:.0%} of the logit difference"
            f"{as_much(metrics['tied'])} and flips {metrics['flips']:.0%} of {metrics['pairs']} "
            f"answers{left_over(metrics)}; a wrong source recovers {wrong:.0%}. Attribution "
            f"patching ranks the "
            f"{metrics['components']} components{counted} with a Spearman correlation of "
            f"{metrics['attribution_spearman']:.2f}"
        )
        name, top = metrics["variable"], metrics["component"]
        question = f"through which component the effect of {name} goes"
        if metrics["answered"] <= 0.5:
            status = report.abstain(
                f"the model answers {metrics['answered']:.0%} of pairs drawn without selection; "
                f"patching {top} {numbers}",
                question,
            )
        else:
            flips = metrics["recovered"] >= MOST and metrics["flips"] >= MOST
            most = flips and metrics["left"] <= 1 - MOST
            unlike = f"No component alone carries most of the effect of {name}: the one that"
            untold = f"What carries most of the effect of {name} is not told"
            untold += " from chance: what" * most + ": what" * (not most)
            status = report.finding(
                f"{top} carries most of the effect of {name}: patching it {numbers}",
                question=question,
                otherwise=f"{untold if flips else unlike} recovers most, {top}, {numbers}",
                holds=most,
                null="above_wrong_source",
                effect=metrics["recovered"],
                least=0.0,
                n=metrics["pairs"],
                least_n=self._least_pairs,
                causal=True,
            )
        report.metric("found", status == "yes")

    def _draw(
        self, subject: Subject, variable: Variable, seed: int, *, only_correct: bool
    ) -> Pairs:
        return draw(
            subject,
            variable,
            self.pairs,
            seed,
            only_correct=only_correct,
            relation="minimal",
            answer=asked_answer(subject),
        )

    @property
    def _least_pairs(self) -> int:
        """So many signs of the pairs' gains have a p-value as small as the significance."""
        return math.ceil(-math.log2(self.significance))

    def _places(self, subject: Subject, pairs: Pairs) -> tuple[Pairs, Sequence[int] | None]:
        """The pairs that have a wrong source, and the positions, 0 the answer's, -1 the one before
        it, that enough of them have; None where all are read at one position.

        A position of the input is another part of the prompt in each of them then, and behind the
        end of some.

        Raises:
            DataError: no two pairs are read at the same position.
        """
        if len(pairs.reads.unique()) < 2:
            return pairs, None
        drawn, pairs = len(pairs), with_wrong_source(pairs)
        if not len(pairs):
            raise DataError(
                f"{subject.describe()}: no two of {drawn} pairs are read at the same position, so "
                "none has another pair's source beside its own; ask for more pairs"
            )
        reads = pairs.reads.sort(descending=True)[0].tolist()
        furthest = reads[min(self._least_pairs, len(reads)) - 1]
        return pairs, range(-furthest, 1)

    def _components(self, subject: Subject, places: Sequence[int] | None = None) -> Iterator[Site]:
        """The sites that are patched at `places`, all positions of the input when None."""
        places = range(subject.data.tokens.shape[1]) if places is None else places
        heads = [(head,) for head in range(subject.model_description.n_heads or 0)]
        for layer in range(subject.n_layers) if self.layers is None else self.layers:
            for kind in self.components:
                if kind == "mlp" and Site.mlp(layer).hook not in subject.hooks:
                    continue
                subject.check_hook(Site.of(kind, layer).hook)
                for pos in places:
                    for units in heads if kind == "head" else [()]:
                        yield Site.of(kind, layer, pos, units)


def _left(tried: Mapping[int, Left], top: int, names: Sequence[str]) -> dict[str, Any]:
    """The metrics of what is left without the components that were tried."""
    left = tried.get(top, Left(math.nan))
    others = [names[i] for i, one in tried.items() if one.share > 1 - MOST and i != top]
    opposed = None if left.opposed is None else names[left.opposed]
    return {"left": left.share, "opposed": opposed, "not_needed": others}


def _strong(result: ProbeResult) -> list[str]:
    """Heads whose patch recovers most of the answer, for the calibration."""
    columns = result.tables["components"].columns
    names = ("kind", "head", "layer", "recovered")
    return [
        f"L{layer}H{head}"
        for kind, head, layer, share in zip(*(columns[name] for name in names), strict=True)
        if kind == "head" and share > 0.5
    ]
