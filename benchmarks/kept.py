"""Numbers that a benchmark keeps: the command and the commit that made them, and pages of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mechint.system.files import write_text
from mechint.training.run_directory import manifest


def made(command: str, of: str = "") -> dict[str, str]:
    """The command and the commit that made a table, or the rows of it that `of` names."""
    return {"of": of, "command": command, "commit": str(manifest()["commit"] or "unknown")}


def in_words(*origins: Mapping[str, str]) -> str:
    """The last line of a page, each command and commit once.

    >>> in_words({"of": "", "command": "make it", "commit": "0123456789"})
    'Made by `make it` at 01234567.'
    """
    told = [f"`{one['command']}` at {one['commit'][:8]}" for one in origins]
    return f"Made by {', '.join(dict.fromkeys(told))}."


def keep_row(path: Path, row: Mapping[str, Any], origin: Mapping[str, str]) -> dict[str, Any]:
    """Write a row into a file of JSON that keeps the others, by what its origin is of."""
    kept: dict[str, Any] = {"origins": [], "rows": {}}
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
    others = [one for one in kept["origins"] if one["of"] != origin["of"]]
    kept = {"origins": [*others, origin], "rows": {**kept["rows"], origin["of"]: row}}
    write_text(path, json.dumps(kept, indent=1) + "\n")
    return kept
