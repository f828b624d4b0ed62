"""Measurements on trained models: ``probes.fourier(subject, factor=3)``.

Every entry of the registry, plug-ins included, is a function here, imported when first used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mechint.registry import PROBES
from mechint.registry.registry import attribute, documented, entry_named

if TYPE_CHECKING:
    from mechint.probe.results import ProbeResult
    from mechint.subject import Subject, Which

__all__ = ["names", "run"]


def names() -> list[str]:
    """Names of all probes, sorted."""
    return PROBES.names()


def run(
    name: str, subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
) -> ProbeResult:
    """Run the probe `name` on `subject`, about `answer`, as `mechint.probe.run` does."""
    from mechint.probe import run as run_probe  # imports torch

    return run_probe(name, subject, seed=seed, answer=answer, **settings)


def __getattr__(python_name: str) -> Callable[..., ProbeResult]:
    name = entry_named(PROBES, python_name, __name__)

    def call(
        subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
    ) -> ProbeResult:
        return run(name, subject, seed=seed, answer=answer, **settings)

    return documented(call, PROBES[name], "ProbeResult")


def __dir__() -> list[str]:
    return sorted([*__all__, *map(attribute, PROBES)])


if __name__ == "probes":  # the short name is an alias of the same module objects
    sys.modules[__name__] = importlib.import_module("mechint.probes")
