"""Tests of parts: faithfulness, interchange, completeness and causal scrubbing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from mechint.decide import Evidence, decide
from mechint.explanation.explanation import Explanation
from mechint.explanation.measure import MIN_INPUTS, Bench, Fit, counted_share
from mechint.explanation.parts import Part, Values
from mechint.explanation.records import HEADLINES, KEEPS, LOST, Test, judge_share
from mechint.explanation.sources import same_values
from mechint.interventions import Intervention

MIN_PAIRS = 128
"""Pairs of judged inputs that are exchanged, at least: few inputs are taken with several others."""
CHANGED, MAX_ROUNDS = 400, 8
"""Pairs whose answer an interchange changes, before no more others are taken for each; at most."""
SETTLING_PAIRS = 100
"""Pairs of judged inputs on which variables are seen to settle the answer, at least."""
NAMED = 8
"""Features that the words of a test list, at most."""
Fits = Mapping[str, Fit]
"""A part in words, name and site → its fit."""


@dataclass(frozen=True, eq=False)
class Exchange:
    """Inputs whose sites are taken from the values `old` to `new`, and the answers due to that.

    base, source: rows of the subject's data; counted: those on which the labels could fail to come.
    """

    base: Int[Tensor, " n"]
    source: Int[Tensor, " n"]
    old: Values
    new: Values
    labels: Int[Tensor, "n output"]
    counted: Bool[Tensor, " n"]

    def edits(self, bench: Bench, parts: Sequence[Part], fits: Fits) -> list[Intervention]:
        """The edits that exchange these parts; those without features take the whole site."""
        return [
            bench.exchange(part.site, self.source)
            if part.features is None
            else bench.edit(fits[str(part)], self.old, self.new)
            for part in parts
        ]

    def right(self, bench: Bench, edits: Sequence[Intervention]) -> Bool[Tensor, " counted"]:
        """Return whether the labels come under these edits, of those that count."""
        logits = bench.logits(self.base, edits)
        return bench.right(logits, self.labels).cpu()[self.counted]

    def of(self, bench: Bench, parts: Sequence[Part], fits: Fits) -> Evidence:
        """The share of labels that come when these parts are exchanged."""
        return counted_share(self.right(bench, self.edits(bench, parts, fits)))


def exchange_rest(bench: Bench) -> Exchange:
    """Every judged input filled with the values of another, whose answer differs."""
    n, rounds = len(bench.judged), count_rounds(bench)
    base = torch.cat([bench.judged[bench.order("refill", n, i)] for i in range(rounds)])
    rows = bench.judged.repeat(rounds)
    # of few answers most others are the same, whatever is filled in
    labels = bench.targets(rows)
    differ = (bench.targets(base) != labels).any(1).cpu()
    return Exchange(base, rows, bench.values(base), bench.values(rows), labels, differ)


def count_rounds(bench: Bench) -> int:
    """The number of others that each judged input is paired with."""
    return math.ceil(MIN_PAIRS / len(bench.judged))


def exchanging(bench: Bench, names: Sequence[str], rounds: int | None = None) -> Exchange:
    """The variables `names` taken from other inputs, and what follows from them, counted where the
    answer changes.
    """
    rounds = count_rounds(bench) if rounds is None else rounds
    base = bench.judged.repeat(rounds)
    own, rows = bench.values(base), bench.sources(names, base)
    source = bench.values(rows)
    new = bench.values(base, {name: source[name] for name in names})
    labels = bench.labels(new)
    changed = (labels != bench.labels(own)).any(1).cpu()
    if 0 < int(changed.sum()) < CHANGED and rounds < MAX_ROUNDS:
        return exchanging(bench, names, min(2 * rounds, MAX_ROUNDS))
    return Exchange(base, rows, own, new, labels, changed)


def faithfulness(bench: Bench, explanation: Explanation, fits: Fits, nulls: Fits) -> list[Test]:
    """Accuracy when the parts of one depth come from the program and all else at their sites from
    other inputs, on those whose answer differs: of the depths whose variables settle the answer.
    """
    exchange, tests = exchange_rest(bench), list[Test]()
    for level in levels(explanation):
        parts = [part for part in level if part.features is not None]
        if not parts or not settles(bench, collect_variables(level)):
            continue
        null = exchange.of(bench, parts, nulls) if all(str(one) in nulls for one in parts) else None
        found = exchange.of(bench, parts, fits)
        # a part that does not settle the answer, and without which the others do, is not tested
        needed = [
            part
            for part in parts
            if settles(bench, {*part.variables})
            or not settles(bench, collect_variables(one for one in level if one is not part))
        ]
        skill = bench.skill_at(exchange.labels[exchange.counted])
        of = find_tested(bench, exchange, parts, fits, needed)
        target = " and ".join(part.name for part in parts)
        said = in_features("faithfulness", target, parts)
        tests.append(
            judge_share("faithfulness", target, of, found, skill, null=null, headline=said)
        )
    return tests


def in_features(kind: str, target: str, parts: Iterable[Part]) -> str:
    """The words of a test of parts that hold their variables in named features; "" of others."""
    names = dict.fromkeys(block for part in parts for block in part.blocks)
    some = f"features {', '.join(names)}" if len(names) <= NAMED else f"{len(names)} features"
    return HEADLINES[kind].format(f"{target} in {some}") if names else ""


def collect_variables(parts: Iterable[Part]) -> set[str]:
    """The variables that parts hold."""
    return {name for part in parts for name in part.variables}


def settles(bench: Bench, held: set[str]) -> bool:
    """Return whether the answer follows from these variables alone: given those of another input it
    is that input's, on all pairs that are tried.
    """
    rows = bench.judged
    for sample in range(math.ceil(SETTLING_PAIRS / len(rows))):
        values = bench.values(rows)
        base = rows[bench.order("settles", len(rows), sample)]
        made = bench.values(base, {name: values[name] for name in held})
        if not torch.equal(bench.labels(made), bench.labels(values)):
            return False
    return True


def interchanges(bench: Bench, explanation: Explanation, fits: Fits, nulls: Fits) -> list[Test]:
    """Accuracy on the program's counterfactual answers, where these differ from the own: for every
    variable at every depth that holds it, given the others, and for all inputs of a depth jointly.

    A variable is never changed at two depths at once: what reaches the second from the first would
    be counted twice.
    """
    tests = list[Test]()
    for level in levels(explanation):
        held = collect_variables(level)
        swaps = [[name] for name in explanation.held if name in held]
        inputs = [name for name in explanation.inputs if name in held]
        swaps += [inputs] if len(inputs) > 1 else []
        for names in swaps:
            parts = [part for part in level if set(part.variables) & set(names)]
            exchange = exchanging(bench, names)
            fitted = [str(part) for part in parts if part.features is not None]
            known = fitted and all(name in nulls for name in fitted)
            tests.append(
                judge_share(
                    "interchange",
                    target := " and ".join(names),
                    find_tested(bench, exchange, parts, fits, parts),
                    exchange.of(bench, parts, fits),
                    bench.skill_at(exchange.labels[exchange.counted]),
                    null=exchange.of(bench, parts, nulls) if known else None,
                    where=str(parts[0].site),
                    headline=in_features("interchange", target, parts),
                )
            )
    return tests


def find_tested(
    bench: Bench, exchange: Exchange, parts: Sequence[Part], fits: Fits, asked: Sequence[Part]
) -> tuple[str, ...]:
    """The claims among `asked` of which an exchange of several parts tells: not of one whose
    variable others hold, too, that gives the labels with them alone and not alone with its own.
    """
    skill = bench.skill_at(exchange.labels[exchange.counted])

    def gives(some: Sequence[Part]) -> bool:
        found = exchange.of(bench, some, fits)
        return bool(decide(found, bound=KEEPS, chance=skill, least=MIN_INPUTS))

    def idle(part: Part) -> bool:
        others = [one for one in parts if one is not part]
        shared = collect_variables(others) & {*part.variables}
        return bool(shared) and gives(others) and not gives([part])

    return tuple(str(part) for part in asked if not idle(part))


def levels(explanation: Explanation) -> list[list[Part]]:
    """The parts, those at one hook together."""
    found: dict[str, list[Part]] = {}
    for part in explanation.parts:
        found.setdefault(part.site.hook, []).append(part)
    return list(found.values())


def completeness(bench: Bench, fit: Fit) -> Test:
    """Accuracy on the own answers when the part takes the values of another input."""
    base, own = bench.judged, bench.values(bench.judged)
    other = bench.values(base[bench.order("necessity", len(base))])
    labels = bench.targets(base)
    changed = (bench.labels(other) != bench.labels(own)).any(1).cpu()
    right = bench.right(bench.logits(base, [bench.edit(fit, own, other)]), labels).cpu()
    found, skill = counted_share(right[changed]), bench.skill_at(labels[changed])
    of = (str(fit.part),)
    said = in_features("completeness", fit.part.name, [fit.part])
    return judge_share(
        "completeness",
        fit.part.name,
        of,
        found,
        skill,
        bound=LOST,
        label="share left",
        headline=said,
    )


def causal_scrubbing(bench: Bench, part: Part) -> Test:
    """Accuracy when the whole site comes from another input with the same values: no fit. A site
    that does nothing passes, so that only a failure says something.
    """
    own, found = bench.values(bench.judged), Evidence.share(0, 0)
    codes = torch.stack([own[name] for name in part.variables], 1).cpu()
    partner = same_values(codes, "resample", bench.seed)
    kept = (partner != torch.arange(len(partner))).nonzero().flatten()
    rows = bench.judged[kept]
    labels = bench.targets(rows)
    if len(rows):
        source = bench.exchange(part.site, bench.judged[partner[kept]])
        found = bench.kept(bench.logits(rows, [source]), labels)
    return judge_share(
        "causal scrubbing", part.name, (str(part),), found, bench.skill_at(labels), refutes=True
    )
