"""`python -m benchmarks`: runs the table, prints it row by row, and writes bench.json and
docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import importlib
import time

import torch

from benchmarks import table
from benchmarks.timing import Bench

SECTIONS = ("steps", "das", "patching", "generation", "commands", "gpu")


def main() -> None:
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
    options = parser.parse_args()
    start, bench = time.monotonic(), Bench(options.threads, options.quick)
    found = table.circumstances(
        options.threads, {} if bench.peer is None else bench.peer.versions
    ) | {"rows": []}
    print(table.HEAD)
    try:
        for section in options.only or SECTIONS:
            for row in importlib.import_module(f"benchmarks.{section}").rows(bench):
                found["rows"].append(row)
                print(table.line(row), flush=True)
            if not (
                options.only or options.quick
            ):  # what is measured is kept, whatever comes after
                table.write(found)
    finally:
        bench.close()
    print(
        f"{time.monotonic() - start:.0f} s"
        + ("" if options.only or options.quick else f"; wrote {table.JSON} and {table.PAGE}")
    )


if __name__ == "__main__":
    main()
