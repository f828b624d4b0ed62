"""Keep the results of studies in the repository: ``python -m mechint.studies.record runs/*-laptop`` after the studies ran.

results/STUDY/claims.json   claims, verdicts and numbers
results/STUDY/page.json     the report as data, for ``mechint gallery build``
results/README.md           the table of all claims kept there
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from mechint.errors import RunError
from mechint.files import write_text
from mechint.report import PAGE
from mechint.studies.reproduction import KIND

CLAIMS = "claims.json"
HEAD = (
    "# Results of the studies\n\nWritten by `make studies`; not edited by hand. Every claim of a paper with its verdict here; criteria, reasons, "
    "numbers and figures are in each study's\n`claims.json` and `page.json` (`mechint gallery build results`).\n"
)


def record(places: Iterable[str | Path], results: str | Path = "results") -> Path:
    """Copy claims and page of the studies in `places` to `results`, and write the table of all studies kept there.

    Raises:
        RunError: a place that holds no finished study.
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
    return results / "README.md"


def table(results: Path) -> str:
    """The claims kept under `results` as Markdown, a section a study."""
    parts = [HEAD]
    for file in sorted(results.glob(f"*/{CLAIMS}")):
        size = json.loads((file.parent / PAGE).read_text(encoding="utf-8"))["facts"]["size"]
        parts.append(f"\n## {file.parent.name} ({size})\n\n| | the paper | here | verdict |\n| --- | --- | --- | --- |\n")
        for claim in json.loads(file.read_text(encoding="utf-8")):
            note = f" ({claim['note']})" if claim["note"] else ""
            cells = (claim["letter"], claim["statement"], claim["ours"] + note, claim["verdict"])
            parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n")
    return "".join(parts)


if __name__ == "__main__":
    record(sys.argv[1:])
