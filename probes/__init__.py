"""Measurements on trained models, one module a method: ``probes.run("fourier", subject)``."""

from mechint.probe import run

__all__ = ["run"]
