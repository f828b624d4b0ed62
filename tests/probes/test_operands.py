"""Elements that stand in another order than their tokens: a model and its twin whose tokens are
renamed to their ranks are the same function, and the probes say the same of both.
"""

from __future__ import annotations

import copy

import pytest
import torch

from mechint import planted, probe
from mechint.registry import TASKS
from mechint.subject import Subject
from probes.operands import by_element, by_example, element_places, operand_rows, operand_tokens

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


def test_the_twins_are_one_function(twins: tuple[Subject, Subject]) -> None:
    plain, hidden = twins
    assert hidden.accuracy()["answer"] == plain.accuracy()["answer"] > 0.9
    assert torch.equal(by_element(hidden, hidden.logits()), plain.grid(plain.logits()))


def test_examples_and_elements_go_both_ways(twins: tuple[Subject, Subject]) -> None:
    _, hidden = twins
    ranks = hidden.task.ranks  # type: ignore[union-attr]
    assert ranks[element_places(hidden)].tolist() == list(range(P)) != ranks.tolist()
    products = torch.add(torch.arange(P)[:, None], torch.arange(P)) % P
    assert torch.equal(by_element(hidden, hidden.targets[:, 0]), products)
    assert torch.equal(by_example(hidden, products), hidden.targets[:, 0])
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


def test_representations_are_those_of_the_twin(twins: tuple[Subject, Subject]) -> None:
    settings = {"permutations": 499, "removal_samples": 99}
    plain, hidden = (probe.run("irreps", subject, **settings) for subject in twins)
    assert plain.metrics["embedding.key_irreps"] == ["2", "5"]
    for name, value in plain.metrics.items():
        exact = isinstance(value, (str, list))
        expected = value if exact else pytest.approx(value, rel=1e-6, abs=1e-6)
        assert hidden.metrics[name] == expected, name
    own = [probe.run("irreps", subject, table="model", **settings) for subject in twins]
    assert own[1].metrics["logits.cosine"] == pytest.approx(own[0].metrics["logits.cosine"])


def test_clusters_of_neurons_are_those_of_the_twin(twins: tuple[Subject, Subject]) -> None:
    plain, hidden = (probe.run("neurons", subject) for subject in twins)
    assert set(plain.metrics["clusters"]) == {"2", "5"}
    assert hidden.metrics["clusters"] == plain.metrics["clusters"]
    assert hidden.metrics["mean_share"] == pytest.approx(plain.metrics["mean_share"])
    alignment = plain.metrics["phase_alignment"]
    assert hidden.metrics["phase_alignment"] == pytest.approx(alignment)
