"""Interventions on a Hugging Face model against edits of its own weights."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from mechint import probe
from mechint.checkpoints import load_checkpoint
from mechint.models.replaced import call_with_weights
from mechint.registry import PROBES, TASKS
from mechint.subject import Subject
from probes._weights import circuits
from probes.loss_gradient import loss_gradient
from tests.conformance.architectures import made

VOCABULARY = 6


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    """A tiny GPT-2 at random weights on addition modulo 5, through the bridge."""
    from transformers import GPT2Config, GPT2LMHeadModel

    task = TASKS["modular-arithmetic"](p=5)
    config = GPT2Config(
        vocab_size=task.d_vocab, n_positions=8, n_embd=16, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    path = tmp_path_factory.mktemp("gpt2")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        GPT2LMHeadModel(config).save_pretrained(path)
    return Subject(load_checkpoint(Path(path), model={"bridge": True}).model, task)


def test_gradients_by_finite_differences(subject: Subject) -> None:
    """Along a random direction of all parameters but the embedding, which is also the
    unembedding.
    """
    model, data = subject.model, subject.data[:1]
    _, gradients = loss_gradient(subject, data, torch.ones(data.targets.shape))
    own = {name: value.detach() for name, value in model.named_parameters()}
    generator = torch.Generator().manual_seed(0)
    direction = {
        name: torch.randn(value.shape, generator=generator) * (len(value) != VOCABULARY)
        for name, value in own.items()
    }
    losses = []
    for sign in (1, -1):
        weights = {name: value + sign * 1e-4 * direction[name] for name, value in own.items()}
        with torch.no_grad():
            logits = call_with_weights(model, weights, (data.tokens,))[:, -1]
        losses.append(subject.loss(logits, subject.targets[:1])["answer"])
    expected = (losses[0] - losses[1]) / 2e-4
    along = sum(
        (one * gradient).sum() for one, gradient in zip(direction.values(), gradients, strict=True)
    )
    assert float(along) == pytest.approx(expected, rel=0.02, abs=1e-2)
    assert all(parameter.grad is None for parameter in model.parameters())


def opened(kind: str, tmp_path: Path) -> Subject:
    """A tiny model of a family at random weights, on addition modulo 5."""
    task: Any = TASKS["modular-arithmetic"].from_dict({"p": 5})
    made(kind, vocab_size=task.d_vocab).save_pretrained(tmp_path)
    return Subject(load_checkpoint(tmp_path).model, task)


def answering(subject: Subject) -> Subject:
    """The same model, on labels that are its first choices."""
    data, rows = subject.data, torch.arange(len(subject.data))
    targets = data.targets.clone()
    targets[rows, subject.answer_positions, 0] = subject.logits()[:, :5].argmax(-1)
    return subject.with_data(dataclasses.replace(data, targets=targets))


def test_weights_behind_the_norms_of_gemma_are_the_ones_it_reads(tmp_path: Path) -> None:
    """Its norms multiply by 1 + w: queries and logits are the model's own for any w."""
    subject = opened("gemma", tmp_path)
    assert PROBES["weights"]().unmet(subject) is None
    x = subject.activation("blocks.1.hook_resid_post", at="answer").double()
    scale = (x.square().mean(-1, keepdim=True) + subject.model.cfg.eps).sqrt()
    folded = circuits.unembedding(subject)
    assert folded is not None
    mine = x / scale @ folded
    torch.testing.assert_close(mine, subject.logits().double(), atol=1e-5, rtol=1e-5)


def test_what_does_not_add_up_is_not_called_written_to_the_logits(tmp_path: Path) -> None:
    """A norm follows attention and MLP in OLMo 2, and none does in Llama; without the head, both
    lose what plain hooks say.
    """
    for kind, adds_up in (("olmo2", False), ("llama", True)):
        subject = answering(opened(kind, tmp_path / kind))
        result = probe.run("attribution", subject, only_correct=False, examples=25)
        table = result.tables["components"].columns
        whole = abs(result.metrics["score"])
        assert (result.metrics["sum_error"] < 1e-3 * whole) == adds_up
        assert ("writer" in result.metrics) == ("direct" in table) == adds_up
        assert ("direct_effect" in table) == adds_up

        def without(z: torch.Tensor, hook: object) -> torch.Tensor:
            z = z.clone()
            z[:, :, 1] = z[:, :, 1].mean(0)
            return z

        rows, right = torch.arange(len(subject.data)), subject.targets[:, 0]
        plain, ablated = (
            logits[rows, right] - logits[:, :5].mean(-1)
            for logits in (
                subject.logits().double(),
                subject.logits(hooks=[("blocks.0.attn.hook_z", without)]).double(),
            )
        )
        exact = table["exact"][table["component"].index("L0H1")]
        assert exact == pytest.approx(float((plain - ablated).mean()), abs=1e-5)
