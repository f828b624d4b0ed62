"""The content of a page, before its looks: the answer, evidence, sections of findings, numbers,
claims, tables and figures.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from mechint.account.account import accounts_json
from mechint.account.terminal import compared_rows, quality_text
from mechint.explanation.text import accounted_text, by_answer
from mechint.figures import training_curve
from mechint.probe.results import (
    Figure,
    Finding,
    Null,
    PaperClaim,
    ProbeResult,
    Table,
    rank,
    to_jsonable,
)
from mechint.system.files import read_json_lines

if TYPE_CHECKING:
    from mechint.account import Account
    from mechint.checkpoints import Checkpoint

METRICS = "metrics.jsonl"
MAX_EVIDENCE = 6


@dataclass(frozen=True)
class Section:
    """One part of a page; what is empty is not drawn.

    question: what was asked, which heads the section; verdict: "yes", "no", "unclear" or "";
    findings: of a probe; lead: the answer in a sentence, where there are no findings; program: an
    audit, drawn as one intervention and its tests; paragraphs:
    text; code, output: of a step, and what it printed; claims: of a paper, with their verdicts;
    nulls: metrics that have a null; metrics: the other numbers; command: what makes the figures
    again; provenance: nested settings.
    """

    title: str
    question: str = ""
    verdict: str = ""
    findings: Sequence[Finding] = ()
    lead: str = ""
    program: Mapping[str, Any] = field(default_factory=dict)
    paragraphs: Sequence[str] = ()
    code: str = ""
    output: str = ""
    claims: Sequence[PaperClaim] = ()
    nulls: Sequence[Null] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    command: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def headline(self) -> str:
        """The first answer in a sentence."""
        return (
            min(self.findings, key=lambda one: rank(one.verdict)).headline
            if self.findings
            else self.lead
        )


@dataclass(frozen=True)
class Page:
    """A page, in the order in which it is read.

    kicker: kind of page ("report", "study", "task", "probe", "example", "table"). quality: lines on
    how well the model answers; verdict, caveat: the answer; program: the audit that the verdict is
    from, drawn as one intervention and its tests; hero: the figure beside the evidence,
    (probe, finding) pairs, of which the first `bearing` decide the verdict; abstract: text in place
    of a verdict. not_asked: reason → questions.
    next_steps: commands; command: what made the page; task, probes: words by which a gallery is
    searched; downloads: file name → text of files that belong to it.
    """

    title: str
    sections: Sequence[Section]
    kicker: str = "report"
    quality: Sequence[str] = ()
    verdict: str = ""
    caveat: str = ""
    hero: Figure | None = None
    program: Mapping[str, Any] = field(default_factory=dict)
    evidence: Sequence[tuple[str, Finding]] = ()
    bearing: int = MAX_EVIDENCE
    abstract: str = ""
    warnings: Sequence[str] = ()
    assumed: str = ""
    not_asked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, Figure] = field(default_factory=dict)
    next_steps: Sequence[str] = ()
    command: str = ""
    task: str = ""
    probes: Sequence[str] = ()
    downloads: Mapping[str, str] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)


def page_of(account: Account, *, command: str = "", commands: Mapping[str, str] = {}) -> Page:
    """The report of an account.

    Args:
        command: what makes the page again; commands: probe → what runs it again.
    """
    results = account.results
    first = next(iter(results.values())).provenance if results else {}
    shared = {name: value for name, value in to_jsonable(first).items() if name != "probe"}
    order = sorted(
        results, key=lambda name: (rank(results[name].verdict), -results[name].lead_rank)
    )
    sections = [section_of(name, results[name], commands.get(name, "")) for name in order]
    programs = [explanation_section(audits, account.path) for audits in by_answer(account.audits)]
    tests = 0  # among the evidence, which stand beside the program where the page draws it
    if account.program:
        programs = [replace(section, program={}) for section in programs]
        tests = sum(name == "explanation" for name, _ in account.evidence)
    return Page(
        account.title,
        [*programs, *sections],
        quality=quality_text(account.quality, ", "),
        verdict=account.verdict,
        caveat=account.limits,
        hero=account.hero,
        program=account.program or {},
        evidence=[
            (name, replace(finding, scope=finding.scope.beside(account.scope)))
            for name, finding in account.evidence[tests:]
        ],
        bearing=account.bearing - tests if account.bearing else MAX_EVIDENCE,
        warnings=account.warnings,
        assumed=account.assumptions,
        not_asked=account.not_asked,
        facts=_facts(account, shared),
        next_steps=account.next,
        command=command,
        task=(shared.get("task") or {}).get("name") or "",
        probes=list(results),
        downloads={"account.json": json.dumps(accounts_json([account]), separators=(",", ":"))},
        provenance=shared,
    )


def training_section(opened: Checkpoint) -> list[Section]:
    """The training curve, where the checkpoint lies in a run that has one."""
    folder = opened.path if opened.path.is_dir() else opened.path.parent
    chances = {} if opened.task is None else dict(opened.task.chance)
    chance = next(iter(chances.values())).accuracy if len(chances) == 1 else None
    curve = training_curve(read_json_lines(folder / METRICS), chance=chance, step=opened.step)
    if curve is None:
        return []
    return [Section("training", question="How did it train?", figures={"training": curve})]


def section_of(name: str, result: ProbeResult, command: str = "") -> Section:
    """One probe's section: its question, findings, numbers with their null, figures and tables;
    `command` makes them again.
    """
    return Section(
        title=name,
        question=result.question,
        verdict=result.verdict,
        findings=sorted(result.findings, key=lambda one: rank(one.verdict)),
        command=command,
        nulls=list(result.null.values()),
        metrics=to_jsonable(result.metrics),
        figures={key: one.for_verdict(result.verdict) for key, one in result.figures.items()},
        tables=result.tables,
        provenance=to_jsonable(result.provenance.get("probe", {})),
    )


def explanation_section(audits: Sequence[Mapping[str, Any]], path: str = "") -> Section:
    """The best of the audits, which are JSON values: its program, what it accounts for, its
    tests with their nulls, and what all of it rests on; the others by name.
    """
    best, *others = audits
    lead = ", ".join(filter(None, (f"{best['name']}: {best['standing']}", accounted_text(best))))
    told = [best["reason"]] if best["reason"] else []
    told += [
        f"{one['claim']}: {one['standing']}{', ' * bool(one['reason'])}{one['reason']}."
        for one in best["claims"]
        if one["standing"] != "stands"
    ]
    told += [f"Missing: {', '.join(best['missing'])}."] if best["missing"] else []
    told += [f"Note: {note}." for note in best["notes"]]
    told += [f"Beside it: {one['name']}: {one['standing']}." for one in others]
    drawn, answers = best["scope"]["drawn"], best["scope"]["answers"] or "the answer"
    rests = "that these are all inputs of their form"
    if drawn is not None:
        rests = f"that others are like the {drawn:,} inputs that were drawn"
    told.append(
        f"What must you trust? The weights in the file, our forward, and {rests}. That these parts "
        "run the program is shown by interventions on these inputs, and by no certificate."
    )
    return Section(
        f"explanation {best['scope']['answers']}".strip(),
        question=f"Which program gives {answers}, and how much of it is that?",
        verdict={"stands": "yes", "refused": "no", "wrong": "no"}.get(best["standing"], ""),
        lead=lead,
        program=best if best["tests"] else {},
        paragraphs=told,
        code=best["program"],
        command=f"mechint explain {shlex.quote(path)}" if path else "",
    )


def _facts(account: Account, provenance: Mapping[str, Any]) -> dict[str, str]:
    """Facts about the model: checkpoint, step and size."""
    facts = {
        "checkpoint": account.path,
        "step": "" if account.step is None else f"{account.step:,}",
        "weights": f"{account.parameters:,}" if account.parameters else "",
        "mechint": str(provenance.get("mechint") or ""),
    }
    return {name: value for name, value in facts.items() if value}


# --- accounts side by side ------------------------------------------------------------------------
def comparison_page(accounts: Sequence[Account], command: str = "", said: str = "") -> Page:
    """The page of several accounts: verdicts first, what is `said` of their programs, then what
    differs, then each one's hero.
    """
    named = dict(zip(ascii_uppercase, accounts, strict=False))
    titles = {
        letter: f"{letter}: {PurePath(account.path).stem or account.title}"
        for letter, account in named.items()
    }
    rows = compared_rows(accounts)
    columns = {"measure": [name for name, _ in rows]}
    for place, title in enumerate(titles.values()):
        columns[title] = [values[place] for _, values in rows]
    heroes = {letter: _heroes(account) for letter, account in named.items()}
    figures = {  # those of one probe beside each other, where every model has it
        f"{letter} {name}": replace(drawn[name], title=f"{letter}: {drawn[name].title}")
        for name in heroes["A"]
        for letter, drawn in heroes.items()
        if all(name in other for other in heroes.values())
    }
    quality = {letter: quality_text(account.quality, ", ") for letter, account in named.items()}
    answers = [
        Section(
            titles[letter],
            lead=account.verdict,
            paragraphs=[account.path, *quality[letter]],
            findings=[finding for _, finding in account.evidence],
        )
        for letter, account in named.items()
    ]
    verdicts = [f"{letter}: {account.verdict}" for letter, account in named.items()]
    same = len({account.verdict for account in accounts}) == 1
    differ = Table(columns, "text metrics and numbers that differ")
    return Page(
        " and ".join(dict.fromkeys(account.title for account in accounts)),
        [Section("Side by side", lead=said, figures=figures, tables={"both": differ}), *answers],
        kicker="comparison",
        quality=[f"{titles[letter]}; {'; '.join(lines)}" for letter, lines in quality.items()],
        verdict=accounts[0].verdict if same else "\n".join(verdicts),
        probes=list(dict.fromkeys(name for account in accounts for name in account.results)),
        command=command,
    )


def _heroes(account: Account) -> dict[str, Figure]:
    """The hero of each result, that of the leading one first."""
    order = sorted(account.results.values(), key=lambda result: -result.lead_rank)
    return {
        result.probe: result.figures[result.hero].for_verdict(result.verdict)
        for result in order
        if result.hero in result.figures and result.figures[result.hero].plots
    }
