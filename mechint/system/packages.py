"""`mechint.tasks`, `mechint.probes` and `mechint.studies`: the packages beside `mechint`.

Their folders lie beside that of `mechint`, in a checkout and where it is installed, and they are
found there whatever else is importable under these short names. ``import tasks`` gives the same
module objects, unless a file of the user's comes first.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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
