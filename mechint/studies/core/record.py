"""Keep the results of studies in the repository:
``python -m mechint.studies.core.record runs/*-laptop`` after the studies ran.

results/STUDY/claims.json   claims, verdicts and numbers
results/STUDY/page.json     the report as data, for ``mechint gallery build``
results/README.md           all claims kept there, our figures beside the papers'
README.md                   claims and verdicts alone, between two marks
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import RunError
from mechint.files import write_text
from mechint.report import PAGE
from mechint.studies.core.runner import KIND

CLAIMS = "claims.json"
HEAD = (
    "# Results of the studies\n\nWritten by `make studies`; not edited by hand. Every claim "
    "of a paper with its verdict here; criteria, reasons, "
    "numbers and figures are in each study's\n`claims.json` and `page.json` (`mechint "
    "gallery build results`).\n"
)
BEGIN, END = "<!-- studies -->\n", "<!-- end of studies -->\n"
"""The marks between which README.md shows the claims."""

Rows = Sequence[Mapping[str, Any]]


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
            write_text(results / kind["study"] / name, text)
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


def _kept(results: Path) -> Iterator[tuple[str, str, Rows]]:
    """Name, size and claims of every study kept."""
    for file in sorted(results.glob(f"*/{CLAIMS}")):
        size = json.loads((file.parent / PAGE).read_text(encoding="utf-8"))["facts"]["size"]
        yield file.parent.name, size, json.loads(file.read_text(encoding="utf-8"))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def table(results: Path) -> str:
    """The claims kept under `results` as Markdown, a section a study."""
    parts = [HEAD]
    for study, size, claims in _kept(results):
        parts.append(
            f"\n## {study} ({size})\n\n| | the paper | here | verdict |\n| --- | --- | --- | "
            "--- |\n"
        )
        for claim in claims:
            note = f" ({claim['note']})" if claim["note"] else ""
            parts.append(
                _row(claim["letter"], claim["statement"], claim["ours"] + note, claim["verdict"])
            )
    return "".join(parts)


def summary(results: Path) -> str:
    """Claims and verdicts in one table; what is not tested at the size that was run is named below
    it.
    """
    parts, untested = ["| study | | claim | verdict |\n| --- | --- | --- | --- |\n"], []
    for study, size, claims in _kept(results):
        for claim in claims:
            if claim["verdict"] != "not tested":
                parts.append(
                    _row(
                        f"`{study}`",
                        claim["letter"],
                        claim["statement"].rstrip("."),
                        claim["verdict"],
                    )
                )
        letters = [claim["letter"] for claim in claims if claim["verdict"] == "not tested"]
        untested += [f"`{study}` {', '.join(letters)} (size `{size}`)"] if letters else []
    return "".join(parts) + (f"\nNot tested: {'; '.join(untested)}.\n" if untested else "")


if __name__ == "__main__":
    record(sys.argv[1:], readme="README.md")
