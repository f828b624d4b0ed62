"""Declared variables: where does each variable of the task's program live?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mechint.explanation import Audit, Explanation, Family, Part
from mechint.explanation.checks.finer import resolution, told_apart
from mechint.explanation.claims import one_hot, permuted
from mechint.explanation.measure import Bench
from mechint.explanation.propose import NoProgramError
from mechint.interventions import Site
from mechint.interventions.sites import Position
from mechint.subject import Subject
from mechint.task import Step

MAX_VALUES, MAX_VARIABLES = 64, 12
"""Values of a variable, and variables, that are searched at most."""
FOUND = 0.9
"""Share of the model's accuracy from which a site counts as holding a variable."""
SPARE = 2.0
"""Standard errors of a share of the searched pairs above that share."""
MIN_CHANGED, MIN_PAIRS = 16, 64
"""Pairs whose answer changes, and pairs in all, on which a variable is searched at least."""
MAX_POSITIONS = 8
"""Positions up to which every one is searched, and not the answer alone."""


class Variables(Family):
    """Which site holds each variable of the task's program?

    For every variable, residual streams (by one feature per value) and heads (whole), at the answer
    and at other positions where there are few, are interchanged on half of the fitting half; the
    narrowest and earliest that gives the program's counterfactual answers is claimed. A variable
    that is one token is not looked for: heads that bring it are what `induced` explains.
    """

    name: ClassVar[str] = "variables"

    def applies(self, subject: Subject) -> bool:
        program = None if subject.task is None else subject.task.own_program
        return program is not None and f"blocks.{subject.n_layers - 1}.hook_resid_post" in (
            subject.hooks
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        answers = answered(bench)
        steps = [step for step in bench.program.steps if step.n_values <= MAX_VALUES]
        derived = [step.name for step in steps if is_derived(step)]
        parts, notes = self._found(bench, derived[:MAX_VARIABLES])
        if all(part.name in answers for part in parts):
            raise NoProgramError("; ".join(notes) or "no variable has a site")
        yield self._of(bench, parts, notes)

    def complete(self, bench: Bench, found: Audit) -> tuple[Explanation | None, tuple[str, ...]]:
        """The explanation without the parts that hold the answers: a site that gave these on the
        inputs of the search and not on others takes no other variable with it.
        """
        answers, parts = answered(bench), list(found.explanation.parts)
        kept = [part for part in parts if part.name not in answers]
        if not kept or len(kept) == len(parts):
            return None, ()
        return self._of(bench, kept, found.explanation.notes), ()

    def _found(self, bench: Bench, names: Sequence[str]) -> tuple[list[Part], list[str]]:
        """The site of each variable that has one, and a note for each that has none."""
        inner, parts, notes = bench.inner(), list[Part](), list[str]()
        for name in names:
            if name not in bench.answers and (told := only_the_answer(inner, name)):
                notes.append(f"{name}: {told}")
                continue
            scores = list(searched(inner, name))
            if (held := chosen(scores, FOUND * inner.accuracy)) is not None:
                parts.append(held)
            elif scores:
                best = max(score.share for score in scores)
                notes.append(f"{name} is at no site: {best:.2f} at most")
        return parts, notes

    def _of(self, bench: Bench, parts: list[Part], notes: Sequence[str]) -> Explanation:
        return Explanation(
            f"{bench.program.name}: {', '.join(map(str, parts))}",
            bench.program,
            tuple(parts),
            family=self.name,
            spare=lambda sample: permuted(bench.program, parts, sample),
            notes=tuple(notes),
            needs=needed(bench),
            short=bench.program.name,
        )


def only_the_answer(bench: Bench, name: str) -> str:
    """The reason for which the answers tell no more of a variable than themselves; "" where they
    do.
    """
    step = bench.program.variables[name]
    part = Part(
        name, Site("blocks.0.hook_resid_post", "answer"), (name,), one_hot(name, step.n_values)
    )
    found = resolution(bench, part, told_apart(bench, name))
    return found.decision.reason


@dataclass(frozen=True)
class Score:
    """A part with the share of `n` counterfactual answers that its interchange gives."""

    part: Part
    share: float
    n: int


def chosen(scores: Sequence[Score], threshold: float) -> Part | None:
    """The first part above the threshold, with `SPARE` standard errors to spare or else as much as
    any: other inputs judge it, on which one at the threshold falls below it. None where none is.
    """
    best = max((score.share for score in scores), default=0.0)
    if best < threshold:
        return None
    spare = SPARE * math.sqrt(threshold * (1 - threshold) / scores[0].n)
    return next(one.part for one in scores if one.share >= min(threshold + spare, best))


def needed(bench: Bench) -> tuple[str, ...]:
    """Variables that a model of the program holds somewhere: those between tokens and answers, or
    the tokens where there are none between.
    """
    answers = [name for name in bench.answers if name is not None]
    between = bench.program.needed(answers) - set(answers)
    steps = [step for step in bench.program.steps if step.name in between]
    derived = [step for step in steps if is_derived(step)]
    return tuple(step.name for step in derived or steps)


def answered(bench: Bench) -> set[str]:
    """Variables that are answers."""
    return {name for row in bench.program.answers for name in row if name is not None}


def is_derived(step: Step) -> bool:
    """Return whether a variable is computed, and not one input token."""
    return bool(step.parents) or len(step.positions) != 1


def candidates(bench: Bench, name: str) -> Iterator[Part]:
    """Parts that may hold a variable: layer by layer heads, whole, all heads together by one
    feature per value, then the residual stream by the same; at the answer first, and at every
    position where there are few.
    """
    subject, step = bench.subject, bench.program.variables[name]
    ctx = subject.data.tokens.shape[1]
    places: list[Position] = ["answer", *(range(ctx) if ctx <= MAX_POSITIONS else ())]
    features = one_hot(name, step.n_values)
    for layer in range(subject.n_layers):
        if f"blocks.{layer}.attn.hook_z" in subject.hooks:
            for head in range(subject.model_description.n_heads or 0):
                for place in places:
                    yield Part(name, Site.of("head", layer, place, (head,)), (name,))
            yield Part(name, Site.of("attention", layer, "answer"), (name,), features)
        for place in places:
            yield Part(name, Site(f"blocks.{layer}.hook_resid_post", place), (name,), features)


def searched(bench: Bench, name: str) -> Iterator[Score]:
    """Candidates with what interchanging the variable there gives, where this changes the answers;
    few inputs are taken with several others each.
    """
    rounds = math.ceil(MIN_PAIRS / max(len(bench.judged), 1))
    base = bench.judged.repeat(rounds)
    own, rows = bench.values(base), bench.sources([name], base)
    new = bench.values(base, {name: bench.values(rows)[name]})
    changed = (bench.labels(new) != bench.labels(own)).any(1)
    if int(changed.sum()) < MIN_CHANGED:
        return
    for part in candidates(bench, name):
        edit = (
            bench.exchange(part.site, rows)
            if part.features is None
            else bench.edit(bench.fit(part), own, new)
        )
        right = bench.right(bench.logits(base, [edit]), bench.labels(new))
        yield Score(part, float(right[changed].double().mean()), int(changed.sum()))
