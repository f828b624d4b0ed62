"""Keep the results of studies in the repository: ``python -m studies.record runs/*-laptop``.

results/STUDY/SIZE/rows.jsonl.gz   a row of numbers a run
results/STUDY/SIZE/kept.jsonl.gz   rows of earlier runs that no plan trains again
results/STUDY/SIZE/study.json      when, how long, by which code
results/STUDY/criteria.json        the criteria replaced so far, with verdict and reason
results/STUDY/SIZE/claims.json, results/README.md, results/STUDY/figure.svg   made from these

Everything but rows, study.json and criteria.json is made again from them by ``python -m
studies.record`` alone, so that a changed criterion costs no training.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from mechint.errors import RunError
from mechint.probe.results import PaperClaim
from mechint.registry import STUDIES
from mechint.report import Page
from mechint.studies.claims import INCONCLUSIVE, NOT_RUN, VERDICTS
from mechint.studies.page import (
    FALLS,
    OPEN,
    STANDS,
    STAR,
    Outcome,
    best,
    counts,
    experiments,
    head_of,
    standing,
    study_page,
    verdict_of,
)
from mechint.studies.rows import Rows, read_rows
from mechint.studies.runner import CLAIMS, KIND, ROWS, claims_text, facts, judge
from mechint.studies.study import SIZES, Sentence
from mechint.system.files import make_directory, read_json, write_text

CRITERIA, PICTURE, KEPT = "criteria.json", "figure.svg", "kept.jsonl.gz"
LONGEST = 200
"""Letters of a cell in a table."""

BEGIN, END = "<!-- studies -->\n", "<!-- end of studies -->\n"
"""The marks between which a document shows one sentence a study."""


def record(
    places: Iterable[str | Path] = (),
    results: str | Path = "results",
    documents: Iterable[str | Path] = (),
) -> Path:
    """Copy rows and study.json of the studies in `places` to `results`, and make all that follows
    from what is kept there, in `documents` the lines between the marks.

    Raises:
        RunError: a place that holds no finished study, or a document without the marks.
    """
    results = Path(results)
    for place in map(Path, places):
        kind = read_json(place / KIND)
        if not (place / ROWS).exists():
            raise RunError(f"{place}: holds no finished study; run mechint reproduce first")
        kept = make_directory(results / kind["study"] / kind["size"])
        for name in (KIND, ROWS):
            shutil.copyfile(place / name, kept / name)
    found = outcomes([results])
    for name, sizes in found.items():
        for size, outcome in sizes.items():
            write_text(results / name / size / CLAIMS, claims_text(outcome.claims))
        if hero := study_page(STUDIES[name], sizes).hero:
            hero.save(results / name / PICTURE)
    write_text(results / "README.md", tables(found, results))
    for document in map(Path, documents):
        before, begun, rest = document.read_text(encoding="utf-8").partition(BEGIN)
        _, ended, after = rest.partition(END)
        if not (begun and ended):
            raise RunError(f"{document}: has no lines {BEGIN.strip()} and {END.strip()}")
        write_text(document, f"{before}{BEGIN}\n{sentences(found)}\n{END}{after}")
    return results / "README.md"


def outcomes(places: Iterable[str | Path]) -> dict[str, dict[str, Outcome]]:
    """The outcomes of the studies whose rows lie under `places`, by study and size, judged anew."""
    files = (file for place in map(Path, places) for file in place.rglob(KIND))
    kept = {
        (kind["study"], kind["size"]): (file.parent, kind)
        for file in files
        if (file.parent / ROWS).exists() and (kind := read_json(file))
    }
    found: dict[str, dict[str, Outcome]] = {}
    for name, size in product(STUDIES, SIZES):
        if (name, size) in kept:
            place, kind = kept[name, size]
            rows = read_rows(place / ROWS)
            done, rows = len(rows), Rows([*rows, *read_rows(place / KEPT)])
            claims = judge(STUDIES[name], rows, size)
            told = facts(kind, done, kind.get("planned", done))
            found.setdefault(name, {})[size] = Outcome(rows, claims, told)
    return found


def pages_under(places: Sequence[str | Path]) -> list[Page]:
    """The page of every study whose rows lie under `places`, drawn from them.

    Raises:
        RunError: a place that is not there.
    """
    for place in map(Path, places):
        if not place.exists():
            raise RunError(f"{place}: there is no such directory to take rows of studies from")
    return [study_page(STUDIES[name], sizes) for name, sizes in outcomes(places).items()]


def _verdicts(one: Mapping[str, Any]) -> list[str]:
    """Verdicts of a replaced criterion, whatever the size."""
    verdict = one["verdict"]
    return [verdict] if isinstance(verdict, str) else list(verdict.values())


def _negative(replaced: Iterable[Mapping[str, Any]]) -> set[str]:
    """Claims that an earlier criterion called not reproduced at some size."""
    return {one["claim"] for one in replaced if {"not reproduced", "refuted"} & set(_verdicts(one))}


def sentences(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """One sentence a study of what stands and what falls, and how many of its claims are open."""
    lines = []
    for name, sizes in found.items():
        study, claims = STUDIES[name], best(sizes)
        told = " ".join(
            f"{head}: {'; '.join(said)}."
            for head, said in standing(study, claims).items()
            if head != OPEN
        )
        n = sum(claim.verdict in (INCONCLUSIVE, NOT_RUN) for claim in claims)
        left = f" {OPEN}: {n} of {len(claims)} claims." if n else ""
        lines.append(f"- **{_ended(study.title)}** {told}{left}\n")
    if any(STAR in line.replace("**", "") for line in lines):
        lines.append("\n\\* By a criterion that was fixed after its runs were seen.\n")
    return "".join(lines)


def _ended(title: str) -> str:
    return title if title.endswith("?") else f"{title}."


def verdicts(found: Mapping[str, Mapping[str, Outcome]], results: Path) -> str:
    """A table of one line a paper: the regime here and there, experiments, and how many of the
    paper's claims have each verdict; the same of ours; and the count of the criteria that were
    replaced.
    """
    head = ("", "here", "the paper", "experiments", *VERDICTS)
    papers, ours, replaced, first = [], [], 0, 0
    became: Counter[str] = Counter()
    for name, sizes in found.items():
        study, claims = STUDIES[name], best(sizes)
        theirs = [claim for claim in claims if not claim.own]
        own = [claim for claim in claims if claim.own]
        cells = (f"`{name}`", study.here, study.there)
        if theirs:
            papers.append(row(*cells, *counted_by_verdict(theirs)))
        if own:
            ours.append(
                row(f"`{name}`, ours", "" if theirs else study.here, "", *counted_by_verdict(own))
            )
        kept = read_json(results / name / CRITERIA)
        replaced += len(kept["replaced"])
        for letter in _negative(kept["replaced"]):
            ids = tuple(claim.id for claim in theirs if claim.id.startswith(letter))
            became[head_of(Sentence("", ids), theirs)] += 1
        first += kept["first_claims"]
    return (
        row(*head)
        + row(*["---"] * len(head))
        + "".join([*papers, *ours])
        + "\nClaims that share runs are of one experiment. "
        f"Of the {first} claims first written down, {became.total()} once read “not reproduced” "
        f"or “refuted”: of these {became[STANDS]} stand on new criteria, {became[FALLS]} fall, and "
        f"{became[OPEN]} are open in whole or in part. {replaced} criteria were replaced, each "
        "with its verdict and reason in "
        f"`results/STUDY/{CRITERIA}`; one changed after its runs is judged on fresh seeds.\n"
    )


def counted_by_verdict(claims: Sequence[PaperClaim]) -> list[str]:
    """Cells of a row: experiments, then claims by verdict."""
    verdicts = Counter(claim.verdict for claim in claims)
    return [str(experiments(claims)), *(str(verdicts[verdict]) for verdict in VERDICTS)]


def tables(found: Mapping[str, Mapping[str, Outcome]], results: Path) -> str:
    """The studies kept under `results` as Markdown: one line a paper, then the sentences of each
    study with the numbers of their first claim.
    """
    text = (
        "# Results of the studies\n\nWritten by `python -m studies.record`; not edited by hand. "
        "Verdicts are judged from the rows of numbers that lie beside; every claim has its "
        f"criterion, numbers and verdict in `STUDY/SIZE/{CLAIMS}`, on the study's page, and in "
        "what `mechint reproduce` prints. Criteria were committed before the runs; a star marks a "
        "verdict on runs that were seen before its criterion was fixed.\n\n"
        f"{verdicts(found, results)}"
    )
    for name, sizes in found.items():
        study, claims = STUDIES[name], {claim.id: claim for claim in best(sizes)}
        spent = "; ".join(
            f"{size}: {one.facts['runs']} runs, "
            f"processor time {one.facts['processor time'] or 'not kept'}, {one.facts['date']}"
            for size, one in sizes.items()
        )
        text += f"\n## {name}\n\n{_ended(study.title)} {counts(best(sizes))} {spent}.\n\n"
        text += row("", "here", "the paper", "ours [95% interval]", "verdict") + row(*["---"] * 5)
        for one in study.sentences:
            of = [claims[id] for id in one.ids]
            first = of[0] if of else PaperClaim(name, "", "")
            left = {claim.note for claim in of if claim.verdict == NOT_RUN} - {""}
            told = [f"{first.id}: {first.ours}" if first.ours else "", one.cost]
            numbers = "; ".join(filter(None, [*told, *(() if one.cost else sorted(left))]))
            verdict = verdict_of(one, list(claims.values())).replace(STAR, r" \*")
            regime, theirs = one.regime or study.here, "ours" if one.own else first.theirs
            text += row(one.says, regime, theirs, numbers, verdict)
    return text


def row(*cells: str) -> str:
    """A row of a Markdown table, cells cut after LONGEST letters."""
    short = (
        cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 2].rpartition(' ')[0]} …"
        for cell in cells
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in short) + " |\n"


if __name__ == "__main__":
    record(sys.argv[1:], documents=["README.md"])
