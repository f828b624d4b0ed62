"""The heads probe: which heads and MLPs move the answer of pairs of prompts, and by what way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.decide import NEAR, Claim
from mechint.decide.null import SignFlips, least_signs, sign_flips
from mechint.errors import percent
from mechint.interventions import Site
from mechint.models.protocol import read_only_hooks
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, ProbeResult
from mechint.probes._effects import (
    ALONE,
    Curve,
    Effects,
    Shares,
    curve,
    draw_curve,
    find_sufficient,
    grid,
    judge,
    means_by,
    units_of,
)
from mechint.probes._heads.measures import MARKS, PairRuns, induction_scores
from mechint.probes.words import listed, mostly_wrong, token_texts
from mechint.subject.counterfactuals import answered, choose_variable, draw
from mechint.task import rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

CANDIDATES, MLPS = 10, 4
"""Heads and MLPs of largest effect that are held against a wrong source."""
AFFORDABLE, BEST, CHECKED = 1 << 14, 100, 0.05
"""Edited runs up to which all heads are patched exactly; else so many, and a share of the rest."""
LOOKS, INDUCTION = 0.3, 0.4
"""Mean attention to a mark from which a head attends to it, and score of an induction head."""
LEAST, LEADS = 0.01, 0.1
"""Shares of the difference from which a head or MLP counts, and may be the verdict."""
WAY = 0.5
"""Share of a component's own effect from which a way, straight or through queries, is its way."""
RANDOM_SETS, LAYERS, LARGEST = 5, 12, 8
"""Random sets of heads beside one that suffices; and layers of the picture of the stream."""
SIZES = (1, 2, 3, 4, 6, 10, 20, 50, 100)
"""Numbers of heads on the curve."""
MAX_WORDS = 15
"""Words of a headline."""
SHARE = "share of the logit difference"


@dataclass
class Component:
    """Measurements of a head or an MLP, as shares of the difference: moved, with its 95% interval;
    moved by a wrong source; p-values of either test; moved, by unit; straight to the logits;
    through the queries of heads that write there; score for induction; attention by query and mark.
    words: part of a role → the p-value of its reaching the share or the attention that the word
    takes, family-wise over the parts of all; readers: heads through whose queries it moves the
    answer, and p-values.
    """

    site: Site
    moved: float
    low: float
    high: float
    wrong: float = np.nan
    p_values: tuple[float, float] = (1.0, 1.0)
    by_unit: Float[np.ndarray, " unit"] = field(default_factory=lambda: np.zeros(0))
    direct: float = np.nan
    through: float = np.nan
    induction: float = np.nan
    marks: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, float] = field(default_factory=dict)
    readers: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """L0H1, L0 MLP."""
        return str(self.site)

    @property
    def is_direct(self) -> bool:
        """True where it writes at least half of what it moves straight to the logits."""
        return self.direct * np.sign(self.moved) >= WAY * abs(self.moved)

    def roles(self, level: float) -> dict[str, float]:
        """Every role in the field's words that the numbers carry at this level → the p-value; none
        that is part of another.
        """
        found, parts_said = dict[str, float](), list[set[str]]()
        for said, *parts in self._roles(level):
            p_value = max(
                min(self.words.get(word, 1.0) for word in part.split("|")) for part in parts
            )
            if p_value <= level and not any(set(parts) <= some for some in parts_said):
                found[said] = p_value
                parts_said.append(set(parts))
        return found

    def _roles(self, level: float) -> Iterator[tuple[str, ...]]:
        """The roles in question, the most telling first, and the parts that each needs; of parts
        with | between them one.
        """
        against, token = self.moved < 0, "the token that differs"
        kind = "a negative mover" if against else "a mover"
        yield f"is {kind}", "direct", "answer: answer"
        says = "writes the answer" if against else "writes against the other answer"
        yield f"{says}, and attends to the other", "direct", "answer: other"
        yield "is an induction head", "induction", "answer: after|changed: after"
        readers = [name for name, p_value in self.readers.items() if p_value <= level]
        if readers:
            yield f"tells {listed(readers[:3])} where to look", "through"
        yield f"reads {token}", "answer: changed"
        yield "writes straight to the logits" + " against the answer" * against, "direct"
        yield "attends to the earlier equal token", "changed: equal"
        yield f"rewrites {token}", "rewrites"


@dataclass(frozen=True)
class Heads(Probe):
    r"""Which heads and MLPs move the answers of pairs of prompts, and by what way?

    The output of each is taken from the other prompt of the pair, from the first token that differs
    on, and moves a share of the logit difference. Heads are patched one by one where that is
    affordable; else by first-order effect, with some of the rest at random. Null: signs of the
    pairs' effects, family-wise, and another pair's prompt. Sets of heads that suffice are found on
    half of the pairs and judged on the other half. Of what stands: what it attends to, what it
    writes straight to the logits, and what it moves through queries of heads that do.
    """

    name: ClassVar[str] = "heads"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Wang et al. 2022, Interpretability in the Wild; Nanda 2023, Attribution Patching"
    )
    needs: ClassVar[tuple[Need, ...]] = (
        Need.VARIABLES,
        Need.ANSWERS,
        Need.ATTENTION,
    )
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 65
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 2

    best: int | None = setting(
        None,
        f"heads that are patched exactly, by first-order effect; when none, all of them where that "
        f"takes no more than {AFFORDABLE:,} runs, else {BEST}",
        low=1,
    )
    pairs: int = setting(256, "pairs, at most", low=2)
    only_correct: bool = setting(True, "only pairs that the model answers correctly")
    null_samples: int = setting(9999, "draws of the signs under the null", low=1)

    def unmet(self, subject: Subject) -> str | None:
        task, z = subject.task, Site.of("head", 0).hook.partition(".0.")[2]
        variable = choose_variable(task, None) if task is not None else None
        if task is None or variable is None or not variable.is_example:
            return "its task states no pairs of prompts"
        if not getattr(getattr(subject.model, "config", None), "reads_back_only", True):
            return "its model reads later tokens; ask patching"
        shown = [name for name in subject.hooks if name.endswith(z)]
        if not shown or set(shown) & set(read_only_hooks(subject.model)):
            return "its model shows no outputs of its heads; ask patching or ablation"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        trial = Trial(
            "induction head on pairs of prompts",
            library.prompted_induction,
            library.untrained(library.prompted_induction),
            library.misses(
                lambda result: list(result.metrics.get("reported", ())),
                lambda plant: [library.head("induction")(plant)],
            ),
            "heads missed or made up",
            control_settings={"only_correct": False},
        )
        return Calibration((trial,), {"null_samples": 999, "only_correct": False})

    # --- measuring --------------------------------------------------------------------------------
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        # moved = Σ (difference with the head from the other prompt − base) / Σ (source − base) over
        # pairs (Wang et al. 2022): ranked, tested against no effect and a wrong source; then the
        # ways of those that stand to the answer, and sets of heads that suffice.
        variable, report = choose_variable(subject.known_task, None), Report(self, subject)

        asked: dict[str, Any] = {"relation": "minimal", "least": 2}
        every = draw(subject, variable, self.pairs, seed + 1, only_correct=False, **asked)
        right = float(answered(subject, every).double().mean())
        report.update({"answered": right, "given": int(units_of(every).max()) + 1})
        if reason := mostly_wrong(right):
            report.unclear(
                "Heads that move answers that are mostly wrong are not asked for.", reason
            )
            return report.result()
        pairs = draw(subject, variable, self.pairs, seed, only_correct=self.only_correct, **asked)
        runs = PairRuns.of(subject, pairs)
        n_units, difference = int(runs.units.max()) + 1, (runs.end - runs.base).sum() / len(pairs)
        report.update({"pairs": n_units, "difference": float(difference)})
        if n_units < least_signs(self.significance):
            report.unclear(
                "Heads that move the answer cannot be told.",
                f"{n_units} pairs, where at least {least_signs(self.significance)} are needed",
            )
            return report.result()
        ranked, exact = self._ranked(runs, seed)
        sites = [*exact, *runs.mlps]
        effects = runs.measure([[site] for site in sites])
        shares = dict(zip(sites, effects.share, strict=True))
        ranked = sorted(exact, key=lambda one: -abs(shares[one])) + [
            site for site in ranked if site not in exact
        ]
        numbers, test = self._tested(runs, sites, effects, seed)
        reported = [
            component
            for component in numbers
            if max(component.p_values) <= self.significance and abs(component.moved) >= LEAST
        ]
        self._ways(subject, runs, reported, seed)
        curves = curve(runs.measure, ranked, SIZES, slice(None))
        self._record(report, subject, runs, shares, curves, numbers)
        self._show(report, numbers)
        report.update({"reported": [component.name for component in reported]})
        self._say(report, runs, reported, numbers, test, ranked, seed)
        for component in reported:
            self._say_of(report, component)
        return report.result()

    def _ranked(self, runs: PairRuns, seed: int) -> tuple[list[Site], list[Site]]:
        """All heads, and those that are patched exactly."""
        best = self.best
        if best is None:
            every = len(runs.heads) * len(runs) <= AFFORDABLE
            best = len(runs.heads) if every else BEST
        if best >= len(runs.heads):
            return runs.heads, runs.heads
        first = runs.first_order()
        ranked = sorted(runs.heads, key=lambda one: -abs(first[one]))
        rest = rng("rest", seed).permutation(len(ranked) - best)[: int(CHECKED * len(ranked))]
        return ranked, ranked[:best] + [ranked[best + i] for i in sorted(rest.tolist())]

    def _tested(
        self, runs: PairRuns, sites: Sequence[Site], effects: Effects, seed: int
    ) -> tuple[list[Component], SignFlips]:
        """The heads and MLPs that move most, either way, each held against no effect and a wrong
        source; and the test against the latter.
        """
        by_unit, shares = effects.by_unit, effects.shares(seed=seed)
        every = sign_flips(np.concatenate([by_unit, -by_unit]), self.null_samples, seed).p_values
        order = np.argsort(-abs(shares.value), kind="stable").tolist()
        heads = [i for i in order if sites[i].kind == "head"][:CANDIDATES]
        top = sorted(heads + [i for i in order if sites[i].kind == "mlp"][:MLPS], key=order.index)
        wrong = runs.from_wrong_source([sites[i] for i in top])
        gains = (by_unit[top] - wrong.by_unit) * np.sign(shares.value[top])[:, None]
        test = sign_flips(gains, self.null_samples, seed + 1)
        p_values = every.reshape(2, -1).min(0)
        numbers = [
            Component(
                sites[i],
                float(shares.value[i]),
                float(shares.low[i]),
                float(shares.high[i]),
                float(wrong.share[k]),
                (float(p_values[i]), float(test.p_values[k])),
                by_unit[i],
            )
            for k, i in enumerate(top)
        ]
        return numbers, test

    def _ways(
        self, subject: Subject, runs: PairRuns, reported: Sequence[Component], seed: int
    ) -> None:
        """Fill in what the reported heads attend to, and the ways of all to the answer."""
        if not reported:
            return
        found, sites = induction_scores(subject, seed), [component.site for component in reported]
        # all that changes in the first block is the embedding
        early = [site for site in sites if site.layer == 0]
        rewritten = dict(zip(early, runs.at_changed_tokens(early).by_unit, strict=True))
        straight = runs.straight(sites)
        # (component, part of a role) → excess, by unit; (head, reader) → share moved, by unit
        parts, ways, scores = (dict[tuple[str, str], np.ndarray]() for _ in range(3))
        for i, component in enumerate(reported):
            sign = np.sign(component.moved)
            least = WAY * component.by_unit * sign
            if straight is not None:
                component.direct = float(straight.share[i])
                parts[component.name, "direct"] = straight.by_unit[i] * sign - least
            if component.site in rewritten:
                parts[component.name, "rewrites"] = rewritten[component.site] * sign - least
        heads = [component for component in reported if component.site.kind == "head"]
        readers = [component.site for component in heads if component.is_direct]
        for component in heads:
            at = slice(None), component.site.layer, component.site.units[0]
            sign = np.sign(component.moved)
            if found is not None:
                component.induction = float(found[at].mean())
                scores[component.name, "induction"] = found[at] - INDUCTION
            for query, marks in runs.attention.items():
                component.marks[query] = {
                    mark: float(np.nanmean(value[at])) for mark, value in marks.items()
                }
                for mark, value in marks.items():
                    parts[component.name, f"{query}: {mark}"] = (
                        means_by(runs.units, value[at]) - LOOKS
                    )
            later = [other for other in readers if (other.layer or 0) > (component.site.layer or 0)]
            if component.is_direct or not later or not runs.shows_reading:
                continue
            through = runs.through_queries(component.site, [later, *([other] for other in later)])
            component.through = float(through.share[0])
            parts[component.name, "through"] = (through.by_unit[0] - WAY * component.by_unit) * sign
            for other, values in zip(later, through.by_unit[1:], strict=True):
                ways[component.name, str(other)] = values * sign
        by_name = {component.name: component for component in reported}
        largest = dict(sorted(ways.items(), key=lambda one: -one[1].mean()))
        for place, tested, shift in (
            ("words", parts, 2),
            ("readers", largest, 2),
            ("words", scores, 3),
        ):
            if tested:
                test = sign_flips(np.stack([*tested.values()]), self.null_samples, seed + shift)
                for (name, part), p_value in zip(tested, test.p_values.tolist(), strict=True):
                    getattr(by_name[name], place)[part] = p_value

    # --- report -----------------------------------------------------------------------------------
    def _record(
        self,
        report: Report,
        subject: Subject,
        runs: PairRuns,
        shares: Mapping[Site, float],
        curves: tuple[Curve, Shares, Shares],
        tested: Sequence[Component],
    ) -> None:
        line, kept, left = curves
        patched = sum(site.kind == "head" for site in shares)
        report.update(
            {"patched": patched, "heads": len(runs.heads), "cpr": line.cpr, "cmd": line.cmd}
        )
        report.by_head(((str(site), share) for site, share in shares.items()), f"moved, {SHARE}")
        every, untested = [*runs.heads, *runs.mlps], len(runs.heads) - patched
        words = {"y_title": "layer", "annotate": False, "z_title": f"moved ({SHARE})"}
        alone = grid(
            [(f"L{site.layer}", f"H{site.units[0]}" if site.units else "MLP") for site in every],
            [shares.get(site, np.nan) for site in every],
            title="What each head and MLP moves of the answer",
            x_title="head",
            caption=f"Share of the logit difference that each alone takes along from the other "
            f"prompt of the pair.{f' {untested} empty cells are untested.' if untested else ''}",
            **words,
        )
        reads = runs.runs.reads[runs.own]
        furthest = min(int((reads - runs.first).max()), int(reads.min()))
        depth, places = subject.n_layers, range(-furthest, 1)
        layers = sorted({round(layer) for layer in np.linspace(0, depth - 1, min(depth, LAYERS))})
        cells = [(layer, place) for layer in layers for place in places]
        stream = runs.measure(
            [[Site.resid_pre(layer, tuple((reads + place).tolist()))] for layer, place in cells]
        )
        names = [f"answer{place or ''}" for place in places]
        if len(reads.unique()) == 1:
            example = runs.runs.tokens[runs.own[0], reads[0] - furthest : reads[0] + 1]
            names = token_texts(subject, example.tolist())
        curve = draw_curve(
            line,
            {"kept by them alone": kept, "left without them": left},
            title="The largest heads together",
            x_title="heads, largest effect first",
            y_title="logit difference (share)",
            markers=True,
            caption="All other heads are taken from the other prompt, or these are; with 95% "
            f"intervals over the pairs. CPR {line.cpr:.3f}, CMD {line.cmd:.3f}.",
        )
        top = sorted(tested, key=lambda one: -abs(one.moved))[:LARGEST]
        roles = (next(iter(component.roles(self.significance)), "") for component in top)
        largest = figures.bars(
            [
                f"{role.removeprefix('is a ')} {component.name}"
                for component, role in zip(top, roles, strict=True)
            ],
            {"": [component.moved for component in top]},
            title="Each of the largest alone",
            x_title="component and role",
            y_title=f"moved ({SHARE})",
            horizontal=True,
            caption="Share that each alone takes along from the other prompt of the pair.",
        )
        report.figure("answer", figures.beside(largest, curve) if top else curve)
        report.figure(
            "stream",
            figures.beside(
                grid(
                    [(f"L{layer}", place) for layer, place in cells],
                    stream.share.tolist(),
                    x=names,
                    title="What the residual stream carries of the answer",
                    x_title="position (token)",
                    caption="Share of the logit difference that the stream before each block takes "
                    "along at each position.",
                    **words,
                ),
                alone,
            ),
        )

    def _show(self, report: Report, tested: Sequence[Component]) -> None:
        """A row per head or MLP that was held against a wrong source, whatever came of it."""
        columns: dict[str, list[Any]] = {
            "component": [component.name for component in tested],
            "moved": [component.moved for component in tested],
            "low": [component.low for component in tested],
            "high": [component.high for component in tested],
            "wrong source": [component.wrong for component in tested],
            "p": [max(component.p_values) for component in tested],
            "direct": [component.direct for component in tested],
            "through queries": [component.through for component in tested],
            "induction score": [component.induction for component in tested],
            "roles": [listed(component.roles(self.significance)) for component in tested],
        }
        units = dict.fromkeys(set(columns) - {"component", "p", "induction score", "roles"}, SHARE)
        for query, said in (("answer", "the answer"), ("changed", "the token that differs")):
            seen = [component.marks.get(query, {"": np.nan}) for component in tested]
            best = [max(marks, key=marks.__getitem__) for marks in seen]
            columns[f"from {said}, attends to"] = [MARKS.get(mark, "") for mark in best]
            columns[f"from {said}, attention"] = [max(marks.values()) for marks in seen]
        caption = (
            "One row per head or MLP that was held against another pair's prompt; shares of the "
            "logit difference with 95% intervals; p: the larger, against no "
            "effect and that prompt. Ways and attention are of those alone that reach the level."
        )
        report.table("heads", columns, caption, units)

    def _say(
        self,
        report: Report,
        runs: PairRuns,
        reported: Sequence[Component],
        numbers: Sequence[Component],
        test: SignFlips,
        ranked: Sequence[Site],
        seed: int,
    ) -> None:
        how = "own and another pair's prompt change places at random, pair by pair"
        for index, component in enumerate(numbers):
            report.metric(
                f"{component.name}.above_wrong_source",
                float(test.mean[index]),
                null=test.null(f"{component.name}.above_wrong_source", index, how),
                unit=SHARE,
            )
        units = rng("halves", seed).permutation(int(runs.units.max()) + 1)
        half = np.isin(runs.units, units[: len(units) // 2])
        search, judged = np.flatnonzero(half), np.flatnonzero(~half)
        among = [component.site for component in reported if component.site.kind == "head"]
        if not among:
            self._deny(report, runs, numbers)
            return
        found = find_sufficient(runs.measure, ranked, among, search, judged)
        (first,) = found[:1] or judge(runs.measure, ranked, [among], judged)
        others = [site for site in ranked if site not in first.sites]
        size = min(len(first.sites), len(others))
        draws = [rng("sets", seed, n).permutation(len(others))[:size] for n in range(RANDOM_SETS)]
        random = judge(
            runs.measure, ranked, [[others[i] for i in order] for order in draws], judged
        )
        rival = max(random_set.kept[0] for random_set in random)
        names = [str(site) for site in first.sites]
        enough = bool(found) and rival < ALONE
        report.update(
            {
                "suffices": names if enough else [],
                "alternatives": [[str(site) for site in some.sites] for some in found[1:]],
                "kept_by_these_alone": first.kept[0],
                "kept_without_these": first.left[0],
                "kept_by_random_heads": rival,
            }
        )
        some = listed(names) if len(names) <= 5 else f"{len(names)} heads, led by {names[0]},"
        one, one_of = len(names) == 1, f", one of {len(found)} such sets" * (len(found) > 1)
        whole = report.metrics["patched"] == report.metrics["heads"]
        doubt = (
            f"they keep {first.kept[1]:.3f} to {first.kept[2]:.3f} of the difference, at least "
            f"{ALONE} asked for; more pairs would tell"
        )
        verdict = report.finding(
            Claim(
                f"{some} alone tell{'s' * one} the prompts of a pair apart{one_of}.",
                lead=True,
                no=f"{some} alone do{'es' * one} not tell the prompts of a pair apart.",
                unclear="Whether these heads alone tell the prompts of a pair apart is unclear.",
                doubt=doubt * (not enough and first.may_hold and rival < ALONE),
                caveat="" if whole else "of those tested",
                causal=True,
            ),
            Effect(
                first.kept[0],
                "of the logit difference",
                "kept by them alone",
                first.left[0],
                "left without them",
            ),
            holds=enough,
            null=[f"{name}.above_wrong_source" for name in names],
            n=report.metrics["pairs"],
        )
        leads = [
            str(component.site)
            for component in reported
            if component.site in among and component.moved >= LEADS
        ][:3]
        if leads and verdict != "yes":
            report.lead(f"{listed(leads)} move{'s' * (len(leads) == 1)} the answer.")

    def _deny(self, report: Report, runs: PairRuns, tested: Sequence[Component]) -> None:
        """Say that no head passes, with the nearest one and what all heads move together."""
        top = next(component for component in tested if component.site.kind == "head")
        (every,) = runs.measure([runs.heads]).share.tolist()
        p_value, share = max(top.p_values), percent(top.moved)
        near = (
            f"{top.name}, the nearest, moves {share} of the difference, p = {p_value:.2g}, "
            f"{self.significance:g} asked for; more pairs would tell"
        )
        said = "No head moves more than another pair's prompt does; together they move "
        report.finding(
            Claim(
                "",
                no=f"{said}{percent(every)}.",
                unclear="Heads that move the answer cannot be told.",
                doubt=near if p_value <= NEAR and abs(top.moved) >= LEAST else "",
            ),
            Effect(
                top.moved,
                "of the logit difference",
                f"{top.name} moved",
                top.wrong,
                "another pair's prompt",
            ),
            holds=False,
            null=f"{top.name}.above_wrong_source",
            n=report.metrics["pairs"],
        )

    def _say_of(self, report: Report, one: Component) -> None:
        """One component: what it does, in the field's words where they hold, and what it moves."""
        roles = one.roles(self.significance)
        two = " and ".join([*roles][:2]) or f"moves {percent(one.moved)} of the difference"
        does = two if len(two.split()) < MAX_WORDS else next(iter(roles))
        report.finding(
            Claim(
                f"{one.name} {does}.",
                no=f"{one.name} moves no more than another pair's prompt does.",
                unclear=f"Whether {one.name} moves the answer is unclear.",
                causal=True,
            ),
            Effect(
                one.moved, "of the logit difference", "moved", one.wrong, "another pair's prompt"
            ),
            null=f"{one.name}.above_wrong_source",
            least=-1e9 if one.moved < 0 else 0.0,
            details={"p of the words": max(roles.values())} if roles else {},
            n=report.metrics["pairs"],
        )
