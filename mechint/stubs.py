"""Writes ``__init__.pyi`` of mechint, probes and tasks, from which editors complete names and
settings.

    python -m mechint.stubs

A test holds the files to what this writes, so that a new name or setting is not forgotten.
"""

from __future__ import annotations

import inspect
import sys
from importlib import import_module
from pathlib import Path

import mechint
from mechint.namespace import Namespace, attribute
from mechint.registry import PROBES, TASKS, Registry

HEAD = {
    "mechint": '''"""The public names; written by ``python -m mechint.stubs``."""

IMPORTS
__version__: str
''',
    "probes": '''"""Measurements on trained models; written by ``python -m mechint.stubs``."""

from typing import Any

from mechint.results import ProbeResult
from mechint.subject import Subject, Which

def names() -> list[str]: ...
def run(
    name: str, subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
) -> ProbeResult: ...
''',
    "tasks": '''"""Tasks whose algorithm is known; written by ``python -m mechint.stubs``."""

from collections.abc import Mapping
from typing import Any

from mechint.task import Task
IMPORTS
def names() -> list[str]: ...
def make(name: str, **parameters: Any) -> Task: ...
''',
}
REGISTRIES: dict[str, Registry[type]] = {"probes": PROBES, "tasks": TASKS}
PACKAGES = ("mechint", *REGISTRIES)


def stub(package: str) -> str:
    """The text of the stub of `package`: of mechint its public names, of "probes" and "tasks" one
    function per built-in entry.
    """
    if package == "mechint":
        public = [
            (name, getattr(mechint, name).__module__) for name in dir(mechint) if name[0] != "_"
        ]
        lines = sorted(f"from {module} import {name} as {name}" for name, module in public)
        return HEAD[package].replace("IMPORTS", "\n".join(lines) + "\n")
    registry, namespace = REGISTRIES[package], import_module(package)
    assert isinstance(namespace, Namespace)
    imports, functions = [], []
    for name in sorted(registry.builtins):
        kind, call = registry[name], namespace.call(attribute(name))
        imports.append(f"from {kind.__module__} import {kind.__name__}")
        functions.append(_function(attribute(name), inspect.signature(call), call.__doc__ or ""))
    head = HEAD[package].replace("IMPORTS", "\n".join(sorted(imports)) + "\n")
    return head + "".join(functions)


def _function(name: str, signature: inspect.Signature, doc: str) -> str:
    lines, keywords = [], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            lines.append("    *,")
            keywords = True
        default = "" if parameter.default is parameter.empty else " = ..."
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    summary = doc.partition("\n\n")[0].replace("\n", "\n    ")
    end = f') -> {signature.return_annotation}:\n    """{summary}"""\n'
    return "\n".join([f"\ndef {name}(", *lines, end])


def main() -> None:
    """Write the files beside the packages they describe."""
    for package in PACKAGES:
        where = Path(str(import_module(package).__file__)).with_suffix(".pyi")
        where.write_text(stub(package), encoding="utf-8")
        sys.stdout.write(f"{where}\n")


if __name__ == "__main__":
    main()
