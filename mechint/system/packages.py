"""`mechint.tasks`, `mechint.probes` and `mechint.studies`: the packages beside `mechint`.

Their folders lie beside that of `mechint`, in a checkout and where it is installed, and they are
found there whatever else is importable under these short names. ``import tasks`` gives the same
module objects, unless a file of the user's comes first.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from mechint.errors import MechintError
from mechint.system.files import digest_of, read_json

OWN = "mechint"
"""The distribution, and its package, whose entry points are the built-ins."""
BESIDE = ("tasks", "probes", "studies")
ROOT = Path(__file__).parents[2]


def package_of(module: str) -> str:
    """Name the package that owns the dotted name `module`.

    >>> package_of("mechint.tasks.modular"), package_of("mechint.task.base"), package_of("own.task")
    ('mechint.tasks', 'mechint', 'own')
    """
    top, _, inner = module.partition(".")
    beside = inner.partition(".")[0]
    return f"{top}.{beside}" if top == OWN and beside in BESIDE else top


class PackagesBeside(MetaPathFinder):
    """Finder of the packages beside `mechint`, and of their modules under the short names."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package = package_of(fullname)
        if fullname == package and package.startswith(f"{OWN}."):
            folder = ROOT / package.removeprefix(f"{OWN}.")
            return spec_from_file_location(
                fullname, folder / "__init__.py", submodule_search_locations=[str(folder)]
            )
        if package not in BESIDE or fullname == package:
            return None
        if sys.modules.get(package) is not sys.modules.get(f"{OWN}.{package}"):
            return None  # the user's own package of this name
        spec = find_spec(f"{OWN}.{fullname}")
        if spec is None or spec.origin is None:
            return None
        return spec_from_file_location(
            fullname,
            spec.origin,
            loader=_Alias(fullname, spec.origin),
            submodule_search_locations=spec.submodule_search_locations,
        )


class _Alias(SourceFileLoader):
    """Loader of the module that has this name below `mechint`, in place of a second copy."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(f"{OWN}.{spec.name}")
        self._own = module.__spec__  # the import system writes the alias's over it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own


def find_beside() -> None:
    """Let the import system find the packages beside `mechint`."""
    if not any(isinstance(finder, PackagesBeside) for finder in sys.meta_path):
        sys.meta_path.insert(0, PackagesBeside())


# --- files that decide what a run trains on beside its settings -----------------------------------
# those that its task reads, and the sources of a task that lies outside of the installed packages
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
