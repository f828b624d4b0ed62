"""The table as people and machines read it: the terminal, a JSON file for each processor, and
docs/generated/benchmarks.md.

A ratio is that of one processor: which of PyTorch's libraries multiplies faster, and how much
slower memory is than arithmetic, differ from one to the next. So a table is kept of each that it
was measured on, and compared with what was kept of the same one.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.kept import made
from benchmarks.timing import Row
from mechint.system.files import make_directory, write_text
from mechint.training.run_directory import manifest

ROOT = Path(__file__).parents[1]
TABLES, PAGE = Path("benchmarks/results/bench"), Path("docs/generated/benchmarks.md")
SAID = {True: "yes", False: "no", None: "not measured"}


def cpu_model() -> str:
    """The processor's name as the system gives it, with the family and model that tell apart those
    of one name.
    """
    info = Path("/proc/cpuinfo")
    said: dict[str, str] = {}
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            said.setdefault(name.strip(), value.strip())
    if "model name" not in said:
        return platform.processor() or platform.machine()
    told = {"family": said.get("cpu family"), "model": said.get("model")}
    kind = ", ".join(f"{name} {value}" for name, value in told.items() if value)
    return f"{said['model name']} ({kind})" if kind else said["model name"]


def place(cpu: str) -> Path:
    """Path of the table of a processor.

    >>> place("AMD EPYC (family 25, model 17)").as_posix()
    'benchmarks/results/bench/amd-epyc-family-25-model-17.json'
    """
    return TABLES / f"{re.sub('[^a-z0-9]+', '-', cpu.lower()).strip('-')}.json"


def circumstances(threads: int, peer: dict[str, str]) -> dict[str, Any]:
    """Machine, commit, versions, date and origin."""
    now = manifest()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {"cpu": cpu_model(), "cores": cores, "threads": threads, "gpu": now["cuda"]},
        "commit": now["commit"],
        "versions": now["versions"],
        "peer": peer,
        "origins": [made("make bench", cpu_model())],
    }


def quantity(value: float | None, unit: str) -> str:
    """A measured value with its unit, to three digits.

    >>> (quantity(0.01234, "s"), quantity(2.5, "s"), quantity(1.234, "×"), quantity(None, "s"))
    ('12.3 ms', '2.5 s', '1.23×', '–')
    """
    if value is None:
        return "–"
    if unit == "×":
        return f"{value:.2f}×"
    if unit == "s" and value < 1:
        return f"{1e3 * value:.3g} ms"
    return f"{value:.3g} s" if unit == "s" else f"{value:,.0f} {unit}"


def cells(row: Row) -> list[str]:
    """workload, ours, peer, ratio, target, met."""
    ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    target = "–"
    if row["bound"] == "ratio":
        target = f"{row['target']:g}×"
    else:
        target = f"{row['bound']} {quantity(row['target'], row['unit'])}"
    return [
        row["workload"],
        quantity(row["ours"], row["unit"]),
        quantity(row["peer"], row["unit"]),
        ratio,
        target,
        SAID[row["met"]],
    ]


def line(row: Row) -> str:
    """One row for the terminal."""
    workload, *rest = cells(row)
    return (
        f"{workload:76}" + "".join(f"{cell:>14}" for cell in rest[:3]) + f"{rest[3]:>28}  {rest[4]}"
    )


HEAD = f"{'workload':76}{'ours':>14}{'peer':>14}{'ratio':>14}{'target':>28}  met"


def page(tables: Sequence[dict[str, Any]]) -> str:
    """docs/generated/benchmarks.md: the table of every processor, the latest first."""
    met = [row["met"] for table in tables for row in table["rows"]]
    said = f"{met.count(True)} of {len(met)} targets are met, on {len(tables)} processors."
    parts = ["# Benchmarks", "", said, "", *HEADING]
    for table in sorted(tables, key=lambda each: each["date"], reverse=True):
        parts += ["", f"## {table['machine']['cpu']}", "", *about(table), ""]
        parts += ["| workload | ours | peer | ratio | target | met |"]
        parts += ["| --- | --- | --- | --- | --- | --- |"]
        parts += ["| " + " | ".join(cells(row)) + " |" for row in table["rows"]]
        parts += ["", *notes(table)]
    return "\n".join(parts) + "\n"


HEADING = (
    "Written by `make bench` from `benchmarks/results/bench`, which holds a table for each "
    "processor. Ours and the peer take turns in",
    "one run, with the same number of threads; times are medians, ratios (peer over ours) are "
    "medians over the pairs. `make .venv-peer/.installed`",
    "makes the environment of the peer.",
)


def about(table: dict[str, Any]) -> list[str]:
    """Date, machine and versions of a table, a line each."""
    machine = table["machine"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ", no GPU"
    ours, peer = (
        ", ".join(f"{name} {version}" for name, version in table[of].items())
        for of in ("versions", "peer")
    )
    return [
        f"- Date: {table['date']}; commit: {table['commit']}",
        f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads{gpu}",
        f"- Ours: {ours}",
        f"- Peer's environment: {peer or 'none'}",
    ]


def notes(table: dict[str, Any]) -> list[str]:
    """Peers of the rows, and remarks."""
    found = []
    for row in table["rows"]:
        against = [f"against {row['against']}"] if "against" in row else []
        remarks = "; ".join([*against, *([row["note"]] if "note" in row else [])])
        if remarks:
            found.append(f"- {row['workload']}: {remarks}.")
    if by_hand := table.get("by_hand"):
        found += ["", "Written by hand of this measurement:", "", *(f"- {one}" for one in by_hand)]
    return found


def write(table: dict[str, Any], root: Path = ROOT) -> None:
    """The file of the table's processor, and the page with all of them."""
    path = root / place(table["machine"]["cpu"])
    make_directory(path.parent)
    write_text(path, json.dumps(table, indent=1, ensure_ascii=False) + "\n")
    kept = [json.loads(each.read_text(encoding="utf-8")) for each in (root / TABLES).glob("*.json")]
    make_directory((root / PAGE).parent)
    write_text(root / PAGE, page(kept))


def read(cpu: str, root: Path = ROOT) -> dict[str, Any] | None:
    """The table that is kept of a processor, None where none is."""
    path = root / place(cpu)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def losses(rows: list[Row], kept: list[Row], share: float) -> list[str]:
    """One line per workload whose ratio is more than `share` below the kept one.

    A ratio that was kept and could not be measured now is one as well; rows without a kept ratio
    are not compared.

    >>> fast, slow = ({"workload": "step", "ratio": ratio} for ratio in (4.0, 3.0))
    >>> losses([slow], [fast], 0.15), losses([fast], [slow], 0.15)
    (['step: 3.00×, kept 4.00×'], [])
    """
    before = {row["workload"]: row["ratio"] for row in kept if row["ratio"] is not None}
    found = []
    for row in rows:
        name, ratio = row["workload"], row["ratio"]
        if name in before and (ratio is None or ratio < (1 - share) * before[name]):
            now = "not measured" if ratio is None else f"{ratio:.2f}×"
            found.append(f"{name}: {now}, kept {before[name]:.2f}×")
    return found
