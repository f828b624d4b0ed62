"""Audits kept beside a run: `mechint explain` writes them, and `mechint analyze` reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError
from mechint.system.files import digest_of, read_json, write_text
from mechint.system.locks import is_ours

LAST = -1
SCHEMA = 2


def file_of(run: Path, answer: Any) -> Path:
    """The file that keeps the audits of one answer."""
    return run / f"explanation{'' if answer == LAST else f'.answer-{answer}'}.json"


def keep_audits(
    run: Path, weights: Path, answer: Any, audits: Sequence[Mapping[str, Any]]
) -> Path | None:
    """Keep audits, best first, with the digest of the file of weights; None where the run is not
    ours to write in.

    Raises:
        RunError: it cannot be written.
    """
    if not is_ours(run):
        return None
    held = {"schema": SCHEMA, "sha256": digest_of(weights), "audits": list(audits)}
    path = file_of(run, answer)
    write_text(path, json.dumps(held), within=run)
    return path


def kept_audits(run: Path, weights: Path, answer: Any) -> tuple[Mapping[str, Any], ...]:
    """The audits that are kept of these weights, best first; () where there are none, they are of
    other weights, or the file is damaged.
    """
    try:
        held = read_json(file_of(run, answer))
        if held["schema"] != SCHEMA or held["sha256"] != digest_of(weights):
            return ()
        needed = {"name", "standing", "program", "unaccounted", "tests", "missing", "notes"}
        return tuple(one for one in held["audits"] if needed <= one.keys())
    except (MechintError, OSError, KeyError, TypeError, AttributeError):
        return ()
