"""Pinned packages: every requirement has a pin, and one version of it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PIN = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def pins(file: str) -> dict[str, str]:
    """Name → version of the pins in a file of requirements."""
    found = PIN.findall((ROOT / file).read_text(encoding="utf-8"))
    names = [canonicalize_name(name) for name, _ in found]
    assert len(set(names)) == len(names), f"{file}: a package is there twice"
    return {name: version for name, (_, version) in zip(names, found, strict=True)}


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    pinned = pins("constraints.txt")
    for text in [*project["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        assert canonicalize_name(requirement.name) in pinned, text
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text
