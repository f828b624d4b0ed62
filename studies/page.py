"""A study's page: its claims at every size as one table, a card a claim, the paper's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechint.errors import counted
from mechint.probe.results import Figure, PaperClaim, Table
from mechint.report import Page, Section
from mechint.studies.claims import NOT_RUN, REFUTED, SUPPORTED, VERDICTS
from mechint.studies.rows import Rows
from mechint.studies.study import Sentence, Study
from mechint.training.run_directory import manifest

STAR = "*"
"""The mark of a verdict by a criterion that was fixed after its runs were seen."""
STANDS, FALLS, OPEN = "Stands", "Falls", "Open"
"""The heads of the sentences that stand, that fall, and that do neither."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one size of a study: its rows, its claims in the study's order, and the facts
    of its runs.
    """

    rows: Rows
    claims: Sequence[PaperClaim]
    facts: Mapping[str, str]


def study_page(study: Study, outcomes: Mapping[str, Outcome]) -> Page:
    """The page of a study, from its outcomes by size, the smallest first."""
    claims = best(outcomes)
    last = list(outcomes.values())[-1]
    dates = span([one.facts["date"] for one in outcomes.values() if one.facts.get("date")])
    figures: dict[str, Figure] = {}
    for outcome in outcomes.values():
        figures |= study.draw(outcome.rows)
    hero = next(iter(figures.values()), None)
    sections = [
        Section(
            "Claims",
            lead="" if claims else "Size smoke judges no claim.",
            claims=claims,
            tables={"Verdicts": matrix(outcomes)} if claims else {},
        )
    ]
    if len(figures) > 1:
        sections.append(Section("Figures", figures=figures))
    if claims:
        sections.append(Section("Criteria", tables={"Fixed before the runs": criteria(claims)}))
    return Page(
        study.title,
        sections,
        kicker="study of ours" if study.before else "study",
        verdict=answer(study, claims) if claims else "",
        quality=[counts(claims)] if claims else [],
        abstract=abstract(study, claims),
        hero=hero,
        facts={**last.facts, "size": ", ".join(outcomes), "date": dates, **regimes(study)},
        command=f"mechint reproduce {study.name} --size {list(outcomes)[-1]}",
        provenance=manifest(),
    )


def answer(study: Study, claims: Sequence[PaperClaim]) -> str:
    """The first sentence that stands, else falls, else is open; a word says which, where it does
    not stand.
    """
    found = standing(study, claims)
    if not found:
        return counts(claims)
    head, (first, *_) = next(iter(found.items()))
    return f"{first[:1].upper()}{first[1:]}." if head == STANDS else f"{head}: {first}."


def abstract(study: Study, claims: Sequence[PaperClaim]) -> str:
    """Sentences that stand, fall or are open, then the paper's or the hypothesis, a line each."""
    said = study.summary if study.before else f"The paper says: {study.summary}"
    lines = [f"{head}: {'; '.join(all)}." for head, all in standing(study, claims).items()]
    starred = any(STAR in line for line in lines)
    late = [f"{STAR} by a criterion that was fixed after its runs were seen."] if starred else []
    return "\n".join([*lines, *late, said])


def regimes(study: Study) -> dict[str, str]:
    """The paper, who has said it before, and what was run there and here."""
    told = {"paper": study.paper, "known before": study.before}
    told |= {"runs of the paper": study.there, "runs here": study.here}
    return {name: text for name, text in told.items() if text}


def span(dates: Iterable[str]) -> str:
    """The first and the last of some dates.

    >>> span(["2026-11-23", "2026-11-26", "2026-11-25"]), span(["2026-11-23"])
    ('2026-11-23 to 2026-11-26', '2026-11-23')
    """
    found = sorted(set(dates))
    return " to ".join(dict.fromkeys([found[0], found[-1]])) if found else ""


def verdict_of(sentence: Sentence, claims: Sequence[PaperClaim]) -> str:
    """The verdict that all claims of a sentence have, with a star where one was judged by a
    criterion later than its runs; the number of each verdict where they differ.
    """
    of = [claim for claim in claims if claim.id in sentence.ids]
    found = Counter(claim.verdict for claim in of)
    star = STAR if any(claim.late and claim.ours for claim in of) else ""
    if len(found) > 1:
        return ", ".join(f"{found[one]} {one}" for one in VERDICTS if found[one]) + star
    return f"{next(iter(found), NOT_RUN)}{star}"


def head_of(sentence: Sentence, claims: Sequence[PaperClaim]) -> str:
    """The head of a sentence of which all claims are supported, all are refuted, or neither."""
    verdict = verdict_of(sentence, claims).removesuffix(STAR)
    return {SUPPORTED: STANDS, REFUTED: FALLS}.get(verdict, OPEN)


def standing(study: Study, claims: Sequence[PaperClaim]) -> dict[str, list[str]]:
    """The sentences that stand, fall or are open, by these words, where there are such; one whose
    claims differ is open, and a star marks one by a criterion later than its runs.
    """
    said: dict[str, list[str]] = {STANDS: [], FALLS: [], OPEN: []}
    for one in study.sentences:
        head = head_of(one, claims)
        starred = head != OPEN and verdict_of(one, claims).endswith(STAR)
        said[head].append(f"{one.says}{STAR * starred}")
    return {head: all for head, all in said.items() if all}


def best(outcomes: Mapping[str, Outcome]) -> list[PaperClaim]:
    """Every claim at the largest size at which it has a verdict; not run where it has none, with
    what earlier rows suggest where they say something.
    """
    found: dict[str, PaperClaim] = {}
    for outcome in outcomes.values():
        for claim in outcome.claims:
            known = found.get(claim.id)
            suggests = claim.experiment and known is not None and known.verdict == NOT_RUN
            if known is None or claim.verdict != NOT_RUN or suggests:
                found[claim.id] = claim
    return list(found.values())


def experiments(claims: Sequence[PaperClaim]) -> int:
    """The number of experiments that gave verdicts: claims that share an arm are of one.

    >>> experiments([PaperClaim("s", id, "", verdict="refuted", experiment=arms) for id, arms in
    ...     (("a", ("x",)), ("b", ("x", "y")), ("c", ("z",)))])
    2
    """
    groups: list[set[str]] = []
    for claim in claims:
        if claim.verdict != NOT_RUN and claim.experiment:
            arms = set(claim.experiment)
            apart = [group for group in groups if not group & arms]
            groups = [*apart, arms.union(*(group for group in groups if group & arms))]
    return len(groups)


def counts(claims: Sequence[PaperClaim]) -> str:
    """The number of claims of each verdict that there is, in words.

    >>> counts([PaperClaim("s", "a", "", verdict="refuted"), PaperClaim("s", "b", "")])
    'Of 2 claims: 1 refuted, 1 not run.'
    """
    found = Counter(claim.verdict for claim in claims)
    told = ", ".join(f"{found[one]} {one}" for one in VERDICTS if found[one])
    return f"Of {counted(len(claims), 'claim')}: {told}."


def matrix(outcomes: Mapping[str, Outcome]) -> Table:
    """One row a claim: the paper's number, ours, n, power, and the verdict at every size."""
    claims = best(outcomes)
    columns: dict[str, list[Any]] = {
        "claim": [claim.id for claim in claims],
        "statement": [claim.statement for claim in claims],
        "the paper": [claim.theirs for claim in claims],
        "here [95% interval]": [claim.ours or claim.note for claim in claims],
        "n": [claim.n or "" for claim in claims],
        "planned power": ["" if one.power is None else f"{one.power:.0%}" for one in claims],
    }
    for size, outcome in outcomes.items():
        verdicts = {claim.id: claim.verdict for claim in outcome.claims}
        columns[size] = [verdicts.get(claim.id, NOT_RUN) for claim in claims]
    return Table(columns, "A claim's numbers are those of the largest size that decides it.")


def criteria(claims: Sequence[PaperClaim]) -> Table:
    """Criterion, control, and whether runs were seen before."""
    return Table(
        {
            "claim": [claim.id for claim in claims],
            "criterion": [claim.criterion for claim in claims],
            "control": [claim.control for claim in claims],
            "fixed": [f"{'after' if claim.late else 'before'} the runs" for claim in claims],
        },
        "A claim is supported where the 95% interval lies within the bar and the control is met.",
    )
