"""Ablation by the one spelling of components, in Python and on the command line."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from mechint import planted
from mechint.errors import ParameterError, UnknownNameError
from mechint.interventions import Mean, Site, Zero, ablate, loss_under


@pytest.fixture(scope="module")
def subject():
    return planted.modular_addition(7, (1, 2)).subject


def test_a_text_is_the_site_it_spells(subject) -> None:
    for text, site in (("L0H1", Site.head(0, 1)), ("L0 MLP[3]", Site.neurons(0, [3]))):
        assert Zero(text).site == site == Mean(text).site
        assert loss_under(subject, [Zero(text)]) == loss_under(subject, [Zero(site)])
    with pytest.raises(ParameterError, match="expected one such as L0H1"):
        Zero("head 1")


def test_ablation_replaces_by_the_mean_or_zero(subject) -> None:
    """Against a hook in the model's own forward."""
    tokens, hook = subject.data.tokens, "blocks.0.hook_mlp_out"
    written = subject.activation(hook)
    for by, value in (("zero", 0 * written), ("mean", written.mean(0, True).expand_as(written))):
        hooks = [(hook, partial(_replace, value))]
        logits = subject.model.run_with_hooks(tokens, fwd_hooks=hooks)
        right = logits[:, -1].argmax(-1) == subject.targets[:, 0]
        found = ablate(subject, "L0 MLP", by=by)
        assert found.accuracy["answer"] == pytest.approx(float(right.double().mean()))
        assert found.accuracy_before == subject.accuracy()
    with pytest.raises(UnknownNameError, match="unknown hook"):
        ablate(subject, "L4H0")
    with pytest.raises(ParameterError, match="expected components"):
        ablate(subject)


def _replace(value: torch.Tensor, x: torch.Tensor, hook: object) -> torch.Tensor:
    return value
