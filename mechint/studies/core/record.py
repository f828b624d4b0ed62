"""Keep the results of studies in the repository:
``python -m mechint.studies.core.record runs/*-laptop`` after the studies ran.

results/STUDY/SIZE/claims.json   claims, verdicts and numbers
results/STUDY/SIZE/page.json     the report as data, for ``mechint gallery build``
results/README.md                all claims kept there, our figures beside the papers'
README.md                        claims and verdicts alone, between two marks

A verdict stands only under the criterion it was given by: where a study's criterion has been
replaced since, the kept claim becomes one that was not run yet, with the old verdict beside it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.claim import Claim
from mechint.errors import RunError
from mechint.files import write_text
from mechint.registry import STUDIES
from mechint.report import PAGE, Page
from mechint.studies.core.claims import (
    NOT_REPRODUCED,
    NOT_RUN,
    NOT_TESTED,
    REPRODUCED,
    UNDERPOWERED,
    ClaimSpec,
    verdict_at,
)
from mechint.studies.core.clock import KIND
from mechint.studies.core.pages import rejudged
from mechint.studies.core.study import SIZES, unmeasured, untested

CLAIMS = "claims.json"
HEAD = (
    "# Results of the studies\n\nWritten by `make studies`; not edited by hand. Every claim of a "
    "paper with its verdict here; criteria, reasons, numbers and figures are in each study's\n"
    "`claims.json` and `page.json` (`mechint gallery build results`).\n"
)
GIVEN = (REPRODUCED, NOT_REPRODUCED, UNDERPOWERED)
"""Verdicts on what was measured."""

BEGIN, END = "<!-- studies -->\n", "<!-- end of studies -->\n"
"""The marks between which README.md shows the claims."""


def record(
    places: Iterable[str | Path], results: str | Path = "results", readme: str | Path | None = None
) -> Path:
    """Copy claims and page of the studies in `places` to `results`, and write the tables of all
    studies kept there.

    Raises:
        RunError: a place that holds no finished study, or a `readme` without the marks.
    """
    results = Path(results)
    for place in map(Path, places):
        try:
            kind = json.loads((place / KIND).read_text(encoding="utf-8"))
            texts = {name: (place / name).read_text(encoding="utf-8") for name in (CLAIMS, PAGE)}
        except (OSError, ValueError) as error:
            raise RunError(f"{place}: holds no finished study: {error}") from error
        for name, text in texts.items():
            write_text(results / kind["study"] / kind["size"] / name, text)
    for place in _places(results):
        if place.parent.name in STUDIES:
            study = STUDIES[place.parent.name]
            refresh(place, study.claims, study.abstract())
    write_text(results / "README.md", table(results))
    if readme is not None:
        text = Path(readme).read_text(encoding="utf-8")
        before, begun, rest = text.partition(BEGIN)
        _, ended, after = rest.partition(END)
        if not (begun and ended):
            raise RunError(
                f"{readme}: has no place for the claims, between {BEGIN.strip()} and {END.strip()}"
            )
        write_text(Path(readme), f"{before}{BEGIN}\n{summary(results)}\n{END}{after}")
    return results / "README.md"


def refresh(place: Path, specs: Sequence[ClaimSpec], abstract: str) -> None:
    """Bring what is kept of one study at one size up to its present criteria and abstract, in
    claims.json and the page: a verdict given by another criterion is withdrawn with its evidence,
    and stays beside it.

    Raises:
        RunError: a verdict would be withdrawn that the criteria replaced since do not give.
    """
    kept = {one["letter"]: one for one in json.loads((place / CLAIMS).read_text(encoding="utf-8"))}
    before = json.loads((place / PAGE).read_text(encoding="utf-8"))
    study, size = place.parts[-2:]
    claims = [_current(study, size, spec, kept.get(spec.letter)) for spec in specs]
    rows = [claim.to_dict() for claim in claims]
    page = Page.from_dict(before)
    page = dataclasses.replace(
        page, abstract=abstract, sections=rejudged(page.sections, claims)
    ).to_dict()
    if rows == list(kept.values()) and page == before:
        return
    write_text(place / CLAIMS, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    write_text(place / PAGE, json.dumps(page, ensure_ascii=False))


def _current(study: str, size: str, spec: ClaimSpec, kept: Mapping[str, Any] | None) -> Claim:
    """The kept claim where its criterion is still the study's, else one that was not run yet, or
    that `size` does not test.
    """
    replaced = [dataclasses.asdict(one) for one in spec.replaced]
    if kept is None or kept["criterion"] != str(spec.criterion):
        if kept is not None and kept["verdict"] in GIVEN:
            said = _last_said([one.verdict for one in spec.replaced], size)
            if kept["verdict"] != said:
                raise RunError(
                    f"{study} at size {size}: claim {spec.letter} is kept as {kept['verdict']} by "
                    f"a criterion replaced since, and its last Replaced entry says {said} of this "
                    f"size; give the verdicts there by size"
                )
        claim = unmeasured(study, size, spec)
        return claim or dataclasses.replace(untested(study, spec, NOT_RUN), verdict=NOT_RUN)
    verdict = NOT_TESTED if kept["verdict"] == "not tested" else kept["verdict"]
    fixed = {"statement": spec.statement, "reason": spec.reason, "paper": spec.paper}
    return Claim(**{**kept, **fixed, "verdict": verdict, "replaced": replaced})


def _places(results: Path) -> list[Path]:
    """The directories of what is kept, by study, the smallest size first."""
    places = (file.parent for file in results.glob(f"*/*/{CLAIMS}"))
    return sorted(places, key=lambda place: (place.parent.name, SIZES.index(place.name)))


def _kept(results: Path) -> Iterator[tuple[str, dict[str, str], list[dict[str, Any]]]]:
    """Name, facts and claims of every study kept, once for each size."""
    for place in _places(results):
        facts = json.loads((place / PAGE).read_text(encoding="utf-8"))["facts"]
        claims = json.loads((place / CLAIMS).read_text(encoding="utf-8"))
        yield place.parent.name, facts, claims


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _before(claim: Mapping[str, Any], size: str) -> str:
    """The verdict at `size` under the last of the criteria replaced that says anything of it, in
    parentheses; empty where none does.
    """
    said = _last_said([one["verdict"] for one in claim.get("replaced") or []], size)
    return f" (by an earlier criterion: {said})" if said else ""


def _last_said(verdicts: Sequence[str | Mapping[str, str]], size: str) -> str | None:
    """The last of the replaced criteria's verdicts that says anything of `size`; a criterion that
    nothing was tested by says nothing.
    """
    said = (verdict_at(verdict, size) for verdict in reversed(verdicts))
    return next((one for one in said if one and not one.startswith("not tested")), None)


def table(results: Path) -> str:
    """The claims kept under `results` as Markdown, a section per study."""
    parts = [HEAD]
    for study, facts, claims in _kept(results):
        spent = f", {facts['runs'].removesuffix(' finished')} runs"
        spent += f", {facts['time spent']}" if "time spent" in facts else ""
        spent += f", processor time {facts['processor time']}" if "processor time" in facts else ""
        parts.append(
            f"\n## {study} ({facts['size']}{spent})\n\n"
            "| | the paper | here | n | verdict |\n| --- | --- | --- | --- | --- |\n"
        )
        for claim in claims:
            note = f" ({claim['note']})" if claim["note"] else ""
            parts.append(
                _row(
                    claim["letter"],
                    claim["statement"],
                    claim["ours"] + note,
                    _runs_of(claim),
                    claim["verdict"] + _before(claim, facts["size"]),
                )
            )
    return "".join(parts)


def summary(results: Path) -> str:
    """Claims, verdicts, independent runs and size in one table: what was judged, by the present
    criterion or by an earlier one, at every size where it was; sizes of one verdict share a row.
    What was not tested at any is named below it.
    """
    head = "| study | | claim | verdict | n | size |\n| --- | --- | --- | --- | --- | --- |\n"
    judged: dict[tuple[str, str, str], dict[str, dict[str, str]]] = {}
    for study, facts, claims in _kept(results):
        for claim in claims:
            statement = claim["statement"].rstrip(".")
            verdicts = judged.setdefault((study, claim["letter"], statement), {})
            if claim["verdict"] != NOT_TESTED:
                size, verdict = facts["size"], claim["verdict"]
                verdict += _before(claim, size) if verdict == NOT_RUN else ""
                verdicts.setdefault(verdict, {})[size] = _runs_of(claim)
    rows = [
        _row(f"`{study}`", letter, statement, verdict, _each_once(n.values()), ", ".join(n))
        for (study, letter, statement), verdicts in judged.items()
        for verdict, n in verdicts.items()
    ]
    never: dict[str, list[str]] = {}
    for (study, letter, _), verdicts in judged.items():
        if not verdicts:
            never.setdefault(study, []).append(letter)
    named = "; ".join(f"`{study}` {', '.join(letters)}" for study, letters in never.items())
    return head + "".join(rows) + (f"\nNot tested: {named}.\n" if named else "")


def _runs_of(claim: Mapping[str, Any]) -> str:
    """How many independent runs are behind a verdict, 0 too; nothing where nothing was judged."""
    return "" if claim["verdict"] in (NOT_TESTED, NOT_RUN) else str(claim.get("n") or 0)


def _each_once(values: Iterable[str]) -> str:
    """The values in their order, equal ones once and empty ones left out."""
    return ", ".join(filter(None, dict.fromkeys(values)))


if __name__ == "__main__":
    record(sys.argv[1:], readme="README.md")
