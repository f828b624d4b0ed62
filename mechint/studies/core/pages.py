"""A study's report: what stands, falls and is open first, then evidence, figures, sensitivity,
provenance.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from mechint.claim import Claim
from mechint.jsonable import to_jsonable
from mechint.report import Page, Section
from mechint.results import Table
from mechint.studies.core.claims import (
    NOT_REPRODUCED,
    NOT_RUN,
    NOT_TESTED,
    REPRODUCED,
    UNDERPOWERED,
)
from mechint.studies.core.evidence import MIN_RUNS
from mechint.studies.core.study import Analysis, Runs, Study
from mechint.training.manifest import manifest


def study_page(
    study: Study, size: str, analysis: Analysis, runs: Runs, spent: Mapping[str, str]
) -> Page:
    """The report of an analysis as data; spent: on it so far, in words by the kind of time."""
    sections = judged_sections(analysis.claims)
    if analysis.figures:
        sections.append(Section("Figures", figures=analysis.figures))
    if analysis.sensitivity:
        sections.append(Section("Sensitivity", lead=VARIED, tables=analysis.sensitivity))
    if analysis.tables:
        sections.append(Section("Numbers", tables=analysis.tables))
    absent = {**{f"run {name}": error for name, error in runs.failed.items()}, **analysis.missing}
    if absent:
        lines = [f"{name}: {error}" for name, error in absent.items()]
        sections.append(Section("Not made", paragraphs=lines))
    settings = {name: runs.spec(name).to_dict() for name in _one_per_arm(runs)}
    facts = {
        "study": study.name,
        "size": size,
        "runs": f"{runs.n_finished} of {len(runs)} finished",
        **spent,
    }
    return Page(
        study.title if size == "laptop" else f"{study.title} ({size})",
        sections,
        kicker="study",
        abstract=study.abstract(),
        facts=facts,
        command=f"mechint reproduce {study.name} --size {size}",
        date=datetime.now(UTC).date().isoformat(),
        provenance=to_jsonable({**manifest(), "runs": settings}),
    )


VARIED = "What the paper does not state, varied."
"""The lead of a study's sensitivity tables."""


def judged_sections(claims: Sequence[Claim]) -> list[Section]:
    """What follows from the claims alone: the claims, and their evidence where there is any."""
    tables = {"Evidence": evidence_table(claims), "Replaced criteria": replaced_table(claims)}
    kept = {name: table for name, table in tables.items() if table is not None}
    first = Section("Claims", lead=in_three_sentences(claims), claims=claims)
    return [first, *([Section("Evidence", tables=kept)] if kept else [])]


def rejudged(sections: Sequence[Section], claims: Sequence[Claim]) -> list[Section]:
    """The sections of a study's page with these claims in place of its own: what follows from the
    claims is made again, and figures and tables that were drawn while another criterion stood say
    so.
    """
    withdrawn = ", ".join(claim.letter for claim in claims if claim.verdict == NOT_RUN)
    said = f"Made before the criterion of {withdrawn} was replaced: of that they show the earlier "
    said += "measurement."
    rest: list[Section] = []
    for section in sections:
        if section.title in ("Figures", "Sensitivity", "Numbers"):
            leads = (VARIED if section.title == "Sensitivity" else "", said if withdrawn else "")
            rest.append(dataclasses.replace(section, lead=" ".join(filter(None, leads))))
        elif section.title not in ("Claims", "Evidence"):
            rest.append(section)
    return [*judged_sections(claims), *rest]


def _one_per_arm(runs: Runs) -> list[str]:
    """The first run of every set of labels that differ in more than the seed."""
    arms = {
        json.dumps(
            {key: value for key, value in labels.items() if key != "seed"}, default=str
        ): name
        for name, labels in reversed(runs.labels.items())
    }
    return list(reversed(arms.values()))


def in_three_sentences(claims: Sequence[Claim]) -> str:
    """What stands, what falls, what is open.

    >>> in_three_sentences([])
    'Stands: none. Falls: none. Open: none.'
    """

    def letters(verdict: str) -> str:
        return ", ".join(claim.letter for claim in claims if claim.verdict == verdict)

    open_ = [
        f"{letters(verdict)} ({verdict})"
        for verdict in (UNDERPOWERED, NOT_TESTED, NOT_RUN)
        if letters(verdict)
    ]
    return (
        f"Stands: {letters(REPRODUCED) or 'none'}. Falls: {letters(NOT_REPRODUCED) or 'none'}. "
        f"Open: {'; '.join(open_) or 'none'}."
    )


def evidence_table(claims: Sequence[Claim]) -> Table | None:
    """One row per part of every claim that was measured, its positive control last."""
    rows: dict[str, list[Any]] = {
        name: [] for name in ("claim", "part", "estimate and interval, or test", "n", "outcome")
    }
    for claim in claims:
        control = (
            [{**claim.control, "part": f"control: {claim.control['part']}"}]
            if claim.control
            else []
        )
        for part in [*claim.parts, *control]:
            row = (claim.letter, part["part"], part["shown"], part["n"], part["outcome"])
            for column, value in zip(rows.values(), row, strict=True):
                column.append(value)
    caption = (
        "A part is met or missed only where its 95% interval, or its exact test, decides; what is "
        f"asked of every run is missed by one; fewer than {MIN_RUNS} runs decide nothing; without "
        "its positive control a claim is underpowered."
    )
    return Table(rows, caption) if rows["claim"] else None


def replaced_table(claims: Sequence[Claim]) -> Table | None:
    """Criteria that were found wrong, with the verdicts under them and why they went."""
    columns = ("criterion", "verdict", "ours", "reason")
    rows = {
        "claim": [claim.letter for claim in claims for _ in claim.replaced],
        **{name: [one[name] for claim in claims for one in claim.replaced] for name in columns},
    }
    rows["verdict"] = [
        one
        if isinstance(one, str)
        else "; ".join(f"{size}: {each}" for size, each in one.items()) or "not tested"
        for one in rows["verdict"]
    ]
    caption = "Earlier criteria, what came out under each, and why it was replaced."
    return Table(rows, caption) if rows["claim"] else None
