"""The table as people and machines read it: the terminal, bench.json, and docs/benchmarks.md."""

from __future__ import annotations

import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

from benchmarks.timing import Row
from mechint.files import make_directory, write_text
from mechint.training.manifest import manifest

ROOT = Path(__file__).parents[1]
JSON, PAGE = Path("benchmarks/results/bench.json"), Path("docs/benchmarks.md")
SAID = {True: "yes", False: "no", None: "not measured"}


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    info = Path("/proc/cpuinfo")
    names = (
        [
            line.partition(":")[2].strip()
            for line in info.read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        if info.exists()
        else []
    )
    return names[0] if names else platform.processor() or platform.machine()


def circumstances(threads: int, peer: dict[str, str]) -> dict[str, Any]:
    """Machine, commit, versions and date."""
    made = manifest()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": {"cpu": cpu_model(), "cores": cores, "threads": threads, "gpu": made["cuda"]},
        "commit": made["commit"],
        "versions": made["versions"],
        "peer": peer,
    }


def quantity(value: float | None, unit: str) -> str:
    """A measured value with its unit, to three digits.

    >>> (quantity(0.01234, "s"), quantity(2.5, "s"), quantity(223456.0, "examples/s"),
    ...     quantity(None, "s"))
    ('12.3 ms', '2.5 s', '223,456 examples/s', '–')
    """
    if value is None:
        return "–"
    if unit == "exponent":
        return f"{value:.2f}"
    if unit == "s" and value < 1:
        return f"{1e3 * value:.3g} ms"
    return f"{value:.3g} s" if unit == "s" else f"{value:,.0f} {unit}"


def cells(row: Row) -> list[str]:
    """workload, ours, peer, ratio, target, met."""
    ratio = "–" if row["ratio"] is None else f"{row['ratio']:.2f}×"
    target = "–"
    if row["bound"] == "ratio":
        target = f"{row['target']:g}×"
    elif row["bound"] != "none":
        target = f"{row['bound']} {quantity(row['target'], row['unit'])}"
    return [
        row["workload"],
        quantity(row["ours"], row["unit"]),
        quantity(row["peer"], row["unit"]),
        ratio,
        target,
        "–" if row["bound"] == "none" else SAID[row["met"]],
    ]


def line(row: Row) -> str:
    """One row for the terminal."""
    workload, *rest = cells(row)
    return (
        f"{workload:76}" + "".join(f"{cell:>14}" for cell in rest[:3]) + f"{rest[3]:>28}  {rest[4]}"
    )


HEAD = f"{'workload':76}{'ours':>14}{'peer':>14}{'ratio':>14}{'target':>28}  met"


def page(table: dict[str, Any]) -> str:
    """docs/benchmarks.md from what bench.json holds."""
    machine, versions = table["machine"], table["versions"]
    gpu = f", {machine['gpu']}" if machine["gpu"] else ", no GPU"
    peer = ", ".join(f"{name} {version}" for name, version in table["peer"].items()) or "none"
    ours = ", ".join(f"{name} {version}" for name, version in versions.items())
    rows = [
        "| workload | ours | peer | ratio | target | met |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    notes = []
    for row in table["rows"]:
        rows.append("| " + " | ".join(cells(row)) + " |")
        remarks = "; ".join(
            [
                *([f"against {row['against']}"] if "against" in row else []),
                *([row["note"]] if "note" in row else []),
            ]
        )
        if remarks:
            notes.append(f"- {row['workload']}: {remarks}.")
    return "\n".join(
        [
            "# Benchmarks",
            "",
            (
                "Written by `make bench` from `benchmarks/results/bench.json`. Ours and the peer "
                "take turns in one run, with the same"
            ),
            (
                "number of threads; times are medians, ratios (peer over ours) are medians over "
                "the pairs. `make peer` makes the"
            ),
            "environment of the peer.",
            "",
            f"- Date: {table['date']}; commit: {table['commit']}",
            (
                f"- Machine: {machine['cpu']}, {machine['cores']} cores, {machine['threads']} "
                f"threads{gpu}"
            ),
            f"- Ours: {ours}",
            f"- Peer's environment: {peer}",
            "",
            *rows,
            "",
            *notes,
            "",
        ]
    )


def write(table: dict[str, Any], root: Path = ROOT) -> None:
    """bench.json, and the page rendered from it."""
    for path, text in (
        (root / JSON, json.dumps(table, indent=1, ensure_ascii=False) + "\n"),
        (root / PAGE, page(table)),
    ):
        make_directory(path.parent)
        write_text(path, text)


def read(root: Path = ROOT) -> dict[str, Any]:
    """The kept table, from bench.json."""
    return json.loads((root / JSON).read_text(encoding="utf-8"))


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
