"""Prompts that say values of causal variables: what `linear` and `das` are asked about."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable

import pytest
import torch

import mechint
import probes
from mechint.errors import DataError, NotApplicableError
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.task import IGNORE
from tests.prompts.test_by_pair import EVEN, ODD, asked


def test_values_and_labels_are_those_of_the_prompts() -> None:
    task = asked(variables=True).task
    assert task is not None
    variable, tokens = task.variables["parity"], task.sample(16, 0).tokens
    assert variable.n_values == 2
    assert torch.equal(variable.value_of(tokens), tokens[:, 0] % 2)
    other = 1 - variable.value_of(tokens)
    changed = variable.change(tokens, other)
    assert torch.equal(variable.value_of(changed), other)
    labels = variable.label(tokens, other)
    assert (labels[:, 0] == IGNORE).all()
    assert labels[:, 1, 0].tolist() == [ODD if even else EVEN for even in other.tolist()]


def test_linear_reads_the_variable_where_attention_has_written_it() -> None:
    result = probes.run("linear", asked(variables=True), permutations=99)
    assert result.metrics["linear.parity.best_at"] == "L0 attention"
    assert result.metrics["linear.parity.accuracy"] == 1


def test_das_finds_one_dimension_that_swaps_it() -> None:
    few = {"pairs": 24, "held_out": 16, "steps": 60, "dimensions": (1,), "null_samples": 49}
    result = probes.run("das", asked(variables=True), variable="parity", **few)
    assert result.metrics["iia"] == pytest.approx(1)


def test_a_variable_that_not_every_prompt_has_is_none() -> None:
    task = asked(variables=True).task
    assert isinstance(task, Prompts)
    first, *others = str(task.text).splitlines()
    row = json.loads(first)
    del row["variables"]
    text = "\n".join([json.dumps(row | {"prompt": [12, 18]}), *others])
    assert set(dataclasses.replace(task, text=text).variables) == {"prompt"}


def test_variables_are_names_and_values() -> None:
    for given in ([1], {"a": [1]}, {"prompt": 1}):
        text = json.dumps({"prompt": [1, 2], "answer": 3, "variables": given})
        with pytest.raises(DataError, match="variables"):
            _ = Prompts(text=text, vocab_size=9).prompts


def numbered(count: int, **variables: Callable[[int], object]) -> Subject:
    rows = itertools.product(range(8), repeat=4)
    prompts = [
        {"prompt": [*row], "variables": {name: of(i) for name, of in variables.items()}}
        for i, row in enumerate(itertools.islice(rows, count))
    ]
    return mechint.load(mechint.example("maximum.pt"), data=prompts)


def test_a_variable_with_one_value_is_left_out_and_alone_refused() -> None:
    subject = numbered(40, same=lambda i: "c", other=lambda i: i % 2)
    assert "linear.same.accuracy" not in probes.run("linear", subject, permutations=19).metrics
    for one, settings in (
        (subject, {"variable": "same"}),
        (subject, {"variable": "same", "kind": "number"}),
        (numbered(40, same=lambda i: "c"), {}),
    ):
        with pytest.raises(NotApplicableError, match="'same' has one value in all examples"):
            probes.run("linear", one, **settings)


def test_pairs_that_no_prompt_states_are_one_line() -> None:
    for name in ("patching", "das"):
        with pytest.raises(DataError, match="no prompt has a counterfactual, in which 'other' has"):
            probes.run(name, numbered(40, other=lambda i: i % 2), variable="other")


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_prompts_for_a_program_are_not_tested(count: int) -> None:
    (found, *_) = mechint.explain(numbered(count))
    assert found.standing == "untested"
