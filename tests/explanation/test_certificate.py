"""Certificates count what another forward counts, and bounds on rounding hold."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mechint
from mechint import planted
from mechint.errors import MechintError
from mechint.explanation import certificate, certify, explain
from mechint.explanation.rounding import RoundingBound
from mechint.subject import Subject
from mechint.task import Task


def margins(logits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """(input,) the largest logit above the second."""
    return np.sort(logits, 1)[:, -1] - np.sort(logits, 1)[:, -2]


def clock_logits(dtype: Any) -> np.ndarray[Any, Any]:
    """The logits of clock.pt by numpy alone, of all (x, y, =)."""
    model = mechint.load(mechint.example("clock.pt")).model
    weights = {name: one.detach().numpy().astype(dtype) for name, one in model.named_parameters()}
    x, y = np.divmod(np.arange(29 * 29), 29)
    tokens = np.stack([x, y, np.full(len(x), 29)], 1)
    at = weights["embed.W_E"][tokens] + weights["pos_embed.W_pos"][:3]
    stream = at[:, 2]
    for head in range(4):
        q, k, v = (
            at @ weights[f"blocks.0.attn.W_{one}"][head]
            + weights.get(f"blocks.0.attn.b_{one}", np.zeros((4, 1), dtype))[head]
            for one in "QKV"
        )
        scores = np.einsum("nd,nkd->nk", q[:, 2], k) / np.sqrt(dtype(q.shape[-1]))
        shares = np.exp(scores - scores.max(1, keepdims=True))
        mixed = np.einsum("nk,nkd->nd", shares / shares.sum(1, keepdims=True), v)
        stream = stream + mixed @ weights["blocks.0.attn.W_O"][head]
    stream = stream + weights.get("blocks.0.attn.b_O", dtype(0))
    hidden = stream @ weights["blocks.0.mlp.W_in"] + weights.get("blocks.0.mlp.b_in", dtype(0))
    out = np.maximum(hidden, 0) @ weights["blocks.0.mlp.W_out"]
    stream = stream + out + weights.get("blocks.0.mlp.b_out", dtype(0))
    return stream @ weights["unembed.W_U"] + weights.get("unembed.b_U", dtype(0))


def test_a_certificate_counts_what_a_forward_by_numpy_counts() -> None:
    subject = mechint.load(mechint.example("clock.pt"))
    found = certify(subject, lambda rows: (rows[:, 0] + rows[:, 1]) % 29)
    exact, single = clock_logits(np.float64), clock_logits(np.float32)
    x, y = np.divmod(np.arange(29 * 29), 29)
    assert (found.n, found.as_task) == (841, int((exact.argmax(1) == (x + y) % 29).sum()))
    assert found.as_program == 841 and not found.reason and found.to_dict()["certified"]
    assert found.margin == pytest.approx(margins(exact).min(), abs=1e-9)
    moved = np.abs(margins(single) - margins(exact)).max()
    assert found.rounding is not None and 0 < moved < found.rounding < found.margin


def test_each_thing_that_fails_is_said() -> None:
    """A program that is wrong on one input, a model that is, margins within rounding."""
    made = planted.modular_addition(13, (2, 5)).subject

    def once_wrong(tokens: Tensor) -> Tensor:
        right = (tokens[:, 0] + tokens[:, 1]) % 13
        return torch.where((tokens[:, :2] == 3).all(1), (right + 1) % 13, right)

    found = certify(made, once_wrong)
    assert (found.as_task, found.as_program) == (169, 168) and "168 of 169" in found.reason
    flat = made.with_model(type(made.model)(made.model.config))
    with torch.no_grad():
        for own, other in zip(flat.model.parameters(), made.model.parameters(), strict=True):
            own.copy_(other)
        flat.model.unembed.W_U.add_(1e5)  # of all classes alike: the same margins
    small = certify(flat)
    assert small.as_task == 169 and small.safe < 169 and small.reason
    wrong = certify(made.with_model(made.untrained(0).model))
    assert wrong.as_task < 100 and f"{wrong.as_task} of 169" in wrong.reason


@pytest.mark.parametrize(("bits", "normed"), [("float32", True), ("bfloat16", False)])
def test_no_forward_is_off_by_more_than_its_bound(bits: str, normed: bool) -> None:
    """A network of the operations that are bounded, in a narrow type, its neurons in two orders."""
    narrow, draw = getattr(torch, bits), torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return (torch.randn(*shape, generator=draw) / 6).to(narrow)

    mask = torch.ones(6, 6, dtype=torch.bool).triu(1)

    def network(x: Tensor, w: dict[str, Tensor], gain: Tensor, order: Tensor) -> Tensor:
        y = x
        if normed:
            y = F.layer_norm(y, (32,), gain, gain) + 3
            y = y - y.mean(-1, keepdim=True)
            y = y / (y.pow(2).mean(-1, keepdim=True) + 1e-2).sqrt() * gain
        scores = torch.bmm(y @ w["q"], (y @ w["k"]).transpose(1, 2)) * 0.1
        y = scores.masked_fill(mask, -torch.inf).softmax(-1) @ (y @ w["v"]) + x
        hidden = F.gelu(y @ w["a"][:, order]) - F.relu(y @ w["b"][:, order])
        hidden = torch.addcmul(hidden, hidden, gain[order])
        return torch.baddbmm(x, hidden, w["u"][order].expand(40, 32, 32), alpha=1).sum(1)

    x, gain, w = drawn(40, 6, 32), drawn(32), {name: drawn(32, 32) for name in "qkvabu"}
    wide, order = {name: one.double() for name, one in w.items()}, torch.arange(32)
    with torch.no_grad(), RoundingBound(narrow) as bound:
        exact = network(x.double(), wide, gain.double(), order)
    error = bound.of(exact)
    assert bool(error.isfinite().all())
    for other in (order, torch.randperm(32, generator=draw)):
        off = (network(x, w, gain, other).double() - exact).abs()
        assert bool((off <= error).all()) and float((off / error).max()) > 1e-6


GAIN = torch.rand(16, generator=torch.Generator().manual_seed(2)) + 1
OPERATIONS = {
    "softmax": lambda x: x.softmax(-1),
    "gelu": F.gelu,
    "relu": F.relu,
    "layer norm": lambda x: F.layer_norm(x, (16,), GAIN.to(x), GAIN.to(x)),
    "sum": lambda x: x + 1.0,
    "sum with a factor": lambda x: torch.add(GAIN.to(x), x, alpha=0.5),
    "product and sum": lambda x: torch.addcmul(GAIN.to(x), x, GAIN.to(x)),
    "product": lambda x: x * x,
    "ratio": lambda x: 1.5 * x / (x * x + 2.0),
    "root": lambda x: (x * x + 1.0).sqrt(),
    "mean": lambda x: x.mean(-1),
    "total": lambda x: x.sum(0),
    "matrices": lambda x: x @ x.T,
    "a matrix by another": lambda x: x @ torch.ones(16, 4).to(x),
    "matrices and sum": lambda x: torch.addmm(x[:, :1], x, x.T),
    "filled": lambda x: x.masked_fill(torch.ones(64, 16).tril() == 0, 3.0),
}


@pytest.mark.parametrize("beside", [0.0, 1000.0])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_bounded_near_what_it_is_off_by(name: str, beside: float) -> None:
    """By its own rounding, and by that of a sum with larger numbers before, which goes on."""
    x = torch.randn(64, 16, generator=torch.Generator().manual_seed(3))

    def rounded(x: Tensor) -> Tensor:
        return OPERATIONS[name]((x + beside) - beside if beside else x)

    with RoundingBound(torch.float32) as bound:
        exact = rounded(x.double())
    off, error = (rounded(x).double() - exact).abs(), bound.of(exact)
    assert bool((off <= error).all()) and bool(error.isfinite().all())
    if beside or name not in ("relu", "filled"):  # alone these are exact
        assert float((off / error.clamp(min=1e-12)).max()) > 0.003


def test_what_is_decided_by_numbers_that_round_is_not_bounded() -> None:
    x = torch.randn(3, 3).double()
    for operation in (
        lambda x: x[x.argmax(1)],
        lambda x: torch.where(x > 0, x, 0.0),
        lambda x: x.float().double(),
        lambda x: x.add_(1.0),
        torch.erf,
    ):
        with RoundingBound(torch.float32), pytest.raises(MechintError, match="not bounded"):
            operation(x + 1)
    with RoundingBound(torch.float32), pytest.raises(MechintError, match="not bounded"):
        torch.ones(3).double().bfloat16()


@pytest.mark.parametrize(
    ("operation", "least"),
    [
        (lambda x: x @ x.T, 1e-23),
        (lambda x: x * x, 1e-23),
        (lambda x: x.softmax(-1)[:, :1], -110.0),
        (lambda x: torch.addcmul(x[:, 1:], x, x), 1e-23),
    ],
)
def test_an_error_of_what_underflows_is_bounded(operation: Any, least: float) -> None:
    """Small numbers are zero in float32, which what follows would make large again."""
    x = torch.tensor([[least, 0.0]])

    def network(x: Tensor) -> Tensor:
        return operation(x)[:, :1] * 1e38 * 1e8

    with RoundingBound(torch.float32) as bound:
        exact = network(x.double())
    assert float(network(x)) == 0 < float(exact) <= float(bound.of(exact)) < torch.inf


def test_what_is_no_whole_population_is_refused_with_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = planted.modular_addition(13, (2, 5)).subject
    monkeypatch.setattr(certificate, "MAX_INPUTS", 168)
    rows = [{"prompt": [a, b, 29]} for a, b in itertools.product(range(8), range(8))]
    clock = mechint.example("clock.pt")
    for words, subject in (
        ("at most 168 inputs; got 169", made),
        ("expected a number", made.with_answer("all")),
        ("got max-of-list", mechint.load(mechint.example("maximum.pt"))),
        ("got 63 that are not all", mechint.load(clock, data=rows[:-1])),
    ):
        with pytest.raises(MechintError, match=words):
            certify(subject)
    whole = certify(mechint.load(clock, data=rows))
    assert (whole.n, whole.as_task, whole.reason) == (64, 64, "")


def test_of_half_a_group_a_program_answers_half() -> None:
    """A program of some inputs, as of products by logarithms, says nothing of the others."""
    made = planted.modular_addition(13, (2, 5)).subject
    best = explain(made, family="frequencies")[0].explanation
    assert certify(made, best).as_program == 169
    some = dataclasses.replace(best, among=lambda values: next(iter(values.values())) > 0)
    found = certify(made, some)
    assert (found.as_task, found.as_program) == (169, 156)


# --- modules that are wrapped ---------------------------------------------------------------------
def balanced(*row: int) -> int:
    """1 where a row of brackets, 0 and 1, is balanced."""
    depth = list(itertools.accumulate(1 - 2 * one for one in row))
    return int(min(depth) >= 0 and depth[-1] == 0)


class Loose(nn.Module):
    """Logits by an operation without a rule where the first bracket of a batch is open."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.down = nn.Embedding(2, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.down(self.token(tokens)).sum(1)
        return logits if int(tokens[0, 0]) else torch.tanh(logits)


def test_inputs_without_a_bound_leave_the_others_without_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first of two batches is not bounded, the second is."""
    monkeypatch.setattr(certificate, "CHUNK", 8)
    wrapped = mechint.wrap(Loose().eval(), hooks={"hook_embed": "token"})
    task = Task.of(inputs=[*itertools.product((0, 1), repeat=4)], answer=balanced)
    found = certify(Subject(wrapped, task))
    assert (found.n, found.rounding, found.safe) == (16, None, 0)
    assert "tanh" in found.trust["rounding"]
