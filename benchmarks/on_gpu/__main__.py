"""`python -m benchmarks.on_gpu`: the parts in order of worth, one process each, none over eight
minutes; what a part has measured is on disk row by row, whatever happens after.

A part that was finished at this commit on this device is not run again unless it is named.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import table
from benchmarks.on_gpu.checks import Row
from mechint.files import make_directory, write_text

FOLDER = Path("benchmarks/results/gpu")
LIMIT = 480.0
"""Seconds after which a part is stopped."""

STUDIES = ("remainders", "joint-training", "capacity", "composition", "emergence")
PARTS = (
    "equivalence",
    "probes",
    "grokking",
    "remainders",
    "ensemble",
    "precision",
    *(f"study-{name}" for name in STUDIES),
)
"""In order of worth."""


def measured(part: str, device: str, quick: bool) -> Iterator[Row]:
    """The rows of a part as they are measured."""
    if part.startswith("study-"):
        from benchmarks.on_gpu import studies

        return studies.rows(part.removeprefix("study-"), device, quick)
    if part == "probes":
        from benchmarks.on_gpu import equivalence

        return equivalence.probe_rows(device, quick)
    if part in ("equivalence", "precision"):
        return importlib.import_module(f"benchmarks.on_gpu.{part}").rows(device, quick)
    from benchmarks import gpu

    return gpu.part(part, quick)


def run_part(part: str, device: str, quick: bool, folder: Path) -> bool:
    """Measure one part and keep it after every row; whether all of its rows hold."""
    found: dict[str, Any] = {
        **table.circumstances(torch.get_num_threads(), {}),
        "part": part,
        "device": device,
        "quick": quick,
        "clean_commit": clean_commit(),
        "finished": False,
        "rows": [],
    }
    make_directory(folder)
    keep: Callable[[], None] = functools.partial(_write, folder / f"{part}.json", found)
    keep()
    for row in measured(part, device, quick):
        found["rows"].append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
        keep()
    found["finished"] = True
    keep()
    return all(row.get("holds", row.get("met")) is not False for row in found["rows"])


def _write(path: Path, found: dict[str, Any]) -> None:
    write_text(path, json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def clean_commit(root: Path = table.ROOT) -> str | None:
    """The git commit that the code in `root` is; None where it has changes, or where git does not
    know it, as in a copy of the tree.
    """
    code = [".", ":(exclude)benchmarks/results"]
    try:
        changed, commit = (
            subprocess.run(
                ["git", *words], cwd=root, capture_output=True, text=True, check=True
            ).stdout.strip()
            for words in (["status", "--porcelain", "--", *code], ["rev-parse", "HEAD"])
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return None if changed else commit


def is_done(part: str, device: str, folder: Path) -> bool:
    """Whether the part was finished at this commit, on this device; never where the commit is not
    known, since the kept rows may then be those of other code.
    """
    path = folder / f"{part}.json"
    if not path.exists():
        return False
    kept = json.loads(path.read_text(encoding="utf-8"))
    commit = clean_commit()
    return (
        kept["finished"]
        and not kept["quick"]
        and kept["device"] == device
        and commit is not None
        and kept.get("clean_commit") == commit
        and kept["machine"]["gpu"] == table.circumstances(1, {})["machine"]["gpu"]
    )


def run_all(parts: list[str], options: argparse.Namespace) -> int:
    """Every part in a process of its own, until the minutes are spent; 1 where a row fails, and
    where a part was stopped or left.
    """
    start, failed = time.monotonic(), False
    for part in parts:
        left = 60 * options.minutes - (time.monotonic() - start)
        if left < LIMIT / 4:
            print(f"{part}: left for the next time")
            failed = True
            continue
        command = [sys.executable, "-m", "benchmarks.on_gpu", part, "--inside"]
        command += ["--device", options.device, "--folder", str(options.folder)]
        try:
            done = subprocess.run(
                command + ["--quick"] * options.quick, timeout=min(LIMIT, left), check=False
            )
            failed |= done.returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{part}: stopped after its time; its rows so far are kept")
            failed = True
    return int(failed)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--device", default="cuda", help="cpu, with --quick, shows that it runs")
    parser.add_argument("--minutes", type=float, default=25.0, help="for all parts together")
    parser.add_argument("--folder", type=Path, default=table.ROOT / FOLDER)
    parser.add_argument("--quick", action="store_true", help="a few steps of each")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU that torch can use is here")
        return 2
    if options.inside:
        (part,) = options.parts
        return int(not run_part(part, options.device, options.quick, options.folder))
    chosen = options.parts or [
        part for part in PARTS if not is_done(part, options.device, options.folder)
    ]
    if not chosen:
        print(f"all parts are done at {clean_commit()}, in {options.folder}")
    return run_all(chosen, options)


if __name__ == "__main__":
    sys.exit(main())
