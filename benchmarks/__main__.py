"""`python -m benchmarks`: runs the table, prints it row by row, and writes it to the file of this
processor and to docs/generated/benchmarks.md; with `--check` it writes nothing and compares ratios
with the table that is kept of this processor.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time

import torch

from benchmarks import table
from benchmarks.timing import BenchSettings, Row

LOSS = 0.15
"""Share of a kept ratio that may be lost before `--check` fails."""

SECTIONS = ("steps", "throughput", "das", "patching", "language", "commands")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--only",
        choices=SECTIONS,
        action="append",
        help="a section, to look at; then nothing is written",
    )
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="of ours and of the peer"
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one short pair a row, to see that it runs; then nothing is written",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"fail where a ratio is over {LOSS:.0%}% below the one kept of this processor, and "
        "where none is kept; nothing is written",
    )
    options = parser.parse_args()
    looked = bool(options.only or options.quick or options.check)
    start, bench = time.monotonic(), BenchSettings(options.threads, options.quick)
    found = table.circumstances(
        options.threads, {} if bench.peer is None else bench.peer.versions
    ) | {"rows": []}
    cpu = found["machine"]["cpu"]
    print(table.HEAD)
    try:
        for section in options.only or SECTIONS:
            begun = time.monotonic()
            for row in importlib.import_module(f"benchmarks.{section}").rows(bench):
                found["rows"].append(row)
                print(table.line(row), flush=True)
            print(f"{section}: {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
            if not looked:  # what is measured is kept, whatever comes after
                table.write(found)
    finally:
        bench.close()
    print(
        f"{time.monotonic() - start:.0f} s"
        + ("" if looked else f"; wrote {table.place(cpu)} and {table.PAGE}")
    )
    return check(found["rows"], cpu) if options.check else 0


def check(rows: list[Row], cpu: str) -> int:
    """The exit status of a comparison with what is kept of this processor, which is printed."""
    kept = table.read(cpu)
    if kept is None:
        print(f"nothing to compare with: no table is kept of {cpu}; `make bench` keeps one")
        return 1
    losses = table.losses(rows, kept["rows"], LOSS)
    print("\n".join(losses) or "no ratio fell")
    return int(bool(losses))


if __name__ == "__main__":
    sys.exit(main())
