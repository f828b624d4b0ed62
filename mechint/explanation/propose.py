"""Families of explanations, and `explain`, which asks each for proposals and audits them."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from mechint.errors import MechintError, NotApplicableError, ParameterError
from mechint.explanation._audit import audit_on
from mechint.explanation.explanation import Explanation
from mechint.explanation.followed import with_one_followed
from mechint.explanation.handed import handed
from mechint.explanation.measure import MAX_EXAMPLES, MIN_INPUTS, Bench
from mechint.explanation.sources import missing_hooks
from mechint.explanation.standing import Audit, unaudited
from mechint.registry import EXPLANATIONS, summary
from mechint.subject import Subject, Which
from mechint.task import Program


class NoProgramError(MechintError):
    """A family has no program of a model; the message is the reason."""


MAX_ANSWERS = 8
"""Answers of an example that are explained together, at most."""
COMPLETED = 2
"""Completions of an explanation that does not stand, at most."""


class Family(abc.ABC):
    """A kind of explanation, in one file, found by the registry.

    name: of the registry. The first line of the docstring is its question.
    """

    name: ClassVar[str]
    mechanisms: ClassVar[tuple[str, ...]] = ()
    """Probes whose lead names the same mechanism; its audits follow theirs in an account."""
    needs_program: ClassVar[bool] = True
    """True where it explains by the program of a task; one that does not is asked of models without
    such, and of others where no other family stands."""

    @classmethod
    def question(cls) -> str:
        """The question that the family answers."""
        return summary(cls.__doc__)

    @abc.abstractmethod
    def applies(self, subject: Subject) -> bool:
        """Return whether the family can propose anything for the subject."""

    @abc.abstractmethod
    def propose(self, bench: Bench) -> Iterator[Explanation]:
        """Explanations, chosen on the fitting half of the bench alone."""

    def complete(self, bench: Bench, found: Audit) -> tuple[Explanation | None, tuple[str, ...]]:
        """An explanation that adds what an incomplete one lacks, with the names of that, or one
        without what it has too much; (None, ()) where nothing is found.
        """
        return None, ()

    def carried(self, bench: Bench, found: Explanation) -> Explanation:
        """The explanation of another model for the model of the bench, at sites that models with
        the same program may differ in; as it is where there are none.

        Raises:
            NoProgramError: a variable has no site there.
        """
        return found

    def without(
        self, bench: Bench, found: Explanation, blocks: Sequence[str]
    ) -> Sequence[Explanation]:
        """Explanations without some blocks, the smallest first: without them everywhere, without
        them in the part that reads the logits.
        """
        return ()


def explain(
    subject: Subject,
    *,
    family: str | None = None,
    seed: int = 0,
    answer: Which | None = None,
    examples: int = MAX_EXAMPLES,
) -> list[Audit]:
    """Propose programs of a model and audit them, best first.

    Of a model whose task states a program families explain by it; where none of these stands, and
    of prompts (``load(path, data=…)``), a program is looked for in the model's own answers.

    Args:
        family: the one that proposes; all that apply when None.
        answer: which answer is explained, as in `Subject.with_answer`; "all": each of them.
        examples: distinct inputs, half of which are fitted and half judged.

    Returns:
        Audits; one that is "refused" where the model answers at chance or no program was found, and
        one that is "untested" where there are too few inputs to find one. Of all answers the best
        of each, then the others; `Audit.scope` says which answer one is of.

    Raises:
        NotApplicableError: the subject has neither a task nor prompts, or no answers.
        UnknownNameError, ParameterError: there is no such family, or it does not apply; or more
            than `MAX_ANSWERS` answers are asked about.
    """
    if (task := subject.task) is None:
        raise NotApplicableError(
            f"{subject.describe()}: give prompts, whose answers by the model are explained: "
            "explain --data prompts.jsonl, or load(path, data=…)"
        )
    if not len(subject.answers):
        raise NotApplicableError(
            f"{subject.describe()}: its task reads no answer at a position, which a program gives; "
            "without --probe, analyze asks what applies"
        )
    subject = subject if answer is None else subject.with_answer(answer)
    if subject.answer == "all":
        return _of_each_answer(subject, family=family, seed=seed, examples=examples)
    program = task.own_program
    bench = Bench.of(subject, program or Program("none", (), ()), seed, examples)
    if task.several:
        return [_refused(bench, "a program gives one token, and some prompts have several right")]
    few = len(bench.judged) < MIN_INPUTS
    if not few and (reason := bench.skill.reason) and not bench.constant:
        return [_refused(bench, reason)]
    names = [family] if family is not None else list(EXPLANATIONS)
    names.sort(key=lambda name: not EXPLANATIONS[name].needs_program)
    found: list[Audit] = []
    tried, unserved, reasons = list[str](), list[str](), list[str]()

    for name in names:
        made: Family = EXPLANATIONS[name]()
        if made.needs_program:
            applies = program is not None and made.applies(subject)
        else:  # the last ones, where no other stands; they fit no weights
            bench = bench.population(examples)
            stands = any(one.standing == "stands" for one in found)
            applies = (family is not None or not stands) and made.applies(subject)
        if not applies:
            if family is not None:
                raise ParameterError(f"family {name} does not apply to {subject.describe()}")
            unserved.append(name)
            continue
        tried.append(name)
        try:
            proposals = list(made.propose(bench))
        except NoProgramError as error:
            reasons.append(str(error))
            continue
        for proposed in proposals:
            found.append(audit_on(bench, proposed))
            for _ in range(COMPLETED):
                if found[-1].standing not in ("unclear", "incomplete", "wrong"):
                    break
                completed, missing = made.complete(bench, found[-1])
                if completed is None:
                    break
                found[-1] = dataclasses.replace(found[-1], missing=missing)
                found.append(audit_on(bench, completed))
            for smaller in _smaller(bench, made, found[-1]):
                found.append(audit_on(bench, smaller))
                if found[-1].standing == "stands":
                    break
    if family is None:
        found += _by_families_of_groups(found, subject, seed, examples)
    found.sort(key=lambda one: one.rank)
    found[:1] = [with_one_followed(bench, one) for one in found[:1]]
    best = found[0] if found else None
    if best is not None and best.standing == "untested" and best.explanation.over_sources:
        return found  # it says which prompts would tell
    if best is None or best.standing in ("wrong", "untested"):
        reason = "; ".join([_in_vain(subject, tried, unserved, found), *reasons])
        if few := bool(tried) and few and not bench.whole:
            reason = f"{len(bench.judged)} judged inputs, {MIN_INPUTS} needed"
        standing = "untested" if few or not tried else "refused"
        found.insert(0, dataclasses.replace(_refused(bench, reason), standing=standing))
    return found


def _of_each_answer(subject: Subject, **asked: Any) -> list[Audit]:
    """The best audit of each answer of an example, then the others; each says its answer."""
    n, task = len(subject.answers), subject.task
    if n > MAX_ANSWERS or task is None:
        wants = f"expected at most {MAX_ANSWERS}, or one: 0 … {n - 1}"
        raise ParameterError(f"{subject.describe()}: answer='all' is of {n} answers; {wants}")
    found = [explain(subject.with_answer(answer), **asked) for answer in range(n)]
    if n > 1:
        found = [
            [dataclasses.replace(a, scope=dataclasses.replace(a.scope, answers=name)) for a in some]
            for name, some in zip(task.answer_names, found, strict=True)
        ]
    return [some[0] for some in found] + [one for some in found for one in some[1:]]


def _by_families_of_groups(
    found: Sequence[Audit], subject: Subject, seed: int, examples: int
) -> list[Audit]:
    """Audits by the families of a group whose product a program is found to give."""
    other = next((one for one in (handed(one, subject) for one in found) if one is not None), None)
    if other is None:
        return []
    served = [
        name
        for name in EXPLANATIONS
        if EXPLANATIONS[name].needs_program and EXPLANATIONS[name]().applies(other)
    ]
    audits = [explain(other, family=name, seed=seed, examples=examples) for name in served]
    return [one for several in audits for one in several if one.explanation.parts]


def _in_vain(
    subject: Subject, tried: Sequence[str], unserved: Sequence[str], found: Sequence[Audit]
) -> str:
    """The families that were tried without a program, the nearest one, and what to do next."""
    if not tried:
        one = subject.task is None or len(subject.task.outputs) == 1
        why = missing_hooks(subject) or "gives several outputs at once" * (not one)
        missing = f"; it {why}" * bool(why)
        return f"no family serves such a model and task: {', '.join(unserved)} do not{missing}"
    said = f"no program was found by {', '.join(tried)}"
    if found:
        said += f"; the nearest, {found[0].explanation.name}, is {found[0].standing}"
    return f"{said}; a claim of yours is judged by --claim"


def _smaller(bench: Bench, family: Family, found: Audit) -> Sequence[Explanation]:
    """A superfluous explanation without the blocks that are so on the fitting half, too."""
    if found.standing != "superfluous":
        return ()
    seen = audit_on(bench.inner(), found.explanation)
    both = [name for name in seen.superfluous if name in found.superfluous]
    return family.without(bench, found.explanation, both) if both else ()


def _refused(bench: Bench, reason: str) -> Audit:
    return unaudited(bench, Explanation("none", bench.program, family="none"), "refused", reason)
