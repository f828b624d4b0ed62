"""Rival programs of a model, told apart where they differ.

Inputs on which the programs give different answers are sought first. Programs of one task mostly
give the same; then interchanges tell them apart, of a variable whose site a part names: "ripple"
hands a changed carry on, "lookahead" does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Int
from torch import Tensor

from mechint.decide import decide, wilson
from mechint.errors import ParameterError
from mechint.explanation.measure import MAX_EXAMPLES, MIN_INPUTS, Bench, answers_of, labels_of
from mechint.explanation.parts import Part
from mechint.explanation.records import KEEPS
from mechint.subject import Subject
from mechint.task import GeneratedTask, Program

if TYPE_CHECKING:
    from mechint.explanation.standing import Audit


@dataclass(frozen=True)
class Score:
    """The count of answers that are those of one program, where the programs differ."""

    program: str
    hits: int
    n: int

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval (Wilson) of the share."""
        return wilson(self.hits, self.n)


@dataclass(frozen=True)
class Rivals:
    """The comparison of rival programs on one model.

    verdict: the one whose interval lies above all others', or "undecided". scores: best first,
    none where nothing was found that tells programs apart. where: what was scored, "inputs" or an
    interchange. checked: inputs that were looked at. next: more inputs, as what follows `mechint
    explain PATH`, where there are further ones that tell programs apart.
    """

    verdict: str
    scores: tuple[Score, ...]
    where: str
    checked: int
    next: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        scores = [{**vars(one), "interval": list(one.interval)} for one in self.scores]
        return {**vars(self), "scores": scores, "next": list(self.next)}

    def __str__(self) -> str:
        shown = [
            f"{one.program} {one.hits / one.n:.1%} ({one.interval[0]:.1%} to {one.interval[1]:.1%})"
            for one in self.scores
        ]
        n = self.scores[0].n if self.scores else 0
        found = f"on {n:,} {self.where} where they differ: {', '.join(shown)}"
        same = f"the same answers on all {self.checked:,} inputs"
        told = found if shown else same
        first = f"told apart: {self.verdict}; {told}"
        if self.verdict == "undecided":
            first = f"cannot tell: {', '.join(self.programs)} ({told})"
        return first


def rivals_of(
    subject: Subject, best: Audit, *, seed: int = 0, examples: int = MAX_EXAMPLES
) -> Rivals | None:
    """The rival programs of the subject's task told apart, by the parts of its best audit; None
    where it answers at chance or its task has one program.
    """
    task = subject.task
    if task is None or len(task.programs) < 2 or best.standing in ("refused", "untested"):
        return None
    parts = best.explanation.parts if best.standing != "wrong" else ()
    return rivals(subject, parts=parts, seed=seed, examples=examples)


def rivals(
    subject: Subject,
    *programs: Program,
    parts: Sequence[Part] = (),
    seed: int = 0,
    examples: int = MAX_EXAMPLES,
) -> Rivals:
    """Tell rival programs apart by what the model answers where they differ.

    Args:
        programs: two or more of the same answers; those of the task when none is given.
        parts: where variables live, as of an explanation that stands; their interchanges are made
            where all inputs give the same answers.
        examples: inputs that are looked at, and as many more that are drawn for `next`.

    Raises:
        ParameterError: fewer than two programs.

    >>> from mechint import planted
    >>> subject = planted.modular_addition(13, (2, 5)).subject
    >>> rivals(subject).verdict
    'undecided'
    """
    task = subject.task
    named = programs or (() if task is None else tuple(task.programs.values()))
    if len(named) < 2:
        raise ParameterError(f"rivals: expected two programs or more, got {len(named)}")
    bench = Bench.of(subject, named[0], seed, examples)
    rows = torch.cat([bench.fitted, bench.judged])
    answers = [_answers(bench, one, bench.tokens(rows)) for one in named]
    apart = differing(answers)
    if apart.any():
        logits = bench.logits(rows[apart])
        labels = [one[apart] for one in answers]
        where, found = "inputs", _scores(bench, named, logits, labels)
    else:
        where, found = "", tuple[Score, ...]()
        for place, scores in _interchanged(bench, named, parts):
            where, found = place, scores
            if _decided(found):
                break
    verdict = found[0].program if _decided(found) else "undecided"
    left = [one for one in named if verdict == "undecided"]
    names, next_ = tuple(one.name for one in named), tuple(_inputs(bench, left, rows, examples))
    return Rivals(verdict, found, where, len(rows), next_, names)


def _answers(
    bench: Bench, program: Program, tokens: Tensor, given: dict[str, Tensor] | None = None
) -> Int[Tensor, "n output"]:
    return labels_of(answers_of(program, bench.subject), program.run(tokens, given)).cpu()


def differing(answers: Sequence[Int[Tensor, "n output"]]) -> Tensor:
    """(n,) whether some two programs answer differently."""
    return torch.stack([(one != answers[0]).any(1) for one in answers]).any(0)


def _scores(
    bench: Bench, programs: Sequence[Program], logits: Tensor, labels: Sequence[Tensor]
) -> tuple[Score, ...]:
    made = [
        Score(program.name, int(bench.right(logits, label).sum()), len(label))
        for program, label in zip(programs, labels, strict=True)
    ]
    return tuple(sorted(made, key=lambda one: -one.hits))


def _decided(scores: Sequence[Score]) -> bool:
    return bool(scores) and all(scores[0].interval[0] > other.interval[1] for other in scores[1:])


def _interchanged(
    bench: Bench, programs: Sequence[Program], parts: Sequence[Part]
) -> Iterator[tuple[str, tuple[Score, ...]]]:
    """Scores under the interchange of each part whose variable two programs have.

    A program by which nothing changes fits an edit without effect, too: it may come first only
    where the same edit gives the answers that all programs change alike.
    """
    base, tokens = bench.judged, bench.tokens(bench.judged)
    source = base[bench.order("rivals", len(base))]
    for part in parts:
        having = [one for one in programs if part.name in one.variables]
        if not having or part.variables != (part.name,):
            continue
        given = {part.name: having[0].run(bench.tokens(source), only=[part.name])[part.name]}
        own = _answers(bench, having[0], tokens)
        labels = {one.name: _answers(bench, one, tokens, given) for one in having}
        apart = differing(list(labels.values()))
        if not apart.any():
            continue
        old = having[0].run(tokens, only=[part.name])
        edit = (
            bench.exchange(part.site, source)
            if part.features is None
            else bench.edit(bench.fit(part), old, given)
        )
        logits = bench.logits(base, [edit])
        scores = _scores(bench, having, logits[apart], [one[apart] for one in labels.values()])
        best = labels[scores[0].program]
        moved = (best != own).any(1)
        alike = moved & ~apart
        kept = bench.kept(logits[alike], best[alike])
        skill = bench.skill_at(best[alike])
        holds = decide(kept, bound=KEEPS, chance=skill, least=MIN_INPUTS)
        if holds or moved[apart].all():
            yield f"interchanges of {part}", scores


# --- what to do next ------------------------------------------------------------------------------
def _inputs(
    bench: Bench, programs: Sequence[Program], seen: Tensor, examples: int
) -> Iterator[str]:
    """More inputs, where there are further ones on which pairs of the programs differ."""
    task = bench.subject.task
    if not programs or not isinstance(task, GeneratedTask) or bench.subject.data_given:
        return
    tokens = task.sample(examples, bench.seed + 1, "test").tokens
    known = {tuple(row) for row in bench.tokens(seen).tolist()}
    answers = [_answers(bench, one, tokens) for one in programs]
    pairs = torch.stack([(a != b).any(1) for a in answers for b in answers]).sum(0)
    for row in pairs.argsort(descending=True, stable=True).tolist():
        if pairs[row] and tuple(tokens[row].tolist()) not in known:
            yield f"--examples {2 * examples}  # {task.text(tokens[row])} tells them apart"
            return
