"""The audit of an explanation: fitted on one half of the inputs, judged on the other.

Every edit is additive, h + (features(new) - features(old)) W, and leaves the rest of the site as it
is: projecting on a fitted subspace would accept wrong representations. Each test has a null, an
explanation by features that are not in it, fitted as hard. The bounds are constants of this module.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

import mechint.explanation.claims as claims
from mechint.decide.intervals import wilson
from mechint.explanation.explanation import Explanation, program_text
from mechint.explanation.measure import (
    MIN_INPUTS,
    Bench,
    Fit,
    centered,
    moved_tag,
    partial,
    r2,
    ridge,
)
from mechint.explanation.parts import Link, Part, Route, Templates
from mechint.interventions import Replace, Site
from mechint.probe.results import to_jsonable
from mechint.subject import Subject
from mechint.task import rng

BOUND = 0.9
"""Share of the model's own accuracy that refills, resamples and interchanges have to keep."""
NECESSITY = 0.15
"""Accuracy above chance that may be left once a part is exchanged."""
NULL = 0.5
"""Share of the model's accuracy above chance that a null may reach at most."""
MATCH = 0.5
"""R² of the logits from which a match is evidence, and above the rival's."""
AGREE = 0.9
"""Share of the model's answers that fitted templates have to give."""
SAME = 1e-4
"""Difference of two R² below which terms and right answer are one."""
MOVED, MOVED_NULL = 0.8, 0.05
"""Share of answers that have to follow a tag that is moved, and that may follow a wrong one."""
PARTIAL = 0.5
"""R² of the predicted change of the logits when one block alone is exchanged."""
LEVEL = 0.05
"""Level of the rank test of each block against spare blocks of equal dimension."""


@dataclass(frozen=True)
class Test:
    """One number of an audit.

    kind: match, agreement, refill, resample, necessity, interchange, partial, minimality, route,
    link or attention;
    target: what it is about; value, null, rival: shares or R²; bound: what the value has to reach
    (or, for necessity, stay below); n: judged inputs; status: passed, failed or vacuous; of
    attention "used" or "not used".
    """

    kind: str
    target: str
    value: float
    bound: float
    n: int
    status: str
    null: float | None = None
    rival: float | None = None

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval (Wilson) of a share; the value twice for an R², or where it is vacuous."""
        if self.kind in ("match", "partial", "minimality") or math.isnan(self.value):
            return self.value, self.value
        return wilson(round(min(max(self.value, 0.0), 1.0) * self.n), self.n)

    def to_dict(self) -> dict[str, Any]:
        """The fields and the interval as JSON values, "nan" where the test is vacuous."""
        return to_jsonable({**vars(self), "interval": list(self.interval)})


@dataclass(frozen=True)
class Audit:
    """An explanation with what its tests came to.

    standing: "stands"; "incomplete", nothing false, but it does not suffice; "superfluous", a block
    is not needed; "wrong", a null or a rival does as well, or an interchange contradicts it;
    "refused", the model is at chance or nothing was proposed; "abstains", too few inputs.
    unaccounted: shares of logits and accuracy that the explanation leaves. missing: the largest
    effects that no part names.
    """

    explanation: Explanation
    standing: str
    tests: tuple[Test, ...] = ()
    accuracy: float = math.nan
    unaccounted: dict[str, float] = field(default_factory=dict[str, float])
    missing: tuple[str, ...] = ()
    superfluous: tuple[str, ...] = ()
    reason: str = ""
    n: int = 0
    seconds: float = 0.0
    path: str = ""

    def value(self, kind: str, target: str | None = None) -> float:
        """The least value of the tests of a kind; NaN where there is none."""
        found = [t.value for t in self.tests if t.kind == kind and target in (None, t.target)]
        return min(found, default=math.nan)

    @property
    def rank(self) -> tuple[int, float]:
        """Place in a list of audits: standing first, then what is left of logits and accuracy."""
        order = ("stands", "superfluous", "incomplete", "wrong", "abstains", "refused")
        left = {"logits": 1.0, "accuracy": 1.0, **self.unaccounted}
        return order.index(self.standing), left["logits"] + left["accuracy"]

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "family": self.explanation.family,
            "name": self.explanation.name,
            "standing": self.standing,
            "reason": self.reason,
            "program": "\n".join([program_text(self.explanation), *self._attention()]),
            "parts": [
                {"name": part.name, "site": str(part.site), "blocks": list(part.blocks)}
                for part in self.explanation.parts
            ],
            "routes": [str(route) for route in self.explanation.routes],
            "links": [str(link) for link in self.explanation.links],
            "accuracy": to_jsonable(self.accuracy),
            "n": self.n,
            "unaccounted": self.unaccounted,
            "missing": list(self.missing),
            "notes": list(self.explanation.notes),
            "superfluous": list(self.superfluous),
            "tests": [test.to_dict() for test in self.tests],
            "seconds": self.seconds,
        }

    def _attention(self) -> list[str]:
        """A line for every test of whether attention depends on the input."""
        said = {"used": "depends on the input", "not used": "may be that of any other input"}
        tests = [test for test in self.tests if test.kind == "attention"]
        return [
            f"{one.target.partition(' attention')[0]}: attention {said[one.status]}"
            for one in tests
        ]


def audit(
    subject: Subject,
    *claimed: Explanation | Part | Route | Any,
    seed: int = 0,
    examples: int = 3000,
) -> Audit:
    """Audit an explanation, or the parts and routes of one, on a subject.

    Args:
        claimed: an Explanation; or Parts, Routes and claims of `head`, `neurons` and `site`, which
            are audited together under the task's own program.
        examples: distinct inputs, half of which are fitted and half judged.

    Raises:
        NotApplicableError: the task states no program. ParameterError: a claim names nothing of the
            model or the program.
    """
    start = time.perf_counter()
    explanation = claims.explanation_of(subject, claimed)
    bench = Bench(subject, explanation.program, seed, examples)
    found = audit_on(bench, explanation)
    known = subject.provenance["checkpoint"].get("path", "")
    return Audit(**{**vars(found), "seconds": time.perf_counter() - start, "path": str(known)})


def audit_on(bench: Bench, explanation: Explanation) -> Audit:
    """Audit an explanation on the halves of a bench."""
    n = len(bench.judged)
    if n < MIN_INPUTS:
        return Audit(explanation, "abstains", reason=f"{n} judged inputs, {MIN_INPUTS} needed", n=n)
    if not beats_chance(bench):
        reason = f"the model answers at chance: {bench.accuracy:.1%} of {n}"
        return Audit(explanation, "refused", accuracy=bench.accuracy, reason=reason, n=n)
    fits = {part.name: bench.fit(part) for part in explanation.parts if part.features is not None}
    spare = explanation.spare(0) if explanation.spare is not None else None
    others = spare.parts if spare is not None else ()
    nulls = {part.name: bench.fit(part) for part in others if part.features is not None}
    tests: list[Test] = []
    for part in explanation.parts:
        if part.reads:
            tests += _match(bench, fits[part.name], nulls.get(part.name))
    tests += _refills(bench, explanation, fits, nulls)
    tests += _interchanges(bench, explanation, fits, nulls)
    for part in explanation.parts:
        if part.features is None:
            tests += _resample(bench, part)
        elif part.reads:
            tests += _necessity(bench, fits[part.name])
            tests += _resample(bench, part)
            tests += _blocks(bench, explanation, fits[part.name], list(fits.values()))
    if explanation.templates is not None:
        tests += _templates(bench, explanation.templates, explanation.template_spare)
    tests += [_route(bench, route) for route in explanation.routes]
    tests += [_link(bench, link) for link in explanation.links]
    return _judge(bench, explanation, tests)


def beats_chance(bench: Bench) -> bool:
    """Return whether the model answers the judged half better than the best constant of its data,
    at 0.001, and than the best of that half, where each input stands once.
    """
    from scipy import special  # scipy.stats would take a second to import

    n, targets = len(bench.judged), bench.targets(bench.judged)
    if bench.accuracy * n <= targets.unique(dim=0, return_counts=True)[1].max() < n:
        return False
    hits: Any = round(bench.accuracy * n)
    return hits > 0 and bool(special.bdtrc(hits - 1, n, min(bench.chance, 1.0)) <= 1e-3)


# --- the tests ------------------------------------------------------------------------------------
def _passes(bench: Bench, value: float, null: float | None) -> str:
    enough = value >= BOUND * bench.accuracy
    return "passed" if enough and (null is None or null <= halfway(bench)) else "failed"


def halfway(bench: Bench) -> float:
    """The most that a null may reach: `NULL` of the way from chance to the model's accuracy."""
    return bench.chance + NULL * (bench.accuracy - bench.chance)


def _match(bench: Bench, fit: Fit, null: Fit | None) -> list[Test]:
    """R² of the logits from the features, fitted on one half; the rival is the right answer."""
    assert bench.subject.task is not None
    slices = list(bench.subject.task.output_slices.values())
    own = bench.centered_logits
    mean = own[bench.fitted].mean(0)

    def of(features: Any) -> float:
        weights, bias = bench.read(features)
        phi = features(bench.values(bench.judged)).double()
        return r2(own[bench.judged] - mean, phi @ weights + bias - mean)

    value = of(fit.part.features)
    rival = _right_answer(bench, own, mean, slices)
    other = None if null is None else of(null.part.features)
    good = value >= MATCH and value > rival and (other is None or other < MATCH * value)
    return [
        Test(
            "match",
            fit.part.name,
            value,
            MATCH,
            len(bench.judged),
            "passed" if good else "failed",
            other,
            rival,
        )
    ]


def _right_answer(bench: Bench, own: Tensor, mean: Tensor, slices: Sequence[slice]) -> float:
    """R² of the logits by one constant on the right answer."""

    def template(rows: Tensor) -> Tensor:
        labels, found = bench.targets(rows).cpu(), torch.zeros(len(rows), own.shape[1]).double()
        for column, part in enumerate(slices):
            asked = labels[:, column] >= 0
            found[asked.nonzero().flatten(), part.start + labels[asked, column]] = 1
        return centered(found, slices)

    x, y = template(bench.fitted), own[bench.fitted] - mean
    center = x.mean(0)
    scale = float(((x - center) * y).sum() / (x - center).square().sum().clamp_min(1e-12))
    return r2(own[bench.judged] - mean, scale * (template(bench.judged) - center))


def _refills(
    bench: Bench, explanation: Explanation, fits: dict[str, Fit], nulls: dict[str, Fit]
) -> list[Test]:
    """Accuracy when the parts of one depth come from the program and all else at their sites from
    other inputs, on those whose answer differs: of the depths whose variables settle the answer.
    """
    base, rows = bench.judged[bench.order("refill", len(bench.judged))], bench.judged
    # of few answers most others are the same, whatever is filled in
    differ = (bench.targets(base) != bench.targets(rows)).any(1).cpu()
    if not bool(differ.any()):
        return []
    base, rows = base[differ], rows[differ]
    old, own, labels = bench.values(base), bench.values(rows), bench.targets(rows)

    def accuracy(with_: dict[str, Fit], names: list[str]) -> float:
        edits = [bench.edit(with_[name], old, own) for name in names]
        return bench.share(bench.logits(base, edits), labels)

    tests = []
    for parts in _levels(explanation):
        names = [part.name for part in parts if part.features is not None]
        if not names or not _settles(bench, parts):
            continue
        value = accuracy(fits, names)
        null = accuracy(nulls, names) if all(name in nulls for name in names) else None
        target = ", ".join(names)
        status = _passes(bench, value, null)
        tests.append(Test("refill", target, value, BOUND, len(base), status, null))
    return tests


def _settles(bench: Bench, parts: Sequence[Part]) -> bool:
    """Return whether the answer follows from the variables of these parts alone."""
    held = {name for part in parts for name in part.variables}
    answers = [name for name in bench.answers if name is not None]
    needed = bench.program.needed(answers, held)
    return all(name in held or bench.program.variables[name].parents for name in needed)


def _interchanges(
    bench: Bench, explanation: Explanation, fits: dict[str, Fit], nulls: dict[str, Fit]
) -> list[Test]:
    """Accuracy on the program's counterfactual answers, where these differ from the own: for every
    variable at every depth that holds it, given the others, and for all inputs of a depth jointly.

    A variable is never changed at two depths at once: what reaches the second from the first would
    be counted twice.
    """
    tests = list[Test]()
    for level in _levels(explanation):
        held = {name for part in level for name in part.variables}
        swaps = [[name] for name in explanation.held if name in held]
        inputs = [name for name in explanation.inputs if name in held]
        swaps += [inputs] if len(inputs) > 1 else []
        for names in swaps:
            parts = [part for part in level if set(part.variables) & set(names)]
            tests.append(_swap(bench, names, parts, fits, nulls))
    return tests


def _swap(
    bench: Bench,
    names: Sequence[str],
    parts: Sequence[Part],
    fits: dict[str, Fit],
    nulls: dict[str, Fit],
    rounds: int = 1,
) -> Test:
    """One interchange: `parts` take the values that follow from the `names` of other inputs; parts
    without features take the whole site from these. Few inputs are taken with several others each.
    """
    base = bench.judged.repeat(rounds)
    own = bench.values(base)
    rows = bench.sources(names, base)
    source = bench.values(rows)
    new = bench.values(base, {name: source[name] for name in names})
    labels = bench.labels(new)
    changed = (labels != bench.labels(own)).any(1)
    n, target = int(changed.sum()), f"{' and '.join(names)} at {parts[0].site}"
    if MIN_INPUTS // 2 <= n < MIN_INPUTS and rounds == 1:
        return _swap(bench, names, parts, fits, nulls, rounds=4)
    if n < MIN_INPUTS:
        return Test("interchange", target, math.nan, BOUND, n, "vacuous")

    def accuracy(with_: dict[str, Fit]) -> float:
        edits = [
            bench.exchange(part.site, rows)
            if part.features is None
            else bench.edit(with_[part.name], own, new)
            for part in parts
        ]
        return float(bench.right(bench.logits(base, edits), labels)[changed].double().mean())

    value = accuracy(fits)
    fitted = [part.name for part in parts if part.features is not None]
    null = accuracy(nulls) if fitted and all(name in nulls for name in fitted) else None
    return Test("interchange", target, value, BOUND, n, _passes(bench, value, null), null)


def _levels(explanation: Explanation) -> list[list[Part]]:
    """The parts, those at one hook together."""
    found: dict[str, list[Part]] = {}
    for part in explanation.parts:
        found.setdefault(part.site.hook, []).append(part)
    return list(found.values())


def _necessity(bench: Bench, fit: Fit) -> list[Test]:
    """Accuracy on the own answers when the part takes the values of another input."""
    base, own = bench.judged, bench.values(bench.judged)
    other = bench.values(base[bench.order("necessity", len(base))])
    logits = bench.logits(base, [bench.edit(fit, own, other)])
    changed = (bench.labels(other) != bench.labels(own)).any(1)
    if int(changed.sum()) < MIN_INPUTS:
        return []
    value = float(bench.right(logits, bench.targets(base))[changed].double().mean())
    bound = bench.chance + NECESSITY
    status = "passed" if value <= bound else "failed"
    return [Test("necessity", fit.part.name, value, bound, int(changed.sum()), status)]


def _resample(bench: Bench, part: Part) -> list[Test]:
    """Accuracy when the whole site comes from another input with the same values: no fit."""
    own = bench.values(bench.judged)
    keys = torch.stack([own[name] for name in part.variables], 1)
    _, group = torch.unique(keys, dim=0, return_inverse=True)
    order = torch.argsort(group * len(group) + bench.order("resample", len(group)))
    partner, place = torch.empty_like(order), group[order]
    starts = torch.cat([torch.tensor([0]), (place[1:] != place[:-1]).nonzero().flatten() + 1])
    ends = torch.cat([starts[1:], torch.tensor([len(order)])])
    alone = torch.zeros(len(order), dtype=torch.bool)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        partner[order[start:end]] = order[start:end].roll(1)
        alone[order[start:end]] = end - start == 1
    kept = (~alone).nonzero().flatten()
    if len(kept) < MIN_INPUTS:
        return []
    rows, source = bench.judged[kept], bench.judged[partner[kept]]
    edit = bench.exchange(part.site, source)
    found = bench.share(bench.logits(rows, [edit]), bench.targets(rows))
    return [Test("resample", part.name, found, BOUND, len(rows), _passes(bench, found, None))]


def _blocks(bench: Bench, explanation: Explanation, fit: Fit, fits: Sequence[Fit]) -> list[Test]:
    """Each block alone: R² of the predicted change of the logits when it is exchanged where it
    enters, and whether exchanging it changes the logits more than exchanging spare blocks of the
    same dimension does.
    """
    if len(fit.part.blocks) < 2 or bench.subject.task is None:
        return []
    base = bench.judged
    own, other = bench.exchanged
    entering = [one for one in fits if not one.part.reads]

    def change(one: Fit, columns: slice | None) -> Tensor:
        return bench.change([bench.edit(one, own, other, columns)])

    tests, nulls = list[Test](), dict[int, list[float]]()
    for name, columns in fit.part.blocks.items():
        changed = change(fit, columns)
        if first := [one for one in entering if name in one.part.blocks]:
            value = partial(bench, fit, first, name)
            status = "passed" if value >= PARTIAL else "failed"
            tests.append(Test("partial", name, value, PARTIAL, len(base), status))
        if explanation.spare_blocks is None:
            continue
        size, width = float(changed.square().mean()), columns.stop - columns.start
        if width not in nulls:
            nulls[width] = [
                float(change(bench.fit_features(fit.part, spare), None).square().mean())
                for spare in explanation.spare_blocks(fit.part, name)
            ]
        null = nulls[width]
        if not null:
            continue
        p_value = (1 + sum(one >= size for one in null)) / (1 + len(null))
        level = max(LEVEL, 1 / (1 + len(null)))
        status = "passed" if p_value <= level + 1e-9 else "failed"
        ratio = size / max(*null, 1e-12)
        tests.append(Test("minimality", name, p_value, level, len(base), status, ratio))
    return tests


def _route(bench: Bench, route: Route) -> Test:
    """Accuracy when the heads attend as the route says: to one key from the answer, or with the
    patterns of other inputs.
    """
    rows, heads = bench.judged, torch.tensor(route.heads)
    site = Site(f"blocks.{route.layer}.attn.hook_pattern")
    own = bench.subject.activation(site.hook)[rows]  # (example, head, query, key)
    every, at = torch.arange(len(rows))[:, None], bench.subject.answer_positions[rows].cpu()

    def accuracy(attention: Tensor) -> float:
        edit = Replace(site, attention.transpose(1, 2))  # a site's positions stand second
        return bench.share(bench.logits(rows, [edit]), bench.targets(rows))

    if route.key is None:
        other = own.clone()
        other[:, heads] = own[bench.order("route", len(rows))][:, heads]
        value = accuracy(other)
        status = "not used" if _passes(bench, value, None) == "passed" else "used"
        return Test("attention", str(route), value, BOUND, len(rows), status)
    keys = route.key(bench.tokens(rows), bench.at_answer(rows)).cpu()
    reached = []
    for chosen in (keys, other_keys(bench, keys, at)):
        hard = own.clone()
        hard[every, heads, at[:, None]] = one_hot_keys(chosen, own)[:, None]
        reached.append(accuracy(hard))
    status = _passes(bench, *reached)
    return Test("route", str(route), reached[0], BOUND, len(rows), status, reached[1])


def _templates(bench: Bench, own: Templates, spare: Templates | None) -> list[Test]:
    """R² of the logits from a few terms with one fitted constant each, and the share of the model's
    answers that they give; the rival is the right answer. Vacuous where the terms are the right
    answer on these inputs.
    """
    assert bench.subject.task is not None
    slices = list(bench.subject.task.output_slices.values())
    logits = bench.centered_logits
    mean, judged = logits[bench.fitted].mean(0), bench.judged

    def of(templates: Templates) -> tuple[float, float]:
        terms = {
            rows: centered_terms(templates(bench.tokens(part), bench.at_answer(part)), slices)
            for rows, part in (("fitted", bench.fitted), ("judged", judged))
        }
        center = terms["fitted"].mean(1, keepdim=True)
        x = (terms["fitted"] - center).flatten(1).T
        weights = ridge(x, (logits[bench.fitted] - mean).flatten()[:, None])[:, 0]
        made = torch.einsum("j,jnc->nc", weights, terms["judged"] - center)
        same = [
            (made + mean)[:, s].argmax(1) == bench.own_logits[judged][:, s].argmax(1)
            for s in slices
        ]
        return r2(logits[judged] - mean, made), float(torch.stack(same).all(0).double().mean())

    value, agrees = of(own)
    other = (None, None) if spare is None else of(spare)
    rival = _right_answer(bench, logits, mean, slices)
    n = len(judged)
    if abs(value - rival) < SAME:
        return [Test("match", "terms", math.nan, MATCH, n, "vacuous", other[0], rival)]
    good = value >= MATCH and value > rival and (other[0] is None or other[0] < MATCH * value)
    status = "passed" if good else "failed"
    agreed = "passed" if agrees >= AGREE else "failed"
    return [
        Test("match", "terms", value, MATCH, n, status, other[0], rival),
        Test("agreement", "terms", agrees, AGREE, n, agreed, other[1], bench.accuracy),
    ]


def centered_terms(terms: Tensor, slices: Sequence[slice]) -> Tensor:
    """Terms (template, n, d_vocab_out) above the mean class of their output."""
    return torch.stack([centered(one.double().cpu(), slices) for one in terms])


def _link(bench: Bench, link: Link) -> Test:
    """Share of answers that follow the tag when it is moved, beside the tag of a third position."""
    value, null, n = moved_tag(bench, link, bench.judged)
    if n < MIN_INPUTS:
        return Test("link", str(link), math.nan, MOVED, n, "vacuous")
    status = "passed" if value >= MOVED and null <= MOVED_NULL else "failed"
    return Test("link", str(link), value, MOVED, n, status, null)


def other_keys(bench: Bench, keys: Tensor, at: Tensor) -> Tensor:
    """The keys of other inputs; where these are the same, another position up to the answer's."""
    other = keys[bench.order("route null", len(keys))]
    draw = torch.from_numpy(rng("explain route null", bench.seed).integers(1, 1 << 30, len(keys)))
    another = (keys + 1 + draw % at.clamp(min=1)) % (at + 1)
    return torch.where(other == keys, another, other)


def one_hot_keys(keys: Tensor, pattern: Tensor) -> Tensor:
    """(example, key) all attention on one key."""
    return torch.nn.functional.one_hot(keys, pattern.shape[-1]).to(pattern)


# --- the standing ---------------------------------------------------------------------------------
def _judge(bench: Bench, explanation: Explanation, tests: list[Test]) -> Audit:
    """The standing from the tests, and what is left unaccounted."""
    match = min((t.value for t in tests if t.kind == "match"), default=math.nan)
    kept = [t.value for t in tests if t.kind in ("refill", "interchange", "route")]
    kept += [t.value for t in tests if t.kind == "agreement"]
    kept = [value for value in kept if not math.isnan(value)]
    unaccounted = {"accuracy": max(0.0, bench.accuracy - min(kept, default=0.0))}
    if not math.isnan(match):
        unaccounted["logits"] = min(max(1 - match, 0.0), 1.0)
    superfluous = tuple(t.target for t in tests if t.kind == "minimality" and t.status == "failed")
    failed = [t for t in tests if t.status == "failed" and t.kind != "minimality"]
    failed = [t for t in failed if t.kind != "partial" or t.target not in superfluous]
    # a site that does nothing may come from any input with the same values
    passed = [t for t in tests if t.status == "passed" and t.kind != "resample"]
    tested = passed + [t for t in tests if t.status == "failed"]
    wrong = [t for t in failed if _is_wrong(bench, t)]
    reason = ""
    fixed = [t for t in tests if t.kind == "attention"]
    if not tested and fixed:  # nothing is claimed but that attention is not used
        used = any(t.status == "used" for t in fixed)
        standing, reason = ("wrong", _words(fixed[0])) if used else ("stands", "")
    elif not tested:
        standing, reason = "abstains", "no claim of it changes an answer"
    elif wrong:
        standing, reason = "wrong", _words(wrong[0])
    elif failed:
        standing, reason = "incomplete", _words(failed[0])
    elif superfluous:
        standing, reason = "superfluous", f"not needed: {', '.join(superfluous)}"
    else:
        standing = "stands"
    return Audit(
        explanation,
        standing,
        tuple(tests),
        bench.accuracy,
        unaccounted,
        superfluous=superfluous,
        reason=reason,
        n=len(bench.judged),
    )


def _is_wrong(bench: Bench, test: Test) -> bool:
    """Return whether a failed test contradicts the explanation, or shows it incomplete."""
    if test.kind == "match":
        return test.rival is not None and test.value <= test.rival
    if test.kind == "link":
        return test.value <= (test.null or 0.0)
    if test.kind in ("refill", "interchange", "route", "resample"):
        null = max(test.null or 0.0, bench.chance)
        return test.value < halfway(bench) or test.value <= null
    return test.kind == "necessity"


def _words(test: Test) -> str:
    """The number that failed beside what it had to exceed: its bound, else its null or rival."""
    against = f"bound {test.bound:.2f}"
    if test.kind != "necessity" and test.value >= test.bound:
        others = {"null": test.null, "right answer": test.rival}
        told = {name: value for name, value in others.items() if value is not None}
        if told:
            name = max(told, key=lambda one: told[one])
            against = f"{name} {told[name]:.3f}"
    return f"{test.kind} of {test.target}: {test.value:.3f}, {against}"
