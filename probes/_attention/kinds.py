"""What is said of the kinds of heads, and of a stated target."""

from __future__ import annotations

from dataclasses import dataclass

from mechint.errors import counted
from mechint.null import Null
from mechint.probe import Report
from mechint.subject import Subject
from probes._attention.content import gain, tellable
from probes._attention.patterns import Patterns
from probes._attention.scores import agreement, arrangements, dealings, score, stated, targets
from probes._fourier.spectra import Array, upper_quantile
from probes.words import first_of

FEWEST_QUERIES = 16
"""Queries that must have a key of a kind before heads are scored by it."""
WORDS = {
    "previous_token": "at the previous token",
    "same_token": "at an earlier equal token",
    "induction": "at what followed an earlier equal token",
}
BY_CONTENT = ("same_token", "induction")
"""Kinds that are defined by what stands at a key, not by where it stands."""


@dataclass(frozen=True)
class Rule:
    """The family-wise level and the least effect that a sentence asks for, and how its null is
    drawn.
    """

    alpha: float
    least: float
    samples: int
    seed: int

    def above(self, values: Array, null: Array) -> Array:
        """Which of `values` exceed the largest of a null (samples, heads) at the level, and the
        mean of their own by the least; one of (samples,) is the largest already.
        """
        largest = null.reshape(len(null), -1).max(1)
        beyond = values > upper_quantile(largest, self.alpha)
        return beyond & (values - null.mean(0) > self.least)

    def effect(self, values: Array, null: Array) -> float:
        """The largest of what heads are `above` the mean of their own null (samples, heads) by; of
        the head with the largest value where none is.
        """
        gains, above = values - null.mean(0), self.above(values, null)
        return float(gains[above].max() if above.any() else gains[values.argmax()])

    def untold(self, names: list[str], values: Array, null: Array, ways: float) -> list[str]:
        """The heads that their own null (samples, heads), of so many arrangements, does not deny,
        with their values and its means: the largest of all heads may come as far where they alone
        do not.
        """
        found: list[str] = []
        for name, value, own in zip(names, values, null.T, strict=True):
            one = Null.sampled(name, value, own, "", ways)
            surprising = one.p_value <= self.alpha or one.too_few_arrangements(self.alpha)
            if surprising and value - one.mean > self.least:
                found.append(f"{name} ({value:.2f}, at random {one.mean:.2f})")
        return found


def add_kind(report: Report, subject: Subject, patterns: Patterns, kind: str, rule: Rule) -> None:
    """Record the scores of one of `SCORES`, and say which heads are of that kind."""
    values, null = score(patterns, kind, rule.seed, rule.samples)
    how = "the largest of any head with every query's keys in random order"
    hit = targets(patterns.tokens, patterns.lengths, kind)
    orders = arrangements(hit, patterns.causal, patterns.lengths)
    heads = _named(report, kind, patterns.names, values, null, how, orders, rule)
    queries, question = int(hit.any(-1).sum()), f"whether a head looks {WORDS[kind]}"
    report.metric(f"{kind}.queries", queries)
    if queries < FEWEST_QUERIES:
        some = f"only {counted(queries, 'query')}" if queries else "no query"
        verb = "have" if queries > 1 else "has"
        report.abstain(f"{some} {verb} such a key, where {FEWEST_QUERIES} are asked", question)
    elif heads and kind in BY_CONTENT:
        _by_content(report, subject, patterns, kind, heads, queries, rule)
    elif reason := _lost_among(report, kind, patterns.names, values, null, orders, rule):
        report.abstain(reason, question)
    else:
        report.finding(
            _kind_sentence(kind, heads),
            question=question,
            otherwise=f"No head is told from keys in random order by how much it looks "
            f"{WORDS[kind]}: at most {values.max():.2f}, where {_largest_of(patterns.names)} "
            f"has {null.max(1).mean():.2f}",
            holds=bool(heads),
            null=f"{kind}.largest",
            effect=rule.effect(values, null),
            least=rule.least,
            n=queries,
            at_chance=True,
        )


def _by_content(
    report: Report,
    subject: Subject,
    patterns: Patterns,
    kind: str,
    looking: dict[str, float],
    queries: int,
    rule: Rule,
) -> None:
    """Of the heads that look at such keys, those that do so wherever the keys stand."""
    named = ", ".join(f"{name} ({value:.2f})" for name, value in looking.items())
    report.metrics[f"{kind}.heads"] = []
    examples = tellable(subject, patterns, kind, rule.seed, alpha=rule.alpha, least=rule.least)
    if examples is None:
        report.abstain(
            f"attention {WORDS[kind]} is there ({named}), but content and position cannot be told "
            "apart: in nearly all examples such keys stand at the same places, or the examples are "
            "too few, and no sequences with other distances can be made of their tokens"
        )
        return
    values, null = gain(examples, rule.seed, rule.samples)
    by_head = dict(zip(patterns.names, values.tolist(), strict=True))
    above = dict(zip(patterns.names, rule.above(values, null).tolist(), strict=True))
    heads = {name: value for name, value in looking.items() if above[name]}
    most = max(by_head[name] for name in looking)
    where = "tokens repeated at random distances" if examples.repeated else "the examples"
    report.metric(f"{kind}.by_content", by_head)
    report.metric(
        f"{kind}.by_content_largest",
        most,
        null=null,
        how=f"which keys count dealt anew among {where}, the largest of any head",
    )
    report.metric(f"{kind}.heads", list(heads))
    report.finding(
        _kind_sentence(kind, heads),
        question=f"whether a head looks {WORDS[kind]} wherever that stands",
        otherwise=(
            f"No head looks {WORDS[kind]} wherever that stands: {named}, but over {where} at most "
            f"{round(most, 2) + 0.0:.2f} more than at the keys of other examples"
        ),
        holds=bool(heads),
        null=(f"{kind}.largest", f"{kind}.by_content_largest"),
        effect=most - float(null.mean()),
        least=rule.least,
        n=queries,
        at_chance=True,
    )


def _kind_sentence(kind: str, heads: dict[str, float]) -> str:
    named = ", ".join(f"{name} ({value:.2f})" for name, value in heads.items())
    alike = ", as induction heads do (what they write is not tested)" * (kind == "induction")
    return f"Heads that look {WORDS[kind]}{alike}: {named}"


def _largest_of(names: list[str]) -> str:
    """What the largest value in random order is of."""
    return f"the largest of {len(names)} heads there" if len(names) > 1 else "it there"


def _lost_among(
    report: Report,
    kind: str,
    names: list[str],
    values: Array,
    null: Array,
    ways: float,
    rule: Rule,
) -> str | None:
    """Why heads that are not of a kind by the largest of all heads are not denied to be, or None:
    their own null does not deny them.
    """
    largest = report.nulls[f"{kind}.largest"]
    if report.metrics[f"{kind}.heads"] or largest.too_few_arrangements(rule.alpha):
        return None
    untold = rule.untold(names, values, null, ways)
    if not untold:
        return None
    far = f"the largest of {len(names)} heads comes as far at random ({largest.p_text})"
    return f"{first_of(untold)} may, but {far}"


def add_target(report: Report, patterns: Patterns, target: list[int], rule: Rule) -> None:
    """Record how far heads follow a stated target, and what can be said of it."""
    values, best, null = agreement(patterns, target, rule.seed, rule.samples)
    how = "the largest mass of any head with the targets dealt anew among the queries"
    ways = dealings(*stated(patterns, target))
    heads = _named(report, "target", patterns.names, values, null, how, ways, rule)
    report.metrics["target.mass"] = report.metrics.pop("target.score")
    report.metric("target.argmax", dict(zip(patterns.names, best.tolist(), strict=True)))
    question = "whether a head follows the stated target"
    if reason := _lost_among(report, "target", patterns.names, values, null, ways, rule):
        report.abstain(reason, question)
        return
    named = ", ".join(
        f"{name} ({value:.2f} of its attention, its largest weight for "
        f"{report.metrics['target.argmax'][name]:.0%} of queries)"
        for name, value in heads.items()
    )
    report.finding(
        f"The stated target is followed by {named}",
        question=question,
        otherwise=(
            f"No head is told to follow the stated target: at most {values.max():.2f} of its "
            f"attention, where {_largest_of(patterns.names)} has {null.max(1).mean():.2f}"
        ),
        holds=bool(heads),
        null="target.largest",
        effect=rule.effect(values, null),
        least=rule.least,
        at_chance=True,
    )


def _named(
    report: Report,
    kind: str,
    names: list[str],
    values: Array,
    null: Array,
    how: str,
    arrangements: float,
    rule: Rule,
) -> dict[str, float]:
    """Records scores, the largest with its null, and the heads of the kind; returns these."""
    name, largest = f"{kind}.largest", float(values.max())
    scores = dict(zip(names, values.tolist(), strict=True))
    above = rule.above(values, null)
    heads = {name: scores[name] for name, one in zip(names, above, strict=True) if one}
    report.metric(f"{kind}.score", scores)
    every = Null.sampled(name, largest, null.max(1), how, arrangements)
    report.metric(name, largest, null=every)
    report.metric(f"{kind}.heads", list(heads))
    return heads
