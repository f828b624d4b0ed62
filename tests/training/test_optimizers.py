"""Muon, StableMax and ⊥Grad against their papers' formulas, alone and in ensembles."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tasks
from mechint.config import TrainConfig
from mechint.training.learners import combined, cross_entropies, stablemax
from mechint.training.optimizer import FlatParameters, Optimizer, orthogonalize

ADDITION = tasks.make("modular-arithmetic", p=7, train_fraction=0.6)
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 32}
BRIEF = {"steps": 30, "evaluate_every": 10, "lr": 5e-3, "checkpoints": None}


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


# --- Muon -----------------------------------------------------------------------------------------
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 99))
def test_the_iteration_maps_singular_values_by_its_polynomial(rows, cols, seed) -> None:
    """Newton-Schulz changes singular values alone: each follows x → ax + bx³ + cx⁵."""
    matrix = drawn(rows, cols, seed=seed)
    u, values, vh = torch.linalg.svd(matrix, full_matrices=False)
    values = values / matrix.norm()
    for _ in range(5):
        values = 3.4445 * values - 4.7750 * values**3 + 2.0315 * values**5
    assert torch.allclose(orthogonalize(matrix), u @ values.diag() @ vh, atol=1e-5)


def muon_by_hand(
    start: torch.Tensor, gradients: list[torch.Tensor], config: TrainConfig
) -> torch.Tensor:
    """Jordan's loop, a matrix (in, out) at a time."""
    weight, momentum = start.clone(), torch.zeros_like(start)
    for gradient in gradients:
        momentum = config.muon_momentum * momentum + gradient
        update = orthogonalize(gradient + config.muon_momentum * momentum)
        scale = math.sqrt(max(1, start.shape[1] / start.shape[0]))
        weight = weight * (1 - config.muon_lr * config.weight_decay)
        weight = weight - config.muon_lr * scale * update
    return weight


def test_muon_moves_hidden_matrices_and_adamw_the_rest() -> None:
    config = TrainConfig(optimizer="muon", lr=0.1, muon_lr=0.02, weight_decay=0.3, warmup=0)
    names = ["embed.W_E", "blocks.0.mlp.W_in", "blocks.0.mlp.b_in"]
    shapes = [(5, 4), (6, 3), (3,)]
    start = {n: drawn(*s, seed=i) for i, (n, s) in enumerate(zip(names, shapes, strict=True))}
    flat = FlatParameters([start, {n: -v for n, v in start.items()}], dtype=torch.float64)
    optimizer = Optimizer([config, config], flat)
    theirs = {n: torch.nn.Parameter(start[n].clone()) for n in ("embed.W_E", "blocks.0.mlp.b_in")}
    adamw = torch.optim.AdamW(theirs.values(), lr=0.1, betas=config.betas, weight_decay=0.3)
    seen = []
    for step in range(4):
        gradients = {n: drawn(*s, seed=10 + step) for n, s in zip(names, shapes, strict=True)}
        row = torch.cat([gradients[n].flatten() for n in names])
        flat.grad.copy_(torch.stack([row, 2 * row]))
        for name, parameter in theirs.items():
            parameter.grad = gradients[name].clone()
        seen.append(gradients["blocks.0.mlp.W_in"])
        optimizer.apply()
        adamw.step()
    ours = {n: flat.views[n][0].detach() for n in names}
    expected = muon_by_hand(start["blocks.0.mlp.W_in"], seen, config)
    assert torch.allclose(ours["blocks.0.mlp.W_in"], expected, atol=1e-8)
    for name, parameter in theirs.items():
        assert torch.allclose(ours[name], parameter.detach(), atol=1e-10)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("blocks.0.mlp.W_in", (4, 16)), ("blocks.0.mlp.W_out", (16, 4)), ("W", (16, 4))],
)
def test_a_step_is_that_of_torch(name: str, shape: tuple[int, int]) -> None:
    """torch.nn.Linear keeps (out, in), as a two-layer network does, and torch iterates in
    bfloat16.
    """
    config = TrainConfig(optimizer="muon", muon_lr=1.0, muon_momentum=0.95, weight_decay=0.0)
    start, gradient = drawn(*shape), drawn(*shape, seed=1)
    flat = FlatParameters([{name: start}], dtype=torch.float64)
    flat.grad.copy_(gradient.flatten()[None])
    optimizer = Optimizer([dataclasses.replace(config, warmup=0)], flat)
    optimizer.apply()
    ours = flat.views[name][0].detach() - start
    out_in = (lambda x: x) if name == "W" else (lambda x: x.mT)
    theirs = torch.nn.Parameter(out_in(start).clone())
    theirs.grad = out_in(gradient).clone()
    torch.optim.Muon([theirs], lr=1.0, weight_decay=0.0, adjust_lr_fn="original").step()
    moved = out_in(theirs.detach()) - start
    assert float(ours.norm() / moved.norm()) == pytest.approx(1, abs=0.02)
    assert float((ours * moved).sum() / ours.norm() / moved.norm()) > 0.999


# --- StableMax ------------------------------------------------------------------------------------
@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8), st.integers(0, 7))
def test_stablemax_is_the_papers(logits: list[float], target: int) -> None:
    target %= len(logits)
    s = [x + 1 if x >= 0 else 1 / (1 - x) for x in logits]
    expected = [math.log(value / sum(s)) for value in s]
    row = torch.tensor(logits, dtype=torch.float64)
    assert stablemax(row).tolist() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    loss = cross_entropies(
        row[None, None], torch.tensor([[[target]]]), None, (len(logits),), "stablemax"
    )
    assert float(loss) == pytest.approx(-expected[target], rel=1e-9, abs=1e-9)


def test_stablemax_still_has_gradients_where_softmax_has_none() -> None:
    logits = torch.tensor([[[200.0, 0.0, 0.0]]], requires_grad=True)
    target = torch.zeros(1, 1, 1, dtype=torch.int64)
    for kind, alive in (("softmax", False), ("stablemax", True)):
        (gradient,) = torch.autograd.grad(
            cross_entropies(logits, target, None, (3,), kind).sum(), logits
        )
        assert bool(gradient.abs().max() > 0) == alive


# --- ⊥Grad ----------------------------------------------------------------------------------------
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 99))
def test_the_gradient_loses_its_part_along_the_weights(seed: int) -> None:
    start = {"W": drawn(3, 2, seed=seed), "b": drawn(4, seed=seed + 1)}
    config = TrainConfig(optimizer="sgd", lr=1.0, weight_decay=0.0, warmup=0, orthogonal_grad=True)
    flat = FlatParameters([start], dtype=torch.float64)
    gradients = {"W": drawn(3, 2, seed=seed + 2), "b": drawn(4, seed=seed + 3)}
    flat.grad.copy_(torch.cat([value.flatten() for value in gradients.values()]))
    optimizer = Optimizer([config], flat)
    optimizer.apply()
    for name, theta in start.items():
        along = (theta * gradients[name]).sum() / (theta * theta).sum()
        moved = flat.views[name][0].detach() - theta
        assert torch.allclose(moved, -(gradients[name] - along * theta))
        assert abs(float((moved * theta).sum())) < 1e-10


def test_losses_over_ln_q_are_those_of_one_division():
    sizes = (2, 3, 5, 97)
    each = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    expected = [
        sum(float(x) / math.log(q) for x, q in zip(row, sizes, strict=True)) for row in each
    ]
    assert combined(each, sizes, "log").tolist() == pytest.approx(expected, rel=1e-6)
