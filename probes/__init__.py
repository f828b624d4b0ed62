"""Measurements on trained models, one module per method: ``probes.fourier(subject, factor=3)``.

`names` lists what there is, plug-ins included; nothing is imported before it is used.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from mechint.namespace import Call, install, signature
from mechint.registry import PROBES

if TYPE_CHECKING:
    from mechint.results import ProbeResult
    from mechint.subject import Subject, Which


def run(
    name: str, subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
) -> ProbeResult:
    """Run the probe `name` of the registry with `settings` on `subject`, asked about `answer`, as
    `mechint.probe.run` does.
    """
    from mechint.probe import run as run_probe  # late, so that listing the probes loads nothing

    return run_probe(name, subject, seed=seed, answer=answer, **settings)


def _make(name: str, kind: type) -> Call:
    def call(
        subject: Subject, *, seed: int = 0, answer: Which | None = None, **settings: Any
    ) -> ProbeResult:
        return run(name, subject, seed=seed, answer=answer, **settings)

    leading = list(inspect.signature(call).parameters.values())[:3]
    vars(call)["__signature__"] = signature(kind, leading, "ProbeResult")
    return call


__all__ = ["names", "run"]  # pyright: ignore[reportUnsupportedDunderAll]

install(__name__, PROBES, _make)
