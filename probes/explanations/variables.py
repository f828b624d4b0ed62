"""Declared variables: where does each variable of the task's program live?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch

from mechint.explain.claims import one_hot
from mechint.explain.explanation import Explanation, Part
from mechint.explain.measure import Bench
from mechint.explain.propose import Family
from mechint.interventions import Site
from mechint.subject import Subject
from mechint.task import rng

MAX_VALUES, MAX_VARIABLES = 64, 12
"""Values of a variable, and variables, that are searched at most."""
FOUND = 0.9
"""Share of the model's accuracy from which a site counts as holding a variable."""
MIN_CHANGED = 16


class Variables(Family):
    """Which site holds each variable of the task's program, as a whole?

    For every variable and every depth of the residual stream at the answer, one feature per value
    is fitted on half of the fitting half and interchanged on the other; the first depth that gives
    the program's counterfactual answers is claimed, and what holds nothing is noted.
    """

    name: ClassVar[str] = "variables"

    def applies(self, subject: Subject) -> bool:
        program = None if subject.task is None else subject.task.own_program
        return (
            program is not None
            and any(step.parents for step in program.steps)
            and f"blocks.{subject.n_layers - 1}.hook_resid_post" in subject.hooks
        )

    def propose(self, bench: Bench) -> Iterator[Explanation]:
        names = {name for row in bench.program.answers for name in row if name is not None}
        wanted = [
            step.name
            for step in bench.program.steps
            if step.parents and step.n_values <= MAX_VALUES
        ]
        inner = inner_bench(bench)
        parts, notes = list[Part](), list[str]()
        for name in wanted[:MAX_VARIABLES]:
            scores = {site: score for site, score in searched(inner, name)}
            if not scores:
                continue
            held = [site for site, score in scores.items() if score >= FOUND * inner.accuracy]
            if held:
                parts.append(part_at(inner, name, held[0]))
            else:
                notes.append(f"{name} is at no depth: {max(scores.values()):.2f} at most")
        held_names = [part.name for part in parts]
        if [name for name in held_names if name not in names]:
            words = ", ".join(f"{part.name} at {part.site}" for part in parts)
            yield Explanation(
                f"{bench.program.name}: {words}",
                bench.program,
                tuple(parts),
                family=self.name,
                spare=lambda sample: permuted(bench, parts, sample),
                notes=tuple(notes),
            )


def inner_bench(bench: Bench) -> Bench:
    """A bench whose halves are those of the fitting half."""
    inner = Bench(bench.subject, bench.program, bench.seed, bench.examples)
    half = len(bench.fitted) // 2
    inner.fitted, inner.judged = bench.fitted[:half], bench.fitted[half:]
    return inner


def part_at(bench: Bench, name: str, site: Site) -> Part:
    """The part that holds a variable by one feature per value."""
    features = one_hot(name, bench.program.variables[name].n_values)
    return Part(name, site, (name,), features)


def searched(bench: Bench, name: str) -> Iterator[tuple[Site, float]]:
    """Depths of the residual stream at the answer, with the share of counterfactual answers that
    interchanging the variable there gives, where they differ from the own.
    """
    base, own = bench.judged, bench.values(bench.judged)
    source = bench.values(base[bench.order(f"search {name}", len(base))])
    new = bench.values(base, {name: source[name]})
    changed = (bench.labels(new) != bench.labels(own)).any(1)
    if int(changed.sum()) < MIN_CHANGED:
        return
    for layer in range(bench.subject.n_layers):
        site = Site(f"blocks.{layer}.hook_resid_post", "answer")
        fit = bench.fit(part_at(bench, name, site))
        logits = bench.logits(base, [bench.edit(fit, own, new)])
        right = bench.right(logits, bench.labels(new))
        yield site, float(right[changed].double().mean())


def permuted(bench: Bench, parts: list[Part], sample: int) -> Explanation:
    """The same parts, with the values of every variable permuted among the inputs at random."""

    def features(part: Part) -> Part:
        n = bench.program.variables[part.name].n_values
        draw = torch.from_numpy(rng("explain permuted", part.name, sample).permutation(1 << 16))

        def made(values: dict[str, torch.Tensor]) -> torch.Tensor:
            keys = torch.zeros_like(values[part.name])
            for index, value in enumerate(values.values()):
                keys = keys + (index + 3) * 7919 * (value + 1)
            return torch.nn.functional.one_hot(draw[keys % len(draw)] % n, n).double()

        return Part(part.name, part.site, part.variables, made)  # type: ignore[arg-type]

    return Explanation("spare", bench.program, tuple(map(features, parts)))
