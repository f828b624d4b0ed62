"""Two models compared by their programs: the explanation of each audited on the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from rich.text import Text

from mechint.decide.words import STANDS
from mechint.explanation._audit import audit_on
from mechint.explanation.explanation import Explanation
from mechint.explanation.measure import MAX_EXAMPLES, Bench
from mechint.explanation.propose import NoProgramError, explain
from mechint.explanation.standing import Audit, unaudited
from mechint.registry import EXPLANATIONS
from mechint.subject import Subject
from mechint.system.jsonable import Shown, to_jsonable
from mechint.system.progress import hanging


@dataclass(frozen=True, repr=False)
class Comparison(Shown):
    """Two models with the best explanation of each, and both explanations audited on the other.

    first, second: each model's own best audit. on_second: the explanation of the first audited on
    the second model, up to symmetry; on_first: the reverse; None of an explanation that does not
    stand. alike: share of the same inputs to which both models give the same answer; None where
    they were asked different ones. same_task: of different tasks no program is held against the
    other model.
    """

    first: Audit
    second: Audit
    on_second: Audit | None
    on_first: Audit | None
    alike: float | None = None
    same_task: bool = True

    @property
    def verdict(self) -> str:
        """ "same" where each explanation that stands on its own model stands on the other,
        "different" where one is refuted there, "unclear" where one is not decided, "untested" where
        neither model has one that stands.
        """
        crossed = [one.standing for one in (self.on_second, self.on_first) if one is not None]
        if not crossed:
            return "untested"
        if all(one in STANDS for one in crossed):
            return "same"
        decided = {"incomplete", "wrong", "refused"}
        return "different" if decided & set(crossed) else "unclear"

    def text(self, width: int = 100) -> Text:
        return Text("\n".join(hanging(self.sentence, width, 4)))

    @property
    def sentence(self) -> str:
        """The verdict in a sentence, with the reason where the program is not the same.

        The models are named A and B.
        """
        if not self.same_task:
            return "Different tasks: not compared."
        if self.verdict == "untested":
            return "No program of A or B stands, so that none can be compared."
        crossed = [
            (name, other, own, one)
            for name, other, own, one in (
                ("A", "B", self.first, self.on_second),
                ("B", "A", self.second, self.on_first),
            )
            if one is not None
        ]
        if self.verdict == "same":
            name, other, own, one = crossed[0]
            said = f"The program of {name} runs in {other} too"
            said = said if len(crossed) == 1 else "A and B run the same program"
            return f"{said}{_where(own, one)}."
        said = "; ".join(
            f"that of {name} on {other} is {one.standing}{f': {one.reason}' if one.reason else ''}"
            for name, other, _, one in crossed
        )
        word = "do not run" if self.verdict == "different" else "are not shown to run"
        return f"A and B {word} the same program; {said}."

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        crossed = {"a_on_b": self.on_second, "b_on_a": self.on_first}
        return {
            "verdict": self.verdict,
            "sentence": self.sentence,
            "alike": to_jsonable(self.alike),
            **{name: None if one is None else one.to_dict() for name, one in crossed.items()},
        }


def _where(own: Audit, other: Audit) -> str:
    """The routes of the second audit where they are at other heads than those of the first."""
    mine, theirs = (list(map(str, one.explanation.routes)) for one in (own, other))
    return "" if sorted(mine) == sorted(theirs) else f" at other heads: {'; '.join(theirs)}"


def carry(found: Audit, subject: Subject, *, seed: int = 0, examples: int = MAX_EXAMPLES) -> Audit:
    """Audit the explanation of one model on another one, up to symmetry.

    Nothing is chosen anew but what two models with the same program may differ in: of a program
    over sources the heads of a layer, which may be others and more or fewer. Its rules, variables
    and function stay.

    Returns:
        The audit on the judged half of the other model's inputs; "refused" where a variable is
        brought by no head that matters there, or the other model lacks a site or a head.

    >>> import mechint
    >>> rows = torch.cartesian_prod(*[torch.arange(16)] * 4)[::50].tolist()
    >>> prompts = [{"prompt": row} for row in rows]
    >>> subject = mechint.load(mechint.example("maximum.pt"), data=prompts)
    >>> found = explain(subject)[0]
    >>> carry(found, subject).standing, carry(found, subject.untrained(0)).standing
    ('stands', 'refused')
    """
    explanation = found.explanation
    bench = Bench.of(subject, explanation.program, seed, examples)
    if explanation.family in EXPLANATIONS:
        try:
            explanation = EXPLANATIONS[explanation.family]().carried(bench, explanation)
            _check_sites(explanation, subject)
        except NoProgramError as error:
            return unaudited(bench, explanation, "refused", str(error))
    return audit_on(bench, explanation)


def _check_sites(explanation: Explanation, subject: Subject) -> None:
    """NoProgramError where the model of the subject lacks a site or a head of the explanation."""
    depth, width = subject.n_layers, subject.model_description.n_heads or 0
    lacking = [
        *(
            str(one.site)
            for one in explanation.parts
            if one.site.hook not in subject.model.hook_dict
        ),
        *(
            f"L{one.layer}H{head}"
            for one in explanation.routes
            for head in one.heads
            if one.layer >= depth or head >= width
        ),
    ]
    if lacking:
        raise NoProgramError(f"the model has no {lacking[0]}")


def compare(
    first: Subject,
    second: Subject,
    *,
    family: str | None = None,
    seed: int = 0,
    examples: int = MAX_EXAMPLES,
    found: tuple[Audit, Audit] | None = None,
) -> Comparison:
    """Explain two models, and audit the explanation of each on the other.

    Args:
        family, seed, examples: as of `explain`. found: the best audit of each model, where they
            were made before.

    >>> import mechint
    >>> rows = torch.cartesian_prod(*[torch.arange(16)] * 4)[::50].tolist()
    >>> prompts = [{"prompt": row} for row in rows]
    >>> subject = mechint.load(mechint.example("maximum.pt"), data=prompts)
    >>> str(compare(subject, subject))
    'A and B run the same program.'
    """
    subjects = (first, second)
    if found is None:
        made = [explain(one, family=family, seed=seed, examples=examples)[0] for one in subjects]
        found = (made[0], made[1])

    same_task = question_of(first) == question_of(second)

    def crossed(audit: Audit, other: Subject) -> Audit | None:
        stands = audit.standing in STANDS and same_task
        return carry(audit, other, seed=seed, examples=examples) if stands else None

    on_second, on_first = crossed(found[0], second), crossed(found[1], first)
    return Comparison(*found, on_second, on_first, _alike(first, second), same_task)


def question_of(subject: Subject) -> tuple[Any, ...]:
    """The kind of task, its symbols and the length of its inputs."""
    shape, given = subject.model_description, subject.data_given
    length = None if given else subject.data.tokens.shape[1]
    return type(subject.task), shape.d_vocab, shape.d_vocab_out, length


def _alike(first: Subject, second: Subject) -> float | None:
    """Share of the same inputs to which two models give the same answer."""
    tokens = [one.data.tokens.cpu() for one in (first, second)]
    if not torch.equal(*tokens) or first.task is None:
        return None
    logits = [one.logits().cpu() for one in (first, second)]
    if logits[0].shape != logits[1].shape:
        return None
    answers = [
        torch.stack([one[:, part].argmax(1) for part in first.task.output_slices.values()])
        for one in logits
    ]
    return float((answers[0] == answers[1]).all(0).double().mean())
