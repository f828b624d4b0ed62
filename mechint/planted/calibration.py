"""Models to calibrate a probe on: mechanisms planted for it and controls without them, as data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mechint.planted.assembly import Planted
from mechint.probe.results import ProbeResult
from mechint.subject import Subject


@dataclass(frozen=True)
class Trial:
    """One mechanism that a probe must find, with the right numbers, and what stands beside it.

    mechanism: its name in the table. plant(noise, seed) -> Planted. controls: name → subject of a
    seed, on which the mechanism is absent. error(result, plant): distance of the estimate from the
    truth, described by `estimate`, right up to `tolerance`. settings: of the probe, small enough to
    run hundreds of times; control_settings: what differs on controls, such as not asking for pairs
    that are answered correctly. detects(result): the probe's status where it is None.

    half_trained: subject of a seed that may have learned a part of the true rule, so that to find
    it there is not a false positive. Nobody knows beforehand what is there; false_claims(result,
    subject) counts what the probe names and another computation does not bear out.
    """

    mechanism: str
    plant: Callable[[float, int], Planted]
    controls: Mapping[str, Callable[[int], Subject]]
    error: Callable[[ProbeResult, Planted], float]
    estimate: str
    tolerance: float = 0.0
    settings: Mapping[str, Any] = field(default_factory=dict)
    control_settings: Mapping[str, Any] = field(default_factory=dict)
    detects: Callable[[ProbeResult], bool] | None = None
    half_trained: Callable[[int], Subject] | None = None
    false_claims: Callable[[ProbeResult, Subject], float] | None = None

    def __post_init__(self) -> None:
        assert (self.half_trained is None) == (self.false_claims is None)


@dataclass(frozen=True)
class Calibration:
    """All trials of one probe, and how the conformance suite runs it.

    test_settings: with which one measurement takes a moment and its null can still reach the
    probe's level. suited: task name → settings that a subject on this task asks for.
    """

    trials: tuple[Trial, ...] = ()
    test_settings: Mapping[str, Any] = field(default_factory=dict)
    suited: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
