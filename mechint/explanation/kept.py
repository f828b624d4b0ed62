"""Audits kept beside a run: `mechint explain` writes them, and `mechint analyze` reads them."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mechint
from mechint.errors import MechintError
from mechint.registry import EXPLANATIONS
from mechint.system.files import digest_of, read_json, refuse_links, write_text
from mechint.system.kept import UNVERIFIED, code_of, is_signed, signed
from mechint.system.locks import is_ours
from mechint.system.packages import package_of
from mechint.system.sources import current_digest_of, files_in

if TYPE_CHECKING:
    from mechint.subject import Subject

LAST = -1
SCHEMA = 4
EXAMPLES = 3000
"""Inputs of an audit where nothing else is asked for."""
NEEDED = {
    "name": str,
    "family": str,
    "standing": str,
    "program": str,
    "unaccounted": dict,
    "accounted": dict | None,
    "parts": list,
    "claims": list,
    "tests": list,
    "missing": list,
    "notes": list,
}
"""Fields that every view reads, and their types."""


def file_of(run: Path, answer: Any) -> Path:
    """The file that keeps the audits of one answer."""
    return run / f"explanation{'' if answer == LAST else f'.answer-{answer}'}.json"


def origin_of(subject: Subject, weights: Path, seed: int, examples: int) -> dict[str, Any]:
    """Origin of audits as JSON values: weights, task with its source and files, sources of
    the families that propose, model as it was opened, answer, seed, number of inputs, version.
    """
    task = subject.task
    parameters = {} if task is None else task.to_dict()
    families = {package_of(EXPLANATIONS[name].__module__) for name in EXPLANATIONS}
    owners = families | {"mechint"} | ({package_of(type(task).__module__)} if task else set())
    model = {name: str(value) for name, value in vars(subject.model_description).items()}
    return json.loads(
        json.dumps(
            {
                "weights": digest_of(weights),
                "task": None if task is None else [type(task).__qualname__, parameters],
                "files": sorted(current_digest_of(file) for file in files_in(parameters)),
                "sources": {name: code_of(name) for name in sorted(owners) if name in sys.modules},
                "model": model,
                "answer": subject.answer,
                "seed": seed,
                "examples": examples,
                "version": mechint.__version__,
            }
        )
    )


def keep_audits(
    run: Path,
    weights: Path,
    subject: Subject,
    audits: Sequence[Mapping[str, Any]],
    *,
    seed: int = 0,
    examples: int = EXAMPLES,
) -> Path | None:
    """Keep audits, best first, with all that they depend on; None where the run is not ours to
    write in.

    Raises:
        RunError: it cannot be written.
    """
    if not is_ours(run):
        return None
    origin = origin_of(subject, weights, seed, examples)
    held = {"schema": SCHEMA, "origin": origin, "audits": list(audits)}
    path = file_of(run, subject.answer)
    write_text(path, json.dumps(signed(held)), within=run)
    return path


def kept_audits(
    run: Path,
    weights: Path,
    subject: Subject,
    *,
    seed: int = 0,
    examples: int = EXAMPLES,
    trusted: bool = False,
) -> tuple[Mapping[str, Any], ...]:
    """The audits that this user kept of the same model under the same task, sources and settings,
    best first; () where there are none, or the file says anything else.

    trusted: take those that somebody else kept of these weights; each then says so as "kept".
    """
    path = file_of(run, subject.answer)
    try:
        refuse_links(path, run)
        held = read_json(path)
        if held["schema"] != SCHEMA or not all(map(_is_whole, held["audits"])):
            return ()
        audits = tuple(held["audits"])
        if is_signed(held) and held["origin"] == origin_of(subject, weights, seed, examples):
            return audits
        if trusted and held["origin"]["weights"] == digest_of(weights):
            return tuple({**one, "kept": UNVERIFIED} for one in audits)
        return ()
    except (MechintError, OSError, KeyError, TypeError, AttributeError, ValueError):
        return ()


def _is_whole(audit: Any) -> bool:
    shares = [*audit["unaccounted"].values()]
    if (named := audit["accounted"]) is not None:
        shares += [named["share"], named["at_least"]]
        if not all(isinstance(named[name], str) for name in ("verb", "of", "how")):
            return False
    return all(isinstance(audit[name], kind) for name, kind in NEEDED.items()) and all(
        isinstance(one, int | float) for one in shares
    )
