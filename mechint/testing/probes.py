"""The conformance suite of probes: what every probe, built-in or a third party's, has to keep.

    from mechint.testing import check_probe, probe_checks
    check_probe(MyProbe(), subject)                 # AssertionError lists every broken promise
    for check in probe_checks(MyProbe(), subject):  # or one named check at a time
        check()

Cost: seven measurements of the probe, one more at its default settings where the settings given
have too few null samples to decide.
"""

from __future__ import annotations

import contextlib
import copy
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from mechint.errors import NotApplicableError
from mechint.null import samples_needed, why_undecidable
from mechint.probe import Probe
from mechint.registry import unfinished
from mechint.results import VERDICTS, ProbeResult
from mechint.subject import Subject
from mechint.testing.differences import differences
from mechint.testing.figures import check_figure
from mechint.testing.state import LargestTensor, unchanged

CAUSAL = re.compile(
    r"\b(uses?|used|needs?|needed|relies|rely|depends?|causes?|drives?|because|responsible|"
    r"necessary|sufficient|harms?|matters?|carries)\b",
    re.IGNORECASE,
)
"""Words that claim a cause; a finding may use them only where the probe intervened."""


LOOSEST = 0.05
"""The largest level at which a finding may be made."""


@dataclass(frozen=True)
class Check:
    """One promise of the contract; calling it raises AssertionError where it is broken."""

    name: str
    function: Callable[[], None]

    def __call__(self) -> None:
        self.function()

    def __str__(self) -> str:
        return self.name


def probe_checks(probe: Probe, subject: Subject, *, tolerance: float = 1e-3) -> Iterator[Check]:
    """The checks of `probe` on `subject`, each named, each independent of the others' outcome.

    Where the probe does not apply, one check: that it says why and refuses. tolerance: how much a
    real number may change, relative to 1 or to itself, with the size of a chunk.
    """
    reason = unfinished(type(probe))
    assert reason is None, f"{probe.name}: {reason}"
    held = _Held(probe, subject, tolerance)
    if probe.applicable(subject) is not None:
        yield Check("refuses with a reason", held.refuses)
        return
    yield Check("changes neither model nor program", held.changes_nothing)
    yield Check("changes nothing after an error", held.changes_nothing_after_an_error)
    yield Check("same seed, same result", held.same_seed_same_result)
    yield Check("result is complete", held.result_is_complete)
    yield Check("result survives JSON", held.survives_json)
    yield Check("findings claim no more than was measured", held.findings_are_guarded)
    yield Check("null can reach the level", held.null_reaches_the_level)
    yield Check("figures say what they show", held.figures_are_labeled)
    yield Check("memory is bounded", held.memory_is_bounded)
    yield Check("chunks change nothing", held.chunks_change_nothing)
    yield Check("torch's modes change nothing", held.modes_change_nothing)
    yield Check("float64 and no run directory", held.works_on_foreign_models)


def check_probe(probe: Probe, subject: Subject, *, tolerance: float = 1e-3) -> None:
    """Run all of `probe_checks`.

    Raises:
        AssertionError: with one line per broken promise.
    """
    broken = []
    for check in probe_checks(probe, subject, tolerance=tolerance):
        try:
            check()
        except Exception as error:
            broken.append((check.name, error))
    if broken:
        lines = (f"{name}: {type(error).__name__}: {error}" for name, error in broken)
        raise AssertionError(
            f"{probe.name} on {subject.describe()} breaks {len(broken)} promises\n"
            + "\n".join(lines)
        ) from broken[0][1]


class _Interruption(Exception):
    """Raised inside a probe by the suite."""


@dataclass
class _Held:
    """A probe held to the contract on a subject; what is measured once is kept."""

    probe: Probe
    subject: Subject
    tolerance: float

    @cached_property
    def first(self) -> ProbeResult:
        self.subject.model.train()
        return self.probe.run(self.subject, seed=0)

    # --- applicability ----------------------------------------------------------------------------
    def refuses(self) -> None:
        reason = self.probe.applicable(self.subject)
        assert reason and reason.strip() and "\n" not in reason, (
            f"the reason why it does not apply is {reason!r}; expected one line"
        )
        try:
            self.probe.run(self.subject)
        except NotApplicableError as error:
            assert reason in str(error), f"the error {str(error)!r} does not say {reason!r}"
        else:
            raise AssertionError(f"runs although it does not apply: {reason}")

    # --- a probe changes nothing ------------------------------------------------------------------
    def changes_nothing(self) -> None:
        self.subject.model.train()
        with unchanged(self.subject):
            self.probe.run(self.subject, seed=0)

    def changes_nothing_after_an_error(self) -> None:
        """Interrupt the probe at its second forward, and just before it hands its result over."""

        def interrupt(*_: Any, **__: Any) -> None:
            raise _Interruption

        subject, late = self.subject, copy.copy(self.probe)
        object.__setattr__(late, "result", interrupt)
        with unchanged(subject), contextlib.suppress(_Interruption):
            late.run(subject, seed=0)

        calls = iter(range(1_000_000))
        fresh = subject.with_limits()  # nothing cached, so that the probe asks the model
        with unchanged(subject):
            # a hook on the model itself does not run in a forward with hooks
            point = subject.model.hook_dict[min(subject.hooks)]
            handle = point.register_forward_hook(
                lambda *_: interrupt() if next(calls) == 1 else None
            )
            try:
                # a probe that computes past all hooks refuses this one
                with contextlib.suppress(_Interruption, NotApplicableError):
                    self.probe.run(fresh, seed=0)
            finally:
                handle.remove()

    # --- what it returns --------------------------------------------------------------------------
    def same_seed_same_result(self) -> None:
        assert self.first == self.probe.run(self.subject, seed=0), "another result"

    def result_is_complete(self) -> None:
        _check_complete(self.probe, self.first)

    def survives_json(self) -> None:
        result = self.first
        assert ProbeResult.from_json(result.to_json()) == result, "another result comes back"
        json.loads(json.dumps(result.to_dict(), allow_nan=False))

    def findings_are_guarded(self) -> None:
        """Status, digits, and no causal word in a found sentence without an intervention."""
        result = self.first
        assert result.verdict in VERDICTS, f"status {result.verdict!r}"
        assert any(character.isdigit() for character in result.finding), (
            f"the finding {result.finding!r} holds no number"
        )
        for finding in result.findings:
            assert finding.verdict in VERDICTS and finding.headline.strip()
            assert finding.alpha is None or finding.alpha <= LOOSEST, (
                f"decides at the level {finding.alpha:g}; expected at most {LOOSEST}: "
                f"{finding.headline}"
            )
            word = CAUSAL.search(finding.headline)
            assert finding.causal or finding.verdict != "yes" or word is None, (
                f"{word and word[0]!r} claims a cause without an intervention: {finding.headline}"
            )

    def null_reaches_the_level(self) -> None:
        """With these settings, or else with the defaults, a finding can be made at all."""
        if not _too_few_samples(self.first):
            return
        result = type(self.probe)().run(self.subject, seed=0)
        for finding in _too_few_samples(result):
            assert finding.alpha is not None
            raise AssertionError(
                f"with its default settings it can never find anything: {finding.headline} "
                f"Raise the default to {samples_needed(finding.alpha)} samples"
            )

    def figures_are_labeled(self) -> None:
        assert self.first.figures, "no figure"
        for key, figure in self.first.figures.items():
            check_figure(f"figure {key!r}", figure)

    # --- memory and other models ------------------------------------------------------------------
    def chunks_change_nothing(self) -> None:
        small = self.subject.with_limits(memory=0, chunk=max(1, len(self.subject.data) // 3))
        other = next(differences(self.first, self.probe.run(small, seed=0), self.tolerance), None)
        assert other is None, f"{other}, at once and in chunks without a cache"

    def modes_change_nothing(self) -> None:
        """Without gradients, in inference mode, under autocast and with float64 by default the
        numbers are the same.
        """
        fresh, dtype = self.subject.with_limits(), torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
                result = self.probe.run(fresh, seed=0)
        finally:
            torch.set_default_dtype(dtype)
        other = next(differences(self.first, result, 0.0), None)
        assert other is None, f"{other}, plainly and under torch's modes"

    def memory_is_bounded(self) -> None:
        watched = self.subject.with_limits()
        with LargestTensor() as largest:
            self.probe.run(watched, seed=0)
        limit = self.subject.memory
        assert largest.bytes <= limit, f"makes a tensor of {largest.bytes} bytes; limit {limit}"
        held = watched.cached_bytes
        assert held <= limit, f"leaves {held} bytes cached; limit {limit}"

    def works_on_foreign_models(self) -> None:
        foreign = Subject(
            copy.deepcopy(self.subject.model).double(),
            self.subject.task,
            data=self.subject.data,
            split_seed=self.subject.split_seed,
        )
        _check_complete(self.probe, self.probe.run(foreign, seed=0))


def _too_few_samples(result: ProbeResult) -> list[Any]:
    """The findings whose nulls cannot reach their level."""
    return [
        finding
        for finding in result.findings
        if finding.alpha is not None
        and any(result.null[name].floor > finding.alpha * (1 + 1e-9) for name in finding.tested)
        and why_undecidable([result.null[name] for name in finding.tested], finding.alpha)
    ]


def _check_complete(probe: Probe, result: ProbeResult) -> None:
    """Name, question, metrics, nulls, findings and provenance are there and well formed."""
    assert result.probe == probe.name and result.question == probe.question and probe.question, (
        "the result does not carry the probe's name and question"
    )
    assert result.metrics, "no metric"
    assert result.headline.strip() and "\n" not in result.headline, (
        f"the finding is {result.headline!r}; expected one line"
    )
    assert result.null, "no null: nothing says how surprising the finding is"
    for key, null in result.null.items():
        assert 0 <= null.p_value <= 1 and null.how, (
            f"null {key!r}: p-value {null.p_value}, how {null.how!r}"
        )
    assert result.provenance["probe"]["name"] == probe.name, "the provenance names another probe"
    for key, table in result.tables.items():
        assert len({len(column) for column in table.columns.values()}) <= 1, (
            f"table {key!r}: columns of different lengths"
        )


__all__ = ["CAUSAL", "Check", "check_figure", "check_probe", "probe_checks"]
