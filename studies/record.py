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
    OPEN,
    STAR,
    Outcome,
    best,
    counts,
    experiments,
    standing,
    study_page,
)
from mechint.studies.rows import Rows, read_rows
from mechint.studies.runner import CLAIMS, KIND, ROWS, claims_text, facts, judge
from mechint.studies.study import SIZES
from mechint.system.files import make_directory, read_json, write_text

CRITERIA, PICTURE, KEPT = "criteria.json", "figure.svg", "kept.jsonl.gz"
MANY = 4
"""Claims of one reason for which they are not run that share a line."""

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
        if hero := study_page(STUDIES[name](), sizes).hero:
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
            claims = judge(STUDIES[name](), rows, size)
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
    return [study_page(STUDIES[name](), sizes) for name, sizes in outcomes(places).items()]


def history(place: Path) -> str:
    """The criteria that were replaced, in one line."""
    replaced = read_json(place / CRITERIA)["replaced"]
    return (
        f"{len(replaced)} criteria on {len({one['claim'] for one in replaced})} claims were "
        f"replaced before these, {_negative(replaced)} of the claims once read “not reproduced” "
        f"(all in {place.name}/{CRITERIA})."
    )


def _verdicts(one: Mapping[str, Any]) -> list[str]:
    """Verdicts of a replaced criterion, whatever the size."""
    verdict = one["verdict"]
    return [verdict] if isinstance(verdict, str) else list(verdict.values())


def _negative(replaced: Iterable[Mapping[str, Any]]) -> int:
    """Claims that an earlier criterion called not reproduced at some size."""
    return len(
        {one["claim"] for one in replaced if {"not reproduced", "refuted"} & set(_verdicts(one))}
    )


def sentences(found: Mapping[str, Mapping[str, Outcome]]) -> str:
    """One sentence a study of what stands and what falls, and how many of its claims are open."""
    lines = []
    for name, sizes in found.items():
        study, claims = STUDIES[name], best(sizes)
        told = " ".join(one for head, one in standing(study, claims).items() if head != OPEN)
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
    papers, ours, replaced, negative, first = [], [], 0, 0, 0
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
        negative += _negative(kept["replaced"])
        first += kept["first_claims"]
    return (
        row(*head)
        + row(*["---"] * len(head))
        + "".join([*papers, *ours])
        + "\nClaims that share runs are of one experiment. "
        f"Of the {first} claims first written down, {negative} once read “not reproduced” or "
        f"“refuted”; {replaced} criteria were replaced, each with its reason in "
        f"`results/STUDY/{CRITERIA}`; one changed after its runs is judged on fresh seeds.\n"
    )


def counted_by_verdict(claims: Sequence[PaperClaim]) -> list[str]:
    """Cells of a row: experiments, then claims by verdict."""
    verdicts = Counter(claim.verdict for claim in claims)
    return [str(experiments(claims)), *(str(verdicts[verdict]) for verdict in VERDICTS)]


def tables(found: Mapping[str, Mapping[str, Outcome]], results: Path) -> str:
    """All claims kept under `results` as Markdown: one line a paper, then a table a study."""
    text = (
        "# Results of the studies\n\nWritten by `python -m studies.record`; not edited by hand. "
        "Verdicts are judged from the rows of numbers that lie beside. Criteria were committed "
        "before the runs; a star marks a verdict on runs that were seen before its criterion was "
        f"fixed.\n\n{sentences(found)}\n{verdicts(found, results)}"
    )
    for name, sizes in found.items():
        study = STUDIES[name]
        spent = "; ".join(
            f"{size}: {one.facts['runs']} runs, "
            f"processor time {one.facts['processor time'] or 'not kept'}, {one.facts['date']}"
            for size, one in sizes.items()
        )
        opened = standing(study, best(sizes)).get(OPEN)
        text += (
            f"\n## {name}\n\n{_ended(study.title)} {' '.join(filter(None, (f'{spent}.', opened)))} "
            f"{counts(best(sizes))} {history(results / name)}\n\n"
        )
        text += row("", "claim", "the paper", "here [95% interval]", "n", "power", "verdict")
        text += row(*["---"] * 7)
        shown, scale = apart(best(sizes))
        for claim in shown:
            power = "" if claim.power is None else f"{claim.power:.0%}"
            failed = f" (control {claim.control})" if claim.control.startswith("failed") else ""
            late = " \\*" if claim.ours and claim.late else ""
            text += row(
                claim.id,
                claim.statement,
                claim.theirs,
                claim.ours or claim.note,
                str(claim.n or ""),
                power,
                f"**{claim.verdict}**{late}{failed}",
            )
        for note, ids in scale.items():
            text += f"\nNot run, {len(ids)} claims ({', '.join(ids)}): {note}.\n"
    return text


def apart(claims: Sequence[PaperClaim]) -> tuple[list[PaperClaim], dict[str, list[str]]]:
    """The claims that have a row of their own, and reason → ids of those that MANY are not run
    for.
    """
    found: dict[str, list[str]] = {}
    for claim in claims:
        if claim.verdict == NOT_RUN:
            found.setdefault(claim.note, []).append(claim.id)
    scale = {note: ids for note, ids in found.items() if len(ids) >= MANY}
    one_line = {id for ids in scale.values() for id in ids}
    return [claim for claim in claims if claim.id not in one_line], scale


def row(*cells: str) -> str:
    """A row of a Markdown table, cells cut after LONGEST letters."""
    short = (
        cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 2].rpartition(' ')[0]} …"
        for cell in cells
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in short) + " |\n"


if __name__ == "__main__":
    record(sys.argv[1:], documents=["README.md"])
