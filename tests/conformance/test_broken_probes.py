"""The suite itself: a probe that breaks one promise fails the check of that name and no other."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from mechint import figures, planted
from mechint.config import setting
from mechint.decide import Claim
from mechint.planted import library
from mechint.probe import Need, Probe, Report
from mechint.probe.results import ProbeResult
from mechint.subject import Subject
from mechint.task import rng
from mechint.testing import calibration_checks, check_probe, probe_checks
from mechint.testing.probes import Check


@dataclasses.dataclass(frozen=True)
class Size(Probe):
    """How large are the embedding's weights?"""

    name: ClassVar[str] = "size"
    source: ClassVar[str] = "these tests"
    needs: ClassVar[tuple[Need, ...]] = (Need.EMBEDDING,)

    samples: int = setting(199, "untrained embeddings of the null", low=1)

    def measure(self, subject: Subject, seed: int) -> ProbeResult:
        return self.report(subject, seed).result()

    def report(self, subject: Subject, seed: int) -> Report:
        report = Report(self, subject)
        weights = subject.model.W_E.detach().double().cpu().numpy()
        draws = rng("size", seed).standard_normal((self.samples, *weights.shape))
        null = np.abs(draws).mean((1, 2)) / 100
        report.metric("size", float(np.abs(weights).mean()), null=null, how="random weights")
        size = f"The mean absolute weight is {report.metrics['size']:.3g}"
        report.finding(
            Claim(
                f"{size}, more than random",
                no=size,
                at_chance=True,
            ),
        )
        shown: Any = figures.bars(
            ["W_E"],
            {"size": [report.metrics["size"]]},
            title="Size",
            x_title="matrix",
            y_title="mean absolute weight (1)",
            caption="How large the weights are.",
        )
        report.figure("size", shown)
        self.misbehave(report, subject)
        return report

    def misbehave(self, report: Report, subject: Subject) -> None:
        """Break a promise."""


def broken(**changes: Any) -> type[Size]:
    """The probe with other methods."""
    return type("Broken", (Size,), {"__doc__": "Is it broken?", **changes})


def changes_weights(self: Size, subject: Subject, seed: int) -> ProbeResult:
    subject.model.W_E.data.mul_(1.0 + 2**-20)
    return Size.measure(self, subject, seed)


CLAIM = Claim("The model uses 1 embedding", no="", at_chance=True)
LOOKS = broken(
    misbehave=lambda self, report, subject: (
        report.metric("chunk", float(subject.chunk)),
        torch.zeros(subject.memory + 1, dtype=torch.uint8),
    )
)


@dataclasses.dataclass(frozen=True)
class CanNeverFind(Size):
    """Can it ever find anything?"""

    samples: int = setting(19, "untrained embeddings of the null", low=1)


@cache
def subject() -> Subject:
    model = planted.modular_addition(5, (1, 2)).subject
    return Subject(model.model, model.task, memory=1 << 22)


CHUNKS = {"chunks change nothing"}
BROKEN: dict[str, tuple[type[Size], set[str]]] = {
    "none": (Size, set()),
    "changes weights": (
        broken(measure=changes_weights),
        {"changes neither model nor program", "changes nothing after an error"},
    ),
    "is random": (
        broken(
            misbehave=lambda self, report, _: report.metric(
                "noise", np.random.default_rng().random()
            )
        ),
        {"same seed, same result"},
    ),
    "has no figure": (
        broken(misbehave=lambda self, report, _: report.figures.clear()),
        {"figures say what they show"},
    ),
    "has no null": (
        broken(
            measure=lambda self, subject, seed: dataclasses.replace(
                Size.measure(self, subject, seed), null={}, findings=()
            )
        ),
        {
            "result is complete",
            "float64 and no run directory",
            "findings claim no more than was measured",
        },
    ),
    "claims a cause": (
        broken(misbehave=lambda self, report, _: report.finding(CLAIM)),
        {"findings claim no more than was measured"},
    ),
    "can never find": (CanNeverFind, {"null can reach the level"}),
    "is loose": (
        broken(significance=property(lambda self: 0.6)),
        {"findings claim no more than was measured"},
    ),
    "looks at its chunk": (LOOKS, {"memory is bounded", *CHUNKS}),
    "keeps it as a number": (
        broken(misbehave=lambda self, report, subject: report.metric("chunk", subject.chunk)),
        CHUNKS,
    ),
    "keeps it in a table": (
        broken(
            misbehave=lambda self, report, subject: report.table(
                "chunks", {"examples": [1.0, float(subject.chunk)]}, "one row per chunk"
            )
        ),
        CHUNKS,
    ),
    "keeps it in an array": (
        broken(
            misbehave=lambda self, report, subject: report.array(
                "chunks", np.array([float(subject.chunk)])
            )
        ),
        CHUNKS,
    ),
    "keeps it in a null": (
        broken(
            misbehave=lambda self, report, subject: report.metric(
                "one", 1.0, null=np.full(199, float(subject.chunk)), how="the chunk"
            )
        ),
        CHUNKS,
    ),
}
"""What a probe breaks → the probe, and the checks that fail."""


def failing(checks: Iterable[Check]) -> set[str]:
    found = set()
    for check in checks:
        try:
            check()
        except AssertionError:
            found.add(check.name)
    return found


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_named(name: str) -> None:
    kind, expected = BROKEN[name]
    found = failing(probe_checks(kind(), subject()))
    again = {*CHUNKS, "torch's modes change nothing"}
    if name == "is random":  # the random draw is another with other chunks and modes as well
        found -= again
    if name == "changes weights":  # the weights it multiplies differ in every run
        found -= {"same seed, same result", *again}
    assert found == expected


def test_check_probe_lists_every_broken_promise() -> None:
    with pytest.raises(AssertionError, match="breaks 2 promises") as caught:
        check_probe(LOOKS(), subject())
    assert "memory is bounded: AssertionError: makes a tensor of" in str(caught.value)
    assert "chunks change nothing: AssertionError: chunk is 4096" in str(caught.value)


def test_a_probe_that_can_never_find_is_told_how_many_samples_it_takes() -> None:
    with pytest.raises(AssertionError, match="Raise the default to 99 samples"):
        check_probe(CanNeverFind(), subject())


def test_a_default_that_suffices_is_enough() -> None:
    checks = {check.name: check for check in probe_checks(Size(samples=19), subject())}
    checks["null can reach the level"]()
    assert Size(samples=19).run(subject()).verdict == "unclear"


def test_a_refusal_without_a_reason_is_told() -> None:
    (check,) = probe_checks(broken(unmet=lambda self, subject: " ")(), subject())
    assert check.name == "refuses with a reason"
    with pytest.raises(AssertionError, match="expected one line"):
        check()


def test_a_probe_without_its_decorator_is_told() -> None:
    class Bare(Size):
        """Is its setting there?"""

        more: int = setting(3, "more", low=1, high=9)

    with pytest.raises(AssertionError, match=r"declares more .* @dataclass\(frozen=True\)"):
        check_probe(Bare(), subject())


def test_a_null_that_was_not_recorded_is_named() -> None:
    report = Size().report(subject(), 0)
    with pytest.raises(AssertionError, match="size: no null of 'sise'; those recorded are of size"):
        report.finding(Claim("It is 1", no="It is 1"), null="sise")


# --- plants and controls --------------------------------------------------------------------------
def calibrated(**changes: Any) -> type[Size]:
    """A probe with one trial, found on the plant and not on untrained weights."""
    settings: dict[str, Any] = {
        "mechanism": "addition",
        "plant": library.addition,
        "controls": library.untrained(library.addition),
        "error": lambda result, plant: 0.0,
        "estimate": "nothing",
        "settings": {"samples": 199},
        "detects": lambda result: result.metrics["size"] > 0.2,
    }

    trials = () if changes == {"none": 1} else (planted.Trial(**{**settings, **changes}),)
    return broken(calibration=classmethod(lambda cls: planted.Calibration(trials)))


def refused(seed: int) -> Subject:
    return planted.bottleneck(width=4, n=12, n_tasks=3, rank=4).subject


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, set()),
        ({"none": 1}, {"has a plant and a control"}),
        ({"controls": {}}, {"has a plant and a control"}),
        ({"detects": lambda result: True}, {"addition: silent on untrained"}),
        ({"detects": lambda result: False}, {"finds addition"}),
        ({"error": lambda result, plant: float("nan")}, {"finds addition"}),
        ({"controls": {"another": refused}}, {"addition: silent on another"}),
    ],
)
def test_a_probe_that_is_not_calibrated_is_told(changes: Any, fails: set[str]) -> None:
    assert failing(calibration_checks(calibrated(**changes))) == fails
