"""The attention probe: previous-token and induction heads, and operands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from mechint.config import setting
from mechint.null import Null
from mechint.probe import Need, Probe, Report, unmet_need
from mechint.results import Effect, ProbeResult
from mechint.subject import Subject
from probes._attention import scores
from probes._attention.scores import AttentionPatterns, collect, kept_rows
from probes._attention.views import heads_table, pattern_figures
from probes.operands import operand_positions
from probes.words import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mechint.planted.calibration import Calibration, Planted, Trial

MIN_QUERIES = 16
"""Queries that must have a key of a kind before heads are scored by it."""
OPERAND_ALPHA = 0.01
NAMED = 6
"""Heads that a headline names."""
WORDS = {
    "previous_token": ("previous-token head", "previous token"),
    "same_token": ("head on earlier equal tokens", "same token"),
    "induction": ("induction head", "induction"),
}


@dataclass(frozen=True)
class Attention(Probe):
    r"""Which heads are previous-token or induction heads, and which operand does each attend to?

    With A[q, k] the attention of a head, a kind's score is the mean over queries q of
    \sum_{k \in K(q)} A[q, k], where K(q) is q - 1 (previous token), the earlier keys with q's token
    (same token), or the keys after those (induction). The preference of operands a, b is
    (A_a - A_b) / (A_a + A_b) at the answer. Nulls: keys in random order, keys of other examples,
    untrained models. What heads write is not tested; see `weights` and `ablation`.

    Cost: one forward over the data, one over 32 examples of repeated random tokens where the data
    hold too few, and `untrained` forwards over 256 examples.
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

    example: int = setting(0, "example that the attention view shows first", low=0)
    examples: int = setting(32, "examples that are kept whole, for the scores and the view", low=1)
    least: float = setting(
        0.1, "least score above the null's mean by which a head is of a kind", low=0, high=1
    )
    alpha: float = setting(0.002, "family-wise level against the nulls", low=1e-6, high=1)
    samples: int = setting(
        999, "samples of the nulls; 2/alpha of them, so that no single one decides", low=1
    )
    untrained: int = setting(
        99, "untrained models in the null of the preference; 0 for none", low=0
    )

    def unmet(self, subject: Subject) -> str | None:
        if len(subject.data) == 0:
            return (
                "it has no examples to attend over; name its task with --task and --set, or give "
                "prompts with --data (in Python, data=[…])"
            )
        kept = min(len(subject.data), self.examples)
        if self.example >= kept:
            return f"attention.example={self.example}: there are {kept} examples kept"
        return None

    @classmethod
    def calibration(cls) -> Calibration:
        from mechint.planted import library
        from mechint.planted.calibration import Calibration

        addition = library.another("modular addition", library.addition)
        fixed = {"head at a fixed distance": library.fixed_distance}
        return Calibration(
            (
                cls._trial("induction head", library.induction, addition | fixed),
                cls._trial("soft induction head", library.soft_induction, {}),
            ),
            {"samples": 499},
        )

    @staticmethod
    def _trial(
        name: str,
        plant: Callable[[float, int], Planted],
        controls: Mapping[str, Callable[[int], Subject]],
    ) -> Trial:
        from mechint.planted import library
        from mechint.planted.calibration import Trial

        def found(result: ProbeResult) -> list[tuple[str, str]]:
            return [
                (role, head)
                for role in ("previous_token", "induction")
                for head in result.metrics.get(f"{role}.heads", ())
            ]

        return Trial(
            name,
            plant,
            library.untrained(plant) | dict(controls),
            library.misses(
                found,
                lambda plant: [
                    ("previous_token", library.head("previous token")(plant)),
                    ("induction", library.head("induction")(plant)),
                ],
            ),
            "heads missed or made up",
            settings={"untrained": 0},
            detects=lambda result: len({role for role, _ in found(result)}) == 2,
        )

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        operands = list((subject.data.reads and operand_positions(subject)) or ())
        rows = kept_rows(subject, self.examples, seed)
        patterns = collect(subject, operands, rows)
        report = Report(self, subject)
        report.metric("heads", patterns.names)
        for kind in scores.KINDS:
            self._kind(report, subject, patterns, kind, seed)
        if len(operands) >= 2:
            self._operands(report, subject, patterns, operands, seed)
        if not report.findings:
            report.unclear(
                "Kinds of heads could not be told.", "the examples hold too few keys of any kind"
            )
        self._lead(report)
        report.table("heads", heads_table(patterns, report.metrics))
        report.array("pattern", patterns.mean.astype(np.float32))
        drawn = pattern_figures(subject, patterns, operands, self.example, rows, report.metrics)
        for name, figure in drawn.items():
            report.figure(name, figure)
        report.hero("patterns")
        return report.result()

    # --- kinds ------------------------------------------------------------------------------------
    def _kind(
        self, report: Report, subject: Subject, patterns: AttentionPatterns, kind: str, seed: int
    ) -> None:
        """Score heads by one of the kinds, and say which are of it."""
        singular, question = WORDS[kind]
        hit = scores.targets(patterns.tokens, patterns.lengths, kind)
        made = None
        if kind in scores.BY_CONTENT:
            made = scores.content_examples(
                subject, patterns, kind, seed, alpha=self.alpha, least=self.least
            )
            if made is None:
                report.not_asked(question, _why_not(patterns))
                return
        attention, hit = (patterns.sample, hit) if made is None else (made.attention, made.hit)
        queries, ways = int(hit.any(-1).sum()), scores.arrangements(hit, patterns.causal)
        if queries < MIN_QUERIES or ways * self.alpha < 1:
            report.not_asked(question, _why_not(patterns))
            return
        values, null = scores.position_null(attention, hit, patterns.causal, seed, self.samples)
        report.metric(f"{kind}.queries", queries)
        report.metric(f"{kind}.score", _by_name(patterns, values))
        found = self._above(values, null)
        tested = [self._excess(report, kind, values, null, "every query's keys in random order")]
        if made is not None:
            gains, other = scores.content_null(made, seed, self.samples)
            report.metric(f"{kind}.by_content", _by_name(patterns, gains))
            found &= self._above(gains, other)
            how = "keys permuted among examples"
            tested.append(self._excess(report, f"{kind}.by_content", gains, other, how))
        names = [name for name, one in zip(patterns.names, found, strict=True) if one]
        best = int(np.where(found, values, -1).argmax() if names else values.argmax())
        report.metric(f"{kind}.largest", float(values.max()))
        report.metric(f"{kind}.heads", names)
        some = _shortened(names, values, patterns)
        plural = singular if len(names) == 1 else singular.replace("head", "heads", 1)
        verb = "are" if len(names) != 1 else "is an" if kind == "induction" else "is a"
        report.finding(
            f"{some} {verb} {plural}.",
            no=f"No {singular} was found.",
            holds=bool(names),
            null=tested,
            effect=Effect(
                float(values[best]),
                label=f"score of {patterns.names[best]}",
                baseline=float(null[:, best].mean()),
                baseline_label="random keys",
            ),
            least=float(null[:, best].mean()) + self.least if names else 0.0,
            details={"queries": queries, "repeated random tokens": bool(made and made.made)},
            caveat="what it writes is not tested" if kind == "induction" else "",
            n=queries,
            at_chance=True,
        )

    def _above(
        self, values: Float[np.ndarray, " head"], null: Float[np.ndarray, "sample head"]
    ) -> np.ndarray:
        """(head,) whether a head exceeds the null at the family-wise level, each in units of its
        own null's spread, and the mean of its own null by `least`.
        """
        z, largest = _standardized(values, null)
        allowed = int(self.alpha * (len(null) + 1) + 1e-9)
        if allowed < 1:
            return np.zeros(len(values), bool)
        return (z > np.sort(largest)[-allowed]) & (values - null.mean(0) > self.least)

    def _excess(
        self,
        report: Report,
        kind: str,
        values: Float[np.ndarray, " head"],
        null: Float[np.ndarray, "sample head"],
        how: str,
    ) -> str:
        """Record the largest excess over the null of any head; the name of the metric."""
        z, largest = _standardized(values, null)
        name = f"{kind}.excess"
        every = Null.sampled(name, float(z.max()), largest, f"{how}, the largest of all heads")
        report.metric(name, float(z.max()), null=every, unit="standard deviations")
        return name

    # --- operands ---------------------------------------------------------------------------------
    def _operands(
        self,
        report: Report,
        subject: Subject,
        patterns: AttentionPatterns,
        operands: list[int],
        seed: int,
    ) -> None:
        means = patterns.to_operand.astype(np.float64).mean(1)  # (head, operand)
        values = scores.preference(means)
        report.metric("operand.positions", operands)
        report.metric("operand.attention", _by_name(patterns, means))
        report.metric("operand.preference", _by_name(patterns, values))
        largest = float(np.abs(values).max())
        if not self.untrained or unmet_need(Need.REINITIALIZE, subject):
            report.metric("operand.largest_preference", largest)
            return
        part = subject.data[:: max(1, len(subject.data) // 256)]
        models = (subject.untrained(seed * self.untrained + i) for i in range(self.untrained))
        null = np.array(
            [
                np.abs(scores.preference(scores.operand_means(model, part, operands))).max()
                for model in models
            ]
        )
        how = "the largest of any head in untrained models"
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
            f"{listed(names) if len(names) <= NAMED else f'{len(names)} heads'} to the {which}"
            for names, which in ((first, "first"), (second, "second"))
            if names
        ]
        report.finding(
            f"From the answer, {'; '.join(parts)} operand."
            if parts
            else "Heads attend to one operand each.",
            no="No head prefers one operand.",
            holds=bool(called),
            null="operand.largest_preference",
            alpha=OPERAND_ALPHA,
            effect=Effect(
                largest,
                label="largest preference",
                baseline=float(null.mean()),
                baseline_label="untrained",
            ),
            least=float(null.mean()) + self.least,
            at_chance=True,
        )

    @staticmethod
    def _lead(report: Report) -> None:
        """Induction heads after previous-token heads are a verdict of their own."""
        heads = {kind: report.metrics.get(f"{kind}.heads") or [] for kind in scores.KINDS}
        if heads["induction"]:
            after = heads["previous_token"]
            report.metric("mechanism", "induction")
            some = listed(heads["induction"]) if len(heads["induction"]) <= 3 else "several heads"
            report.lead(
                f"It repeats by induction, with {some}"
                + (f" after {listed(after[:2])}." if after else ".")
            )


def _standardized(
    values: Float[np.ndarray, " head"], null: Float[np.ndarray, "sample head"]
) -> tuple[Float[np.ndarray, " head"], Float[np.ndarray, " sample"]]:
    """Values (head,) in standard deviations of each head's own null, and (sample,) the largest of
    all heads in every sample of it: sharp heads, whose nulls spread widely, do not hide others.
    """
    mean, spread = null.mean(0), np.maximum(null.std(0, ddof=1), 1e-6)
    return (values - mean) / spread, ((null - mean) / spread).max(1)


def _why_not(patterns: AttentionPatterns) -> str:
    longest = int(patterns.lengths.max())
    if longest <= 5:
        return f"inputs have {longest} tokens"
    return "too few such keys, or always at the same places"


def _by_name(patterns: AttentionPatterns, values: np.ndarray) -> dict[str, object]:
    return dict(zip(patterns.names, values.tolist(), strict=True))


def _shortened(names: list[str], values: np.ndarray, patterns: AttentionPatterns) -> str:
    """The names of heads, those of largest value where they are many."""
    if len(names) <= NAMED:
        return listed(names) or "A head"
    order = sorted(names, key=lambda name: -values[patterns.names.index(name)])
    return f"{len(names)} heads, led by {listed(order[:3])},"
