"""An exception at any line of a probe leaves model, subject and global randomness as they were."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from mechint.probe import Probe
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.testing.probes import unchanged
from tests import campaigns
from tests.conformance.test_probes import SUBJECTS, UNSUITED

PROBE_FILES = str(Path(__file__).parents[2] / "probes")
QUICK = ("gradients", "lens", "patching")
MANY = 20


class LineError(Exception):
    """Raised at a line of a probe."""


def run_to_line(probe: Probe, subject: Subject, last: int | None = None) -> int:
    """Run the probe up to the `last` line of its files that is executed, where LineError is raised,
    or to its end; how many lines there were.
    """
    count = 0

    def at_line(frame: FrameType, event: str, _: Any) -> Callable[..., Any]:
        nonlocal count
        if event == "line":
            count += 1
            if count == last:
                raise LineError(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        return at_line

    def at_call(frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        return at_line if frame.f_code.co_filename.startswith(PROBE_FILES) else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        probe.run(subject, seed=0)
    finally:
        sys.settrace(before)
    return count


def suited(name: str) -> tuple[Probe, Subject]:
    """The probe with the settings of its tests, and a planted subject to which it applies."""
    calibration = PROBES[name].calibration()
    for kind, make in SUBJECTS.items():
        settings = {**calibration.test_settings, **calibration.suited.get(kind, {})}
        probe, subject = PROBES[name].from_dict(settings), make().subject
        if (name, kind) not in UNSUITED and probe.applicable(subject) is None:
            return probe, subject
    raise AssertionError(f"{name}: applies to no subject")


def interrupt(name: str, times: int) -> None:
    """Raise at so many random lines; each must come out, and leave everything as it was."""
    probe, subject = suited(name)
    lines = run_to_line(probe, subject.with_limits())
    assert lines > 20
    for line in random.Random(name).sample(range(1, lines + 1), times):
        fresh = subject.with_limits()
        with unchanged(fresh), pytest.raises(LineError, match=r"probes/\S+\.py:\d+"):
            run_to_line(probe, fresh, line)


@pytest.mark.full
@pytest.mark.parametrize("name", QUICK)
def test_an_exception_at_a_line_of_a_probe(name: str) -> None:
    interrupt(name, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBES.names())
def test_exceptions_at_many_lines_of_every_probe(name: str) -> None:
    interrupt(name, MANY)
    campaigns.record("exceptions at random lines of a probe", name, right=MANY)
