"""Sentences of the weights under what would refute them: heads that write the next token, and
models rewritten without a change of what they answer.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping

import pytest
import torch

from mechint import planted, probe
from mechint.probe.results import Finding, ProbeResult
from mechint.subject import Subject

N = 10
SETTINGS = {"draws": 99}
WRITES, READS = {"W_E", "W_pos", "W_O"}, {"W_Q", "W_K", "W_V", "W_U"}

Weights = Mapping[str, torch.Tensor]


def induction(edit: Callable[[Weights], object] = lambda weights: None) -> tuple[Subject, int, int]:
    """The plant with edited weights, and its heads of the first and of the second layer."""
    plant = planted.induction_head(N, 5)
    subject = Subject(copy.deepcopy(plant.subject.model), plant.subject.task)
    with torch.no_grad():
        edit(subject.model.weights())
    heads = plant.truth["heads"]
    return subject, heads["previous token"][1], heads["induction"][1]


def next_token() -> torch.Tensor:
    """(token, class) rows and columns of sum zero, eigenvalues 0 and 1 to 2, and entries beside the
    diagonal ten times as large as those on it.
    """
    steps = torch.eye(N, N - 1, dtype=torch.float64).diff(dim=0, append=torch.zeros(1, N - 1))
    basis = torch.linalg.qr(steps - steps.mean(0))[0]
    triangular = torch.diag(torch.linspace(1, 2, N - 1)) + 10 * torch.diag(torch.ones(N - 2), 1)
    return basis @ triangular.double() @ basis.T


def about(result: ProbeResult, metric: str) -> Finding:
    """The finding that the null of `metric` decides."""
    (one,) = (one for one in result.findings if metric in one.tested)
    return one


def log_probabilities(subject: Subject) -> torch.Tensor:
    return subject.logits().log_softmax(-1)


@pytest.mark.parametrize("weight", ["W_V", "W_Q"])
def test_eigenvalues_alone_neither_copy_nor_match(weight: str) -> None:
    """Nearly every token attended to, or asked for, is another one than the head's own."""
    full = next_token()
    values = torch.linalg.eigvals(full)
    assert values.real.sum() / values.abs().sum() == pytest.approx(1, abs=1e-3)
    assert (full.argmax(1) == torch.arange(N)).double().mean() < 0.3
    _, _, head = induction()

    def edit(weights: Weights) -> None:
        into = weights[f"blocks.1.attn.{weight}"][head, :N, :N]
        into.copy_(full * into[0, 0])

    subject, _, head = induction(edit)
    assert subject.accuracy()["next"] < 0.7
    result = probe.run("weights", subject, **SETTINGS)
    metric = {"W_V": "copying", "W_Q": "matching"}[weight]
    assert result.metrics[metric] > 0.9 and result.null[metric].p_value <= 0.01
    assert result.metrics[f"{metric}.own"] < 0.3
    assert about(result, metric).verdict == "no"


def shifted_logits(weights: Weights) -> None:
    """Every class's logit by as much."""
    answers = weights["unembed.W_U"].sum(1, keepdim=True)
    weights["unembed.W_U"].sub_(answers)


def shifted_embedding(weights: Weights) -> None:
    """A part of the token embedding that stands in the position embedding instead."""
    shift = 5 * weights["embed.W_E"].mean(0) - 3 * weights["embed.W_E"][2]
    weights["embed.W_E"].add_(shift)
    weights["pos_embed.W_pos"].sub_(shift)


@pytest.mark.parametrize("edit", [shifted_logits, shifted_embedding])
def test_what_no_answer_shows_changes_no_verdict(edit: Callable[[Weights], None]) -> None:
    before, first, second = induction()
    after, *_ = induction(edit)
    assert torch.allclose(log_probabilities(before), log_probabilities(after), atol=1e-3)
    one, other = (probe.run("weights", each, **SETTINGS) for each in (before, after))
    for result in (one, other):
        copies, matches = about(result, "copying"), about(result, "matching")
        assert copies.verdict == matches.verdict == "yes"
        assert f"L1H{second}" in copies.headline and copies.effect is not None
        assert copies.effect.value == pytest.approx(1, abs=1e-3)
        assert f"L0H{first}" in matches.headline and result.metrics["matching.own"] == 1
    for metric in ("copying", "copying.own", "matching", "matching.own"):
        assert other.metrics[metric] == pytest.approx(one.metrics[metric], abs=1e-4)


def test_copying_is_asked_of_tokens_that_can_be_answers() -> None:
    """A head that copies the ten digits and none of the operators copies all that can be copied."""
    subject, *_ = induction()
    whole = probe.run("weights", subject, **SETTINGS).metrics["copying.own"]
    few = subject.with_data(subject.data[subject.targets[:, 0] < 5])
    some = probe.run("weights", few, **SETTINGS)
    assert whole == 1.0 and some.metrics["copying.own"] == 1.0
    assert about(some, "copying").verdict == "yes"
