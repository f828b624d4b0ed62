"""One intervention of an audit that a reader can follow, beside what the program does not name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mechint.decide.words import STANDS
from mechint.explanation.checks.parts import collect_variables, exchanging, levels
from mechint.explanation.explanation import Explanation
from mechint.explanation.measure import Bench
from mechint.explanation.source_program import SourceProgram
from mechint.explanation.sources import Sources, compose, draw_rows
from mechint.explanation.standing import Audit
from mechint.task import Task

Followed = Mapping[str, Sequence[str]]
"""Column → its cells: "replaced", and the answers of "model" and "program" then. The first row is
the input as it is, in the second what the program names comes from another input, and in a third,
where there is one, what it does not name."""


def with_one_followed(bench: Bench, found: Audit) -> Audit:
    """The audit with one of its interventions, where it stands; of a program with branches, one of
    the first branch.
    """
    explanation, task = found.explanation, bench.subject.task
    if found.standing not in STANDS or task is None:
        return found
    bench = bench.under(explanation.program).among(explanation.among)
    if (program := explanation.over_sources) is None:
        return replace(found, followed=follow_parts(bench, explanation, task))
    bench = bench if program.where is None else bench.where(program.where.holds)
    sources = Sources(bench.subject, bench.judged)
    return replace(found, followed=follow_sources(sources, program, task, bench.seed))


def follow_sources(sources: Sources, program: SourceProgram, task: Task, seed: int) -> Followed:
    """The middle one of the inputs, answered as the program says, whose answer changes by it when
    one group of sources comes from another input; {} where there is none.
    """
    groups, answer = program.groups, program.function.strict
    if not groups:
        return {}
    before = answer(compose(sources, groups, {}).values)
    for index, (group, variables) in enumerate(zip(groups, program.variables, strict=True)):
        only = group.keys[0] if group.keys else None
        rows = draw_rows(sources, group, "followed", index, seed, only=only)
        made = compose(sources, groups, {index: rows})
        says = answer(made.values)
        asked = (says != before) & (says >= 0) & (before == sources.own) & made.possible
        if not bool(asked.any()):
            continue
        at = int(asked.nonzero()[int(asked.sum()) // 2])
        other = int(rows[at][rows[at] != at][0])
        named = ", ".join(one.python for one in (variables[:1] if group.keys else variables))
        half = "half of " if group.mask is not None else ""
        edits = {f"{half}{named}, by {', '.join(group.sources)}": made.taken}
        if program.rest:
            left = dict.fromkeys(program.rest, torch.full((len(sources),), other))
            edits[", ".join(program.rest)] = left
        found = [sources.own[at], *(sources.answers(sources.logits(e))[at] for e in edits.values())]
        ends = [sources.tokens[i, : int(sources.at[i]) + 1] for i in (at, other)]
        said = [one[None] for one in (before[at], says[at])]
        return _table(task, ends, list(edits), [one[None] for one in found], said)
    return {}


def follow_parts(bench: Bench, explanation: Explanation, task: Task) -> Followed:
    """The middle one of the judged inputs, answered as the program says, whose answer changes by
    it when a variable of the first depth comes from another input; {} where there is none.
    """
    first, *_ = [*levels(explanation), []]
    name = next((name for name in explanation.held if name in collect_variables(first)), "")
    parts = [part for part in first if name in part.variables]
    if not parts:
        return {}
    exchange = exchanging(bench, [name], 1)
    own = bench.right(bench.own_logits[exchange.base], bench.labels(exchange.old)).cpu()
    asked = exchange.counted & own
    if not bool(asked.any()):
        return {}
    at = int(asked.nonzero()[int(asked.sum()) // 2])
    edits, spare = dict[str, Any](), explanation.spare(0) if explanation.spare else None
    named = {str(part) for part in parts}
    for some in (parts, [part for part in spare.parts if str(part) in named] if spare else []):
        blocks = dict.fromkeys(block for part in some for block in part.blocks)
        by = f", by {explanation.family} {', '.join(blocks)}" if blocks else ""
        if some:
            edits[f"{name} at {parts[0].site}{by}"] = exchange.edits(bench, some, bench.fits(some))
    logits = [bench.logits(exchange.base, some)[at] for some in ((), *edits.values())]
    found = [torch.stack([row[part].argmax() for part in bench.slices]) for row in logits]
    ends = [
        bench.tokens(rows)[0].cpu() for rows in (exchange.base[at, None], exchange.source[at, None])
    ]
    said = [bench.labels(values)[at] for values in (exchange.old, exchange.new)]
    return _table(task, ends, list(edits), found, said)


def _table(
    task: Task,
    ends: Sequence[Tensor],
    edits: Sequence[str],
    found: Sequence[Tensor],
    said: Sequence[Tensor],
) -> Followed:
    """The rows in words. ends: tokens of the input and of the other one; found, said: classes of
    each output, of the model after each edit and of the program before and after the first.
    """

    def answer(classes: Tensor) -> str:
        pairs = zip(task.outputs, classes.tolist(), strict=True)
        return ", ".join(output.class_names[one] for output, one in pairs if one >= 0)

    text = task.text if callable(task.text) else task.vocabulary.decode  # prompts hold theirs
    prompt, other = (text(tokens) for tokens in ends)
    return {
        "replaced": [prompt, *(f"{one}, from {other}" for one in edits)],
        "model": [answer(one) for one in found],
        "program": [answer(one) for one in [*said, said[0]][: len(found)]],
    }
