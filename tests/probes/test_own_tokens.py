"""Sentences of the weights under what would refute them: heads that write the next token, and
models rewritten without a change of what they answer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping

import pytest
import torch

from mechint import planted, probe
from mechint.results import ProbeResult
from mechint.subject import Subject

N = 10
SETTINGS = {"draws": 99, "directions": 0}
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


def about(result: ProbeResult, words: str) -> tuple[str, str]:
    (one,) = (one for one in result.findings if words in one.headline)
    return one.verdict, one.headline


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
    metric, words = {"W_V": ("copying", "copy most"), "W_Q": ("matching", "match most")}[weight]
    assert result.metrics[metric] > 0.9 and result.null[metric].p_value <= 0.01
    assert result.metrics[f"{metric}.own"] < 0.3
    status, sentence = about(result, words)
    assert status == "no" and "is not shown" in sentence.replace("No head is", "is not")


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
    copies = f"The OV circuit of L1H{second} copies tokens to their own class (eigenvalue share 1."
    for result in (one, other):
        assert about(result, copies)[0] == "yes"
        status, sentence = about(result, f"Through L0H{first}, the QK circuit of L1H{second}")
        assert status == "yes" and "100% of 10 tokens score their own highest" in sentence
    for metric in ("copying", "copying.own", "matching", "matching.own"):
        assert other.metrics[metric] == pytest.approx(one.metrics[metric], abs=1e-4)


@pytest.mark.parametrize("condition", [3.0, 10.0])
def test_another_basis_of_the_stream_denies_no_composition(condition: float) -> None:
    """Keys that the answer needs overlap less in another basis of the same function."""
    draw = torch.Generator().manual_seed(0)

    def edit(weights: Weights) -> None:
        width = weights["embed.W_E"].shape[1]
        left, right = torch.linalg.qr(torch.randn(2, width, width, generator=draw).double())[0]
        basis = left @ torch.diag(torch.logspace(0, math.log10(condition), width).double()) @ right
        for name, weight in weights.items():
            if name.rpartition(".")[2] in WRITES:
                weight.copy_(weight.double() @ basis)
            elif name.rpartition(".")[2] in READS:
                weight.copy_(torch.linalg.inv(basis) @ weight.double())

    before, first, _ = induction()
    after, *_ = induction(edit)
    assert torch.allclose(log_probabilities(before), log_probabilities(after), atol=1e-3)

    def cut(z: torch.Tensor, hook: object) -> torch.Tensor:
        z = z.clone()
        z[:, :, first] = 0
        return z

    without = after.logits(hooks=[("blocks.0.attn.hook_z", cut)])
    assert after.accuracy()["next"] == 1 and after.accuracy(without)["next"] < 0.3
    result = probe.run("weights", after, **SETTINGS)
    for kind in "QKV":
        status, sentence = about(result, f"{kind}-composition")
        assert "in the weights as they stand" in sentence
        assert status == "yes" or f"{kind}-composition is not shown" in sentence
    said = probe.run("weights", before, **SETTINGS)
    assert about(said, "K-composition")[0] == "yes"


def test_heads_that_write_nothing_are_no_pair_that_stands_out() -> None:
    subject, first, _ = induction()
    result = probe.run("weights", subject, **SETTINGS)
    for kind in "QKV":  # the idle heads write nothing
        assert result.metrics[f"composition.{kind}.pair"].startswith(f"L0H{first}")
    silent, *_ = induction(lambda weights: weights["blocks.0.attn.W_O"].zero_())
    findings = probe.run("weights", silent, **SETTINGS).findings
    abstained = [one.headline for one in findings if one.verdict == "unclear"]
    assert len(abstained) == 3
    for sentence, part in zip(abstained, ("queries", "keys", "values"), strict=True):
        assert f"whether the {part} of a head overlap" in sentence
        assert "no turn within the subspace that all heads share" in sentence
