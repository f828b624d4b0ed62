"""The conformance suite of probes: what every probe, built-in or a third party's, has to keep.

    from mechint.testing import check_probe, probe_checks
    check_probe(MyProbe(), subject)                 # AssertionError lists every broken promise
    for check in probe_checks(MyProbe(), subject):  # or one named check at a time
        check()

Cost: seven measurements of the probe, one more at its default settings where the settings given
have too few null samples to decide; of `calibration_checks` one measurement a plant and one a seed
and control. How often a probe is right is what `mechint calibrate` measures, on hundreds; this asks
whether it is right at all.
"""

from __future__ import annotations

import contextlib
import copy
import json
import numbers
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mechint.decide.null import samples_needed, why_undecidable
from mechint.errors import NotApplicableError
from mechint.planted import Trial
from mechint.probe import Probe
from mechint.probe.results import Figure, ProbeResult
from mechint.probe.text import VERDICTS
from mechint.registry import unfinished
from mechint.subject import Subject

CAUSAL = re.compile(
    r"\b(uses?|used|needs?|needed|relies|rely|depends?|causes?|drives?|because|responsible|"
    r"necessary|sufficient|harms?|matters?|carries)\b",
    re.IGNORECASE,
)
"""Words that claim a cause; a finding may use them only where the probe intervened."""


TOLERANCE = 1e-3
"""The largest change of a real number with the size of a chunk, relative to 1 or to itself."""
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


def probe_checks(probe: Probe, subject: Subject) -> Iterator[Check]:
    """The checks of `probe` on `subject`, each named, each independent of the others' outcome.

    Where the probe does not apply, one check: that it says why and refuses.
    """
    reason = unfinished(type(probe))
    assert reason is None, f"{probe.name}: {reason}"
    held = _Held(probe, subject)
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


def check_probe(probe: Probe, subject: Subject) -> None:
    """Run all of `probe_checks`.

    Raises:
        AssertionError: with one line per broken promise.
    """
    broken = []
    for check in probe_checks(probe, subject):
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
        other = next(differences(self.first, self.probe.run(small, seed=0), TOLERANCE), None)
        assert other is None, f"{other}, at once and in chunks without a cache"

    def modes_change_nothing(self) -> None:
        """The numbers are the same under any of torch's modes."""
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


# --- state of model and program ------------------------------------------------------------------
def _state(subject: Subject) -> dict[str, Any]:
    model = subject.model
    return {
        "weights": {name: value.detach().clone() for name, value in model.state_dict().items()},
        "gradients": {
            name: (value.requires_grad, value.grad) for name, value in model.named_parameters()
        },
        "hooks": {
            name: (len(point.fwd_hooks), len(point.bwd_hooks), len(point._forward_hooks))
            for name, point in model.hook_dict.items()
        },
        "training mode": [module.training for module in model.modules()],
        "use_attn_result": getattr(model, "use_attn_result", None),
        "torch's random state": torch.get_rng_state(),
        "numpy's random state": np.random.get_bit_generator().state["state"],  # pyright: ignore[reportAttributeAccessIssue]
        "python's random state": random.getstate(),
    }


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


@contextlib.contextmanager
def unchanged(subject: Subject) -> Iterator[None]:
    """Assert that what runs inside leaves the model and the program as they were."""
    before = _state(subject)
    yield
    after = _state(subject)
    changed = [name for name in before if not _equal(before[name], after[name])]
    assert not changed, (
        f"the probe changes the model's or the program's state: {', '.join(changed)}"
    )


class LargestTensor(TorchDispatchMode):
    """Remembers the size in bytes of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, list | tuple) else (result,):
            if isinstance(tensor, torch.Tensor):
                self.bytes = max(self.bytes, tensor.untyped_storage().nbytes())
        return result


# --- differences between two results -------------------------------------------------------------
def differences(expected: ProbeResult, got: ProbeResult, tolerance: float) -> Iterator[str]:
    """Say what differs, one line each: "`name` is a and b", a of `expected`.

    Real numbers may differ by `tolerance`, relative to 1 or to themselves; whole numbers, texts,
    statuses, names and lengths may not. A number that is not finite is like itself alone. Columns
    of p-values are left out; what they are made of is compared.
    """
    parts = zip(_parts(expected), _parts(got), strict=True)
    for (name, value), (_, other) in parts:
        yield from _walk(name, value, other, tolerance)


def _parts(result: ProbeResult) -> Iterator[tuple[str, Any]]:
    """The parts that are compared, with their names; metrics by their own."""
    yield "", result.metrics
    yield "status", result.verdict
    yield "status of sentence", [finding.verdict for finding in result.findings]
    yield "null of ", {name: [null.observed, null.mean] for name, null in result.null.items()}
    yield (
        "table ",
        {
            # a p-value is a rank among the null's samples: at a tie the last bit decides it
            name: {key: cells for key, cells in table.columns.items() if "p_value" not in key}
            for name, table in result.tables.items()
        },
    )
    yield "array ", result.arrays


def _walk(name: str, value: Any, other: Any, tolerance: float) -> Iterator[str]:
    value, other = _plain(value), _plain(other)
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        if list(value) != list(other):
            yield f"{name or 'the metrics'} has {list(value)} and {list(other)}"
            return
        for key, item in value.items():
            inner = f"{name}{key}" if not name or name.endswith(" ") else f"{name}[{key}]"
            yield from _walk(inner, item, other[key], tolerance)
    elif isinstance(value, list) and isinstance(other, list):
        if len(value) != len(other):
            yield f"{name} has {len(value)} and {len(other)} entries"
            return
        for index, (item, its) in enumerate(zip(value, other, strict=True)):
            yield from _walk(f"{name}[{index}]", item, its, tolerance)
    elif not _close(value, other, tolerance):
        yield f"{name} is {value} and {other}"


def _plain(value: Any) -> Any:
    """A value as Python's own: arrays, tensors and tuples as lists, NumPy's numbers as numbers."""
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    return list(value) if isinstance(value, tuple) else value


def _close(value: Any, other: Any, tolerance: float) -> bool:
    real = isinstance(value, numbers.Real) and isinstance(other, numbers.Real)
    if not real or isinstance(value, numbers.Integral):
        return bool(value == other)
    a, b = float(value), float(other)
    if not (np.isfinite(a) and np.isfinite(b)):
        return a == b or (np.isnan(a) and np.isnan(b))
    return abs(a - b) <= tolerance * max(1.0, abs(a))


# --- figures -------------------------------------------------------------------------------------
UNITLESS = ("activation", "coordinate", "singular value")
"""Quantities in the model's own arbitrary units, which need no brackets."""


def check_figure(where: str, figure: Figure) -> None:
    """A figure has a title, a caption, names on its axes, and a unit in brackets on one of them. An
    axis with no place to name (`Axis.names` empty) measures nothing, and needs no name.

    Raises:
        AssertionError: with what is missing.
    """
    assert figure.title.strip(), f"{where} has no title"
    assert figure.caption.strip(), f"{where} has no caption"
    plots = [plot for plot in figure.plots if not plot.bare]
    for axis in ("x", "y"):
        shown = [getattr(plot, axis) for plot in plots if getattr(plot, axis).names != []]
        assert all(one.title.strip() for one in shown), f"{where}: no name on its {axis} axis"
    scales = [layer.scale.title for plot in plots for layer in plot.layers if layer.scale]
    titles = [*scales, *(axis.title for plot in plots for axis in (plot.x, plot.y))]
    united = not plots or any("(" in name or name in UNITLESS for name in titles)
    assert united, f"{where}: no axis or color bar says its unit in brackets"


# --- plants and controls -------------------------------------------------------------------------
SEEDS = (0, 1, 2)


def calibration_checks(probe: type[Probe]) -> Iterator[Check]:
    """The checks of what `probe.calibration()` says, each named: that it has a plant and a control,
    that every plant is found with the right number, and that on every control, built with each of
    `SEEDS`, most of the time nothing is found.
    """
    trials = probe.calibration().trials
    yield Check("has a plant and a control", partial(_has_both, probe, trials))
    for trial in trials:
        yield Check(f"finds {trial.mechanism}", partial(_found, probe, trial))
        for kind, build in trial.controls.items():
            silent = partial(_silent, probe, trial, kind, build)
            yield Check(f"{trial.mechanism}: silent on {kind}", silent)


def _has_both(probe: type[Probe], trials: Sequence[Trial]) -> None:
    assert trials, f"{probe.name} has no calibration(): nothing says that it finds anything"
    assert any(trial.controls for trial in trials), (
        f"{probe.name} has no control: nothing says that it is ever silent"
    )


def _found(probe: type[Probe], trial: Trial) -> None:
    chosen = probe.from_dict(dict(trial.settings))
    plant = trial.plant(0.0, SEEDS[0])
    result = chosen.run(plant.subject, seed=SEEDS[0])
    detects = trial.detects or chosen.detects
    assert detects(result), f"{probe.name} misses {trial.mechanism}: {result.headline}"
    error = trial.error(result, plant)
    assert error <= trial.tolerance, (
        f"{probe.name} on {trial.mechanism}: {trial.estimate} is {error:g}; expected at most "
        f"{trial.tolerance:g}: {result.headline}"
    )


def _silent(probe: type[Probe], trial: Trial, kind: str, build: Callable[[int], Subject]) -> None:
    """A level of 0.01 speaks once in a hundred on what is not there, and not on most seeds."""
    chosen = probe.from_dict({**trial.settings, **trial.control_settings})
    detects, said = trial.detects or chosen.detects, list[str]()
    for seed in SEEDS:
        subject = build(seed)
        try:
            result = chosen.run(subject, seed=seed)
        except NotApplicableError as error:
            raise AssertionError(f"the control {kind!r} tests nothing: {error}") from error
        if detects(result):
            said.append(result.headline)
    assert 2 * len(said) < len(SEEDS), (
        f"{probe.name} finds {trial.mechanism} on {len(said)} of {len(SEEDS)} controls {kind!r}: "
        f"{said[0]}"
    )
