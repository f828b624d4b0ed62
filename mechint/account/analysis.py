"""Analysis of one model: probes, and a program where none of them says what the model computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mechint.account import Account, account_of
from mechint.errors import MechintError, NotApplicableError
from mechint.probe import Probe, make_probes, run_all
from mechint.registry import EXPLANATIONS
from mechint.subject import Subject, Which
from mechint.system.progress import counting_if

if TYPE_CHECKING:
    from mechint.explanation import Audit
    from mechint.explanation.comparison import Comparison


def analyze(
    subject: Any,
    *probes: str | Probe,
    seed: int = 0,
    answer: Which | None = None,
    settings: Mapping[str, Mapping[str, Any]] = {},
    progress: bool = False,
) -> Account:
    """Run probes on a subject and give the account of what they found; where no quick probe leads,
    with the program that the model runs, if one is found.

    Args:
        subject: a Subject, or whatever `mechint.load` opens.
        probes: names, or probes of one's own; all quick ones that apply when none is given.
        answer: which answer is asked about, as in `Subject.with_answer`.
        settings: probe → its settings: ``{"das": {"variable": "y"}}``.
        progress: whether to say on stderr how far it is.

    Raises:
        NotApplicableError: none of the probes that were named applies. One that does not, among
            others, is not asked, and the account says why.

    >>> from mechint import planted
    >>> account = analyze(planted.modular_addition(13, (2, 5)).subject, "norms")
    >>> sorted(account.results)
    ['norms']
    """
    if not isinstance(subject, Subject):
        import mechint

        subject = mechint.load(subject)
    if answer is not None:
        subject = subject.with_answer(answer)
    made = make_probes(probes, settings)
    refused = {name: why for name, one in made.items() if (why := one.applicable(subject))}
    if made and len(refused) == len(made):
        next(iter(made.values())).require_applicable(subject)
    probes = tuple(one for name, one in made.items() if name not in refused)
    with counting_if(progress, "probing") as told:
        account, errors = probe_model(subject, probes, settings, seed=seed, told=told)
    for error in errors:
        if probes or not isinstance(error, NotApplicableError):
            raise error
    return replace(account, refused={**account.refused, **refused})


def probe_model(
    subject: Subject,
    probes: Sequence[str | Probe] = (),
    settings: Mapping[str, Mapping[str, Any]] = {},
    *,
    seed: int = 0,
    warnings: Sequence[str] = (),
    told: Callable[[int, int, str], None] = lambda done, of, name: None,
) -> tuple[Account, list[MechintError]]:
    """The account of `analyze`, and the error of each probe that could not run.

    Args:
        warnings: lines to read before the numbers; told: called before each probe.
    """
    results, errors = run_all(subject, probes, settings, seed=seed, told=told)
    account = account_of(subject, results, warnings=warnings)
    audits = () if probes else audits_where_nothing_leads(account, subject, seed)
    return (account.explained(audits) if audits else account), errors


def compare_programs(
    first: Subject, second: Subject, *, seed: int = 0
) -> tuple[Comparison | None, str]:
    """Audit the best program of each model on the other; None where they are of different tasks or
    have no program, and a sentence in each case.
    """
    from mechint.explanation import compare
    from mechint.explanation.comparison import question_of

    if question_of(first) != question_of(second):
        return None, "Different tasks: their programs are not compared."
    if "all" in (first.answer, second.answer):
        return None, "A program is of one answer: give a number to --answer to compare them."
    try:
        found = compare(first, second, seed=seed)
    except MechintError as error:
        return None, f"Their programs are not compared: {error}."
    alike = ""
    if found.alike is not None:
        alike = f" They give the same answer to {found.alike:.1%} of these inputs."
    return found, f"{found.sentence}{alike}"


def audits_where_nothing_leads(account: Account, subject: Subject, seed: int) -> Sequence[Audit]:
    """Explanations of a model about which no probe that was run names a mechanism, best first; none
    where one does, or where the task states no program of one answer and is not prompts to a model
    that is small enough for a program of its own.
    """
    task = subject.task
    if account.mechanism is not None or not account.results or subject.answer == "all":
        return ()
    if task is None or (task.own_program is None and not _small(subject)):
        return ()
    from mechint.explanation import explain
    from mechint.explanation.propose import MAX_ANSWERS

    several = subject.answer == -1 and 1 < len(subject.answers) <= MAX_ANSWERS
    return explain(subject, seed=seed, answer="all" if several else None)


def _small(subject: Subject) -> bool:
    """Return whether a family that needs no program of a task serves prompts to this model."""
    from mechint.prompts import Prompts

    families = [EXPLANATIONS[name] for name in EXPLANATIONS]
    asked = [one() for one in families if not one.needs_program]
    return isinstance(subject.task, Prompts) and any(one.applies(subject) for one in asked)
