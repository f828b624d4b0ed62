"""Pairs held out of prompts: no prompt of a held-out pair was trained on, and a subspace that
knows its prompts one by one is not taken for one that holds what they share.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import probes
from mechint import planted
from mechint.config import ModelConfig
from mechint.errors import DataError
from mechint.models.transformer import HookedTransformer
from mechint.prompts import Prompts
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.subject.pairs import Pairs
from mechint.task.sides import divide
from probes._circuits.choosing import paired, split
from probes._das import SwapSite, fit, interchange_accuracy
from probes._das.search import Drawn, draw_minimal, draw_pairs
from tests.prompts.mixed import mixed

N = 30
AT = "blocks.0.hook_resid_post"
SEARCH: dict[str, Any] = {"hook": AT, "steps": 60, "lr": 0.05, "control_seeds": 1}
SEARCH |= {"pairs": 300, "held_out": 90, "null_samples": 99}


def subject_of(
    rows: torch.Tensor, readout: torch.Tensor, answers: list[int], links: str
) -> Subject:
    """Prompts of one token each, embedded as `rows` (prompt, d_model), whose answers (logits) are
    read by `readout` (d_model, answer), and nothing between. links: "pairs", prompts 0 and 1, 2 and
    3, … are each other's counterfactuals; "ring", every prompt and the next one are.
    """
    (n, width), d_vocab = rows.shape, rows.shape[0] + readout.shape[1]

    def row(index: int) -> dict[str, Any]:
        return {"prompt": [index % n], "answer": n + answers[index % n]}

    linked = range(0, n, 2) if links == "pairs" else range(n)
    pairs = [row(index) | {"counterfactual": row(index + 1)} for index in linked]
    shape = {"n_layers": 1, "n_heads": 1, "d_mlp": 4, "n_ctx": 1}
    model = HookedTransformer(
        ModelConfig(**shape, d_model=width, d_vocab=d_vocab, d_vocab_out=d_vocab), seed=0
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.get_parameter("embed.W_E")[:n] = rows
        model.get_parameter("unembed.W_U")[:, n:] = readout
    subject = Subject(model, Prompts.of(pairs, None, d_vocab, 1))
    assert subject.accuracy() == {"next token": 1.0}
    return subject


def one_by_one(of: str, links: str = "pairs", n: int = N) -> Subject:
    """A model without any direction that prompts share: every prompt, or every prompt and its
    counterfactual, has a direction of its own, from which its own answer is read.
    """
    rows = torch.zeros(n, 128)
    if of == "prompt":
        rows[:, :n] = torch.eye(n)
    else:
        rows[torch.arange(n), torch.arange(n) // 2] = 1 - 2.0 * (torch.arange(n) % 2)
    return subject_of(rows, 10 * rows.T, list(range(n)), links)


def shared(n: int = 60) -> Subject:
    """Answers stand in six directions that all prompts share; beside them every prompt has one of
    its own, which nothing reads.
    """
    answers = [index % 6 for index in range(n)]
    rows = torch.zeros(n, 128)
    rows[torch.arange(n), torch.tensor(answers)] = 2
    rows[torch.arange(n), 6 + torch.arange(n)] = 1
    return subject_of(rows, 10 * torch.eye(128)[:, :6], answers, "pairs")


def prompts_in(subject: Subject, pairs: Pairs) -> set[int]:
    variable = choose_variable(subject.task, "prompt")
    return set(variable.value_of(torch.cat([pairs.base, pairs.source])).tolist())


# --- which prompts -------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.parametrize("seed", range(5))
def test_no_prompt_of_a_held_out_pair_is_in_a_training_pair(seed: int) -> None:
    subject = one_by_one("prompt")
    variable = choose_variable(subject.task, "prompt")
    drawn = draw_pairs(subject, variable, 300, 90, seed, True)
    trained, held_out = prompts_in(subject, drawn.train), prompts_in(subject, drawn.test)
    assert (len(drawn.train), len(drawn.test)) == (300, 90)
    assert (len(trained), len(held_out)) == (20, 10) and not trained & held_out
    # a prompt and its counterfactual, 2k and 2k + 1, are on one side
    assert {index ^ 1 for index in held_out} == held_out and drawn.apart
    assert drawn.unseen == 1.0 and drawn.examples == 10
    minimal = draw_minimal(subject, variable, 90, seed, True, drawn.fitted)
    assert minimal is not None and prompts_in(subject, minimal) == trained


def test_the_share_of_unseen_inputs_is_counted() -> None:
    """Of a task pairs are held out, not inputs."""
    subject = planted.comparison(n=12).subject
    drawn = draw_pairs(subject, choose_variable(subject.task, "rank of a"), 60, 40, 0, True)
    trained = torch.cat([drawn.train.base, drawn.train.source])
    by_hand = [
        not bool((trained == base).all(1).any() | (trained == source).all(1).any())
        for base, source in zip(drawn.test.base, drawn.test.source, strict=True)
    ]
    assert 0 < sum(by_hand) < 40 and drawn.unseen == sum(by_hand) / 40
    assert drawn.examples is None and drawn.fitted is None
    assert Drawn(drawn.train, drawn.train).unseen == 0


@given(
    st.integers(4, 40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=30),
    st.integers(2, 20),
    st.integers(0, 99),
)
@settings(deadline=None, max_examples=50)
def test_sides_are_a_partition_that_cuts_no_link_where_it_is_apart(
    n: int, links: list[tuple[int, int]], wanted: int, seed: int
) -> None:
    links, wanted = [(a % n, b % n) for a, b in links], min(wanted, n // 2)
    found = divide(n, links, wanted, seed)
    held, fitted = set(found.held_out.tolist()), set(found.fitted.tolist())
    assert held | fitted == set(range(n)) and not held & fitted
    assert 2 <= len(held) <= wanted
    if found.apart:
        assert all((a in held) == (b in held) for a, b in links)
        assert len(held) >= wanted / 2
    else:
        assert links and len(held) == wanted
    assert divide(n, [], wanted, seed).apart


# --- what a subspace that learned prompts one by one is worth ------------------------------------
@pytest.mark.full
@pytest.mark.parametrize("of", ["prompt", "counterfactuals"])
def test_prompts_learned_one_by_one_are_not_found(of: str) -> None:
    """Twenty dimensions hold all prompts that are trained on and none that is held out; held out by
    pair alone, as many as there are prompts hold every one.
    """
    subject = one_by_one(of)
    result = probes.run("das", subject, **SEARCH, dimensions=(20,))
    (trained,) = result.tables["sweep"].columns["iia_train"]
    assert trained == 1.0 and result.metrics["iia_full_swap"] == 1.0
    # no two prompts have one answer, so that chance is 0
    assert result.metrics["iia"] <= 0.1 and result.verdict == "no"
    assert (result.metrics["pairs_held_out"], result.metrics["examples_held_out"]) == (90, 10)
    assert result.metrics["inputs_unseen"] == 1.0 and result.metrics["counterfactuals_apart"]
    assert math.isnan(result.metrics["input_share"])

    pairs = draw(subject, choose_variable(subject.task, "prompt"), 390, 0)
    train, test = (SwapSite(subject, part, AT, None) for part in (pairs[:300], pairs[300:]))
    assert prompts_in(subject, pairs[300:]) <= prompts_in(subject, pairs[:300])
    leaking, _ = fit(train, subject.task, N, steps=60, batch_size=256, lr=0.05, seed=0)
    assert float(interchange_accuracy(subject, test, leaking).mean()) >= 0.95


@pytest.mark.full
def test_what_prompts_share_is_found() -> None:
    """Answers are held against the other of their pair, which a search in an untrained model meets
    in half of the pairs: 20 tell it from one that meets all, 10 do not.
    """
    search = SEARCH | {"dimensions": (5, 6)}
    result = probes.run("das", shared(n=120), **search)
    assert result.verdict == "yes", result.finding
    assert result.metrics["iia"] == 1.0 and result.metrics["inputs_unseen"] == 1.0
    for name in ("iia_above_arbitrary", "iia_above_untrained"):
        assert "corrected for 20 pairs that share no example" in result.null[name].how
    few = probes.run("das", shared(), **search)
    assert few.metrics["iia"] == 1.0 and few.metrics["iia_untrained"] >= 0.5
    assert few.verdict == "unclear" and "give more examples" in few.findings[0].reason


# --- circuits -------------------------------------------------------------------------------------
@pytest.mark.full
@pytest.mark.parametrize("ablation", ["mean", "counterfactual"])
def test_a_circuit_of_prompts_is_judged_on_others(ablation: str) -> None:
    """It was judged on all prompts of the file, called the possible ones, its own among them."""
    subject = mixed((3,), 8)
    search: dict[str, Any] = {"ablation": ablation, "method": "eap", "null_samples": 99}
    result = probes.run("circuits", subject, **search, threshold=0.5)
    assert not result.metrics["all_inputs"]
    assert result.metrics["pairs_judged"] == 8

    name = None if ablation == "mean" else "prompt"
    variable = None if name is None else choose_variable(subject.task, name)
    every, _ = paired(subject, ablation, variable, 64, 0, True)
    searched, judged, unseen = split(subject, every, 64, 64)
    assert len(every) == 16 and len(searched) == len(judged) == len(unseen) == 8
    before, after = prompts_in(subject, searched), prompts_in(subject, judged)
    assert len(before) == len(after) == 8 and not before & after


# --- too few prompts, or all of them joined -------------------------------------------------------
def test_few_held_out_prompts_abstain() -> None:
    subject = one_by_one("prompt", n=12)
    few = SEARCH | {"pairs": 40, "held_out": 12, "steps": 2}
    result = probes.run("das", subject, **few, dimensions=(1,))
    assert result.verdict == "unclear"
    assert result.metrics["examples_held_out"] == 4


def test_as_many_pairs_are_used_as_prompts_make() -> None:
    subject = one_by_one("prompt", n=12)
    variable = choose_variable(subject.task, "prompt")
    drawn = draw_pairs(subject, variable, 57, 13, 0, False)
    assert (len(drawn.train), len(drawn.test)) == (56, 12)
    tiny = one_by_one("prompt", n=2)
    with pytest.raises(DataError, match="give it more examples"):
        probes.run("das", tiny, pairs=2, held_out=2)
    four = subject.data[:4]
    with pytest.raises(DataError, match=r"12 of 13 pairs of 4 examples .*; ask for at most 12$"):
        draw(subject, variable, 13, 0, among=four)


def test_counterfactuals_that_join_all_prompts_are_said_to_be_cut() -> None:
    subject = one_by_one("prompt", "ring")
    variable = choose_variable(subject.task, "prompt")
    drawn = draw_pairs(subject, variable, 300, 90, 0, True)
    assert not drawn.apart and drawn.unseen == 1.0 and drawn.examples == 10
    result = probes.run("das", subject, **SEARCH | {"steps": 2}, dimensions=(1,))
    assert not result.metrics["counterfactuals_apart"]
