"""Manifest of what a result was made with: versions, git commit, machine and plug-ins."""

from __future__ import annotations

import functools
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

import mechint
from mechint.errors import RunError
from mechint.registry.registry import installed_points
from mechint.system.files import read_json


def manifest() -> dict[str, Any]:
    """Versions, git commit, machine and plug-ins, as JSON values."""
    return {
        "versions": _versions(),
        "commit": _commit(),
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "plugins": {
            group: [point.name for point in installed_points().select(group=group)]
            for group in ("mechint.tasks", "mechint.probes", "mechint.checkpoint_formats")
        },
    }


@functools.cache
def _versions() -> dict[str, str]:
    packages = {name: _version(name) for name in ("torch", "transformer-lens", "numpy")}
    return {"mechint": mechint.__version__, **packages, "python": sys.version.split()[0]}


def _version(name: str) -> str:
    """ "unknown" of a package that is on the path without having been installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


@functools.cache
def _commit() -> str | None:
    """The git commit of this code; None where it is not a checkout."""
    try:
        found = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError:
        return None
    return found.stdout.strip() or None


def read_manifest(file: Path) -> dict[str, Any] | None:
    """The content of manifest.json; None where it is missing or damaged."""
    try:
        made = read_json(file)
    except RunError:
        return None
    return made if isinstance(made, dict) else None
