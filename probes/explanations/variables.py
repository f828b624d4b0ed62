"""Declared variables: where does each variable of the task's program live?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from mechint.explain.claims import one_hot
from mechint.explain.explanation import Explanation, Part
from mechint.explain.measure import Bench, inner_bench
from mechint.explain.propose import Family
from mechint.interventions import Site
from mechint.interventions.sites import Position
from mechint.subject import Subject
from mechint.task import Step, rng

MAX_VALUES, MAX_VARIABLES = 64, 12
"""Values of a variable, and variables, that are searched at most."""
FOUND = 0.9
"""Share of the model's accuracy from which a site counts as holding a variable."""
MIN_CHANGED = 16
MAX_POSITIONS = 8
"""Positions up to which every one is searched, and not the answer alone."""


class Variables(Family):
    """Which site holds each variable of the task's program?

    For every variable, residual streams (by one feature per value) and heads (whole), at the answer
    and at other positions where there are few, are interchanged on half of the fitting half; the
    narrowest and earliest that gives the program's counterfactual answers is claimed.
    """

    name: ClassVar[str] = "variables"

    def applies(self, subject: Subject) -> bool:
        program = None if subject.task is None else subject.task.own_program
        return (
            program is not None
            and any(map(is_derived, program.steps))
            and f"blocks.{subject.n_layers - 1}.hook_resid_post" in subject.hooks
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        answers = {name for row in bench.program.answers for name in row if name is not None}
        inner, parts, notes = inner_bench(bench), list[Part](), list[str]()
        steps = [s for s in bench.program.steps if is_derived(s) and s.n_values <= MAX_VALUES]
        for step in steps[:MAX_VARIABLES]:
            scores = list(searched(inner, step.name))
            best = max((score for _, score in scores), default=0.0)
            held = [part for part, score in scores if score >= FOUND * inner.accuracy]
            if held:
                parts.append(held[0])
            elif scores:
                notes.append(f"{step.name} is at no site: {best:.2f} at most")
        if any(part.name not in answers for part in parts):
            words = ", ".join(map(str, parts))
            yield Explanation(
                f"{bench.program.name}: {words}",
                bench.program,
                tuple(parts),
                family=self.name,
                spare=lambda sample: permuted(bench, parts, sample),
                notes=tuple(notes),
            )


def is_derived(step: Step) -> bool:
    """Whether a variable is computed, and not one input token."""
    return bool(step.parents) or len(step.positions) != 1


def candidates(bench: Bench, name: str) -> Iterator[Part]:
    """Parts that may hold a variable: layer by layer heads, whole, then the residual stream by one
    feature per value; at the answer first, and at every position where there are few.
    """
    subject = bench.subject
    ctx = subject.data.tokens.shape[1]
    places: list[Position] = ["answer", *(range(ctx) if ctx <= MAX_POSITIONS else ())]
    features = one_hot(name, bench.program.variables[name].n_values)
    for layer in range(subject.n_layers):
        if f"blocks.{layer}.attn.hook_z" in subject.hooks:
            for head in range(subject.model_description.n_heads or 0):
                for place in places:
                    yield Part(name, Site.of("head", layer, place, (head,)), (name,))
        for place in places:
            yield Part(name, Site(f"blocks.{layer}.hook_resid_post", place), (name,), features)


def searched(bench: Bench, name: str) -> Iterator[tuple[Part, float]]:
    """Candidates with the share of counterfactual answers that interchanging the variable there
    gives, where they differ from the own.
    """
    base, own = bench.judged, bench.values(bench.judged)
    rows = bench.sources([name], base)
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
        yield part, float(right[changed].double().mean())


def permuted(bench: Bench, parts: list[Part], sample: int) -> Explanation:
    """The same parts, with the values of every variable permuted among the inputs at random."""

    def features(part: Part) -> Part:
        if part.features is None:
            return part
        n = bench.program.variables[part.name].n_values
        draw = torch.from_numpy(rng("explain permuted", part.name, sample).permutation(1 << 16))

        def made(values: dict[str, torch.Tensor]) -> torch.Tensor:
            keys = torch.zeros_like(values[part.name])
            for index, value in enumerate(values.values()):
                keys = keys + (index + 3) * 7919 * (value + 1)
            return torch.nn.functional.one_hot(draw[keys % len(draw)] % n, n).double()

        return Part(part.name, part.site, part.variables, made)  # type: ignore[arg-type]

    return Explanation("spare", bench.program, tuple(map(features, parts)))
