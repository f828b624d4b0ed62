"""Elements that stand in another order than their tokens: a model and its twin whose tokens are
renamed to their ranks are the same function, and the probes say the same of both.
"""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch

from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._progress.probe import gini
from probes.operands import (
    by_element,
    element_places,
    operand_rows,
    operand_tokens,
)

P = 13


@pytest.fixture(scope="module")
def twins() -> tuple[Subject, Subject]:
    """A plant of addition, and the same with its tokens renamed, on the task of hidden ranks."""
    plant = planted.modular_addition(P, (2, 5), noise=0.05, rotation_seed=1, seed=1).subject
    task = TASKS["hidden-addition"](n=P, equals=True)
    model = copy.deepcopy(plant.model)
    with torch.no_grad():
        model.embed.W_E[:P] = plant.model.W_E[task.ranks]
    return plant, Subject(model, task)


def test_examples_and_elements_go_both_ways(twins: tuple[Subject, Subject]) -> None:
    _, hidden = twins
    ranks = hidden.task.ranks  # type: ignore[union-attr]
    assert ranks[element_places(hidden)].tolist() == list(range(P)) != ranks.tolist()
    products = torch.add(torch.arange(P)[:, None], torch.arange(P)) % P
    assert torch.equal(by_element(hidden, hidden.targets[:, 0]), products)
    assert operand_tokens(hidden)[0] == list(hidden.task.symmetry.tokens)  # type: ignore[union-attr]
    left, right = operand_rows(hidden)
    assert right is None and torch.equal(left, operand_rows(twins[0])[0])


def test_operands_without_a_named_order_stand_as_in_the_grid() -> None:
    for name, parameters in (
        ("modular-arithmetic", {"p": 7, "operation": "multiply"}),  # the group leaves out 0
        ("comparison", {"n": 7}),  # the group does not act on the answers
    ):
        task = TASKS[name](**parameters)
        subject = planted.modular_addition(7, (1,)).subject
        subject = Subject(subject.model, task) if task.d_vocab == 8 else subject
        assert element_places(subject).tolist() == list(range(7))


ANGLES = {k: 2 * math.pi * k / P * torch.arange(P) for k in range(1, P // 2 + 1)}
WAVES = {k: (2 / P) ** 0.5 * torch.stack([a.cos(), a.sin()]) for k, a in ANGLES.items()}


@pytest.fixture(scope="module")
def own_tokens() -> Subject:
    """A plant of addition whose second operand has tokens of its own, with a circle beside them
    that nothing reads in the first operand's.
    """
    plant = planted.modular_addition(P, (2, 5), noise=0.05, rotation_seed=1, seed=1).subject.model
    task = TASKS["modular-arithmetic"](p=P, separate_vocabulary=True)
    model = HookedTransformer(ModelConfig(**{**plant.config.to_dict(), "d_vocab": task.d_vocab}))
    state = {name: value.detach().clone() for name, value in plant.weights().items()}
    rows = state["embed.W_E"]
    second = rows[:P] + 0.3 * rows[:P].std() * WAVES[3].T @ torch.randn(
        2, rows.shape[1], generator=torch.Generator().manual_seed(0)
    ).to(rows)
    model.load_weights({**state, "embed.W_E": torch.cat([rows[:P], second, rows[P:]])})
    return Subject(model, task)


def test_fourier_removes_a_frequency_from_both_operands_own_tokens(own_tokens: Subject) -> None:
    """By the weights: it was taken out of the first operand's rows and said of "the embedding"."""
    metrics = probe.run("fourier", own_tokens, permutations=499, removal_samples=9).metrics
    weights = own_tokens.model.W_E.detach()
    rows = torch.cat([weights[:P], weights[P : 2 * P]], 1).double()
    total = float((rows - rows.mean(0)).square().sum())
    shares = {k: float((wave.double() @ rows).square().sum()) / total for k, wave in WAVES.items()}
    assert metrics["embedding.share"] == pytest.approx(shares, abs=1e-6)
    assert {2, 5} <= {*metrics["embedding.removal"]}
    for k, rise in metrics["embedding.removal"].items():
        losses = []
        for starts in ((0,), (0, P)):
            model = copy.deepcopy(own_tokens.model)
            with torch.no_grad():
                for start in starts:
                    part = model.embed.W_E[start : start + P]
                    part.sub_(WAVES[k].T @ (WAVES[k] @ part))
            losses.append(own_tokens.with_model(model).loss()["answer"])
        assert metrics["loss"] + rise == pytest.approx(losses[1], rel=1e-4)
        assert k not in (2, 5) or abs(losses[1] - losses[0]) > 0.01
    spread = gini(np.sqrt(total * np.array(list(shares.values()))))
    found = probe.run("progress", own_tokens, samples=1).metrics["embedding.gini"]
    assert found == pytest.approx(spread, abs=1e-5)
