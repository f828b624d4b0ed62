"""The heads probe: which heads move the answer of pairs of prompts, and by what way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from jaxtyping import Float

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import SignFlips, least_signs, sign_flips
from mechint.errors import percent
from mechint.interventions import Site
from mechint.models.protocol import read_only_hooks
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Figure, ProbeResult, Table
from mechint.probes._heads.measures import (
    MARKS,
    Head,
    PairRuns,
    induction_scores,
    random_heads,
)
from mechint.probes.words import listed, mostly_wrong, token_texts
from mechint.subject.counterfactuals import answered, choose_variable, draw

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration
    from mechint.subject import Subject

CANDIDATES, LEADING = 10, 6
"""Heads that are held against a wrong source, and at most so many that lead together."""
MOST, ALONE, WITHOUT = 0.5, 0.8, 0.2
"""Shares of the difference: what a set that moves most of it moves; what heads by which the model
answers keep alone, and what is left without them."""
LOOKS, INDUCTION = 0.3, 0.4
"""Mean attention to a mark from which a head attends to it, and score of an induction head."""
WAY = 0.5
"""Share of a head's own effect from which a way, straight or through queries, is its way."""
RANDOM_SETS = 19


@dataclass
class HeadNumbers:
    """Measurements of one head, as shares of the difference: moved, with half its 95%
    interval; moved by a wrong source; p-values of either test; direct; through the queries of
    direct ones; marks (mark, attention) from the answer and from the token that differs; score for
    induction. words: part of a role → the p-value of its reaching the share or the attention that
    the word takes, family-wise over the parts of all heads; readers: heads through whose queries it
    moves the answer, and the p-value of each.
    """

    head: Head
    moved: float
    half: float
    wrong: float = np.nan
    p_values: tuple[float, float] = (1.0, 1.0)
    direct: float = 0.0
    through: float = 0.0
    marks: dict[str, tuple[str, float]] = field(default_factory=dict)
    induction: float = 0.0
    words: dict[str, float] = field(default_factory=dict)
    readers: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """L0H1."""
        return "L{}H{}".format(*self.head)

    @property
    def at(self) -> tuple[slice, int, int]:
        """Its place in numbers by pair or example, layer and head."""
        return (slice(None), *self.head)

    @property
    def is_direct(self) -> bool:
        """True where it writes at least half of what it moves straight to the logits."""
        return self.direct * np.sign(self.moved) >= WAY * abs(self.moved)

    def role(self, level: float) -> tuple[str, float]:
        """Its role in the field's words, as far as the numbers carry at this level, and the
        p-value of the words; "" where they carry none.
        """
        for said, parts in self._roles(level):
            p_value = max(self.words.get(part, 1.0) for part in parts)
            if p_value <= level:
                return said, p_value
        return "", 1.0

    def _roles(self, level: float) -> Iterator[tuple[str, list[str]]]:
        """The roles in question, the most telling first, and the parts that each needs."""
        against, changed = self.moved < 0, self.marks.get("changed", ("", 0.0))[0]
        says = "writes against the answer" if against else "writes the answer"
        kind = "negative mover" if against else "mover"
        yield f"{says} that it attends to: a {kind}", ["direct", "answer: answer"]
        says = "writes the other answer" if against else "writes against the other answer"
        yield f"{says}, which it attends to", ["direct", "answer: other"]
        says = "writes straight to the logits" + (" against the answer" * against)
        yield says, ["direct"]
        if not self.is_direct:
            readers = [name for name, p_value in self.readers.items() if p_value <= level]
            if readers:
                yield f"tells {listed(_few(readers))} where to look", ["through"]
            yield "is an induction head", ["induction", "changed: after"]
            if changed == "equal":
                yield "attends to the earlier equal token", ["changed: equal"]


@dataclass(frozen=True)
class Heads(Probe):
    r"""Which heads move the answers of pairs of prompts, and by what way?

    The output of each head is taken from the other prompt of the pair, from the first token that
    differs on, and moves a share of the logit difference. Attribution chooses the heads that are
    patched exactly and is not reported. Null: signs of the pairs' effects, family-wise over the
    heads patched, and another pair's prompt. Of the heads that stand: what they attend to, what
    they write straight to the logits, and what they move through queries of those that do.
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

    best: int = setting(100, "heads that are patched exactly, by first-order effect", low=1)
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
        assert subject.task is not None
        variable, report = choose_variable(subject.task, None), Report(self, subject)

        def drawn(only_correct: bool, seed: int) -> Any:
            wanted = {"relation": "minimal", "least": 2}
            return draw(subject, variable, self.pairs, seed, only_correct=only_correct, **wanted)

        right = float(answered(subject, drawn(False, seed + 1)).double().mean())
        report.update({"answered": right})
        if reason := mostly_wrong(right):
            asked = "Heads that move answers that are mostly wrong are not asked for."
            report.unclear(asked, reason)
            return report.result()
        runs = PairRuns.of(subject, drawn(self.only_correct, seed))
        n_units = int(runs.units.max()) + 1
        report.update({"pairs": n_units, "difference": runs.span})
        if n_units < least_signs(self.significance):
            report.unclear(
                "Heads that move the answer cannot be told.",
                f"{n_units} pairs, where at least {least_signs(self.significance)} are needed",
            )
            return report.result()
        exact = self._exact(runs)
        numbers, test = self._tested(runs, exact, seed)
        reported = [one for one in numbers if max(one.p_values) <= self.significance]
        self._ways(subject, runs, reported, seed)
        self._record(report, subject, runs, exact, reported)
        self._say(report, runs, reported, numbers, test, seed)
        return report.result()

    def _exact(self, runs: PairRuns) -> dict[Head, Float[np.ndarray, " pair"]]:
        """Head → what it moves, pair by pair; of the heads of largest first-order effect."""
        order = sorted(runs.heads, key=lambda head: -abs(float(runs.first_order[head])))
        return runs.each(order[: self.best])

    def _tested(
        self, runs: PairRuns, exact: Mapping[Head, Float[np.ndarray, " pair"]], seed: int
    ) -> tuple[list[HeadNumbers], SignFlips]:
        """The heads that move most, either way, each held against no effect and a wrong source; and
        the test against the latter.
        """
        heads = list(exact)
        effects = np.stack([runs.by_unit(exact[head]) for head in heads])
        every = sign_flips(np.concatenate([effects, -effects]), self.null_samples, seed).p_values
        p_values = dict(zip(heads, every.reshape(2, -1).min(0), strict=True))
        top = sorted(heads, key=lambda head: -abs(float(exact[head].mean())))[:CANDIDATES]
        numbers = [HeadNumbers(head, *runs.interval(exact[head])) for head in top]
        gains = []
        for one in numbers:
            wrong = runs.moved([one.head], wrong=True)
            there = ~np.isnan(wrong)
            gain = np.full(int(runs.units.max()) + 1, np.nan)
            if there.any():
                one.wrong = float(wrong[there].mean())
                difference = (exact[one.head] - wrong)[there] * np.sign(one.moved)
                for unit in np.unique(runs.units[there]):
                    gain[unit] = difference[runs.units[there] == unit].mean()
            gains.append(gain)
        test = sign_flips(np.stack(gains), self.null_samples, seed + 1)
        for index, one in enumerate(numbers):
            one.p_values = float(p_values[one.head]), float(test.p_values[index])
        return numbers, test

    def _ways(
        self, subject: Subject, runs: PairRuns, reported: Sequence[HeadNumbers], seed: int
    ) -> None:
        """Fill in what the reported heads attend to, and their ways to the answer."""
        if not reported:
            return
        found = induction_scores(subject, seed)
        for one in reported:
            one.direct = float(runs.direct[one.at].mean())
            one.induction = 0.0 if found is None else float(found[one.at].mean())
            for query, marks in runs.attention.items():
                seen = {mark: float(np.nanmean(value[one.at])) for mark, value in marks.items()}
                best = max(seen, key=lambda mark: seen[mark])
                one.marks[query] = best, seen[best]
        readers = [one for one in reported if one.is_direct]
        parts: dict[tuple[str, str], np.ndarray] = {}  # head, part of a role → excess, by unit
        ways: dict[tuple[str, str], np.ndarray] = {}  # head, reader → share moved, by unit
        for one in reported:
            sign = np.sign(one.moved)
            least = WAY * runs.by_unit(runs.moved([one.head])) * sign
            if runs.shows_writing:
                parts[one.name, "direct"] = runs.by_unit(runs.direct[one.at]) * sign - least
            for query, marks in runs.attention.items():
                for mark, value in marks.items():
                    parts[one.name, f"{query}: {mark}"] = runs.by_unit(value[one.at]) - LOOKS
            later = [other for other in readers if other.head[0] > one.head[0]]
            if one.is_direct or not later or not runs.shows_reading:
                continue
            through = runs.through_queries(one.head, [other.head for other in later])
            one.through = float(through.mean())
            parts[one.name, "through"] = runs.by_unit(through) * sign - least
            for other in later:
                moved = runs.through_queries(one.head, [other.head])
                ways[one.name, other.name] = runs.by_unit(moved) * sign
        numbers = {one.name: one for one in reported}
        for (name, part), p_value in self._family_wise(parts, seed + 2).items():
            numbers[name].words[part] = p_value
        largest = dict(sorted(ways.items(), key=lambda one: -one[1].mean()))
        for (name, reader), p_value in self._family_wise(largest, seed + 2).items():
            numbers[name].readers[reader] = p_value
        if found is not None:
            excess = {(one.name, "induction"): found[one.at] - INDUCTION for one in reported}
            for (name, part), p_value in self._family_wise(excess, seed + 3).items():
                numbers[name].words[part] = p_value

    def _family_wise(
        self, tested: Mapping[tuple[str, str], np.ndarray], seed: int
    ) -> dict[tuple[str, str], float]:
        """The p-value of each mean's being above 0, among all of them."""
        if not tested:
            return {}
        test = sign_flips(np.stack([*tested.values()]), self.null_samples, seed)
        return dict(zip(tested, map(float, test.p_values), strict=True))

    # --- report -----------------------------------------------------------------------------------
    def _record(
        self,
        report: Report,
        subject: Subject,
        runs: PairRuns,
        exact: Mapping[Head, Float[np.ndarray, " pair"]],
        reported: Sequence[HeadNumbers],
    ) -> None:
        report.update(
            {
                "patched": len(exact),
                "heads": len(runs.heads),
                "reported": [one.name for one in reported],
            }
        )
        matrix = np.full(runs.shape, np.nan)
        for head, values in exact.items():
            matrix[head] = values.mean()
        report.array("by_head", matrix, unit="moved, share of the logit difference")
        report.table("heads", _table(reported))
        untested = len(runs.heads) - len(exact)
        shown = figures.heatmap(
            matrix,
            x=[f"H{head}" for head in range(matrix.shape[1])],
            y=[f"L{layer}" for layer in range(len(matrix))],
            title="What each head moves of the answer",
            x_title="head",
            y_title="layer",
            z_title="logit difference moved (share)",
            diverging=True,
            annotate=False,
            holes="/",
            caption=(
                "Share of the logit difference that each head alone takes along from the other "
                "prompt of the pair."
                + (f" The {untested} hatched cells are untested." if untested else "")
            ),
        )
        if reported:
            tokens, patterns = _patterns(subject, reported)
            shown = figures.beside(shown, _looks(reported[0].name, tokens, patterns[0]))
            report.figure("attention", _attention(reported, tokens, patterns))
        report.figure("heads", shown)
        report.hero("heads")

    def _say(
        self,
        report: Report,
        runs: PairRuns,
        reported: Sequence[HeadNumbers],
        numbers: Sequence[HeadNumbers],
        test: SignFlips,
        seed: int,
    ) -> None:
        how = "own and another pair's prompt change places at random, pair by pair"
        for index, one in enumerate(numbers):
            report.metric(
                f"{one.name}.above_wrong_source",
                float(test.mean[index]),
                null=test.null(f"{one.name}.above_wrong_source", index, how),
                unit="share of the logit difference",
            )
        first = f"{numbers[0].name}.above_wrong_source"
        leads = self._leading(runs, reported)
        together = runs.interval(runs.moved([one.head for one in leads])) if leads else (0.0, 0.0)
        names = listed(one.name for one in leads)
        enough = bool(leads) and together[0] - together[1] >= MOST
        report.update({"leading": [one.name for one in leads], "together": together[0]})
        verb = "moves" if len(leads) == 1 else "move"
        verdict = report.finding(
            Claim(
                f"{names} {verb} most of the difference." if leads else "",
                no="No few heads move most of the difference.",
                caveat=""
                if report.metrics["patched"] == report.metrics["heads"]
                else "of those tested",
                causal=True,
            ),
            Effect(together[0], "of the logit difference", "moved together", 0.0, "no patch"),
            holds=enough,
            null=[f"{one.name}.above_wrong_source" for one in leads] or first,
            details={
                "± 95%": together[1],
                "pairs": report.metrics["pairs"],
                "right by pair": report.metrics["answered"],
                "heads patched exactly": report.metrics["patched"],
                "of": report.metrics["heads"],
            },
            n=report.metrics["pairs"],
        )
        by_these = self._answers_by(report, runs, reported, seed) if verdict == "yes" else []
        if by_these:
            report.lead(f"It answers by {_short([one.name for one in by_these])}.")
        elif verdict == "yes":
            report.lead(f"{names} {verb} most of the difference.")
        for one in reported:
            self._say_of(report, one)

    def _say_of(self, report: Report, one: HeadNumbers) -> None:
        """One head: what it does, where numbers carry a word of the field, and what it moves."""
        role, p_of_word = one.role(self.significance)
        does = role or f"moves {percent(one.moved)} of the difference"
        report.finding(
            Claim(
                f"{one.name} {does}.",
                no=f"{one.name} moves no more than another pair's prompt does.",
                causal=True,
            ),
            Effect(
                one.moved, "of the logit difference", "moved", one.wrong, "another pair's prompt"
            ),
            null=f"{one.name}.above_wrong_source",
            least=-1e9 if one.moved < 0 else 0.0,
            details={
                "± 95%": one.half,
                **({} if np.isnan(one.direct) else {"straight to the logits": one.direct}),
                f"through the queries of {listed(one.readers) or 'none'}": one.through,
                "induction score": one.induction,
                **({"p of the words": p_of_word} if role else {}),
                **{
                    f"attends from the {'answer' if query == 'answer' else 'token that differs'} "
                    f"to {MARKS[mark]}": weight
                    for query, (mark, weight) in one.marks.items()
                },
            },
            n=report.metrics["pairs"],
        )

    def _leading(self, runs: PairRuns, reported: Sequence[HeadNumbers]) -> list[HeadNumbers]:
        """The fewest heads of largest effect that move most of the difference together, with every
        other whose interval reaches the last of them.
        """
        positive = [one for one in reported if one.moved > 0]
        for n in range(1, min(len(positive), LEADING) + 1):
            mean, half = runs.interval(runs.moved([one.head for one in positive[:n]]))
            if mean - half >= MOST:
                last = positive[n - 1]
                return [
                    one
                    for i, one in enumerate(positive)
                    if i < n or one.moved + one.half >= last.moved - last.half
                ]
        return []

    def _answers_by(
        self, report: Report, runs: PairRuns, reported: Sequence[HeadNumbers], seed: int
    ) -> list[HeadNumbers]:
        """The heads by which it answers: the fewest of largest effect that alone keep the
        difference while nothing is kept without them, less those that neither needs; none where as
        many random heads keep it, too.
        """
        every = runs.heads

        def kept(own: Sequence[Head]) -> tuple[float, float]:
            """Share kept where all other heads are taken from the other prompt, and half the width
            of its interval.
            """
            mean, half = runs.interval(runs.moved([head for head in every if head not in own]))
            return 1 - mean, half

        def suffice(some: Sequence[HeadNumbers]) -> bool:
            heads = [one.head for one in some]
            (alone, half), (moved, wide) = kept(heads), runs.interval(runs.moved(heads))
            return alone - half >= ALONE and 1 - moved + wide <= WITHOUT

        counts = range(1, len(reported) + 1)
        n = next((n for n in counts if suffice(reported[:n])), len(reported))
        chosen = list(reported[:n])
        if found := suffice(chosen):
            for one in reversed(reported[:n]):
                others = [other for other in chosen if other is not one]
                chosen = others if others and suffice(others) else chosen
        heads = [one.head for one in chosen]
        without = 1 - float(runs.moved(heads).mean())
        report.update({"kept_by_these_alone": kept(heads)[0], "kept_without_these": without})
        others = [head for head in every if head not in heads]
        if not found or len(others) < len(heads):
            return []
        rivals = [kept(one)[0] for one in random_heads(others, len(heads), RANDOM_SETS, seed)]
        report.update({"kept_by_random_heads": max(rivals)})
        return chosen if max(rivals) < ALONE else []


def _few(names: Sequence[str], most: int = 3) -> list[str]:
    return list(names[:most])


def _short(names: Sequence[str], most: int = 6) -> str:
    return listed(names) if len(names) <= most else f"{len(names)} heads, led by {names[0]}"


def _table(reported: Sequence[HeadNumbers]) -> Table:
    """A row per head that stands."""
    columns: dict[str, list[Any]] = {
        "head": [one.name for one in reported],
        "moved": [one.moved for one in reported],
        "± 95%": [one.half for one in reported],
        "wrong source": [one.wrong for one in reported],
        "direct": [one.direct for one in reported],
        "through queries": [one.through for one in reported],
        "induction score": [one.induction for one in reported],
    }
    for query, said in (("answer", "from the answer"), ("changed", "from the token that differs")):
        columns[f"{said}, attends to"] = [
            MARKS[one.marks[query][0]] if query in one.marks else "" for one in reported
        ]
        columns[f"{said}, attention"] = [
            one.marks[query][1] if query in one.marks else np.nan for one in reported
        ]
    shares = ("moved", "± 95%", "wrong source", "direct", "through queries")
    return Table(
        columns,
        "One row per head that moves more than another pair's prompt does; shares of the logit "
        "difference.",
        dict.fromkeys(shares, "share of the logit difference"),
    )


def _patterns(
    subject: Subject, reported: Sequence[HeadNumbers]
) -> tuple[list[str], Float[np.ndarray, "head query key"]]:
    """The tokens of the first prompt, and the patterns of the reported heads on it."""
    example = subject.data[:1]
    hooks = [f"blocks.{one.head[0]}.attn.hook_pattern" for one in reported]
    found = subject.activations(list(dict.fromkeys(hooks)), None, example)
    end = int(subject.answer_positions[0]) + 1
    patterns = [
        found[hook][0, one.head[1], :end, :end] for hook, one in zip(hooks, reported, strict=True)
    ]
    tokens = token_texts(subject, example.tokens[0, :end].tolist())
    return tokens, np.stack([one.cpu().numpy() for one in patterns])


def _looks(name: str, tokens: Sequence[str], pattern: Float[np.ndarray, "query key"]) -> Figure:
    """The pattern of the head that moves most."""
    return figures.heatmap(
        pattern,
        x=tokens,
        y=tokens,
        title=f"Attention of {name} on the first prompt (0–1)",
        x_title="to",
        y_title="from",
        z_title="attention (0–1)",
        limits=(0, 1),
        annotate=False,
        caption=f"Beside it, where {name} attends on the first prompt.",
    )


def _attention(
    reported: Sequence[HeadNumbers],
    tokens: Sequence[str],
    patterns: Float[np.ndarray, "head query key"],
) -> Figure:
    """The view of the patterns."""
    return figures.attention(
        [one.name for one in reported],
        {"the first prompt": tokens},
        {"the first prompt": patterns},
        title="Attention of the heads that move the answer",
        caption="Where they look on the first prompt.",
    )
