"""Clusters of neurons: projections by least squares, plants, what a cluster is worth."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mechint
from mechint import planted, probe
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject

QUICK = {"examples": 64, "sample": 8}


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_planted_clusters_and_their_phases_are_recovered(noise: float) -> None:
    plant = planted.modular_addition(17, (3, 7), noise=noise, rotation_seed=1)
    result = probe.run("neurons", plant.subject, **QUICK)
    metrics, table = result.metrics, result.tables["neurons"].columns
    assert metrics["clusters"] == {str(k): len(v) for k, v in plant.truth["clusters"].items()}
    for k, members in plant.truth["clusters"].items():
        assert {table["frequency"][i] for i in members} == {str(k)}
        assert metrics["phase_alignment"][str(k)] > 0.98
    first = result.findings[0]
    assert first.verdict == "yes" and first.effect is not None
    assert first.effect.value > 0.9 > 0.5 > first.effect.baseline  # type: ignore[operator]
    assert "8 neurons drawn" in first.effect.label
    assert result.hero == "clusters"


def test_an_ablation_is_the_loss_of_a_model_whose_neurons_stand_at_their_mean() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.05)
    subject, hook = plant.subject, "blocks.0.mlp.hook_post"
    metrics = probe.run("neurons", subject, examples=121, permutations=1).metrics
    mean = subject.activation(hook, at="answer").mean(0)
    for k, members in plant.truth["clusters"].items():

        def at_mean(x: torch.Tensor, hook: object, members: list = members) -> torch.Tensor:
            x = x.clone()
            x[:, 2, members] = mean[members]
            return x

        loss = subject.loss(subject.logits(hooks=[(hook, at_mean)]))["answer"]
        assert metrics["loss"] + metrics["ablation"][str(k)] == pytest.approx(loss, rel=1e-3)


def widened(subject: Subject, more: int) -> Subject:
    """The same function with `more` neurons that are always zero."""
    old = subject.model
    config = ModelConfig(**{**old.config.to_dict(), "d_mlp": old.config.d_mlp + more})
    model, state = HookedTransformer(config), {}
    for name, value in old.weights().items():
        shape = dict(model.weights())[name].shape
        state[name] = torch.zeros(shape)
        state[name][tuple(slice(n) for n in value.shape)] = value.detach()
    model.load_weights(state)
    return Subject(model, subject.task)


def test_neurons_that_do_not_vary_are_counted_apart() -> None:
    subject = planted.modular_addition(11, (2, 5)).subject
    narrow, wide = (probe.run("neurons", one, **QUICK) for one in (subject, widened(subject, 30)))
    assert wide.metrics["dead"] - narrow.metrics["dead"] == 30
    for name in ("clusters", "clustered", "ablation"):
        assert wide.metrics[name] == pytest.approx(narrow.metrics[name], rel=1e-3, abs=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("folder", "clusters"),
    [("C113_T_seed1", {"16", "30", "56"}), ("S5_T_seed1", {"sign", "standard⊗sign"})],
)
def test_neurons_of_published_models_stand_in_their_key_representations(
    folder: str, clusters: set[str], published: Path
) -> None:
    path = published / "rep-theory" / folder / "model.pt"
    metrics = probe.run("neurons", mechint.load(path), examples=64, permutations=9).metrics
    assert set(metrics["clusters"]) == clusters and metrics["clustered"] > 0.85
    assert min(metrics.get("phase_alignment", {"": 1}).values()) > 0.99
