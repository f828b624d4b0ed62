"""What a probe is: a calibrated measurement on a subject.

A probe is one file: a frozen dataclass that derives from `Probe`, whose docstring's first line is
its question (the estimand in one sentence), and one line in ``mechint/registry.py``.
"""

from __future__ import annotations

import abc
import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, ClassVar

from mechint.config import Settings
from mechint.errors import NotApplicableError
from mechint.registry import PROBES, summary
from mechint.results import ProbeResult

if TYPE_CHECKING:
    from mechint.subject import Subject


class Probe(Settings, abc.ABC):
    """Base of all probes.

    Class attributes: `name` (of the registry), `needs` (parts of the subject it reads: "grid",
    "symmetry", "variables", "attention", "mlp", "embedding", …), `source` (paper, equation). Fields
    are its settings.
    """

    name: ClassVar[str]
    source: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    question: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.question = summary(inspect.getdoc(cls))

    @abc.abstractmethod
    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        """The measurement itself; `run` guards it. The provenance is filled in by `run`."""

    def unmet(self, subject: Subject) -> str | None:
        """Why the probe cannot ask its question of `subject` beyond `needs`; None when it can."""
        return None

    def applicable(self, subject: Subject) -> str | None:
        """None, or the reason why the probe does not apply to `subject`."""
        lacking = next((reason for need in self.needs if (reason := subject.lacks(need))), None)
        return lacking or self.unmet(subject)

    def run(self, subject: Subject, *, seed: int = 0) -> ProbeResult:
        """Measure `subject`.

        Leaves model, hooks, training mode and global RNG state as they were, after an error too.

        Raises:
            NotApplicableError: with the reason `applicable` gives.
        """
        reason = self.applicable(subject)
        if reason:
            raise NotApplicableError(
                f"probe {self.name} does not apply to {subject.describe()}: {reason}"
            )
        with subject.untouched():
            result = self.measure(subject, seed)
        provenance = {
            **subject.provenance,
            "probe": {
                "name": self.name,
                "settings": self.to_dict(),
                "seed": seed,
                "source": self.source,
            },
        }
        return dataclasses.replace(result, provenance={**provenance, **result.provenance})

    def detects(self, result: ProbeResult) -> bool:
        """Whether `result` counts as a finding at the probe's default threshold; what calibration
        counts.

        Its metric "found" where it has one; else that the first null's p-value is at most 0.01.
        """
        return bool(result.metrics.get("found", next(iter(result.null.values())).p_value <= 0.01))

    def result(self, **parts: Any) -> ProbeResult:
        """A ProbeResult of this probe from its parts (metrics, finding, null, …)."""
        return ProbeResult(probe=self.name, question=self.question, **parts)


def run(name: str, subject: Subject, *, seed: int = 0, **settings: Any) -> ProbeResult:
    """Run the probe `name` with `settings` on `subject`.

    Raises:
        UnknownNameError, ParameterError, NotApplicableError.
    """
    return PROBES[name].from_dict(settings).run(subject, seed=seed)
