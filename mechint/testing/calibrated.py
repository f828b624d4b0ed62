"""Checks that a probe is calibrated: it finds what it plants itself, and is silent on its controls.

from mechint.testing import calibration_checks
for check in calibration_checks(MyProbe):
    check()

Cost: one measurement a plant and one a seed and control. How often it is right is what `mechint
calibrate` measures, on hundreds; this asks whether it is right at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from mechint.errors import NotApplicableError
from mechint.planted import Trial
from mechint.probe import Probe
from mechint.subject import Subject
from mechint.testing.probes import Check

SEEDS = (0, 1, 2)


def calibration_checks(probe: type[Probe], seeds: Sequence[int] = SEEDS) -> Iterator[Check]:
    """The checks of what `probe.calibration()` says, each named: that it has a plant and a control,
    that every plant is found with the right number, and that on every control, built with each of
    `seeds`, most of the time nothing is found.
    """
    trials = probe.calibration().trials
    yield Check("has a plant and a control", partial(_has_both, probe, trials))
    for trial in trials:
        yield Check(f"finds {trial.mechanism}", partial(_found, probe, trial, seeds[0]))
        for kind, build in trial.controls.items():
            silent = partial(_silent, probe, trial, kind, build, seeds)
            yield Check(f"{trial.mechanism}: silent on {kind}", silent)


def _has_both(probe: type[Probe], trials: Sequence[Trial]) -> None:
    assert trials, f"{probe.name} has no calibration(): nothing says that it finds anything"
    assert any(trial.controls for trial in trials), (
        f"{probe.name} has no control: nothing says that it is ever silent"
    )


def _found(probe: type[Probe], trial: Trial, seed: int) -> None:
    chosen = probe.from_dict(dict(trial.settings))
    plant = trial.plant(0.0, seed)
    result = chosen.run(plant.subject, seed=seed)
    detects = trial.detects or chosen.detects
    assert detects(result), f"{probe.name} misses {trial.mechanism}: {result.headline}"
    error = trial.error(result, plant)
    assert error <= trial.tolerance, (
        f"{probe.name} on {trial.mechanism}: {trial.estimate} is {error:g}; expected at most "
        f"{trial.tolerance:g}: {result.headline}"
    )


def _silent(
    probe: type[Probe],
    trial: Trial,
    kind: str,
    build: Callable[[int], Subject],
    seeds: Sequence[int],
) -> None:
    """A level of 0.01 speaks once in a hundred on what is not there, and not on most seeds."""
    chosen = probe.from_dict({**trial.settings, **trial.control_settings})
    detects, said = trial.detects or chosen.detects, list[str]()
    for seed in seeds:
        subject = build(seed)
        try:
            result = chosen.run(subject, seed=seed)
        except NotApplicableError as error:
            raise AssertionError(f"the control {kind!r} tests nothing: {error}") from error
        if detects(result):
            said.append(result.headline)
    assert 2 * len(said) < len(seeds), (
        f"{probe.name} finds {trial.mechanism} on {len(said)} of {len(seeds)} controls {kind!r}: "
        f"{said[0]}"
    )


__all__ = ["calibration_checks"]
