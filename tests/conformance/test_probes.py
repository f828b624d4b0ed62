"""Every registered probe keeps the contract, on subjects it applies to and on those it does not."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from mechint import planted
from mechint.figures import Figure
from mechint.probe.results import ProbeResult
from mechint.probe.text import rank
from mechint.registry import PROBES, TASKS
from mechint.testing import calibration_checks, probe_checks
from tests.marks import full_where

SUBJECTS: dict[str, Callable[[], planted.Planted]] = {
    "addition": lambda: planted.modular_addition(11, (2, 3), noise=0.02),
    "comparison": lambda: planted.comparison(12, 0.5, noise=0.01),
    "composition": lambda: planted.composition(5, 2),
    "induction": lambda: planted.induction_head(8, 4, noise=0.01),
    "bottleneck": lambda: planted.bottleneck(width=4, noise=0.1, n=12, n_tasks=3, rank=4),
}

# composition's variables show at the positions of their own answers, interchange looks at the last
# one that is read
UNSUITED = {("das", "composition")}
SUITED = {
    "composition": "composition",
    "induction": "attention",
    "bottleneck": "interference subspace",
}
"""Subject → the probes that look at it in `make test`; the others look at addition."""


@lru_cache(maxsize=1)
def remainders() -> planted.Planted:
    """Several outputs: all answers memorized."""
    return planted.lookup_table(TASKS["remainders"](p=7), noise=0.03)


def pairs() -> Iterator[Any]:
    """Every probe with every subject: one of each probe in `make test`, a second one that turns
    with the probe in `make test-all`, all in `make slow`.
    """
    every = [*SUBJECTS, "remainders"]
    for at, name in enumerate(PROBES.names()):
        first = next((key for key, names in SUITED.items() if name in names.split()), "addition")
        if name == "llc":  # which samples for long, the longer the more weights a model has
            first = "induction"
        for subject in every:
            if (name, subject) in UNSUITED:
                continue
            second = subject == every[at % len(every)] and name != "llc"
            full = second or (name == "llc" and subject == first)
            marks = [pytest.mark.full if full else pytest.mark.slow]
            quick = subject == first and name != "llc"
            yield pytest.param(name, subject, marks=[] if quick else marks)


@pytest.mark.parametrize(("name", "subject"), list(pairs()))
def test_a_probe_keeps_the_contract(name: str, subject: str, subtests: pytest.Subtests) -> None:
    suited = PROBES[name].calibration().suited.get(subject, {})
    plant = remainders() if subject == "remainders" else SUBJECTS[subject]()
    probe = PROBES[name].from_dict({**PROBES[name].calibration().test_settings, **suited})
    checks = list(probe_checks(probe, plant.subject))
    assert checks
    for check in checks:
        with subtests.test(check.name):
            check()


CHEAP = ("gradients", "linear", "subspace")
OTHERS = [name for name in PROBES.names() if name not in (*CHEAP, "llc")]


@pytest.mark.parametrize(
    "name",
    [*CHEAP, *full_where(OTHERS, OTHERS), pytest.param("llc", marks=pytest.mark.slow)],
)
def test_a_probe_is_calibrated(name: str, subtests: pytest.Subtests) -> None:
    for check in calibration_checks(PROBES[name]):
        with subtests.test(check.name):
            check()


@pytest.mark.parametrize("name", PROBES.names())
def test_a_probe_says_what_it_asks_and_where_it_is_from(name: str) -> None:
    probe = PROBES[name]
    assert probe.name == name
    assert probe.question.endswith("?"), (
        f"{name}: the docstring's first line is the question it answers"
    )
    assert probe.source
    assert all(row["help"] for row in probe.describe()), f"{name}: a setting without help"


def numbers_in(figure: Figure) -> np.ndarray:
    """Every number that a figure draws or writes."""
    texts, held = [figure.title, figure.caption, *figure.captions.values()], list[Any]()
    for plot in figure.plots:
        texts += [plot.x.title, plot.y.title, *(line.text for line in plot.lines)]
        held += [line.at for line in plot.lines]
        for layer in plot.layers:
            texts += [*(layer.text or ()), *(cell for row in layer.cells or () for cell in row)]
            for part in (layer.x, layer.y, layer.values or (), *(layer.z or ())):
                held += np.ravel(np.array(part, dtype=object)).tolist()
    held += [found for text in texts for found in re.findall(r"-?\d+(?:\.\d+)?", text)]
    return np.array([np.nan if one is None else float(one) for one in held])


MAX_WORDS = 15
DENIAL = re.compile(
    r"\b(no|not|cannot|none|nor|neither|nothing|fewer|within|without|as)\b", re.IGNORECASE
)
"""Words by which a sentence says that something is not there, or as it is without a mechanism."""


def read_right(result: ProbeResult) -> None:
    """Headlines are short sentences, subject first; what was not found is not said to be there."""
    for one in result.findings:
        assert len(one.headline.split()) <= MAX_WORDS, one.headline
        assert not one.headline[0].islower(), one.headline
        assert one.headline.endswith((".", "?")) and "(" not in one.headline, one.headline
        if one.verdict == "unclear":
            assert one.reason and one.p_value is None
        if one.verdict == "no":
            assert DENIAL.search(one.headline), one.headline
    if result.lead:
        assert result.verdict == "yes" and len(result.lead.split()) <= MAX_WORDS, result.lead


LEADING = ["attention", "clock-pizza", "circuits", "das", "embedding", "fourier", "neurons"]
LEADING += ["ablation", "attribution", "irreps", "patching", "progress", "subspace", "weights"]
QUICK = {"clock-pizza", "embedding", "fourier"}


@pytest.mark.parametrize("name", full_where({*LEADING} - QUICK, LEADING))
def test_the_hero_of_a_verdict_holds_the_number_of_its_headline(name: str) -> None:
    calibration = PROBES[name].calibration()
    trial = calibration.trials[0]
    settings = {**calibration.test_settings, **trial.settings}
    result = PROBES[name].from_dict(settings).run(trial.plant(0.0, 0).subject)
    finding = min(result.findings, key=lambda one: rank(one.verdict))
    assert result.lead and finding.verdict == "yes" and finding.effect is not None
    value = finding.effect.value
    seen = numbers_in(result.figures[result.hero])
    assert np.nanmin(np.abs(seen - value)) <= 0.006 * abs(value)
    read_right(result)
