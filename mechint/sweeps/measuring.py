"""Probes of a sweep: kept beside its plan, and run as the runs of a group finish.

    DIR/probes.json    the probes with their settings

Whoever trains a group measures it, on any executor: what a probe gave lies beside the run, where a
table of models (`mechint.runs`) finds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError, RunError
from mechint.files import parse_json, read_bytes, write_text
from mechint.locks import locked
from mechint.run_table import Entry, Measurement, measure
from mechint.sweeps.plan import Row

PROBES_FILE = "probes.json"


def keep_probes(out: Path, probes: Mapping[str, Mapping[str, Any]], *, wait: bool = True) -> None:
    """Write which probes the sweep in `out` is measured by: name → settings; others that were asked
    for earlier stay, and those that another process asks for in the same moment, which is waited
    for. With `wait` False, for a search, whose process holds its directory for hours, it is not.

    Raises:
        UnknownNameError, ParameterError: no such probe or setting.
        BusyError: another process writes there, and is not waited for.
    """
    added = {name: Measurement.of(name, **settings).key for name, settings in probes.items()}
    if added.items() <= _kept(out).items():
        return
    with locked(out, wait=wait):
        write_text(out / PROBES_FILE, json.dumps(list((_kept(out) | added).values()), indent=1))


def _kept(out: Path) -> dict[str, dict[str, Any]]:
    """Name → key of the probes that are there."""
    return {measurement.probe.name: measurement.key for measurement in probes_of(out)}


def probes_of(out: Path) -> list[Measurement]:
    """The probes that the sweep in `out` is measured by.

    Raises:
        RunError: the file is damaged.
    """
    file = out / PROBES_FILE
    if not file.exists():
        return []
    try:
        return [Measurement.from_key(key) for key in parse_json(read_bytes(file), file)]
    except (MechintError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"{file}: damaged: {error}; delete it, and name the probes again") from error


def measure_rows(rows: Sequence[Row], out: Path, device: str) -> None:
    """Run the sweep's probes on the runs in `rows` that are done, on the `device` that trained
    them; Ctrl-C and SIGTERM end it after the probe at work, and what is missing is measured when
    the table is made.
    """
    from mechint.training.interrupt import interruptible

    wanted = probes_of(out)
    if not wanted:
        return
    with interruptible() as interrupted:
        for row in rows:
            if row["status"] not in ("finished", "stopped"):
                continue
            entry = Entry(Path(row["path"]), row["id"], opening={"device": device})
            for measurement in wanted:
                if interrupted.is_set():
                    return
                measure(entry, measurement)
