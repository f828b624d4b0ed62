"""The results of the long campaigns of attacks, as the table of docs/reliability.md.

MECHINT_CAMPAIGNS=DIR pytest -m slow    every campaign leaves its counts in DIR
python -m tests.campaigns DIR           writes them into the table

A campaign that did not run keeps the row it has.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections import Counter
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "reliability.md"
BEGIN, END = "<!-- campaigns -->", "<!-- end of campaigns -->"
GOOD = ("right", "refused in one line", "resumed")
BAD = ("traceback", "hang", "lost state", "code run")
CAMPAIGNS = (
    "mutated checkpoints",
    "mutated pickled modules",
    "mutated mappings",
    "mutated saves of pyvene",
    "forged kept results",
    "hostile command lines",
    "kills of a sweep that another executor goes on with",
    "tasks of a Slurm array stopped and queued again",
    "nodes of a Ray cluster killed",
)


def record(campaign: str, part: str = "", **outcomes: int) -> None:
    """Keep how many attacks of a campaign had which outcome (``_`` for a space), where
    MECHINT_CAMPAIGNS asks for it; `part`: of a campaign of several tests.
    """
    counts = {name.replace("_", " "): number for name, number in outcomes.items()}
    assert campaign in CAMPAIGNS and set(counts) <= {*GOOD, *BAD}, (campaign, counts)
    if "MECHINT_CAMPAIGNS" in os.environ:
        place = Path(os.environ["MECHINT_CAMPAIGNS"])
        place.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^a-z]+", "-", f"{campaign} {part}".lower().strip()) + f"{part}.json"
        (place / name).write_text(json.dumps([campaign, counts]), encoding="utf-8")


def table(place: Path, before: str = "") -> str:
    """The counts that `record` left in `place`, parts added up, in Markdown; rows of campaigns that
    left none are those of the table `before`.
    """
    whole = {campaign: Counter[str]() for campaign in CAMPAIGNS}
    for file in sorted(place.glob("*.json")):
        campaign, counts = json.loads(file.read_text(encoding="utf-8"))
        whole[campaign].update(counts)
    earlier = {line.split("|")[1].strip(): line for line in before.splitlines() if line[:1] == "|"}
    lines = [
        "| campaign | attacks | " + " | ".join((*GOOD, *BAD)) + " |",
        "| --- |" + " ---: |" * (1 + len(GOOD) + len(BAD)),
    ]
    for campaign, counts in whole.items():
        cells = [counts.total(), *(counts[name] for name in (*GOOD, *BAD))]
        shown = [f"{cell:,}" for cell in cells] if cells[0] else ["not run"] + [""] * len(cells[1:])
        row = f"| {campaign} | " + " | ".join(shown) + " |"
        lines.append(row if cells[0] else earlier.get(campaign, row))
    return "\n".join(lines)


def main(place: Path, document: Path = DOCUMENT) -> None:
    """Put the table between its marks in `document`."""
    before, _, rest = document.read_text(encoding="utf-8").partition(BEGIN)
    old, _, after = rest.partition(END)
    text = f"{before}{BEGIN}\n{table(place, old)}\n{END}{after}"
    document.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
