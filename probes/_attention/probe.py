"""The attention probe: previous-token and induction heads, and operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.typing import NDArray

from mechint import figures
from mechint.config import setting
from mechint.decide import Claim
from mechint.decide.null import largest_excess, sign_flips, standardized
from mechint.probe import Need, Probe, Report
from mechint.probe.results import Effect, Figure, ProbeResult, Scope, Table, Verdict
from mechint.probes._attention import scores
from mechint.probes._attention.scores import AttentionPatterns, MadeExamples, collect, kept_rows
from mechint.probes.operands import operand_positions
from mechint.probes.words import in_words, listed, position_names, token_texts
from mechint.subject import Subject
from mechint.task import Batch, rng

if TYPE_CHECKING:
    from mechint.planted.calibration import Calibration

MIN_QUERIES = 16
"""Queries that must have a key of a kind before heads are scored by it."""
OPERAND_ALPHA = 0.01
COPIED = 0.5
"""Share of answers that have to repeat before the model is said to."""
MAX_TRIED = 256
"""Examples of which answers that repeat are counted, and the null of operands is taken."""
NAMED = 6
"""Heads that a headline names."""
WORDS = {
    "induction": ("induction head", "induction", "the token after an earlier equal one"),
    "previous_token": ("previous-token head", "previous token", "the token before"),
    "same_token": ("head on earlier equal tokens", "same token", "an earlier equal token"),
}
"""Kind of head → its name, what is asked, and the key that it attends to; that which leads first.
"""


@dataclass(frozen=True)
class Attention(Probe):
    r"""Which heads are previous-token or induction heads, and which operand does each attend to?

    With A[q, k] the attention of a head, a kind's score is the mean over queries q of
    \sum_{k \in K(q)} A[q, k], where K(q) is q - 1 (previous token), the earlier keys with q's token
    (same token), or the keys after those (induction). The preference of operands a, b is
    (A_a - A_b) / (A_a + A_b) at the answer. Nulls: keys in random order, keys of other examples,
    untrained models. Whether answers repeat by induction heads is tested with these at their mean;
    what other heads write is not, see `weights` and `ablation`.

    Cost: one forward over the data, one over 32 examples of repeated random tokens where the data
    hold too few, three over at most 256 examples where there are induction heads, and `untrained`
    forwards over 256 examples.
    """

    name: ClassVar[str] = "attention"
    topic: ClassVar[str] = "layers and components"
    source: ClassVar[str] = (
        "Olsson et al. 2022, In-context Learning and Induction Heads; Elhage et al. 2021, A "
        "Mathematical Framework for Transformer Circuits"
    )
    needs: ClassVar[tuple[Need, ...]] = (Need.ATTENTION,)
    quick: ClassVar[bool] = True
    lead_rank: ClassVar[int] = 35
    intervenes: ClassVar[bool] = True
    several: ClassVar[int] = 2

    examples: int = setting(32, "examples that are kept whole, for the scores and the view", low=1)
    least: float = setting(
        0.1, "least score above the null's mean by which a head is of a kind", low=0, high=1
    )
    alpha: float = setting(0.002, "family-wise level against the nulls", low=1e-6, high=1)
    samples: int = setting(
        999, "samples of the nulls; 2/alpha of them, so that no single one decides", low=1
    )
    untrained: int = setting(
        99, "models in the null of the preference, untrained or in random order; 0 for none", low=0
    )

    def unmet(self, subject: Subject) -> str | None:
        if len(subject.data) == 0:
            return (
                "it has no examples to attend over; name its task with --task and --set, or give "
                "prompts with --data (in Python, data=[…])"
            )
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration, Trial

        addition = library.another("modular addition", library.addition)
        fixed = {"head at a fixed distance": library.fixed_distance}

        def found(result: ProbeResult) -> list[tuple[str, str]]:
            return [
                (role, head)
                for role in ("previous_token", "induction")
                for head in result.metrics.get(f"{role}.heads", ())
            ]

        misses = library.misses(
            found,
            lambda plant: [
                ("previous_token", library.head("previous token")(plant)),
                ("induction", library.head("induction")(plant)),
            ],
        )
        trials = [
            Trial(
                name,
                plant,
                library.untrained(plant) | controls,
                misses,
                "heads missed or made up",
                settings={"untrained": 0},
                detects=lambda result: len({role for role, _ in found(result)}) == 2,
            )
            for name, plant, controls in (
                ("induction head", library.induction, addition | fixed),
                ("soft induction head", library.soft_induction, {}),
            )
        ]
        return Calibration(tuple(trials), {"samples": 499})

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        operands = list((subject.data.reads and operand_positions(subject)) or ())
        rows = kept_rows(subject, self.examples, seed)
        patterns = collect(subject, rows)
        report = Report(self, subject)
        report.metric("heads", patterns.names)
        made = MadeExamples.draw(subject, patterns, seed)
        for kind in scores.KINDS:
            self._kind(report, subject, patterns, made, kind, seed)
        if len(operands) == 2:
            self._operands(report, subject, patterns, operands, seed)
        if not report.findings:
            report.unclear("Kinds of heads could not be told.", report.skipped[0][1])
        report.table("heads", heads_table(patterns, report.metrics))
        kinds = [name for name in ("induction.score", *RANKED) if name in report.metrics]
        if kinds:
            report.by_head(report.metrics[kinds[0]].items(), f"{kinds[0]}, mean attention")
        report.array("pattern", patterns.mean.astype(np.float32))
        heads = chosen_heads(patterns.names, report.metrics)
        view = _view(subject, patterns, rows, heads, report.metrics)
        report.figure("patterns", view)
        report.findings.sort(key=lambda one: not one.causal)  # what decides a lead stands first
        return report.result()

    # --- kinds ------------------------------------------------------------------------------------
    def _kind(
        self,
        report: Report,
        subject: Subject,
        patterns: AttentionPatterns,
        random: MadeExamples | None,
        kind: str,
        seed: int,
    ) -> None:
        """Score heads by one of the kinds, and say which are of it."""
        singular, question, _ = WORDS[kind]
        hit, attention = (
            scores.targets(patterns.tokens, patterns.lengths, kind),
            patterns.sample,
        )
        made = None
        if kind in scores.BY_CONTENT:
            made = scores.content_examples(
                subject, patterns, random, kind, alpha=self.alpha, least=self.least
            )
            if made is None:
                report.not_asked(question, _why_not(patterns))
                return
            attention, hit = made.attention, made.hit
        elif random is not None and scores.is_language(subject):
            placed = random.of(kind)
            attention, hit = placed.attention, placed.hit
        queries, ways = int(hit.any(-1).sum()), scores.arrangements(hit, patterns.causal)
        if queries < MIN_QUERIES or ways * self.alpha < 1:
            report.not_asked(question, _why_not(patterns))
            return
        values, null = scores.position_null(attention, hit, patterns.causal, seed, self.samples)
        report.metric(f"{kind}.queries", queries)
        report.metric(f"{kind}.score", _by_name(patterns, values))
        tests = {kind: (values, null, "every query's keys in random order")}
        if made is not None:
            gains, other = scores.content_null(made, seed, self.samples)
            report.metric(f"{kind}.by_content", _by_name(patterns, gains))
            tests[f"{kind}.by_content"] = (gains, other, "keys permuted among examples")
        found = np.all([self._exceeds(report.subject, *test[:2]) for test in tests.values()], 0)
        names = [name for name, is_found in zip(patterns.names, found, strict=True) if is_found]
        best = int((np.where(found, values, -1) if names else values - null.mean(0)).argmax())
        report.metric(f"{kind}.largest", float(values.max()))
        report.metric(f"{kind}.heads", names)
        for name, (own, random_keys, how) in tests.items():
            test, spread = standardized(own, random_keys)
            how = f"{how}, the largest of all heads"
            excess = largest_excess(f"{name}.excess", test, spread, best, how)
            report.metric(excess.metric, excess.observed, null=excess)
        repeats = None
        if kind == "induction" and names:
            own = made is None or not (made.made or scores.is_language(subject))
            repeats = self._repeats(report, subject, random, names, seed, own=own)
        some, one = _shortened(names, values, patterns), len(names) == 1
        article = "an" if kind == "induction" else "a"
        verb = f"is {article}" if one else "are"
        drawn = attention is not patterns.sample and (made is None or made.made)
        least = float(null[:, best].mean()) + self._least(subject)
        does = f"{verb} {singular if one else singular.replace('head', 'heads', 1)}"
        if repeats not in (None, "yes"):
            does = f"attend{'s' * one} to what followed equal tokens earlier"
        report.finding(
            Claim(
                f"{some} {does}.",
                no=f"No {singular} exceeds random keys by {self._least(subject):g}."
                if float(values[best]) <= least - self._least(subject) / 10  # clearly
                else f"No {singular} exceeds its nulls by {self._least(subject):g} "
                f"at p ≤ {self.alpha:g}.",
                unclear=f"Whether there is {article} {singular} is unclear.",
                caveat="what it writes is not tested"
                if kind == "induction" and names and repeats is None
                else "later ones are not asked" * (kind == "same_token" and not patterns.causal),
                at_chance=True,
            ),
            Effect(
                float(values[best]),
                label=f"score of {patterns.names[best]}" + " on random tokens" * drawn,
                baseline=float(null[:, best].mean()),
                baseline_label="random keys",
            ),
            holds=bool(names),
            null=[f"{name}.excess" for name in tests],
            least=least,
            n=queries,
            scope=Scope(len(attention) if len(attention) < len(subject.data) else None),
        )

    def _repeats(
        self,
        report: Report,
        subject: Subject,
        random: MadeExamples | None,
        names: Sequence[str],
        seed: int,
        *,
        own: bool,
    ) -> Verdict | None:
        """Say whether answers repeat what followed earlier, and need the induction heads for it: on
        its own examples, else on repeated random tokens. None where that cannot be tested.
        """
        if own:
            data = sampled(subject, seed)
        else:
            if random is None:
                return None
            data = scores.batch_of(subject, random.further)
        everywhere = not own and scores.is_language(subject)
        copied = scores.copied_answers(subject, data, names, everywhere=everywhere)
        if copied is None:
            return None
        some = listed(names) if len(names) <= 3 else in_words(len(names), "head")
        before, without = (float(shares.mean()) for shares in copied)
        change = copied[0] - copied[1]
        test = sign_flips(change[None], self.samples, seed)
        how = "the sign of every example's change drawn at random"
        report.metric("induction.copied", before)
        report.metric("induction.copied_without", without)
        report.metric("induction.lost", before - without, null=test.null("induction.lost", 0, how))
        verdict = report.finding(
            Claim(
                f"It repeats what followed earlier by {some}.",
                no=f"It does not repeat by {some}."
                if before >= COPIED
                else "Its answers do not repeat what followed earlier.",
                unclear="Answers that repeat by these heads cannot be told.",
                causal=True,
                at_chance=True,
            ),
            Effect(
                before - without,
                label="share of answers that repeat, lost without them",
                baseline=0.0,
                baseline_label="no change",
            ),
            holds=before >= COPIED,
            null="induction.lost",
            least=before / 2,
            n=len(change),
        )
        if verdict == "yes":
            report.metric("mechanism", "induction")
            report.lead(
                f"It repeats by induction, with {some if len(names) <= 3 else 'several heads'}."
            )
        return verdict

    def _exceeds(
        self,
        subject: Subject,
        values: Float[np.ndarray, " head"],
        null: Float[np.ndarray, "sample head"],
    ) -> Bool[np.ndarray, " head"]:
        """Return which heads exceed the null at the family-wise level, and the mean of their own by
        `least`, LANGUAGE_LEAST of a language model.
        """
        p_values = standardized(values, null)[0].p_values
        return (p_values <= self.alpha * (1 + 1e-9)) & (
            values - null.mean(0) > self._least(subject)
        )

    def _least(self, subject: Subject) -> float:
        return scores.LANGUAGE_LEAST if scores.is_language(subject) else self.least

    # --- operands ---------------------------------------------------------------------------------
    def _operands(
        self,
        report: Report,
        subject: Subject,
        patterns: AttentionPatterns,
        operands: list[int],
        seed: int,
    ) -> None:
        means = scores.operand_means(subject, subject.data, operands)  # (head, operand)
        values = scores.preference(means)
        report.metric("operand.positions", operands)
        report.metric("operand.attention", _by_name(patterns, means))
        report.metric("operand.preference", _by_name(patterns, values))
        if not self.untrained:
            report.metric("operand.largest_preference", float(np.abs(values).max()))
            return
        part = sampled(subject, seed)
        largest = float(np.abs(values).max())
        first = seed * self.untrained
        null = np.array(
            [
                np.abs(scores.preference(scores.operand_means(model, part, operands))).max()
                for model in subject.controls_in_turn(range(first, first + self.untrained))
            ]
        )
        how = f"the largest of any head in {subject.control}"
        report.metric("operand.largest_preference", largest, null=null, how=how)
        allowed = max(int(OPERAND_ALPHA * (len(null) + 1)), 1)
        level = max(float(np.sort(null)[-allowed]), float(null.mean()) + self.least)
        called = {
            name: operands[0] if value > 0 else operands[1]
            for name, value in zip(patterns.names, values, strict=True)
            if abs(value) > level
        }
        report.metric("operand.heads", called)
        first = [name for name, place in called.items() if place == operands[0]]
        second = [name for name, place in called.items() if place == operands[1]]
        parts = [
            (listed(names) if len(names) <= NAMED else f"{len(names)} heads", len(names), which)
            for names, which in ((first, "first"), (second, "second"))
            if names
        ]
        than = "" if subject.knows_initialization else f"compared with {subject.control}"
        said = "Heads prefer one operand each"
        if parts:
            (some, count, which), *other = parts
            said = f"On average {some} attend{'s' * (count == 1)} more to the {which} operand"
            said += "".join(f", {some} to the {which}" for some, _, which in other)
            said += f", by more than {level:.2g}"
        report.finding(
            Claim(
                f"{said}.",
                no=f"No head prefers one operand by more than {level:.2g} on average.",
                unclear="Whether heads prefer one operand beyond chance is unclear.",
                caveat=than,
                at_chance=True,
            ),
            Effect(
                largest,
                label="largest preference",
                baseline=float(null.mean()),
                baseline_label="untrained" if subject.knows_initialization else "in random order",
            ),
            holds=bool(called),
            null="operand.largest_preference",
            alpha=OPERAND_ALPHA,
            least=float(null.mean()) + self.least,
        )


def sampled(subject: Subject, seed: int) -> Batch:
    """Some of the subject's examples at random: every second one of a grid has even operands."""
    order = rng("attention examples", seed).permutation(len(subject.data))[:MAX_TRIED]
    return subject.data[torch.from_numpy(np.sort(order))]


def _why_not(patterns: AttentionPatterns) -> str:
    longest = int(patterns.lengths.max())
    return (
        f"inputs have {longest} tokens"
        if longest <= 5
        else "too few such keys, or always at the same places"
    )


def _by_name(patterns: AttentionPatterns, values: np.ndarray) -> dict[str, object]:
    return dict(zip(patterns.names, values.tolist(), strict=True))


def _shortened(names: list[str], values: np.ndarray, patterns: AttentionPatterns) -> str:
    """The names of heads, those of largest value where they are many."""
    if len(names) <= NAMED:
        return listed(names) or "A head"
    order = sorted(names, key=lambda name: -values[patterns.names.index(name)])
    return f"{len(names)} heads, led by {listed(order[:3])},"


# --- table and figures ----------------------------------------------------------------------------
EXAMPLES, HEADS, LONGEST = 8, 48, 64
"""Examples, heads and tokens of the attention view, at most."""
PREFERENCE = "operand.preference"
RANKED = ("previous_token.score", "same_token.score", "induction.score", PREFERENCE)
"""Scores by which heads are chosen where there are too many to show."""


def heads_table(patterns: AttentionPatterns, metrics: Mapping[str, Any]) -> Table:
    """A row per head with every score that was measured."""
    columns: dict[str, list[Any]] = {"head": patterns.names}
    for kind in (*RANKED, "same_token.by_content", "induction.by_content"):
        if kind in metrics:
            columns[kind] = [metrics[kind][name] for name in patterns.names]
    for i, position in enumerate(metrics.get("operand.positions", [])):
        columns[f"to position {position}"] = [
            metrics["operand.attention"][name][i] for name in patterns.names
        ]
    return Table(
        columns,
        "one row per head; attention 0–1, preference −1 (second operand) … 1 (first)",
        {"previous_token.score": "mean attention"},
    )


def chosen_heads(names: Sequence[str], metrics: Mapping[str, Any], most: int = HEADS) -> list[int]:
    """Places in `names` of the heads that are shown, in order: all, or the `most` that score
    highest, taken by turns from the best of each kind.

    >>> scores = {"L0H0": 0.9, "L0H1": 0.8, "L0H2": 0.0}
    >>> same = {"L0H0": 0.1, "L0H1": 0.0, "L0H2": 0.2}
    >>> chosen_heads(list(same), {"induction.score": scores, "same_token.score": same}, 2)
    [0, 2]
    """
    if len(names) <= most:
        return list(range(len(names)))
    scores = [np.array([metrics[kind][n] for n in names]) for kind in RANKED if kind in metrics]
    best = [np.argsort(-np.abs(np.nan_to_num(of)), kind="stable").tolist() for of in scores]
    turns = dict.fromkeys(place for turn in zip(*best, strict=True) for place in turn)
    return sorted([*turns][:most]) if best else list(range(most))


def _view(
    subject: Subject,
    patterns: AttentionPatterns,
    rows: NDArray[np.int64],
    heads: Sequence[int],
    metrics: Mapping[str, Any],
) -> Figure:
    order = list(range(len(rows)))[:EXAMPLES]
    names = [patterns.names[place] for place in heads]
    texts: dict[str, list[str]] = {}
    which: dict[str, int | None] = {}
    for place in order:
        length = min(int(patterns.lengths[place]), LONGEST)
        text = token_texts(subject, patterns.tokens[place, :length].tolist())
        name = " ".join(text[:12]) + (" …" if length > 12 else "")
        name = name if name not in texts else f"{name} (example {rows[place]})"
        texts[name], which[name] = text, place
    if (patterns.lengths == patterns.lengths[0]).all():
        name = f"mean of {len(rows)} examples"
        texts[name], which[name] = position_names(subject)[: patterns.lengths[0]][:LONGEST], None
    all_shown = len(names) == len(patterns.names)
    counted = f"{len(names)} of {len(patterns.names)} heads"
    chosen, said = _chosen(patterns, names, metrics)
    sample, longest = patterns.sample[:, heads], int(patterns.lengths[order].max())
    whole = {name: sample.mean(0) if i is None else sample[i] for name, i in which.items()}
    return figures.attention(
        names,
        texts,
        # (head, query, key) of each example, cut to its tokens
        {name: w[:, : len(texts[name]), : len(texts[name])] for name, w in whole.items()},
        title=f"Attention of {chosen.head} on one example",
        caption=(
            said
            + ("" if all_shown else f" Shown are the {counted} that score highest.")
            + f" The interactive view holds {len(order)} of {len(rows)} examples."
            * (len(order) < len(rows))
            + f" Of {longest} tokens the first {LONGEST} are shown." * (longest > LONGEST)
        ),
        chosen=chosen,
    )


def _chosen(
    patterns: AttentionPatterns, names: Sequence[str], metrics: Mapping[str, Any]
) -> tuple[figures.Chosen, str]:
    """The head that the findings are about, the best of its kind, on the first example, and the
    query that shows it best; what the picture shows, with the numbers of the findings.
    """
    length = min(int(patterns.lengths[0]), LONGEST)
    kind = next((kind for kind in WORDS if metrics.get(f"{kind}.heads")), "")
    of_kind = [name for name in metrics.get(f"{kind}.heads", ()) if name in names]
    if not of_kind:
        preferred = [name for name in metrics.get("operand.heads", ()) if name in names]
        head = (preferred or list(names))[0]
        return figures.Chosen(head, length - 1), f"What {head} attends to from the last token."
    head = max(of_kind, key=lambda name: metrics[f"{kind}.score"][name])
    weights = patterns.sample[0, patterns.names.index(head), :length, :length]
    hit = scores.targets(patterns.tokens[:1], patterns.lengths[:1], kind)[0]
    hit = hit[:length, :length]
    query = int((weights * hit).sum(1).argmax()) if hit.any() else length - 1
    keys = [(int(q), int(k)) for q, k in np.argwhere(hit)]
    noun, _, key = WORDS[kind]
    said = f"{head}, {'an' if noun[0] in 'aeiou' else 'a'} {noun}; orange: {key}. "
    said += f"Over all examples its score is {metrics[f'{kind}.score'][head]:.3g}."
    if (lost := metrics.get("induction.lost")) is not None:
        said += f" Without the induction heads {lost:.3g} of the answers no longer repeat."
    return figures.Chosen(head, query, keys, stripe=kind == "induction"), said
