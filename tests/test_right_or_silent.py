"""Models and data on which a right number once gave a wrong answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import probes
import tasks
from mechint import planted
from mechint.config import ModelConfig
from mechint.counterfactuals import choose_variable, draw
from mechint.models.transformer import HookedTransformer
from mechint.reporting import AT_CHANCE
from mechint.subject import Subject
from probes._das import SwapSite, controls


def test_a_model_that_ends_every_text_answers_nothing() -> None:
    """Its next character is always the end: right behind the digit, and never the digit."""
    task: Any = tasks.make("listops", depth=2, operations=["MAX", "MED"], chain_of_thought=False)
    shape = {"n_ctx": task.n_ctx, "d_vocab": task.d_vocab, "d_vocab_out": task.d_vocab_out}
    model = HookedTransformer(ModelConfig(d_model=8, n_heads=1, **shape), seed=0)
    with torch.no_grad():
        model.unembed.b_U[task.vocabulary.ids[task.notation.end]] = 50.0
    subject = Subject(model, task, n_examples=64)
    lens = probes.lens(subject, permutations=19)
    assert lens.metrics["lens.final_accuracy"] == 0
    ablation = probes.ablation(subject, neurons=0, null_samples=9)
    assert ablation.metrics["accuracy"] == 0
    for result in (lens, ablation):
        assert result.status == "unclear" and AT_CHANCE in result.finding


def test_parts_are_named_only_where_the_split_is_known() -> None:
    plant = planted.modular_addition(11, (2, 5), noise=0.1).subject
    split, none = Subject(plant.model, plant.task), Subject(plant.model, plant.task, split=None)
    named = [probes.progress(one, steps=0, samples=9).metrics for one in (split, none)]
    assert {"loss.train", "loss.test", "loss.all"} <= set(named[0])
    assert not [name for name in named[1] if name.endswith((".train", ".test"))]
    assert named[1]["loss.all"] == pytest.approx(named[0]["loss.all"])

    part, whole, every = (
        probes.gradients(one, **settings).metrics["gradients.total"]
        for one, settings in ((split, {}), (none, {}), (split, {"split": "all"}))
    )
    assert whole == every != part


@pytest.fixture(scope="module")
def site() -> tuple[Subject, SwapSite]:
    subject = planted.comparison(n=12).subject
    pairs = draw(subject, choose_variable(subject.task, "rank of a"), 48, 0)
    return subject, SwapSite(subject, pairs, "hook_embed", 0)


def test_directions_that_need_no_search_by_closed_form(site: tuple[Subject, SwapSite]) -> None:
    """Of two values the mean difference is the difference of means, and the ridge regression's
    weights lie along (S + shift)⁻¹ of it, with S the scatter of all activations (Hoerl and Kennard
    1970), for one of the penalties.
    """
    x = site[1].base.double().numpy()
    values = torch.arange(len(x)) % 2
    odd = values.numpy() == 1
    difference = x[odd].mean(0) - x[~odd].mean(0)
    found = controls.mean_difference_subspace(site[1], values, 1).double().numpy()[:, 0]
    assert abs(found @ difference) == pytest.approx(np.linalg.norm(difference), rel=1e-5)

    centered = x - x.mean(0)
    scatter = centered.T @ centered
    found = controls.linear_probe_subspace(site[1], values, 1).double().numpy()[:, 0]
    cosines = []
    for penalty in controls.PENALTIES:
        shift = penalty * np.trace(scatter) / len(scatter) + 1e-12
        weights = np.linalg.solve(scatter + shift * np.eye(len(scatter)), difference)
        cosines.append(abs(found @ weights) / np.linalg.norm(weights))
    assert max(cosines) == pytest.approx(1, abs=1e-5)


def test_random_changes_have_the_norm_of_the_one_found(
    site: tuple[Subject, SwapSite], monkeypatch: pytest.MonkeyPatch
) -> None:
    subject, swapped = site
    seen: list[torch.Tensor] = []
    monkeypatch.setattr(controls, "mean_accuracies", lambda *rest: seen.extend(rest[2]) or [])
    found = torch.linalg.qr(torch.randn(swapped.width, 2, generator=torch.manual_seed(1)))[0]
    controls.norm_matched_accuracies(subject, swapped, found, 5, 0)
    wanted = ((swapped.source - swapped.base) @ found).norm(dim=1)
    assert len(seen) == 5 and float(wanted.max()) > 0.1
    for replacement in seen:
        assert (replacement - swapped.base).norm(dim=1).numpy() == pytest.approx(
            wanted.numpy(), rel=1e-4, abs=1e-6
        )
