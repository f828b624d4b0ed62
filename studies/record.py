"""Keep the results of studies in the repository: ``python -m studies.record runs/*-laptop``.

results/STUDY/SIZE/rows.jsonl.gz   a row of numbers a run
results/STUDY/SIZE/study.json      when, how long, by which code
results/STUDY/criteria.json        commits that fixed the criteria; the criteria replaced so far
results/STUDY/SIZE/claims.json, results/STUDY/page.json, results/README.md   made from these

Everything but rows, study.json and criteria.json is made again from them by ``python -m
studies.record`` alone, so that a changed criterion costs no training.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from mechint.errors import RunError
from mechint.probe.results import Claim
from mechint.registry import STUDIES
from mechint.report import PAGE
from mechint.studies.claims import VERDICTS
from mechint.studies.page import Outcome, best, counts, study_page
from mechint.studies.rows import read_rows
from mechint.studies.runner import CLAIMS, KIND, ROWS, claims_text, facts, judge
from mechint.studies.study import SIZES, Study
from mechint.system.files import make_directory, read_json, write_text

CRITERIA = "criteria.json"
LONGEST = 200
"""Letters of a cell in a table."""

BEGIN, END = "<!-- studies -->\n", "<!-- end of studies -->\n"
"""The marks between which a document shows one line a paper."""


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
    kept = {name: outcomes(name, results) for name in STUDIES if (results / name).is_dir()}
    found = {name: sizes for name, sizes in kept.items() if sizes}
    for name, sizes in found.items():
        for size, outcome in sizes.items():
            write_text(results / name / size / CLAIMS, claims_text(outcome.claims))
        page = study_page(STUDIES[name](), sizes, history(results / name))
        told = [read_json(results / name / size / KIND).get("origins", []) for size in sizes]
        provenance = {**page.provenance, "origins": [one for some in told for one in some]}
        page = dataclasses.replace(page, provenance=provenance)
        write_text(results / name / PAGE, json.dumps(page.to_dict(), ensure_ascii=False))
    write_text(results / "README.md", tables(found, results))
    for document in map(Path, documents):
        before, begun, rest = document.read_text(encoding="utf-8").partition(BEGIN)
        _, ended, after = rest.partition(END)
        if not (begun and ended):
            raise RunError(f"{document}: has no lines {BEGIN.strip()} and {END.strip()}")
        lines = one_line_each(found, results)
        write_text(document, f"{before}{BEGIN}\n{lines}\n{END}{after}")
    return results / "README.md"


def outcomes(name: str, results: Path) -> dict[str, Outcome]:
    """The outcomes kept of a study, by size, judged anew."""
    study: Study = STUDIES[name]()
    fixed = read_json(results / name / CRITERIA)["fixed"]
    found = {}
    for size in SIZES:
        place = results / name / size
        if not (place / ROWS).exists():
            continue
        rows, kind = read_rows(place / ROWS), read_json(place / KIND)
        claims = [_with_commit(claim, fixed) for claim in judge(study, rows, size)]
        found[size] = Outcome(rows, claims, facts(kind, len(rows), kind.get("planned", len(rows))))
    return found


def _with_commit(claim: Claim, fixed: Mapping[str, Mapping[str, str]]) -> Claim:
    """The claim with the commit that fixed its criterion before its runs; none where the criterion
    has changed since, or runs are older.
    """
    kept = fixed.get(claim.id, {})
    before = claim.date.split(", ")[0] >= kept.get("date", "9999")
    same = kept.get("criterion") == claim.criterion
    return dataclasses.replace(claim, fixed=kept["commit"] if same and before else "")


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


def one_line_each(found: Mapping[str, Mapping[str, Outcome]], results: Path) -> str:
    """One line a paper: the regime here and there, how many claims have each verdict; and the
    count of the criteria that were replaced.
    """
    head = ("paper", "here", "the paper", *VERDICTS)
    rows, replaced, negative, first = [], 0, 0, 0
    for name, sizes in found.items():
        study, verdicts = STUDIES[name], Counter(claim.verdict for claim in best(sizes))
        cells = [str(verdicts[verdict]) for verdict in VERDICTS]
        rows.append(row(f"`{name}`", study.here, study.there, *cells))
        kept = read_json(results / name / CRITERIA)
        replaced += len(kept["replaced"])
        negative += _negative(kept["replaced"])
        first += kept["first_claims"]
    return (
        row(*head)
        + row(*["---"] * len(head))
        + "".join(rows)
        + f"\nOf the {first} claims first written down, {negative} once read “not reproduced” or "
        f"“refuted”; {replaced} criteria were replaced, each with its reason in "
        f"`results/STUDY/{CRITERIA}`.\n"
    )


def tables(found: Mapping[str, Mapping[str, Outcome]], results: Path) -> str:
    """All claims kept under `results` as Markdown: one line a paper, then a table a study."""
    text = (
        "# Results of the studies\n\nWritten by `python -m studies.record`; not edited by hand. "
        "Verdicts are judged from the rows of numbers that lie beside. Criteria were committed "
        "before the runs (`registered.md`, `STUDY/criteria.json`); a star marks a verdict on runs "
        f"older than its criterion.\n\n{one_line_each(found, results)}"
    )
    for name, sizes in found.items():
        study = STUDIES[name]
        spent = "; ".join(
            f"{size}: {one.facts['runs']} runs, processor time {one.facts['processor time']}, "
            f"{one.facts['date']}"
            for size, one in sizes.items()
        )
        text += (
            f"\n## {name}\n\n{study.title}. {spent}. {counts(best(sizes))} "
            f"{history(results / name)}\n\n"
        )
        text += row("", "claim", "the paper", "here [95% interval]", "n", "power", "verdict")
        text += row(*["---"] * 7)
        for claim in best(sizes):
            power = "" if claim.power is None else f"{claim.power:.0%}"
            failed = f" (control {claim.control})" if claim.control.startswith("failed") else ""
            late = " \\*" if claim.ours and not claim.fixed else ""
            text += row(
                claim.id,
                claim.statement,
                claim.theirs,
                claim.ours or claim.note,
                str(claim.n or ""),
                power,
                f"**{claim.verdict}**{late}{failed}",
            )
    return text


def row(*cells: str) -> str:
    """A row of a Markdown table, cells cut after LONGEST letters."""
    short = (
        cell if len(cell) <= LONGEST else f"{cell[: LONGEST - 2].rpartition(' ')[0]} …"
        for cell in cells
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in short) + " |\n"


if __name__ == "__main__":
    record(sys.argv[1:], documents=["README.md", "docs/papers.md"])
