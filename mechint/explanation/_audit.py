"""The audit of an explanation: fitted on one half of the inputs, judged on the other."""

# arguments are unpacked from tuples, and some values are typed more widely than they are
# pyright: reportAssignmentType=false
from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mechint.decide.words import STANDS
from mechint.explanation.checks.attention import copied, route
from mechint.explanation.checks.blocks import blocks
from mechint.explanation.checks.composed import source_tests
from mechint.explanation.checks.finer import finer
from mechint.explanation.checks.logits import match, program_answers
from mechint.explanation.checks.parts import (
    causal_scrubbing,
    completeness,
    faithfulness,
    interchanges,
)
from mechint.explanation.checks.words import find_untold_word
from mechint.explanation.claims import explanation_of
from mechint.explanation.explanation import Explanation
from mechint.explanation.followed import with_one_followed
from mechint.explanation.measure import (
    FEW_RIGHT,
    HALF_RIGHT,
    MAX_EXAMPLES,
    MIN_CLASS,
    MIN_INPUTS,
    SMALL,
    Bench,
    failing_class,
)
from mechint.explanation.parts import Part, Route
from mechint.explanation.records import Test
from mechint.explanation.source_program import SourceProgram
from mechint.explanation.sources import Sources
from mechint.explanation.standing import ORDER, Audit, judge, unaudited
from mechint.subject import Subject
from mechint.task import Program

NOISY = 3
"""Inputs that are answered by less than half of the usual margin, as a program says, for each that
is answered otherwise by more, from which noise explains these."""


def audit(
    subject: Subject,
    *claimed: Explanation | Part | Route | Any,
    seed: int = 0,
    examples: int = MAX_EXAMPLES,
    program: Program | str | Any = None,
) -> Audit:
    """Audit an explanation, or the parts and routes of one, on a subject.

    Args:
        claimed: an Explanation; or Parts, Routes and claims of `head`, `neurons` and `site`, under
            the task's own program. Each has its own standing in `claims`.
        examples: distinct inputs, half of which are fitted and half judged.
        program: what claims are made under in place of the task's own program: the name of a rival,
            a Program, or plain functions (`mechint.explanation.claims.program_of`).

    Raises:
        NotApplicableError: the task states no program. ParameterError: a claim names nothing of the
            model or the program.

    >>> from mechint import planted
    >>> from mechint.explanation import site
    >>> subject = planted.modular_addition(13, (2, 5)).subject
    >>> audit(subject, site("L0 resid_post @ answer").holds("answer")).standing
    'stands'
    """
    explanation = explanation_of(subject, claimed, program)
    bench = Bench.of(subject, explanation.program, seed, examples)
    return with_one_followed(bench, audit_on(bench, explanation))


def audit_on(bench: Bench, explanation: Explanation) -> Audit:
    """Audit an explanation on the halves of a bench."""
    bench = bench.under(explanation.program).among(explanation.among)
    n, program = len(bench.judged), explanation.over_sources
    if n < MIN_INPUTS and not bench.whole:
        return unaudited(bench, explanation, "untested", f"{n} judged inputs, {MIN_INPUTS} needed")
    if (reason := bench.skill.reason) and not (bench.constant or bench.whole):
        return unaudited(bench, explanation, "refused", reason)
    if program is None:
        return require_classes(bench, judge(bench, explanation, tests_of_parts(bench, explanation)))
    if program.otherwise is not None:
        return audit_of_branches(bench, explanation, program)
    sources = Sources(bench.subject, bench.judged)
    if program.function.tables and bool((sources.visible.sum(1) == 1).all()):
        said = "the answer sees one token, and any answer is a table of it"
        return unaudited(bench, explanation, "untested", said)
    tests = source_tests(sources, program, bench.seed, bench.whole)
    found = require_classes(bench, judge(bench, explanation, tests))
    if found.standing in STANDS:
        said = find_unshown_part(program, tests) or find_untold_word(sources, program, bench.seed)
        if said:
            return dataclasses.replace(found, standing="untested", reason=said)
    unknown = next(iter(program.ambiguous.values()), "")
    untested = found.standing in ("untested", "superfluous") and unknown
    return dataclasses.replace(found, reason=unknown) if untested else found


def tests_of_parts(bench: Bench, explanation: Explanation) -> list[Test]:
    """Every test of parts and routes under the program of a task."""
    fits, spare = bench.fits(explanation.parts), explanation.spare
    others = None if spare is None else spare(0)
    nulls = bench.fits(() if others is None else others.parts)
    reading = [part for part in explanation.parts if part.reads]
    moved = {
        str(part): list(blocks(bench, explanation, fits[str(part)], list(fits.values())))
        for part in reading
    }
    tests: list[Test] = [
        match(bench, fits[str(one)], nulls.get(str(one)), carried(one, moved[str(one)]))
        for one in reading
    ]
    tests += faithfulness(bench, explanation, fits, nulls)
    tests += interchanges(bench, explanation, fits, nulls)
    tests += finer(bench, explanation.parts)
    for part in explanation.parts:
        if part.features is None or part.reads:
            tests.append(causal_scrubbing(bench, part))
        if part.reads:
            tests.append(completeness(bench, fits[str(part)]))
            tests += moved[str(part)]
    tests += [test for one in explanation.routes for test in route(bench, one)]
    if explanation.copies:
        sources = Sources(bench.subject, bench.judged)
        tests += [test for one in explanation.copies for test in copied(bench, one, sources)]
    return tests


def require_classes(bench: Bench, found: Audit) -> Audit:
    """The audit, incomplete where it would stand and a class of inputs fails."""
    said = find_failing_class(bench, found.explanation) if found.standing in STANDS else ""
    return dataclasses.replace(found, standing="incomplete", reason=said) if said else found


def find_failing_class(bench: Bench, explanation: Explanation) -> str:
    """The class of inputs, of both halves, whose answers are not those of a program over sources,
    of the logits that are read off features, or of a task's program, in words; of one output that
    the program computes.
    """
    rows, program = torch.cat([bench.fitted, bench.judged]).unique(), explanation.over_sources
    logits = bench.own_logits[rows]
    own, classes = logits.argmax(1), dict[str, Tensor]()
    if program is not None:
        given = bench.tokens(rows).cpu(), bench.subject.answer_positions.cpu()[rows]
        classes, least = program.classes(*given), FEW_RIGHT
        right, answers = program.right(*given, own), program.answer(*given)
    elif len(bench.slices) > 1 or bench.answers == (None,):
        return ""
    else:
        values, least = bench.values(rows), HALF_RIGHT
        classes = {f"{name} == {{}}": one.cpu() for name, one in values.items()}
        features = [part.features for part in explanation.parts if part.reads]
        answers = program_answers(bench, rows, features[-1] if features else None)
        right = answers == own
    said = failing_class(right, {**classes, "the model's answer {}": own}, least)
    return said or count_clear_errors(logits, right, answers)


def audit_of_branches(bench: Bench, explanation: Explanation, program: SourceProgram) -> Audit:
    """The audit of a program with branches: each on its own inputs; it stands as the worst does."""
    audits, rest = list[Audit](), bench
    for one in program.branches:
        condition, inner = one.where, rest
        if condition is not None:
            inner = rest.where(condition.holds)
            rest = rest.where(lambda tokens, at, one=condition: ~one.holds(tokens, at))
        alone = dataclasses.replace(
            explanation,
            parts=tuple(part for _, part in one.parts()),
            routes=tuple(one.routes()),
            over_sources=dataclasses.replace(one, where=None, otherwise=None),
        )
        where = f"where {condition}" if condition is not None else "elsewhere"
        found = audit_on(inner, alone)
        tests = tuple(
            dataclasses.replace(
                test, target=f"{test.target} {where}", headline=f"{test.headline[:-1]} {where}."
            )
            for test in found.tests
        )
        reason = f"{where}: {found.reason}" if found.reason else ""
        audits.append(dataclasses.replace(found, tests=tests, reason=reason))
    worst = max(audits, key=lambda one: ORDER.index(one.standing))
    found = judge(bench, explanation, [test for one in audits for test in one.tests])
    found = dataclasses.replace(found, standing=worst.standing, reason=worst.reason)
    return require_classes(bench, found)


def find_unshown_part(program: SourceProgram, tests: Sequence[Test]) -> str:
    """The variables that no interchange, and where it is all, no ablation shows their sources to
    bring, in words; "" where there are none.
    """
    kinds = {"interchange", "moved key", "path patching"}
    if program.alone:
        kinds.add("faithfulness")
    for index, variables in enumerate(program.variables):
        claims = set(program.part_claims(index))
        if not any(
            test.kind in kinds and test.verdict == "yes" and not test.refutes
            for test in tests
            if claims & set(test.of)
        ):
            return f"no test shows which part brings {', '.join(one.python for one in variables)}"
    return ""


def count_clear_errors(
    logits: Float[Tensor, "n answer"], right: Bool[Tensor, " n"], answers: Int[Tensor, " n"]
) -> str:
    """The number of inputs that the model answers otherwise by a clear margin, in words; "" where
    they are so few that no class of 1%, or of `MIN_CLASS`, can be wrong by half. Their margin is
    more than half of that of the middle input that is answered as the program says; noise that
    brings so many has the model waver, by less, on `NOISY` times as many that it says rightly.
    """
    first, second = logits.topk(2).values.T
    inside = (answers >= 0) & (answers < logits.shape[1])
    said = logits.gather(1, (answers * inside)[:, None])[:, 0].where(inside, -torch.inf)
    half = (first - second)[right].median() / 2
    clear, wavers = int((first - said > half)[~right].sum()), first - second < half
    if clear < max(int(wavers[right].sum()) / NOISY, max(MIN_CLASS, SMALL * len(right)) / 2):
        return ""
    return f"{clear} of {len(right)} inputs are clearly answered otherwise, and no class is told"


def carried(part: Part, tests: Iterable[Test]) -> bool:
    """Return whether every block of a part makes the change that is predicted of it when it is
    exchanged where the inputs have it.
    """
    partial = {one.target: one.verdict for one in tests if one.kind == "partial"}
    return partial.keys() == {*part.blocks} and {*partial.values()} == {"yes"}
