"""Pairs for interchange interventions: drawn from the task, kept where a model answers them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

import tasks
from mechint.config import ModelConfig
from mechint.errors import DataError, NotApplicableError, UnknownNameError
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject
from mechint.subject.counterfactuals import answered, choose_variable, draw
from mechint.subject.pairs import told_apart
from mechint.task import IGNORE, Relation, Variable


def untrained(task: Any, **shape: Any) -> Subject:
    config = ModelConfig.for_task(task, **{"d_model": 8, "n_heads": 1, **shape})
    return Subject(HookedTransformer(config, seed=0), task)


class Solver(HookedRootModule):
    """Answers as its task does, but for the share of inputs it is told to get wrong."""

    def __init__(self, task: Any, wrong: float = 0.0) -> None:
        super().__init__()
        self.task, self.wrong = task, wrong
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.hook_logits = HookPoint()
        self.setup()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        targets = self.task.batch_of(tokens).targets.clamp_min(0)
        right = torch.rand(len(tokens), generator=torch.Generator().manual_seed(len(tokens)))
        targets = torch.where(right[:, None, None] < self.wrong, 0, targets)
        sizes = [output.n_classes for output in self.task.outputs]
        hot = [torch.nn.functional.one_hot(targets[..., i], n) for i, n in enumerate(sizes)]
        return self.hook_logits(torch.cat(hot, -1).float())


def solved(task: Any, wrong: float = 0.0) -> Subject:
    return untrained(task).with_model(Solver(task, wrong))


LISTOPS = {"depth": 2, "operations": ["MAX", "MED"], "chain_of_thought": False}


@pytest.mark.parametrize("relation", list(Relation))
def test_a_solved_listops_has_pairs_at_its_digit(relation: Relation) -> None:
    """The position of the answer varies with the length of the expression; its end does not."""
    task = tasks.make("listops", **LISTOPS)
    subject = solved(task)
    pairs = draw(subject, task.variables["answer"], 64, 0, relation=relation)
    assert len(pairs) == 64 and len(set(pairs.reads.tolist())) > 1
    equals = task.vocabulary.ids["="]
    assert (pairs.base.gather(1, pairs.reads[:, None]) == equals).all()
    assert (pairs.source.gather(1, pairs.source_reads[:, None]) == equals).all()
    assert (pairs.labels < 10).all() and (pairs.labels == pairs.source_answers).all()
    if relation == Relation.MINIMAL:
        expressions = [task.notation.expression(task.text(row)) for row in pairs.base]
        sources = [task.notation.expression(task.text(row)) for row in pairs.source]
        for one, other in zip(expressions, sources, strict=True):
            assert sum(a != b for a, b in zip(one, other, strict=True)) == 1
    if relation == Relation.SAME:
        assert not pairs.changed.any() and (pairs.base != pairs.source).any(1).all()


CASES = {
    "remainders": ({"p": 11}, "mod 3"),
    "modular-arithmetic": ({"p": 11}, "answer"),
    "composition": ({"n": 5, "k": 4}, "4-hop of 3"),
    "listops": ({"depth": 3}, "operand_1"),
}


@pytest.mark.parametrize("name", CASES)
def test_variables_without_positions_differ_in_little_else(name: str) -> None:
    parameters, variable = CASES[name]
    task = tasks.make(name, **parameters)
    pairs = task.counterfactuals(variable, 40, seed=1)
    distance = (pairs.base.tokens != pairs.source.tokens).sum(1)
    wholly = task.counterfactuals(variable, 40, seed=1, relation="independent")
    usual = (wholly.base.tokens != wholly.source.tokens).sum(1)
    assert (pairs.values != pairs.variable.value_of(pairs.base.tokens)).all()
    if name == "listops":  # the chain of thought follows
        expressions = [
            [task.notation.expression(task.text(row)) for row in part.tokens]
            for part in (pairs.base, pairs.source)
        ]
        differing = [
            sum(a != b for a, b in zip(*both, strict=True))
            for both in zip(*expressions, strict=True)
        ]
        assert differing == [1] * 40
    elif name == "composition":
        assert (distance == 2).all()  # two images of one permutation swapped
    else:
        assert (distance == 1).all()
    assert distance.double().mean() < usual.double().mean()


def test_an_answer_that_cannot_depend_on_the_variable_is_refused() -> None:
    task = tasks.make("composition", n=5, k=4, hops=(1, 2))
    with pytest.raises(
        NotApplicableError,
        match=r"answer 19 \(from 3:4\) cannot depend on the var"
        r"iable 2-hop of 3; ask about answer 3 \(from 0:3\)",
    ):
        task.counterfactuals("2-hop of 3", 8, 0, answer=-1)
    with pytest.raises(NotApplicableError, match="cannot depend"):
        draw(untrained(task), task.variables["2-hop of 3"], 8, 0, answer=4)
    pairs = draw(solved(task), task.variables["2-hop of 3"], 8, 0, relation="minimal")
    assert (pairs.reads == 3).all()


def test_too_few_pairs_say_which_were_missing() -> None:
    few = tasks.make("modular-arithmetic", p=3)
    # nine inputs, in each of which x has two other values
    with pytest.raises(DataError, match="too many of them alike; ask for at most 18 in all"):
        draw(solved(few), few.variables["x"], 64, 0, relation="minimal")
    assert len(draw(solved(few), few.variables["x"], 18, 0, relation="minimal")) == 18
    task = tasks.make("modular-arithmetic", p=13)
    with pytest.raises(
        DataError,
        match=r"of 640 drawn \d+ change the answer, \d+ of these are "
        "answered correctly; train the model further, or set only_correct=false",
    ):
        draw(solved(task, wrong=1.0), task.variables["x"], 16, 0, relation="minimal")
    constant = tasks.make("modular-arithmetic", p=5, table=[[2] * 5] * 5)
    with pytest.raises(DataError, match="none can change the answer; ask about another variable"):
        draw(solved(constant), constant.variables["x"], 16, 0, relation="minimal")
    with pytest.raises(DataError, match="this answer does not depend on it"):
        constant.counterfactuals("x", 4, 0)


def test_pairs_are_different_and_at_most_half_leave_the_answer() -> None:
    task = tasks.make("comparison", n=12)
    pairs = draw(solved(task), choose_variable(task, None), 64, 0)
    both = torch.cat([pairs.base, pairs.source], 1)
    assert len(both.unique(dim=0)) == 64
    assert (~pairs.changed.any(1)).sum() <= 32
    with pytest.raises(UnknownNameError, match="rank of c"):
        choose_variable(task, "rank of c")


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(["x", "y", "answer"]), st.integers(0, 50), st.integers(3, 20))
def test_pairs_of_the_same_value_agree_in_it_alone(variable: str, seed: int, p: int) -> None:
    task = tasks.make("modular-arithmetic", p=p)
    pairs = task.counterfactuals(variable, 12, seed, relation="same")
    value_of = pairs.variable.value_of
    assert torch.equal(value_of(pairs.base.tokens), value_of(pairs.source.tokens))
    assert torch.equal(pairs.labels, pairs.base.targets)
    assert (pairs.base.tokens != pairs.source.tokens).any(1).all()


@pytest.mark.parametrize("relation", ["independent", "same"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_pairs_of_a_split_stay_in_it(relation: str, split: str) -> None:
    task = tasks.make("modular-arithmetic", p=13)
    for split_seed in (0, 4):
        part = task.split(split_seed)[split]
        inside = set(map(tuple, task.examples()[part].tokens.tolist()))
        for seed in (0, 3):
            pairs = task.counterfactuals(
                "answer", 40, seed, relation=relation, split=split, split_seed=split_seed
            )
            drawn = torch.cat([pairs.base.tokens, pairs.source.tokens])
            assert set(map(tuple, drawn.tolist())) <= inside


def test_only_answered_pairs_are_kept() -> None:
    task = tasks.make("modular-arithmetic", p=13)
    subject = solved(task, wrong=0.4)
    pairs = draw(subject, task.variables["x"], 32, 0, only_correct=False)
    every = Solver(task)
    assert answered(solved(task), pairs).all()
    hits = every(pairs.base).argmax(-1)[torch.arange(32), pairs.reads]
    assert torch.equal(hits, pairs.answers[:, 0]) and (pairs.answers != IGNORE).all()
    assert not answered(solved(task, wrong=1.0), pairs).all()


@given(p=st.integers(5, 13), modulus=st.integers(1, 6))
@settings(max_examples=20, deadline=None)
def test_values_are_told_apart_by_the_answers_alone(p: int, modulus: int) -> None:
    """Of x in (x + y) mod m its residue mod m; of x in (x + y) mod p all of it."""
    task = tasks.modular_arithmetic(p=p)
    variable = task.variables["x"]
    pairs = draw(untrained(task), variable, 3 * p, 0, only_correct=False)
    values = len(set(pairs.base[:, 0].tolist()) | set(pairs.source[:, 0].tolist()))
    assert told_apart(variable, pairs) == (values, values)

    def label(tokens: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        return ((given + tokens[:, 1]) % modulus)[:, None, None].expand(*tokens.shape, 1)

    coarse = Variable("x", p, "the first operand", variable.value_of, label)
    residues = {int(x) % modulus for x in torch.cat([pairs.base[:, 0], pairs.source[:, 0]])}
    assert told_apart(coarse, pairs) == (len(residues), values)
