"""The lens against the model itself, the binomial by hand, and planted heads."""

from __future__ import annotations

import pytest
import torch
from scipy.stats import binom

from mechint import planted
from mechint.config import ModelConfig
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject, Which
from probes._lens import Lens, Readout


def random_subject(normalization: str | None) -> Subject:
    """Two layers with every kind of weight non-zero."""
    task = TASKS["modular-arithmetic"](p=7)
    shape = {"n_layers": 2, "d_model": 12, "n_heads": 3}
    model = HookedTransformer(ModelConfig.for_task(task, **shape, normalization_type=normalization))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator))
    return Subject(model, task)


@pytest.mark.parametrize("normalization", ["LN", "LNPre", None])
def test_the_lens_at_the_end_is_the_model(normalization: str | None) -> None:
    subject = random_subject(normalization)
    readout = Readout(subject)
    x = subject.activation("blocks.1.hook_resid_post", "answer").double()
    assert torch.allclose(readout.logits(x), subject.logits().double(), atol=1e-4)
    result = Lens().run(subject)
    assert result.metrics["lens.final_accuracy"] == pytest.approx(subject.accuracy()["answer"])


@pytest.mark.parametrize("normalization", ["LN", "LNPre", None])
def test_every_depth_is_what_the_model_makes_of_that_residual_stream(
    normalization: str | None,
) -> None:
    subject = random_subject(normalization)
    table = Lens().run(subject).tables["lens"].columns
    for i, hook in enumerate(
        (
            "blocks.0.hook_resid_pre",
            "blocks.0.hook_resid_mid",
            "blocks.0.hook_resid_post",
            "blocks.1.hook_resid_mid",
        )
    ):
        with torch.no_grad():
            logits = subject.model(subject.activation(hook), start_at_layer=2)[
                :, int(subject.answer_positions[0])
            ]
        assert table["accuracy"][i] == pytest.approx(subject.accuracy(logits)["answer"])
        assert table["loss"][i] == pytest.approx(subject.loss(logits)["answer"], rel=1e-5)


@pytest.mark.parametrize(("kept", "status"), [(3, "no"), (6, "yes")])
def test_no_depth_is_named_where_few_answers_are_right(kept: int, status: str) -> None:
    """The logits of all but some classes stand in each other's columns: 3 of 31 are significant,
    but no tenth of the way from 1/31 to 1.
    """
    plant = planted.modular_addition(31, (3, 8, 12)).subject
    order = torch.tensor([*range(kept), *range(kept + 1, 31), kept])
    with torch.no_grad():
        for name, weight in plant.model.named_parameters():
            if name in ("unembed.W_U", "unembed.b_U"):
                weight.copy_(weight[..., order])
    result = Lens().run(Subject(plant.model, plant.task))
    assert result.metrics["lens.final_accuracy"] == pytest.approx(kept / 31)
    assert result.null["lens.final_accuracy"].p_value < 1e-6
    depth = result.findings[0]
    assert depth.verdict == status
    assert depth.effect is not None and depth.effect.baseline == pytest.approx(1 / 31)
    assert depth.effect.value == pytest.approx(kept / 31)


@pytest.mark.parametrize("answer", [-1, "all"])
def test_chance_and_n_of_the_accuracy_are_of_examples_and_their_answers(answer: Which) -> None:
    """Twelve sequences given twice are twelve, whichever of their signs are asked for."""
    task = TASKS["running-sign"](length=15)
    config = ModelConfig.for_task(task, d_model=8, n_heads=1)
    whole = Subject(HookedTransformer(config, seed=1), task, answer=answer)
    subject = whole.with_data(whole.data[torch.arange(12).repeat(2)])
    result = Lens().run(subject)
    right, shares = subject.correct()[:, 0].double(), subject.correct().view(24, -1).double()
    null = result.null["lens.final_accuracy"]
    assert null.observed == result.metrics["lens.final_accuracy"] == pytest.approx(right.mean())
    hits, (chance,) = int(shares.mean(1)[:12].sum() + 1e-9), subject.chance.values()
    assert null.p_value == pytest.approx(binom.sf(hits - 1, 12, chance.accuracy))
    assert {finding.n for finding in result.findings} == {12}
