"""Nulls of files whose initialization nobody states: their own weights in random order."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import mechint
from mechint import planted, probes, tasks
from mechint.config import ModelConfig
from mechint.models import build
from mechint.models.parameters import parameter_shapes

P = 11
CONFIG = ModelConfig(d_model=16, n_heads=2, d_vocab=P + 1, d_vocab_out=P, n_ctx=3, d_mlp=32)


def weights_of(kind: str, seed: int) -> dict[str, torch.Tensor]:
    """An untrained model: N(0, 0.02), or as `nn.Embedding` and `nn.Linear` begin."""
    draw, weights = torch.Generator().manual_seed(seed), {}
    for name, shape in parameter_shapes(CONFIG).items():
        value = torch.zeros(shape)
        if kind == "N(0, 0.02)":
            value = value if ".b_" in name else value.normal_(0, 0.02, generator=draw)
        elif name.startswith(("embed", "pos_embed")):
            value.normal_(generator=draw)
        else:
            inputs = 32 if name.endswith(("mlp.W_out", "mlp.b_out")) else 16
            value.uniform_(-(inputs**-0.5), inputs**-0.5, generator=draw)
        weights[name] = value
    return weights


def opened(folder: Path, kind: str, seed: int) -> mechint.Subject:
    torch.save(weights_of(kind, seed), folder / "model.pt")
    return mechint.load(folder / "model.pt", task=tasks.make("modular-arithmetic", p=P))


def test_the_control_of_a_foreign_file_has_the_same_weights(tmp_path: Path) -> None:
    subject = opened(tmp_path, "PyTorch's default", 0)
    own = {name: weight.clone() for name, weight in subject.model.named_parameters()}
    first, second = (
        {name: weight.clone() for name, weight in one.model.named_parameters()}
        for one in subject.controls_in_turn([0, 1])
    )
    for name, weight in own.items():
        assert torch.equal(first[name].flatten().sort()[0], weight.flatten().sort()[0])
        assert weight.unique().numel() < 2 or not torch.equal(first[name], weight)
        assert weight.unique().numel() < 2 or not torch.equal(first[name], second[name])
        assert torch.equal(weight, dict(subject.model.named_parameters())[name])


def test_a_model_of_our_own_is_compared_with_untrained_ones() -> None:
    subject = planted.modular_addition(5, (1,)).subject
    (control,) = subject.controls_in_turn([7])
    assert torch.equal(control.model.W_E, build(subject.model.config, seed=7).W_E)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["PyTorch's default", "N(0, 0.02)"])
def test_untrained_files_of_others_prefer_no_operand_and_have_no_norms(
    tmp_path: Path, kind: str
) -> None:
    """Against mechint's own initialization 18 of 20 did."""
    yes = [
        finding.headline
        for seed in range(10)
        for name in ("attention", "norms")
        for finding in probes.run(name, opened(tmp_path, kind, seed), seed=seed).findings
        if finding.verdict == "yes"
    ]
    assert len(yes) <= 2, yes
