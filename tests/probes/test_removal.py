"""Removals from the embedding, against the model's own forward under a hook."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.decide.null import Null
from mechint.groups.finite import cyclic
from mechint.groups.spectrum import Harmonics
from mechint.models import build
from mechint.probe import Report
from mechint.registry import PROBES
from mechint.subject import Subject
from probes.removal import EmbeddingRemoval, Removals, add_finding, losses_at_mean, mean_loss

P = 5

NAMED, STAY = "embedding.removal_named", "embedding.removal_stay"
HARMONICS = Harmonics(cyclic(29))


def subject(**config: Any) -> Subject:
    task = tasks.make("modular-arithmetic", p=P)
    sizes = {"n_layers": 2, "d_model": 12, "n_heads": 2, "d_vocab": P + 1, "d_vocab_out": P}
    return Subject(build(ModelConfig(**{**sizes, **config}), seed=3), task)


def by_hook(one: Subject, direction: np.ndarray) -> torch.Tensor:
    """Logits at the answer with the embedding of the numbers projected, computed in full."""
    row = torch.tensor(direction, dtype=torch.float32)
    own = one.model.W_E.detach()[:P]
    table = one.model.W_E.detach().clone()
    table[:P] = own - row[:, None] * (row @ own)
    hooks = [("hook_embed", lambda x, hook: table[one.data.tokens])]
    with torch.no_grad():
        return one.model.run_with_hooks(one.data.tokens, fwd_hooks=hooks)[:, -1]


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"n_layers": 1, "attention_dir": "bidirectional"},
        {"normalization_type": "LN"},
        {"n_layers": 3, "attn_only": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("chunk", [4096, 7])
def test_every_removal_is_that_of_a_forward_under_a_hook(
    config: dict[str, Any], chunk: int
) -> None:
    one = subject(**config)
    one = Subject(one.model, one.task, chunk=chunk)
    edited = EmbeddingRemoval.of(one, range(P))
    assert edited is not None
    draw = np.random.default_rng(0).standard_normal((4, 1, P))
    directions = draw / np.linalg.norm(draw, axis=-1, keepdims=True)
    found = edited.logits(directions)
    assert not torch.allclose(found[0], found[1], atol=1e-3)
    for logits, direction in zip(found, directions, strict=True):
        torch.testing.assert_close(logits, by_hook(one, direction[0]), atol=1e-5, rtol=1e-4)


def test_what_is_needed_costs_answers() -> None:
    """As of a group's representations: without the named one the loss rises by 2.6 nats, without
    all others by 5.5, which makes it no less needed; where the answers stay it is not.
    """
    name = NAMED
    for stay, verdict in ((0.3, "yes"), (0.97, "no")):
        report = Report(
            PROBES["fourier"](), planted.modular_addition(p=11, frequencies=(3,)).subject
        )
        report.update({name: 2.6, "embedding.removal_unnamed": 5.5, STAY: stay})
        report.update({"embedding.needed": [], "embedding.examples": 121})
        report.metric("embedding.also_needed", {})
        report.nulls[name] = Null.sampled(name, 2.6, np.linspace(0, 0.2, 199), "random others")
        add_finding(report, "frequency", [3], [1, 2, 4, 5], 0.1)
        (finding,) = report.findings
        assert finding.verdict == verdict and ("97%" in finding.headline) == (stay > 0.9)


def test_others_that_are_needed_as_well_stand_beside_those_that_are_named() -> None:
    """Of a plant of two frequencies one is called key; without the other alone the loss rises by
    what it does without that in W_E.
    """
    one = planted.modular_addition(p=29, frequencies=(3, 8)).subject
    report, others = Report(PROBES["fourier"](), one), [k for k in range(1, 15) if k != 3]
    removals = Removals(report, EmbeddingRemoval(one, (tuple(range(29)),)), HARMONICS, 9, 0)
    removals.add([3], others, [3], 29 * 29, 1e-3)

    def without(k: int) -> Subject:
        wave = np.exp(2j * np.pi * k / 29 * np.arange(29))
        onto = torch.from_numpy(np.outer(wave, wave.conj()).real * 2 / 29).float()
        model = copy.deepcopy(one.model)
        with torch.no_grad():
            model.W_E[:29].sub_(onto @ model.W_E[:29])
        return Subject(model, one.task)

    rise = without(8).loss()["answer"] - one.loss()["answer"]
    assert report.metrics["embedding.also_needed"] == {8: pytest.approx(rise, rel=1e-3)}
    assert report.metrics[STAY] == pytest.approx(without(3).accuracy()["answer"], abs=1e-3)
    report.update({NAMED: 9.0, "embedding.removal_unnamed": 8.0, STAY: 0.3})
    report.nulls = {NAMED: Null.sampled(NAMED, 9.0, np.linspace(0, 0.2, 199), "random others")}
    add_finding(report, "frequency", [3], others, 0.1)
    assert report.findings[0].verdict == "yes"
    assert f" 8 ({rise:.3g} nats)" in report.findings[0].caveat


def test_two_lists_of_tokens_are_removed_together() -> None:
    """The directions of each list are over its own tokens: 0 and 1, and 2 and 3."""
    one, rows = subject(), np.array([[1.0, -1.0]]) / np.sqrt(2)
    found = EmbeddingRemoval(one, ((0, 1), (2, 3))).logits(rows[None])[0]
    table = one.model.W_E.detach().clone()
    for pair in ([0, 1], [2, 3]):
        table[pair] = table[pair].mean(0)  # what is left without their difference
    hooks = [("hook_embed", lambda x, hook: table[one.data.tokens])]
    expected = one.logits(hooks=hooks)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("layers", [1, 2], ids=["last layer", "first of two"])
def test_neurons_at_their_mean_are_those_of_a_forward_under_a_hook(layers: int) -> None:
    one = subject(n_layers=layers, normalization_type="LN")
    hook, draw = "blocks.0.mlp.hook_post", np.random.default_rng(0)
    mean = one.activation(hook, at="answer").mean(0)
    sets = [draw.permutation(len(mean))[:size] for size in (1, 5, len(mean))]
    found = losses_at_mean(one, hook, mean, sets)
    for loss, neurons in zip(found, sets, strict=True):

        def hold(x: torch.Tensor, hook: Any, neurons: np.ndarray = neurons) -> torch.Tensor:
            x[..., neurons] = mean[neurons]
            return x

        expected = mean_loss(one, one.logits(hooks=[(hook, hold)]))
        assert loss == pytest.approx(expected, rel=1e-5)
    assert found[-1] != pytest.approx(mean_loss(one))
