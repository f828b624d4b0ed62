"""Measurements on trained models, one module a method: ``probes.run("fourier", subject)``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechint.results import ProbeResult
    from mechint.subject import Subject


def run(name: str, subject: Subject, *, seed: int = 0, **settings: Any) -> ProbeResult:
    """Run the probe `name` of the registry with `settings` on `subject`, as `mechint.probe.run`
    does.
    """
    from mechint.probe import run as run_probe  # late, so that listing the probes loads nothing

    return run_probe(name, subject, seed=seed, **settings)


__all__ = ["run"]
