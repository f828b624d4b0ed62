"""Gradient norms against finite differences, a closed form and a plain backward pass."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import mechint
from mechint import planted
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject
from probes._gradients import LEAST_BELOW, Gradients


def small(chunk: int = 4096) -> Subject:
    task = TASKS["modular-arithmetic"](p=7, train_fraction=0.6)
    model = HookedTransformer(
        ModelConfig(d_model=8, n_heads=2, d_vocab=8, d_vocab_out=7, normalization_type="LN"), seed=1
    )
    return Subject(model, task, chunk=chunk)


def test_norms_are_those_of_a_plain_backward_pass() -> None:
    subject = small()
    result = Gradients(permutations=1).run(subject)
    data = subject.data[subject.task.split(0)["train"]]  # type: ignore[union-attr]
    F.cross_entropy(subject.model(data.tokens)[:, -1], data.targets[:, -1, 0]).backward()
    expected = {
        name: float(weight.grad.norm()) for name, weight in subject.model.named_parameters()
    }
    assert result.metrics["gradients.norms"] == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert result.metrics["gradients.total"] == pytest.approx(
        math.hypot(*expected.values()), rel=1e-4
    )


def test_the_unembedding_s_gradient_has_its_closed_form() -> None:
    """∂L/∂W_U = Σ x (softmax − one-hot)ᵀ / n."""
    subject = planted.modular_addition(13, (2, 5), noise=0.1, rotation_seed=1).subject
    result = Gradients(permutations=1, split="all").run(subject)
    x = subject.activation("blocks.0.hook_resid_post", "answer").double()
    error = subject.logits().double().softmax(-1) - F.one_hot(subject.targets[:, 0], 13)
    assert result.metrics["gradients.norms"]["unembed.W_U"] == pytest.approx(
        float((x.T @ error / len(x)).norm()), rel=1e-4
    )


def test_remainder_weights_divide_by_the_logarithm_of_the_classes() -> None:
    task = TASKS["remainders"](p=7)
    subject = Subject(HookedTransformer(ModelConfig.for_task(task, d_model=8, n_heads=2)), task)
    losses = subject.loss()
    equal, log = (
        Gradients(split="all", permutations=1, weights=weights).run(subject)
        for weights in ("equal", "log")
    )
    assert equal.metrics["gradients.loss"] == pytest.approx(
        sum(losses.values()) / len(losses), rel=1e-5
    )
    expected = sum(losses[output.name] / math.log(output.n_classes) for output in task.outputs)
    assert log.metrics["gradients.loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("permutations", [19, 99])
def test_few_shuffles_abstain(permutations: int) -> None:
    """Nineteen shuffles give no p below 0.05, whatever the model; ninety-nine reach the level."""
    solved = planted.modular_addition(13, (2, 5)).subject
    result = Gradients(permutations=permutations).run(solved)
    (finding,) = result.findings
    null = result.null["gradients.below_shuffled"]
    assert null.p_value == pytest.approx(1 / (1 + permutations))
    assert result.verdict == ("unclear" if permutations == 19 else "yes")
    assert ("no p below 0.05" in finding.reason) == (permutations == 19)
    assert finding.effect is not None and finding.alpha == 0.01
    assert finding.effect.value == result.metrics["gradients.below_shuffled"]
    assert finding.n == len(solved.split["train"])  # type: ignore[index]


def test_the_loss_of_a_training_split_is_called_that() -> None:
    solved = planted.modular_addition(13, (2, 5)).subject
    of_training, of_all = (
        Gradients(split=split).run(solved).findings[0] for split in ("train", "all")
    )
    used = len(solved.split["train"])  # type: ignore[index]
    assert "training split" in of_training.headline and "whole loss" in of_all.headline
    assert of_training.scope.drawn == used < len(solved.data)
    assert f"{used} of 169" in str(of_training.scope) and not str(of_all.scope)


def test_a_last_answer_that_is_always_the_same_leaves_the_whole_loss_decided() -> None:
    solved = planted.composition(5, 4).subject
    last = solved.targets[:, 0]
    alike = solved.with_data(solved.data[last == last.mode().values])
    (finding,) = Gradients(split="all").run(alike).findings
    assert len(alike.targets[:, 0].unique()) == 1
    assert finding.verdict == "yes", finding.reason


def test_right_answers_with_a_large_gradient_are_not_found() -> None:
    """Right answers by small logits: the loss of a guess, whose gradient other answers share."""
    subject = planted.modular_addition(13, (2, 5)).subject
    with torch.no_grad():
        subject.model.W_U.mul_(1e-3)
    result = Gradients().run(subject.with_limits())
    below = result.metrics["gradients.below_shuffled"]
    assert abs(below) < LEAST_BELOW / 10
    assert result.findings[0].accuracy == 1 and result.verdict == "no"


def test_other_answers_are_asked_where_a_prompt_ends() -> None:
    """Of prompts of several lengths, the null is that of a plain backward pass at their ends."""
    draw = torch.Generator().manual_seed(0)
    sizes = torch.randint(1, 6, (48,), generator=draw).tolist()
    rows = [torch.randint(0, 6, (size,), generator=draw).tolist() for size in sizes]
    answers = torch.randint(0, 2, (48,), generator=draw)
    shape = ModelConfig(d_model=8, n_heads=2, d_vocab=6, d_vocab_out=6, n_ctx=5)
    model = HookedTransformer(shape, seed=1)
    with torch.no_grad():
        model.W_pos.mul_(torch.tensor([1.0, 2, 4, 8, 16])[:, None])  # later places weigh more
    prompts = [
        {"prompt": row, "answer": int(answer)} for row, answer in zip(rows, answers, strict=True)
    ]
    result = Gradients(split="all").run(mechint.load(model, data=prompts))

    def norm(targets: torch.Tensor) -> float:
        model.zero_grad()
        ends = [model(torch.tensor([row]))[0, -1] for row in rows]
        F.cross_entropy(torch.stack(ends), targets).backward()
        return math.log10(math.hypot(*(float(w.grad.norm()) for w in model.parameters())))

    orders = [torch.randperm(48, generator=draw) for _ in range(40)]
    others = sum(norm(answers[order]) for order in orders) / len(orders)
    below = result.metrics["gradients.below_shuffled"]
    assert below == pytest.approx(others - norm(answers), abs=0.03)
