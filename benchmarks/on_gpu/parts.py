"""The parts of `make gpu` in order of worth, one process each and none beyond its minutes; what a
part has measured is on disk row by row, whatever happens after, in one file for all parts.

A part that was finished at this commit on this device is not run again unless it is named.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks import table
from benchmarks.on_gpu.checks import Row
from mechint.files import make_directory, write_text

FOLDER, FILE = Path("benchmarks/results/gpu"), "gpu.json"
MINUTES, PART_MINUTES = 9.5, 8.0
"""Of a call and of a part, after which it is stopped."""

STUDIES = ("remainders", "joint-training", "capacity", "composition", "emergence")
PARTS = (
    "equivalence",
    "probes",
    "grokking",
    "remainders",
    "ensemble",
    "precision",
    "smoke",
    *(f"study-{name}" for name in STUDIES),
)
"""In order of worth."""


def measured(part: str, device: str, quick: bool, seconds: float) -> Iterator[Row]:
    """The rows of a part as they are measured; studies train for a share of its `seconds`."""
    if part == "smoke" or part.startswith("study-"):
        from benchmarks.on_gpu import studies

        if part == "smoke":
            return studies.smoke(STUDIES, device, quick, seconds)
        return studies.rows(part.removeprefix("study-"), device, quick, seconds)
    if part == "probes":
        from benchmarks.on_gpu import equivalence

        return equivalence.probe_rows(device, quick)
    if part in ("equivalence", "precision"):
        return importlib.import_module(f"benchmarks.on_gpu.{part}").rows(device, quick)
    from benchmarks import gpu

    return gpu.part(part, quick)


def run_part(part: str, device: str, quick: bool, folder: Path, seconds: float) -> bool:
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
    _keep(found, folder)
    for row in measured(part, device, quick, seconds):
        found["rows"].append(row)
        print(json.dumps(row, ensure_ascii=False), flush=True)
        _keep(found, folder)
    found["finished"] = True
    _keep(found, folder)
    return all(row.get("holds", row.get("met")) is not False for row in found["rows"])


def kept_parts(folder: Path) -> dict[str, Any]:
    """What is kept in `folder`, by part."""
    path = folder / FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _keep(found: dict[str, Any], folder: Path) -> None:
    every = {**kept_parts(folder), found["part"]: found}
    write_text(folder / FILE, json.dumps(every, indent=1, ensure_ascii=False) + "\n")


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
    kept, commit = kept_parts(folder).get(part), clean_commit()
    return (
        kept is not None
        and kept["finished"]
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
    start, failed, most = time.monotonic(), False, 60 * options.part_minutes
    for part in parts:
        left = 60 * options.minutes - (time.monotonic() - start)
        if left < most / 4:
            print(f"{part}: left for the next time")
            failed = True
            continue
        command = [sys.executable, "-m", "benchmarks.on_gpu", part, "--inside"]
        command += ["--device", options.device, "--folder", str(options.folder)]
        limit = min(most, left)
        command += ["--part-minutes", str(limit / 60)]
        try:
            done = subprocess.run(command + ["--quick"] * options.quick, timeout=limit, check=False)
            failed |= done.returncode != 0
        except subprocess.TimeoutExpired:
            print(f"{part}: stopped after its time; its rows so far are kept")
            failed = True
    return int(failed)


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        _parser().error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        print("no GPU that torch can use is here")
        return 2
    if options.inside:
        (part,) = options.parts
        seconds = 60 * options.part_minutes
        return int(not run_part(part, options.device, options.quick, options.folder, seconds))
    chosen = options.parts or [
        part for part in PARTS if not is_done(part, options.device, options.folder)
    ]
    if not chosen:
        print(f"all parts are done at {clean_commit()}, in {options.folder}")
    return run_all(chosen, options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.on_gpu", description=__doc__)
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--device", default="cuda", help="cpu, with --quick, shows that it runs")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all parts together")
    parser.add_argument("--part-minutes", type=float, default=PART_MINUTES, help="for each part")
    parser.add_argument("--folder", type=Path, default=table.ROOT / FOLDER, help=f"of {FILE}")
    parser.add_argument("--quick", action="store_true", help="a few steps of each")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    return parser
