"""The patching probe: which pairs it patches, and what it says of the components."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint.config import setting
from mechint.decide import Claim, first_of
from mechint.decide.null import least_signs, sign_flips
from mechint.errors import DataError, counted
from mechint.interventions import Site
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult, Scope
from mechint.probes._effects import MOST, grid, heads_above
from mechint.probes._patching.measures import (
    KINDS,
    effects_of,
    exchanged,
    first_needed,
    left_by,
    place_of,
    with_wrong_source,
)
from mechint.probes.words import listed, mostly_wrong, portion, position_names
from mechint.subject.components import CALLED, list_components
from mechint.subject.counterfactuals import (
    answered,
    asked_answer,
    asked_of,
    choose_variable,
    draw,
)
from mechint.subject.pairs import Pairs
from mechint.task import Variable

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject


MOST_ROWS = 40
"""Rows of the figure."""
DENIES = 24
"""Pairs that it takes to deny that a component carries a variable."""


@dataclass(frozen=True)
class Patching(Probe):
    """Which layers, positions and heads carry the information that turns one answer into another?

        recovered = (LD_patched − LD_base) / (LD_source − LD_base)

    LD: logit of the source's answer above the base's, over pairs (base, source) that differ in one
    causal variable. Each component of the base run is taken from the source run; a wrong source is
    the null. Leading are heads and MLPs; one that recovers and flips half must leave at most half
    of LD_source − LD_base when held at its mean, and flip half where all else differs, too: what
    holds the answer does not. Its first-order estimate is the probe attribution's.
    """

    name: ClassVar[str] = "patching"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = "Vig et al. 2020; Meng et al. 2022 (ROME)"
    needs: ClassVar[tuple[Need, ...]] = (Need.VARIABLES, Need.ANSWERS, Need.RESIDUAL)
    lead_rank: ClassVar[int] = 60
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 1

    variable: str | None = setting(
        None, "causal variable that tells base from source; the task's first one when none"
    )
    components: tuple[str, ...] | None = setting(
        None, "kinds that are patched; when none, resid_pre, head and mlp", choices=KINDS
    )
    layers: tuple[int, ...] | None = setting(None, "blocks; all when none", low=0)
    pairs: int = setting(256, "pairs, at most", low=2)
    only_correct: bool = setting(
        True, "only pairs whose base, source and counterfactual the model answers correctly"
    )
    null_samples: int = setting(999, "draws of the signs under the null", low=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.components is not None and not self.components:
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
            library.misses(heads_above(0.5), lambda plant: [library.head("a")(plant)]),
            "heads missed or made up",
            settings={"variable": "x", "pairs": 64},
            control_settings={"only_correct": False},
        )
        # the first variable of composition stands at one position, and no two permutations differ
        # in one value alone
        suited = {"composition": {"variable": "2-hop of 0"}}
        return Calibration((addition,), {"pairs": 32, "null_samples": 199}, suited)

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # recovered = (LD_patched − LD_base) / (LD_source − LD_base), a ratio of means over pairs
        # (Meng et al. 2022). The component that leads also flips half of the answers, leaves at
        # most half of the difference at its mean, and flips half where all else differs.
        variable = choose_variable(subject.known_task, self.variable)
        heads = "head" if "blocks.0.attn.hook_z" in subject.hooks else "attention"
        default = ("resid_pre", heads, "mlp")
        every = list_components(subject, self.components, default=default, layers=self.layers)
        pairs = self._draw(subject, variable, seed)
        unselected = self._draw(subject, variable, seed + 1, only_correct=False)
        right = float(answered(subject, unselected).double().mean())
        report, unclear = Report(self, subject), f"A component that carries {carried(variable)}"
        report.update({"answered": right})
        if reason := mostly_wrong(right):
            report.unclear(f"{unclear} cannot be told.", reason)
            return report.result()
        pairs, places = self._places(subject, pairs)
        from_answer = places is not None
        # the pairs' own positions: those of a corpus with a task in it are fewer than its texts'
        at = range(pairs.base.shape[1]) if places is None else places
        components = at_positions(every.sites, at)
        effects, wrong, flipped = effects_of(subject, pairs, components, from_answer=from_answer)
        shares, flips = effects.shares(seed=seed), effects.mean(flipped)
        recovered = shares.value
        # before the embedding's block the stream carries all, so that it leads where it is alone
        written = [i for i, component in enumerate(components) if component.kind != "resid_pre"]
        inner = [i for i, component in enumerate(components) if component.resid != 0]
        among = written or inner or list(range(len(components)))
        left = left_by(subject, pairs, components, recovered, from_answer=from_answer)
        independent = self._draw(subject, variable, seed + 2, relation="independent", least=0)

        def apart(index: int) -> float:
            return exchanged(subject, independent, components[index], from_answer=from_answer)

        (top, *ties), tried = first_needed(among, recovered, flips, left, apart)
        gains = (effects.by_unit - wrong.by_unit)[among]
        test = sign_flips(gains, self.null_samples, seed)
        names = [named(component, from_answer) for component in components]
        share = "share of the logit difference"
        report.metric("recovered", float(recovered[top]), unit=share)
        how = "right and wrong source change places at random, pair by pair"
        null = test.null("above_wrong_source", among.index(top), how)
        report.metric("above_wrong_source", null.observed, null=null, unit=share)
        report.update(
            {
                "flips": float(flips[top]),
                "flips_apart": apart(top),
                "component": names[top],
                "interval": [float(shares.low[top]), float(shares.high[top])],
                "tied": [names[index] for index in ties],
                "left": tried.get(top, math.nan),
                "not_needed": [
                    names[i]
                    for i, share_left in tried.items()
                    if share_left > 1 - MOST and i != top
                ],
                "components": len(components),
                "variable": variable.name,
                "pairs": int(effects.there[top].sum()),
            }
        )
        columns: dict[str, Any] = {
            "kind": [component.kind for component in components],
            "layer": [component.layer for component in components],
            "pos": [
                _place(component.pos) if from_answer else component.pos for component in components
            ],
            "head": [component.units[0] if component.units else None for component in components],
            "pairs": effects.there.sum(-1).tolist(),
        }
        numbers = {"recovered": recovered, "low": shares.low, "high": shares.high}
        numbers |= {"flips": flips, "wrong_source": wrong.share}
        columns |= {name: values.tolist() for name, values in numbers.items()}
        caption = (
            "One row per patched component, recovered with its 95% interval; wrong_source patches "
            "in the activation of another pair's source. Where prompts end at different positions, "
            "these are counted from the answer, and shares are over the pairs that have them."
        )
        units = dict.fromkeys(numbers, share) | {"flips": "share of pairs"}
        report.table("components", columns, caption, units)
        report.by_head(zip(names, recovered, strict=True), f"recovered, {share}")
        tokens = None if from_answer else position_names(subject)
        drawn = patching_figure(components, recovered, carried(variable), tokens)
        report.figure("recovered", drawn)
        one = components[top]
        last = one.kind in ("mlp", "resid_post") and one.layer == subject.n_layers - 1
        asked = {CALLED.get(components[i].kind, components[i].kind) for i in among}
        used = pairs.n_examples
        right = f"{used:,} of the inputs that it answers right" * self.only_correct
        scope = replace(report.scope(used, inputs=right), answers=asked_of(subject, variable))
        name, rival = carried(variable), float(wrong.share[top])
        self._say(report, name, rival, sorted(asked), every.caveat, scope, last=last)
        return report.result()

    def _say(
        self,
        report: Report,
        name: str,
        wrong: float,
        asked: Sequence[str],
        caveat: str,
        scope: Scope,
        *,
        last: bool,
    ) -> None:
        """asked: the kinds among which the largest was looked for; last: whether the component is
        the last to write to the answer, which holds the answer of any right model.
        """
        metrics = report.metrics
        top, flips = metrics["component"], metrics["flips"]
        unclear = f"A component that carries {name} cannot be told."
        if math.isnan(metrics["recovered"]):
            same = "source and base have the same logit difference, of which nothing is a share"
            report.unclear(unclear, same)
            return
        strong = min(metrics["recovered"], flips) >= MOST
        needed, apart = metrics["left"] <= 1 - MOST, metrics["flips_apart"]
        holds = strong and needed and not apart < MOST
        both = f"recovers {portion(metrics['recovered'])}, flips {flips:.0%}"
        none = f"Of {listed(asked)} none alone recovers and flips half of {name}"
        report.finding(
            Claim(
                f"{top} carries {name}: patching it {both}.",
                no=first_of(
                    (not strong, f"{none}: {top} {both}."),
                    (
                        not needed,
                        f"{top} swaps {name}, but mean ablation leaves "
                        f"{portion(metrics['left'])} of it.",
                    ),
                    (apart < MOST, f"{top} swaps {name} only along with the rest of the input."),
                    (True, f"A wrong source swaps {name} at {top} as well."),
                ),
                unclear=unclear,
                doubt=first_of(
                    (
                        last and strong and math.isnan(apart),
                        f"only {top} does, which holds the answer of any right model",
                    ),
                    (
                        metrics["pairs"] < (least_signs(self.significance) if holds else DENIES),
                        f"only {counted(metrics['pairs'], 'pair')}",
                    ),
                ),
                lead=f"{top} carries {name}.",
                caveat=caveat,
                causal=True,
            ),
            Effect(
                metrics["recovered"], "of the logit difference", "recovered", wrong, "wrong source"
            ),
            holds=holds,
            null="above_wrong_source",
            n=metrics["pairs"],
            scope=scope,
        )

    # --- pairs and components ---------------------------------------------------------------------
    def _draw(
        self,
        subject: Subject,
        variable: Variable,
        seed: int,
        *,
        only_correct: bool | None = None,
        relation: str = "minimal",
        least: int = 2,
    ) -> Pairs:
        return draw(
            subject,
            variable,
            self.pairs,
            seed,
            only_correct=self.only_correct if only_correct is None else only_correct,
            relation=relation,
            answer=asked_answer(subject),
            least=min(least, self.pairs),
        )

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
        furthest = reads[min(least_signs(self.significance), len(reads)) - 1]
        return pairs, range(-furthest, 1)


def at_positions(sites: Sequence[Site], places: Sequence[int]) -> list[Site]:
    """The sites at each of `places`."""
    return [replace(site, pos=pos) for site in sites for pos in places]


# --- table and figures ----------------------------------------------------------------------------
def named(component: Site, from_answer: bool) -> str:
    """The component as text, where its position may be counted from the answer, 0 itself.

    >>> named(Site.mlp(0, 2), False), named(Site.mlp(0, 0), True), named(Site.head(1, 3, -2), True)
    ('L0 MLP @ 2', 'L0 MLP @ answer', 'L1H3 @ answer-2')
    """
    if not from_answer:
        return str(component)
    return f"{replace(component, pos=None)} @ {_place(component.pos)}"


def carried(variable: Variable) -> str:
    """The name of what a component carries: the variable's name, of prompts in a file what they
    differ in.
    """
    return "the prompts' difference" if variable.is_example else variable.name


def _place(pos: object) -> str:
    """A position counted from the answer."""
    return f"answer{pos or ''}"


def patching_figure(
    components: Sequence[Site],
    recovered: Float[np.ndarray, " component"],
    variable: str,
    names: Sequence[str] | None,
) -> Any:
    """Recovery by patching the components of largest effect, MOST_ROWS at most; `names` of the
    positions, None where they are counted from the answer.
    """
    every = [str(replace(component, pos=None)) for component in components]
    order = np.argsort(-np.abs(np.nan_to_num(recovered)), kind="stable")
    shown = list(dict.fromkeys(every[i] for i in order))[:MOST_ROWS]
    members = [i for i, component in enumerate(every) if component in shown]
    columns = [
        _place(component.pos) if names is None else names[place_of(component)]
        for component in components
    ]
    left_out = len(set(every)) - len(shown)
    return grid(
        [(every[i], columns[i]) for i in members],
        [recovered[i] for i in members],
        title=f"Patching {variable}: what each activation carries",
        x_title="position (token)" if names else "position, counted from the answer",
        y_title="component",
        z_title="logit difference recovered (0 base, 1 source)",
        caption="How much of the source's answer each activation carries into the base run: 1 "
        "all of it, 0 none" + f"; {left_out} with less are not drawn" * bool(left_out) + ".",
    )
