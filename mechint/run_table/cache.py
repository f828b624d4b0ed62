"""Numbers that probes gave on runs, kept so that asking again is free.

    RUN/probes/table/NAME-DIGEST.json      of a run that this user trained
    ~/.cache/mechint/tables/…              of other runs, which are read and not written to

A file is named by the probe, its settings and the weights, and says what else the numbers depend
on: the code of probe, task and mechint, the run's configuration, and the files that the task reads.
A file that says anything else than what is asked for, or that this user did not keep, is measured
again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import mechint
from mechint.errors import MechintError, RunError
from mechint.probe.results import Figure
from mechint.registry import TASKS
from mechint.run_table.entries import CONFIG, Entry
from mechint.system.files import cache_directory, read_json, refuse_links, write_text
from mechint.system.kept import (
    UNVERIFIED,
    code_of,
    is_signed,
    signed,
)
from mechint.system.locks import is_ours
from mechint.system.packages import package_of
from mechint.system.sources import current_digest_of, files_in

if TYPE_CHECKING:
    from mechint.run_table.measuring import Measurement

FOLDER = "probes/table"
KEPT = "kept"
"""The column of a probe that says where its numbers were not measured by this user."""
CELLS = (str, int, float, list, dict, NoneType)
"""Types of the values of a column."""
_warned = False


def place_of(entry: Entry, key: Mapping[str, Any]) -> Path | None:
    """The file of the numbers that the measurement `key` gives on the weights as they are now; None
    of a model that is no run, or whose weights cannot be read.
    """
    if not entry.is_run:
        return None
    try:
        weights = current_digest_of(entry.weights)
    except OSError:
        return None
    text = json.dumps({**key, "weights": weights}, sort_keys=True)
    name = f"{key['probe']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    own = entry.path / FOLDER
    return (own if is_ours(entry.path) else cache_directory() / "tables") / name


def read(entry: Entry, measurement: Measurement) -> dict[str, Any] | None:
    """Read what the measurement gave on a run: "columns" and "figures" (None where none were kept);
    None where nothing is kept by this user, or something that the numbers depend on has changed.

    Where the measurement trusts what others kept, a file in the run of the same weights, probe and
    settings is enough, and the column ``PROBE.kept`` says so.
    """
    place = place_of(entry, measurement.key)
    if place is None:
        return None
    found = _read(place, entry, measurement)
    if found is None and measurement.trusted:
        found = _read(entry.path / FOLDER / place.name, entry, measurement, trusted=True)
        if found is not None:
            note = {f"{measurement.probe.name}.{KEPT}": UNVERIFIED}
            return {**found, "columns": found["columns"] | note}
    return found


def _read(
    file: Path, entry: Entry, measurement: Measurement, *, trusted: bool = False
) -> dict[str, Any] | None:
    key = measurement.key
    try:
        refuse_links(file, entry.path if entry.path in file.parents else file.parent)
        kept = read_json(file)
        columns, figures = kept["columns"], kept["figures"]
        own = all(name.startswith(f"{key['probe']}.") for name in columns)
        stamp = stamp_of(entry, type(measurement.probe))
        same = kept["stamp"] == stamp is not None and kept["file"] == file.name and is_signed(kept)
        if kept["key"] != json.loads(json.dumps(key)) or not (same or trusted):
            return None
        if not own or not all(isinstance(one, CELLS) for one in columns.values()):
            return None
        if figures is not None:
            figures = {name: Figure.from_dict(one) for name, one in figures.items()}
        return {"columns": columns, "figures": figures}
    except (MechintError, OSError, KeyError, TypeError, AttributeError, ValueError):
        return None


def keep(
    file: Path | None,
    entry: Entry,
    measurement: Measurement,
    columns: Mapping[str, Any],
    figures: Mapping[str, Figure] | None,
) -> None:
    """Keep numbers in `file`, the `place_of` the weights that were measured. Where it cannot be
    written, one warning says so.
    """
    global _warned
    stamp = stamp_of(entry, type(measurement.probe)) if entry.is_run else None
    if file is None or stamp is None:
        return
    drawn = None if figures is None else {name: one.to_dict() for name, one in figures.items()}
    kept = {"file": file.name, "key": measurement.key, "stamp": stamp}
    kept |= {"columns": dict(columns), "figures": drawn}
    within = entry.path if entry.path in file.parents else None
    try:
        write_text(file, json.dumps(signed(kept)), within=within)
    except RunError as error:
        if not _warned:
            _warned = True
            warnings.warn(f"numbers are not kept beside the runs: {error}", stacklevel=2)


def keys_of(entry: Entry) -> list[dict[str, Any]]:
    """The measurements that the run was measured by, whatever its weights were then."""
    found = []
    for file in sorted((entry.path / FOLDER).glob("*.json")) if entry.is_run else []:
        with contextlib.suppress(MechintError, OSError, ValueError, KeyError, TypeError):
            found.append(dict(read_json(file)["key"]))
    return found


# --- what numbers depend on besides weights and settings ------------------------------------------
def stamp_of(entry: Entry, probe: type) -> str | None:
    """Digest of the code of the probe, the run's task and mechint, of the run's configuration, and
    of the files that its task reads; None where a source is not in files, as in a notebook.
    """
    try:
        config = read_json(entry.path / CONFIG)
        task = TASKS[config["task"]["name"]]
        files = [current_digest_of(file) for file in files_in(config["task"]["parameters"])]
    except (MechintError, KeyError, TypeError, OSError):
        return None
    owners = (package_of(probe.__module__), package_of(task.__module__), "mechint")
    codes = [code_of(owner) for owner in owners]
    if None in codes:
        return None
    text = json.dumps([codes, files, config, mechint.__version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
