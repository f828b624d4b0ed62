"""Prompts that say values of causal variables: what `linear` and `das` are asked about."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch

import probes
from mechint.errors import DataError
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.task import IGNORE
from tests.prompts.test_by_pair import EVEN, ODD, asked


def with_parity(folder: Path) -> Subject:
    """The model and pairs of `asked`, whose prompts say whether their first token is even."""
    subject = asked(folder)
    file = folder / "pairs.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        row["variables"] = {"parity": "even"}
        row["counterfactual"]["variables"] = {"parity": "odd"}
    file.write_text("\n".join(map(json.dumps, rows)))
    return Subject(subject.model, Prompts(path=str(file), vocab_size=19))


def test_values_and_labels_are_those_of_the_prompts(tmp_path: Path) -> None:
    task = with_parity(tmp_path).task
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


def test_linear_reads_the_variable_where_attention_has_written_it(tmp_path: Path) -> None:
    result = probes.run("linear", with_parity(tmp_path), permutations=99)
    assert result.metrics["linear.parity.best_at"] == "L0 attention"
    assert result.metrics["linear.parity.accuracy"] == 1


def test_das_finds_one_dimension_that_swaps_it(tmp_path: Path) -> None:
    few = {"pairs": 24, "held_out": 16, "steps": 60, "dimensions": (1,), "null_samples": 49}
    result = probes.run("das", with_parity(tmp_path), variable="parity", **few)
    assert result.metrics["iia"] == pytest.approx(1)


def test_a_variable_that_not_every_prompt_has_is_none(tmp_path: Path) -> None:
    task = with_parity(tmp_path).task
    assert isinstance(task, Prompts)
    first, *others = Path(task.path).read_text().splitlines()
    row = json.loads(first)
    del row["variables"]
    text = "\n".join([json.dumps(row | {"prompt": [12, 18]}), *others])
    assert set(dataclasses.replace(task, text=text).variables) == {"prompt"}


def test_variables_are_names_and_values(tmp_path: Path) -> None:
    for given in ([1], {"a": [1]}, {"prompt": 1}):
        text = json.dumps({"prompt": [1, 2], "answer": 3, "variables": given})
        with pytest.raises(DataError, match="variables"):
            _ = Prompts(text=text, vocab_size=9).prompts
