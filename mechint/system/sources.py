"""Files that decide what a run trains on beside its settings: those that its task reads, and the
sources of a task that lies outside of the installed packages.
"""

from __future__ import annotations

import contextlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mechint.errors import MechintError
from mechint.system.files import digest_of, read_json
from mechint.system.packages import BESIDE, OWN, ROOT

OWN_FOLDERS = {ROOT / name for name in (OWN, *BESIDE)}
STANDARD_LIBRARY = Path(sysconfig.get_paths()["stdlib"])


def files_in(value: Any) -> Iterator[Path]:
    """The files that are named in the parameters of a task."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from files_in(one)
    elif isinstance(value, str) and len(value) < 4096 and "\0" not in value:
        with contextlib.suppress(OSError):
            if Path(value).is_file():
                yield Path(value)


def task_files(config: Mapping[str, Any]) -> dict[str, str]:
    """Path → digest of every file that the parameters of a run's task name, as of a corpus.

    config: of config.json.
    """
    task = config.get("task")
    parameters = task.get("parameters") if isinstance(task, Mapping) else None
    return {str(path): current_digest_of(path) for path in files_in(parameters)}


def loaded_sources(module: str) -> dict[str, dict[str, str]]:
    """Module → path and digest of what is loaded from outside of the installed packages, where
    `module`, that of a task, is such a one: its own file, and those that it may import. None of a
    task in a notebook.
    """
    if not _is_own(sys.modules.get(module)):
        return {}
    return {
        name: {"path": str(one.__file__), "digest": current_digest_of(Path(str(one.__file__)))}
        for name, one in list(sys.modules.items())
        if _is_own(one)
    }


def _is_own(module: ModuleType | None) -> bool:
    """Return whether a module is in a file of the user's, and not of an installed package."""
    path = Path(getattr(module, "__file__", None) or "")
    installed = {STANDARD_LIBRARY, *OWN_FOLDERS} & {*path.parents}
    packaged = {"site-packages", "dist-packages"} & {*path.parts}
    return not installed and not packaged and path.is_absolute() and path.is_file()


def changed_files(run: Path, loaded: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
    """The files that the run in the directory was trained on and that are others now.

    loaded: sources to compare with, by the names of modules; the run's files themselves when None.
    """
    with contextlib.suppress(
        MechintError, OSError, ValueError, TypeError, KeyError, AttributeError
    ):
        made = read_json(run / "manifest.json") or {}
        sources = made.get("sources", {})
        if loaded is not None:
            return [
                one["path"]
                for name, one in sources.items()
                if loaded.get(name, one)["digest"] != one["digest"]
            ]
        then = made.get("files", {}) | {one["path"]: one["digest"] for one in sources.values()}
        return [
            path
            for path, digest in then.items()
            if Path(path).is_file() and current_digest_of(Path(path)) != digest
        ]
    return []


@cache
def _digest(path: Path, size: int, changed: int) -> str:
    return digest_of(path)


def current_digest_of(path: Path) -> str:
    """Digest of a file's content, computed once as long as the file is as it was."""
    stat = path.stat()
    return _digest(path, stat.st_size, stat.st_mtime_ns)
