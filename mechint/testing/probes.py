"""The conformance suite of probes: what every probe, built-in or a third party's, has to keep.

    from mechint.testing import check_probe
    check_probe(MyProbe(), subject)          # AssertionError says which promise is broken

Cost: six measurements of the probe.
"""

from __future__ import annotations

import contextlib
import copy
import json
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from mechint.errors import NotApplicableError
from mechint.probe import Probe
from mechint.results import Figure, ProbeResult
from mechint.subject import Subject


def check_probe(probe: Probe, subject: Subject, *, tolerance: float = 1e-3) -> ProbeResult | None:
    """Hold `probe` to the contract on `subject`; returns its result, or None where it does not
    apply and says so.

    Checked: the model's weights, gradients, hooks, training mode and the global random states are
    as before, after an error too; the same seed gives the same result; the result survives JSON; a
    null is present; figures say what they show; float64 works; no run directory is needed; and
    neither the size of a chunk nor the absence of a cache changes a number by more than
    `tolerance`, while no tensor outgrows the subject's memory.

    Raises:
        AssertionError: with the promise that is broken.
    """
    reason = probe.applicable(subject)
    if reason is not None:
        _check_refusal(probe, subject, reason)
        return None
    subject.model.train()
    with _unchanged(subject):
        first = probe.run(subject, seed=0)
    _check_result(probe, first)
    assert _same(first, probe.run(subject, seed=0)), (
        f"{probe.name}: the same seed gives another result"
    )
    _check_after_error(probe, subject)
    _check_memory(probe, subject, first, tolerance)
    foreign = Subject(
        copy.deepcopy(subject.model).double(),
        subject.task,
        data=subject.data,
        split_seed=subject.split_seed,
    )
    _check_result(probe, probe.run(foreign, seed=0))
    return first


def _check_refusal(probe: Probe, subject: Subject, reason: str) -> None:
    assert reason.strip() and "\n" not in reason, (
        f"{probe.name}: the reason why it does not apply is {reason!r}; expected one line"
    )
    try:
        probe.run(subject)
    except NotApplicableError as error:
        assert reason in str(error), (
            f"{probe.name}: the error {str(error)!r} does not say {reason!r}"
        )
    else:
        raise AssertionError(f"{probe.name}: runs although it does not apply: {reason}")


# --- a probe changes nothing ----------------------------------------------------------------------
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
def _unchanged(subject: Subject) -> Iterator[None]:
    before = _state(subject)
    yield
    after = _state(subject)
    changed = [name for name in before if not _equal(before[name], after[name])]
    assert not changed, (
        f"the probe changes the model's or the program's state: {', '.join(changed)}"
    )


class _Interruption(Exception):
    """Raised inside a probe by the suite."""


def _check_after_error(probe: Probe, subject: Subject) -> None:
    """Interrupt the probe at its second forward, and just before it hands its result over."""

    def interrupt(*_: Any, **__: Any) -> None:
        raise _Interruption

    late = copy.copy(probe)
    object.__setattr__(late, "result", interrupt)
    with _unchanged(subject), contextlib.suppress(_Interruption):
        late.run(subject, seed=0)

    calls = iter(range(1_000_000))
    fresh = subject.like(subject.model)  # nothing cached, so that the probe has to ask the model
    with _unchanged(subject):
        handle = subject.model.register_forward_pre_hook(
            lambda *_: interrupt() if next(calls) == 1 else None
        )
        try:
            with contextlib.suppress(_Interruption):
                probe.run(fresh, seed=0)
        finally:
            handle.remove()


# --- what it returns ------------------------------------------------------------------------------
def _same(a: ProbeResult, b: ProbeResult) -> bool:
    return json.loads(a.to_json()) == json.loads(b.to_json())


def _check_result(probe: Probe, result: ProbeResult) -> None:
    name = probe.name
    assert result.probe == name and result.question == probe.question and probe.question, (
        f"{name}: the result does not carry its name and question"
    )
    assert _same(ProbeResult.from_json(result.to_json()), result), (
        f"{name}: the result does not survive JSON"
    )
    json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert result.metrics, f"{name}: no metric"
    finding = result.finding
    assert finding.strip() and "\n" not in finding, (
        f"{name}: the finding is {finding!r}; expected one line"
    )
    assert any(character.isdigit() for character in finding), (
        f"{name}: the finding {finding!r} holds no number"
    )
    assert result.null, f"{name}: no null: nothing says how surprising the finding is"
    for key, null in result.null.items():
        assert 0 <= null.p_value <= 1 and null.how, (
            f"{name}: null {key!r}: p-value {null.p_value}, how {null.how!r}"
        )
    assert result.provenance["probe"]["name"] == name, (
        f"{name}: the provenance does not name the probe"
    )
    for key, table in result.tables.items():
        assert len({len(column) for column in table.columns.values()}) <= 1, (
            f"{name}: table {key!r}: columns of different lengths"
        )
    assert result.figures, f"{name}: no figure"
    for key, figure in result.figures.items():
        check_figure(f"{name}: figure {key!r}", figure)


def _titles(spec: Any, inside: bool = False) -> Iterator[str]:
    """Texts of the titles of axes and colour bars in a figure's dictionary."""
    if isinstance(spec, Mapping):
        for key, value in spec.items():
            named = (
                key.startswith(("xaxis", "yaxis", "colorbar", "scene"))
                if isinstance(key, str)
                else False
            )
            if inside and key == "title":
                yield value.get("text", "") if isinstance(value, Mapping) else str(value)
            else:
                yield from _titles(value, inside or named)
    elif isinstance(spec, list | tuple):
        for item in spec:
            yield from _titles(item, False)


UNITLESS = ("activation", "coordinate", "singular value")
"""Quantities in the model's own arbitrary units, which need no brackets."""


def check_figure(where: str, figure: Figure) -> None:
    """A figure has a title, a caption, names on its axes, and a unit in brackets on one of them.

    Raises:
        AssertionError: with what is missing.
    """
    layout = figure.spec.get("layout", {})
    title = layout.get("title", {})
    assert title.get("text") if isinstance(title, Mapping) else title, f"{where} has no title"
    assert figure.caption.strip(), f"{where} has no caption"
    for axis in ("xaxis", "yaxis"):
        names = [_text(value) for key, value in layout.items() if key.startswith(axis)]
        assert any(names), f"{where}: no name on its {axis}"
    units = [name for name in _titles(dict(figure.spec)) if "(" in name or name in UNITLESS]
    assert units, f"{where}: no axis or colour bar says its unit in brackets"


def _text(axis: Mapping[str, Any]) -> str:
    title = axis.get("title", "")
    return str(title.get("text", "") if isinstance(title, Mapping) else title).strip()


# --- memory ---------------------------------------------------------------------------------------
class _Largest(TorchDispatchMode):
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


def _check_memory(probe: Probe, subject: Subject, expected: ProbeResult, tolerance: float) -> None:
    """Neither chunks nor a missing cache change the numbers; no tensor outgrows what the subject
    allows.
    """
    small = subject.like(subject.model)
    small.memory, small.chunk = 0, max(1, len(subject.data) // 3)
    _check_close(probe, expected, probe.run(small, seed=0), tolerance)
    watched = subject.like(subject.model)
    with _Largest() as largest:
        probe.run(watched, seed=0)
    assert largest.bytes <= subject.memory, (
        f"{probe.name}: makes a tensor of {largest.bytes} bytes where the subject's memory is "
        f"{subject.memory}"
    )
    held = sum(tensor.nbytes for tensor in watched._cache.values())
    assert held <= subject.memory, (
        f"{probe.name}: leaves {held} bytes cached where the subject's memory is {subject.memory}"
    )


def _check_close(probe: Probe, expected: ProbeResult, got: ProbeResult, tolerance: float) -> None:
    for name, value in expected.metrics.items():
        other = got.metrics[name]
        if isinstance(value, float) and isinstance(other, float) and np.isfinite(value):
            close = abs(value - other) <= tolerance * max(1.0, abs(value))
            assert close, (
                f"{probe.name}: {name} is {value} at once and {other} in chunks without a cache"
            )
