"""Pinned packages: every pin has one version, and every hashed package its files."""

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


def test_the_hashed_list_holds_the_pinned_versions() -> None:
    pinned, hashed = pins("constraints.txt"), pins("requirements-hashed.txt")
    different = {name for name in hashed if pinned.get(name, hashed[name]) != hashed[name]}
    assert not different, "make hashes writes the list again"


def test_the_hashed_list_holds_what_is_installed_by_default() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    hashed = pins("requirements-hashed.txt")
    for requirement in map(Requirement, texts):
        name = canonicalize_name(requirement.name)
        if name != "torch":  # see docs/reliability.md
            assert name in hashed, f"{name}: make hashes writes the list again"
            assert requirement.specifier.contains(hashed[name])


def test_every_hashed_package_has_files() -> None:
    text = (ROOT / "requirements-hashed.txt").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=\S)", text.strip())
    assert len(entries) == len(pins("requirements-hashed.txt"))
    for entry in entries:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry[:60]
        assert not re.findall(r"--hash=(?!sha256:[0-9a-f]{64}\b)", entry), entry[:60]


def test_every_requirement_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    pinned = pins("constraints.txt")
    for text in [*project["dependencies"], *(text for extra in extras for text in extra)]:
        requirement = Requirement(text)
        assert canonicalize_name(requirement.name) in pinned, text
        assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text
