"""A study's page: its claims at every size as one table, a card a claim, the paper's figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechint.probe.results import Claim, Table
from mechint.report import Page, Section
from mechint.studies.claims import NOT_RUN, VERDICTS
from mechint.studies.rows import Rows
from mechint.studies.study import Study
from mechint.training.manifest import manifest


@dataclass(frozen=True)
class Outcome:
    """The outcome of one size of a study: its rows, its claims in the study's order, and the facts
    of its runs.
    """

    rows: Rows
    claims: Sequence[Claim]
    facts: Mapping[str, str]


def study_page(study: Study, outcomes: Mapping[str, Outcome], history: str = "") -> Page:
    """The page of a study as data. outcomes: by size, the smallest first; history: of its criteria,
    in one line.
    """
    claims = best(outcomes)
    last = list(outcomes.values())[-1]
    figures = {}
    for outcome in outcomes.values():
        figures |= study.draw(outcome.rows)
    sections = [
        Section(
            "Claims",
            lead="" if claims else "Size smoke judges no claim.",
            claims=claims,
            tables={"Verdicts": matrix(outcomes)} if claims else {},
        )
    ]
    if figures:
        sections.append(Section("Figures", figures=figures))
    if claims:
        sections.append(
            Section("Criteria", lead=history, tables={"Fixed before the runs": criteria(claims)})
        )
    return Page(
        study.title,
        sections,
        kicker="study",
        verdict=counts(claims) if claims else "",
        abstract=(f"{study.paper}. {study.summary} Here: {study.here}. The paper: {study.there}."),
        facts={**last.facts, "size": ", ".join(outcomes)},
        command=f"mechint reproduce {study.name} --size {list(outcomes)[-1]}",
        date=last.facts.get("date", ""),
        provenance=manifest(),
    )


def best(outcomes: Mapping[str, Outcome]) -> list[Claim]:
    """Every claim at the largest size at which it has a verdict; not run where it has none."""
    found: dict[str, Claim] = {}
    for outcome in outcomes.values():
        for claim in outcome.claims:
            if claim.id not in found or claim.verdict != NOT_RUN:
                found[claim.id] = claim
    return list(found.values())


def counts(claims: Sequence[Claim]) -> str:
    """The number of claims of each verdict, in words.

    >>> counts([Claim("s", "a", "", verdict="refuted"), Claim("s", "b", "")])
    '0 supported, 1 refuted, 0 inconclusive, 1 not run.'
    """
    found = Counter(claim.verdict for claim in claims)
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in VERDICTS) + "."


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


def criteria(claims: Sequence[Claim]) -> Table:
    """Criterion, control, and the commit that fixed them."""
    return Table(
        {
            "claim": [claim.id for claim in claims],
            "criterion": [claim.criterion for claim in claims],
            "control": [claim.control for claim in claims],
            "fixed in": [claim.fixed or "after the runs" for claim in claims],
            "runs of": [claim.date for claim in claims],
        },
        "A claim is supported where the 95% interval lies within the bar and the control is met.",
    )
