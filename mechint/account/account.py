"""Account: what a model computes, how well, how much of it that explains, and what was looked for
in vain, from the results of probes, and of a program where none says what it computes. Terminal,
report, tables and notebooks are views of it.

    account = mechint.analyze(subject)
    account.verdict                       # 'It adds as a clock, with six frequencies.'
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mechint.account.terminal import account_text
from mechint.decide.words import STANDS
from mechint.errors import NUMBERS, MechintError, NotApplicableError, counted
from mechint.probe import Probe, make_probes, quick_probes, run_all
from mechint.probe.results import EACH, SCHEMA, Figure, Finding, ProbeResult, Scope
from mechint.probe.text import rank
from mechint.registry import EXPLANATIONS, PROBES
from mechint.subject import Subject, Which
from mechint.system.jsonable import Shown, from_jsonable
from mechint.system.progress import counting_if
from mechint.task import FiniteTask, TargetKind

if TYPE_CHECKING:
    from rich.text import Text

    from mechint.explanation import Audit
    from mechint.explanation.comparison import Comparison

MAX_EVIDENCE = 6
MAX_TESTS = 4
"""Tests of a program among the evidence, at most."""
NOTHING = "No mechanism was found."
NOT_ASKED = "Nothing was asked that could find a mechanism."
UNDECIDED = "Nothing could be decided."
DESCRIPTIVE_RANK = 30
"""Rank up to which a lead describes the model, and does not say what it computes."""
NEARLY_ALL = 0.9
"""Share of the answers from which the verdict names an incomplete program."""
MAX_WORDS = 15
"""Words of a verdict; a longer name of a program is shortened."""


@dataclass(frozen=True)
class Quality:
    """Accuracy and loss of a model on one output.

    accuracy, chance: 0–1 on `n` answers; test: accuracy on held-out examples, None where the split
    is not known; loss, chance_loss: nats; whole: whether the answers are all of a finite task;
    steps: whether the texts hold the right steps to the answer, which the model need not write;
    top_1: where accuracy, loss and chance are of each answer against the other of its pair, the
    share of first choices that are right; pairs: how many there are, and are right both ways.
    """

    output: str
    accuracy: float
    chance: float
    loss: float
    chance_loss: float
    n: int
    test: float | None = None
    whole: bool = False
    steps: bool = False
    top_1: float | None = None
    pairs: tuple[int, int] | None = None


def quality_of(subject: Subject) -> tuple[Quality, ...]:
    """Accuracy and loss of every output that is asked, with chance; () where there is none, or
    where the answers are the model's own.

    Cost: one forward over the subject's data, which the subject keeps.
    """
    from mechint.checkpoints.checkpoint import measure_performance

    trained_here = "step" in subject.provenance["checkpoint"]  # another's split is not known
    measured = measure_performance(subject, subject.split if trained_here else None)
    if measured is None or (subject.task is not None and subject.task.own_choices):
        return ()
    kinds, steps = subject.data.kinds, False  # kinds (example, pos)
    if kinds is not None:
        before = (kinds == TargetKind.ANSWER).cumsum(1) == 0
        steps = bool((before & (kinds == TargetKind.STEP)).any())
    return tuple(
        Quality(
            name,
            accuracy,
            measured.chance[name]["accuracy"],
            measured.loss[name],
            measured.chance[name]["loss"],
            measured.n[name],
            test if math.isfinite(test := measured.held_out.get(name, math.nan)) else None,
            isinstance(subject.task, FiniteTask) and subject.on_grid,
            steps,
            measured.top_1,
            measured.pairs,
        )
        for name, accuracy in measured.accuracy.items()
        if math.isfinite(accuracy)
    )


@dataclass(frozen=True, repr=False)
class Account(Shown):
    """Findings of probes about one model, the answer first.

    title: task and model in words; path: of the checkpoint, "" in memory. verdict: at most fifteen
    words, from the lead of the leading result; `scope`, the narrowest of what it rests on, and
    `caveat` limit it. quality: one row an output.
    results: probe → result, in the order in which they were measured. assumed: field → value that
    the model's file does not state. warnings: what must be read
    before the numbers. next: commands that would tell more. audits: of explanations, as JSON
    values, best first. refused: probes that were named and do not apply → why.
    """

    title: str
    path: str
    verdict: str
    quality: tuple[Quality, ...] = ()
    caveat: str = ""
    step: int | None = None
    parameters: int | None = None
    results: Mapping[str, ProbeResult] = field(default_factory=dict[str, ProbeResult])
    assumed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    warnings: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    audits: tuple[Mapping[str, Any], ...] = ()
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    scope: Scope = EACH

    # --- findings ---------------------------------------------------------------------------------
    def findings(self, *verdicts: str) -> list[tuple[str, Finding]]:
        """(probe, finding) of these verdicts, those of leading probes first."""
        return _findings(self.results, *verdicts)

    @property
    def evidence(self) -> list[tuple[str, Finding]]:
        """At most six findings that are "yes": those of the probe that the verdict is from, and of
        others that lead with the mechanism, then the first of every probe before second ones.
        """
        seen: dict[str, int] = {}
        numbered = []
        for name, finding in self.findings("yes"):
            seen[name] = seen.get(name, 0) + 1
            numbered.append((not _names_mechanism(self.results[name]), seen[name], name, finding))
        numbered.sort(key=lambda row: row[:2])  # stable: leading probes first
        return [*self._tests, *(row[2:] for row in numbered)][:MAX_EVIDENCE]

    @property
    def bearing(self) -> int:
        """The number of findings among the evidence, at its beginning, that decide the verdict."""
        return len(self._tests) + sum(
            _names_mechanism(self.results[name]) for name, _ in self.evidence[len(self._tests) :]
        )

    @property
    def limits(self) -> str:
        """The limits of the verdict as one clause; "" where there are none."""
        return "; ".join(filter(None, (str(self.scope), self.caveat)))

    @property
    def programs(self) -> list[Mapping[str, Any]]:
        """The audits that the verdict is from, one an answer; [] where it is from a probe."""
        led = self.mechanism is not None or not self.audits
        if led or self.verdict in (NOTHING, NOT_ASKED):
            return []
        from mechint.explanation.text import by_answer

        return [best for best, *_ in by_answer(self.audits)]

    @property
    def program(self) -> Mapping[str, Any] | None:
        """The one audit that the verdict is from; None of none, and of several."""
        return self.programs[0] if len(self.programs) == 1 else None

    @property
    def _tests(self) -> list[tuple[str, Finding]]:
        """The tests of the programs that the verdict is from, as findings."""
        standing = [audit for audit in self.programs if audit["standing"] in STANDS]
        if not standing:
            return []
        from mechint.explanation.text import shown_tests

        passed = [
            [test for test in shown_tests(audit) if test.verdict == "yes"] for audit in standing
        ]
        each = max(1, MAX_TESTS // len(standing))  # tests of a program, at most
        return [("explanation", test) for tests in passed for test in tests[:each]]

    @property
    def not_asked(self) -> dict[str, list[str]]:
        """Reason → the probes, and the questions of others, that it keeps from this subject."""
        grouped: dict[str, list[str]] = {}
        for name, reason in self.refused.items():
            grouped.setdefault(reason, []).append(name)
        for result in self.results.values():
            for question, reason in result.not_asked:
                grouped.setdefault(reason, []).append(question)
        return grouped

    @property
    def assumptions(self) -> str:
        """The fields that were assumed and their values in one line; "" where there are none."""
        shown = (f"{name} = {'none' if v is None else v}" for name, v in self.assumed.items())
        return "; ".join(shown)

    @property
    def mechanism(self) -> ProbeResult | None:
        """The leading result where it says what the model computes, not only describes it."""
        return next(filter(_names_mechanism, self.ranked), None)

    @property
    def ranked(self) -> list[ProbeResult]:
        """The results that lead, that of the verdict first."""
        leads = [result for result in self.results.values() if result.lead]
        return sorted(leads, key=lambda result: -result.lead_rank)

    @property
    def hero(self) -> Figure | None:
        """The one figure to show first: that of the leading result, else the first there is."""
        results = [*self.ranked[:1], *self.results.values()]
        order = [(result, result.figures.get(result.hero)) for result in results]
        order += [(result, figure) for result in results for figure in result.figures.values()]
        drawn = (f.for_verdict(result.verdict) for result, f in order if f is not None and f.plots)
        return next(drawn, None)

    def explained(self, audits: Sequence[Audit | Mapping[str, Any]]) -> Account:
        """The account with a program in its verdict, and what that accounts for: "It adds as a
        clock; addition by three frequencies explains 94% (≥93%) of its logits."; the report of it
        begins with the explanation.

        audits: what `mechint.explanation.explain` or `audit` gives, best first, or the same as JSON
        values. The verdict changes only if an audit of the mechanism that leads stands or is
        incomplete, or if no probe names a mechanism and an audit stands.
        """
        from mechint.explanation.text import by_answer, says

        values = tuple(one if isinstance(one, Mapping) else one.to_dict() for one in audits)
        lead, answers = self.mechanism, by_answer(values)
        eligible = [
            one
            for one in values
            if (
                one["standing"] in STANDS or gives_nearly_all(one)
                if lead is None
                else one["family"] in EXPLANATIONS
                and lead.probe in EXPLANATIONS[one["family"]].mechanisms
            )
        ]
        verdict = verdict_with_program("" if lead is None else self.verdict, eligible)
        if self.verdict == NOT_ASKED and any(a["standing"] != "untested" for a in values):
            verdict = verdict or NOTHING
        scope, caveat = self.scope, self.caveat
        if verdict not in ("", self.verdict, NOTHING):
            scope = scope.within([from_jsonable(Scope, eligible[0]["scope"])])
            caveat = "" if lead is None else caveat  # that of a finding which is not the verdict
            if lead is None and len(answers) > 1:  # no program speaks for the other answers
                said = [
                    verdict_with_program("", [a for a in of_answer if a in eligible])
                    or (
                        f"{says(of_answer[0]).capitalize()}: "
                        f"{of_answer[0]['short'] or of_answer[0]['name']}."
                        if says(of_answer[0]) == "RUNS IN PART"
                        else f"No program of {of_answer[0]['scope']['answers']} stands."
                        if any(a["family"] != "none" for a in of_answer)
                        else f"None of {of_answer[0]['scope']['answers']} was tested."
                    )
                    for of_answer in answers
                ]
                verdict = " ".join(said)
                scope = replace(scope, answers="")
        if verdict in ("", NOTHING) and lead is None:
            open_ = ("unclear", "untested") if len(answers) == 1 else ("unclear",)
            doubt = [a for a in values if a["standing"] in open_ and a["family"] != "none"]
            for one in doubt[:1]:
                verdict = f"{says(one).capitalize()}: {one['short'] or one['name']}."
                caveat = str(one["reason"])
            if (verdict or self.verdict) in (NOTHING, NOT_ASKED):
                caveat = _why_none(answers) or caveat
        return replace(
            self, verdict=verdict or self.verdict, audits=values, scope=scope, caveat=caveat
        )

    # --- views ------------------------------------------------------------------------------------
    def to_dict(self) -> dict[str, Any]:
        """One entry of "accounts" of JSON schema 3, with provenance that all results share once."""
        results = {name: result.to_dict() for name, result in self.results.items()}
        provenances = [result["provenance"] for result in results.values()]
        shared = {
            key: value
            for key, value in (provenances[0] if provenances else {}).items()
            if key != "probe" and all(other.get(key) == value for other in provenances)
        }
        for result in results.values():
            of_probe = result["provenance"]
            result["provenance"] = {key: of_probe[key] for key in of_probe if key not in shared}
        return {
            "path": self.path,
            "title": self.title,
            "step": self.step,
            "parameters": self.parameters,
            "quality": [dict(vars(quality)) for quality in self.quality],
            "verdict": self.verdict,
            "caveat": self.limits,
            "audits": list(self.audits),
            "refused": dict(self.refused),
            "assumed": dict(self.assumed),
            "warnings": list(self.warnings),
            "provenance": shared,
            "results": results,
            "next": list(self.next),
        }

    def text(self, width: int = 100) -> Text:
        return account_text(self, width)

    def _repr_html_(self) -> str:
        """The text, the hero, and every result folded below."""
        folded = "".join(
            f"<details><summary>{name}</summary>{result._repr_html_()}</details>"
            for name, result in self.results.items()
        )
        drawn = "" if self.hero is None else self.hero.drawing_html("hero")
        return f"{super()._repr_html_()}{drawn}{folded}"


def _why_none(answers: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    """The first program of an answer that runs in part or is not tested, or the reason for which
    none was looked for, and of how many other answers that holds; "" where one was looked for.

    answers: of each the audits as JSON values, best first.
    """
    from mechint.explanation.text import says

    said = [
        (says(one), f"{says(one).lower()}: {one['short'] or one['name']}")
        for one, *_ in answers
        if one["family"] != "none" and one["standing"] != "wrong"
    ] or [
        ("", f"{some[0]['scope']['answers']}: {some[0]['reason']}".removeprefix(": "))
        for some in answers
        if {one["family"] for one in some} == {"none"}
    ]
    more = sum(how == said[0][0] for how, _ in said[1:])
    of = "a program of " * bool(said and said[0][0])
    return (
        said[0][1] + f"; likewise {of}{counted(more, 'other answer')}" * bool(more) if said else ""
    )


def gives_nearly_all(audit: Mapping[str, Any]) -> bool:
    """Return whether an incomplete program gives nearly all answers, as a verdict then says."""
    found = audit.get("accounted")
    return (
        audit["standing"] == "incomplete"
        and found is not None
        and (found["verb"], found["of"]) == ("explains", "answers")
        and found["share"] >= NEARLY_ALL
    )


def verdict_with_program(verdict: str, audits: Sequence[Mapping[str, Any]]) -> str:
    """A verdict with the best explanation, by name, and what it accounts for, where one stands, or
    nothing in it is false; else the verdict alone.

    verdict: "" where the program that the explanation names is the verdict; of another its first
    clause stays, since numbers behind it may be others than the program's.
    audits: their JSON values, best first.
    """
    from mechint.explanation.text import accounted_text

    for audit in audits:
        if not (share := accounted_text(audit)):
            continue
        doubt = "" if audit["standing"] in STANDS else f" ({audit['standing']})"
        names = [str(audit["name"]), str(audit.get("short") or audit["name"])]
        lead = re.split(r"[,:]", verdict.rstrip("."))[0]
        said = [
            f"{lead}; {name}{doubt} {share}."
            if verdict
            else f"{name[0].upper()}{name[1:]}{doubt}, which {share}."
            for name in names
        ]
        return next((text for text in said if len(text.split()) <= MAX_WORDS), said[-1])
    return verdict


def accounts_json(accounts: Sequence[Account]) -> dict[str, Any]:
    """The JSON form of one account or several: {"schema": 3, "accounts": […]}."""
    return {"schema": SCHEMA, "accounts": [account.to_dict() for account in accounts]}


def _findings(results: Mapping[str, ProbeResult], *verdicts: str) -> list[tuple[str, Finding]]:
    """(probe, finding) of these verdicts: of results that lead, then of others, each by rank."""
    order = sorted(results, key=lambda name: (not results[name].lead, -results[name].lead_rank))
    return [
        (name, finding)
        for name in order
        for finding in results[name].findings
        if finding.verdict in verdicts
    ]


def verdict_of(results: Mapping[str, ProbeResult]) -> tuple[str, Scope, str]:
    """Verdict, scope and caveat of an account: the lead of highest rank; where nothing leads, the
    first headline of the evidence that an intervention bears out. Else NOTHING where a probe whose
    lead names a mechanism says "no", UNDECIDED where all is unclear, and NOT_ASKED otherwise.
    """
    leads = [result for result in results.values() if result.lead]
    supported = _findings(results, "yes")
    if leads:
        leading = max(leads, key=lambda result: result.lead_rank)
        first = min(leading.findings, key=lambda finding: rank(finding.verdict))
        scopes = [found.scope for name, found in supported if results[name] is leading]
        return leading.lead, first.scope.within(scopes), first.caveat
    for _, finding in supported:
        if finding.causal:
            return finding.headline, finding.scope, finding.caveat
    naming = {name: result for name, result in results.items() if _may_name_mechanism(result)}
    if _findings(naming, "no"):
        return NOTHING, EACH, ""
    undecided = _findings(results, "unclear") and not _findings(results, "yes", "no")
    return UNDECIDED if undecided else NOT_ASKED, EACH, ""


def _may_name_mechanism(probe: Any) -> bool:
    """Return whether the lead of a probe, or of its result, may say what the model computes."""
    return probe.lead_rank > DESCRIPTIVE_RANK


def _names_mechanism(result: ProbeResult) -> bool:
    """Return whether the probe leads with what the model computes, as the verdict does."""
    return bool(result.lead) and _may_name_mechanism(result)


def account_of(
    subject: Subject,
    results: Mapping[str, ProbeResult],
    *,
    warnings: Sequence[str] = (),
    next_commands: Sequence[str] = (),
) -> Account:
    """The account of a subject from the results of its probes.

    Args:
        warnings: what must be read first; next_commands: what would tell more.
    """
    verdict, scope, caveat = verdict_of(results)
    known = subject.provenance["checkpoint"]
    assumed = {name: one["value"] for name, one in known.get("assumed", {}).items()}
    if assumed.get("attention_dir") == "causal":
        masked = "the file states no mask: it is read as causal, no token seeing later ones"
        warnings = [*warnings, masked]
    refused = {}
    if verdict == NOT_ASKED:  # the reader sees why no probe that names a mechanism was run
        naming = [name for name in quick_probes() if _may_name_mechanism(PROBES[name])]
        reasons = {name: PROBES[name].from_dict({}).applicable(subject) for name in naming}
        refused = {name: reason for name, reason in reasons.items() if reason}
    return Account(
        title=title_of(subject),
        path=str(known.get("path", "")),
        verdict=verdict,
        quality=quality_of(subject),
        caveat=caveat,
        step=known.get("step"),
        parameters=sum(weight.numel() for weight in subject.model.parameters()),
        results=dict(results),
        assumed=assumed,
        warnings=tuple(warnings),
        next=tuple(next_commands),
        refused=refused,
        scope=scope,
    )


def title_of(subject: Subject) -> str:
    """Task and model in words: "Addition mod 113, one layer".

    >>> from mechint import planted
    >>> title_of(planted.modular_addition(13, (3,)).subject)
    'Addition mod 13, one layer'
    """
    layers = subject.n_layers
    count = NUMBERS[layers] if layers < len(NUMBERS) else str(layers)
    size = f", {count} layer{'' if layers == 1 else 's'}" if layers else ""
    task = subject.task
    return f"{'Model without a task' if task is None else task.title}{size}"


# --- the account of a model: probes, and a program where none says what it computes ---------------
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
        account, errors = probe_model(subject, probes, settings, seed=seed, on_probe=told)
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
    on_probe: Callable[[int, int, str], None] = lambda done, of, name: None,
) -> tuple[Account, list[MechintError]]:
    """The account of `analyze`, and the error of each probe that could not run.

    Args:
        warnings: lines to read before the numbers; on_probe: called before each probe.
    """
    results, errors = run_all(subject, probes, settings, seed=seed, on_probe=on_probe)
    account = account_of(subject, results, warnings=warnings)
    audits = () if probes else audits_where_no_mechanism_is_named(account, subject, seed)
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


def audits_where_no_mechanism_is_named(
    account: Account, subject: Subject, seed: int
) -> Sequence[Audit]:
    """Explanations of a model about which no probe that was run names a mechanism, best first; none
    where one does, or where the task states no program of one answer and is not prompts to a model
    that is small enough for a program of its own.
    """
    task = subject.task
    if account.mechanism is not None or not account.results or subject.answer == "all":
        return ()
    from mechint.explanation import explain
    from mechint.explanation.propose import MAX_ANSWERS
    from mechint.prompts import Prompts

    families = (EXPLANATIONS[name] for name in EXPLANATIONS)
    served = isinstance(task, Prompts) and any(
        one().applies(subject) for one in families if not one.needs_program
    )
    if task is None or not (task.own_program is not None or served):
        return ()
    several = subject.answer == -1 and 1 < len(subject.answers) <= MAX_ANSWERS
    return explain(subject, seed=seed, answer="all" if several else None)
