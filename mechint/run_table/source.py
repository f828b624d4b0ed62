"""Which code a probe's numbers come from, as a digest that changes with it.

The digest covers the tasks, mechint (except packages that only display or orchestrate), the probe's
module, and the modules it imports from its own package (``probes.fourier``, ``probes.removal``);
for a standalone plug-in file, the modules next to it. Cost: each file is read once per process,
those of probes are parsed.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mechint

LEFT_OUT = {"calibration", "cli", "gallery", "report", "studies", "sweeps"}
"""Rooms of mechint that no number of a probe on a given model depends on."""


@cache
def source_digest(kind: type) -> str | None:
    """The digest of the code of a class; None where it has no source file, as in a notebook."""
    name = kind.__module__
    own = getattr(sys.modules.get(name), "__file__", None)
    if own is None or not Path(own).is_file():
        return None
    file = Path(own)
    is_package = file.name == "__init__.py"
    root = file.parents[name.count(".") + is_package]
    alone = "." not in name and not is_package
    found, pending = {name: file}, [name]
    while pending:
        current = pending.pop()
        for other in _imports(found[current], current):
            place = root.joinpath(*other.split("."))
            near = "." not in other if alone else other.split(".")[0] == name.split(".")[0]
            files = [place.with_suffix(".py"), *([] if alone else [place / "__init__.py"])]
            source = next((one for one in files if one.is_file()), None)
            if near and source is not None and other not in found:
                found[other] = source
                pending.append(other)
    digest = hashlib.sha256(_beneath())
    for one in sorted(found):
        digest.update(f"\0{one}\0".encode() + found[one].read_bytes())
    return digest.hexdigest()[:16]


@cache
def _beneath() -> bytes:
    """The digest of what every probe computes with."""
    home = Path(mechint.__file__).parent
    rooms = [room for room in home.iterdir() if room.name not in LEFT_OUT]
    tasks = find_spec("tasks")
    rooms += map(Path, tasks.submodule_search_locations or () if tasks else ())
    digest = hashlib.sha256(mechint.__version__.encode())
    for room in sorted(rooms):
        for file in sorted(room.rglob("*.py")) if room.is_dir() else [room]:
            if file.suffix == ".py":
                name = file.relative_to(room.parent)
                digest.update(f"\0{name}\0".encode() + file.read_bytes())
    return digest.digest()


def _imports(file: Path, name: str) -> Iterator[str]:
    """Names of the modules that `file`, the source of module `name`, may import."""
    package = name.split(".")[: None if file.name == "__init__.py" else -1]
    for module, names in _import_statements(file):
        level = len(module) - len(module.lstrip("."))
        above = package[: len(package) - level + 1] if level else []
        base = ".".join([*above, *filter(None, [module.lstrip(".")])])
        yield from filter(None, [base, *(f"{base}.{one}".lstrip(".") for one in names)])


@cache
def _import_statements(file: Path) -> list[tuple[str, list[str]]]:
    """(module, names taken from it) of every import in `file`; a relative one begins with dots."""
    found: list[tuple[str, list[str]]] = []
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # of a module that nobody has been able to import
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            found.append(("." * node.level + (node.module or ""), names))
    return found
