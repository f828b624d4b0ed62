"""Prompts of different lengths: what fills the shorter ones is no data, whatever token it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import mechint
import probes
from mechint.errors import DataError, ParameterError
from mechint.interventions import Mean, Site, Zero, ablate, logits_under, loss_under
from mechint.subject import Subject
from mechint.subject.counterfactuals import unpaired
from mechint.task import Batch
from probes._attention.scores import collect, kept_rows, repeated_tokens
from probes._attribution.measures import components, measured
from probes._circuits.graph import Graph
from probes._circuits.scoring import Scorer
from tests.prompts.mixed import mixed, refilled


@pytest.fixture(scope="module")
def subject() -> Subject:
    return mixed()


def own(subject: Subject) -> torch.Tensor:
    """(example, pos) which tokens are the prompts' own."""
    assert subject.data.lengths is not None
    places = torch.arange(subject.data.tokens.shape[1])
    return torch.stack([places < length for length in subject.data.lengths])


def loss_with(subject: Subject, hook: str, value: torch.Tensor, head: int | None) -> float:
    """Loss at each prompt's last token with an activation, or one head of it, at `value`."""
    assert subject.data.lengths is not None

    def put(x: torch.Tensor, hook: Any) -> torch.Tensor:
        x = x.clone()
        if head is None:
            x[:] = value
        else:
            x[:, :, head] = value[..., head, :]
        return x

    with torch.no_grad():
        logits = subject.model.run_with_hooks(subject.data.tokens, fwd_hooks=[(hook, put)])
    at_end = logits[torch.arange(len(logits)), subject.data.lengths - 1]
    return float(F.cross_entropy(at_end, subject.targets[:, 0]))


def test_own_positions_are_those_before_the_end(subject: Subject) -> None:
    data, expected = subject.data, own(subject)
    found, third = data.own_positions(), data.own_positions(3)
    assert found is not None and third is not None
    assert torch.equal(found, expected) and torch.equal(third, expected[:, 3])
    assert data.own_positions("answer") is None
    longest = data[expected.all(1)]
    assert longest.own_positions() is None
    assert Batch(data.tokens, data.targets).own_positions() is None


@pytest.mark.parametrize("at", [-1, 3])
def test_a_position_that_some_prompts_lack_is_refused(subject: Subject, at: int) -> None:
    """One rule for activations, logits, streams, edits and means: the last column is padding of
    the short prompts, and an edit there changed nothing of them.
    """
    hook = "blocks.0.hook_resid_post"
    said = rf'position {at} is behind the end of .* examples; expected "answer", or 0 to 2'
    for ask in (
        lambda: subject.activation(hook, at),
        lambda: subject.logits(at=at),
        lambda: list(subject.stream([hook], at)),
        lambda: logits_under(subject, [Zero(Site(hook, pos=at))]),
        lambda: loss_under(subject, [Mean(Site(hook, pos=at))]),
        lambda: ablate(subject, f"L0 MLP @ {at}" if at > 0 else Site.mlp(0, at)),
    ):
        with pytest.raises(ParameterError, match=said):
            ask()
    longest = subject.with_data(subject.data[own(subject).all(1)])
    assert longest.activation(hook, at).shape == longest.activation(hook, "answer").shape
    assert_close(longest.activation(hook, -1), longest.activation(hook, "answer"))


@pytest.mark.parametrize("mode", ["zero", "mean", "resample"])
def test_no_ablation_depends_on_the_filler(subject: Subject, mode: str) -> None:
    """A head at its mean was up to a third too harmful, since padding was averaged with tokens."""
    quick: dict[str, Any] = {"mode": mode, "null_samples": 3}
    one, two = (probes.ablation(each, **quick) for each in (subject, refilled(subject)))
    assert one.metrics["examples"] == len(subject.data)
    rises = [each.tables["effects"].columns["loss_change"] for each in (one, two)]
    assert np.allclose(*rises, atol=1e-9)
    for name, null in one.null.items():
        assert np.isclose(null.mean, two.null[name].mean, atol=1e-9), name


def test_means_are_those_of_the_prompts_that_have_the_position(subject: Subject) -> None:
    columns = probes.ablation(subject).tables["effects"].columns
    rises = dict(zip(columns["component"], columns["loss_change"], strict=True))
    weights = own(subject).double()
    for layer in range(2):
        for hook, heads in ((Site.head(layer, 0).hook, (0, 1)), (Site.mlp(layer).hook, (None,))):
            x = subject.activation(hook)
            shape = (*weights.shape, *[1] * (x.dim() - 2))
            mean = (x * weights.view(shape)).sum(0) / weights.sum(0).view(shape[1:])
            for head in heads:
                name = f"L{layer} MLP" if head is None else f"L{layer}H{head}"
                expected = loss_with(subject, hook, mean, head) - subject.loss()["next token"]
                assert rises[name] == pytest.approx(expected, abs=1e-9), name
    assert max(rises.values()) > 0.05


@pytest.mark.parametrize("pos", [None, 2, "answer"])
def test_a_mean_that_is_filled_in_leaves_padding_out(subject: Subject, pos: Any) -> None:
    small = subject.with_limits(chunk=7)
    losses = [
        loss_under(each, [Mean(Site.head(0, 1, pos))])["next token"]
        for each in (subject, refilled(subject), small)
    ]
    assert losses[1:] == pytest.approx([losses[0]] * 2, abs=1e-9)


def test_a_resampled_prompt_is_one_of_its_length(subject: Subject) -> None:
    """Two prompts of the same length take each other's activations; one that is alone, none."""
    assert subject.data.lengths is not None
    data = subject.data[torch.tensor([0, 1, 10, 11, 20])]
    some = subject.with_data(data)
    quick: dict[str, Any] = {"components": ("head",)}
    result = probes.ablation(some, mode="resample", **quick)
    assert result.metrics["examples"] == 4
    paired = subject.with_data(data[torch.arange(4)])
    columns = result.tables["effects"].columns
    for name, rise in zip(columns["component"], columns["loss_change"], strict=True):
        layer, head = map(int, name.removeprefix("L").split("H"))
        hook = Site.head(layer, head).hook
        other = paired.activation(hook)[[1, 0, 3, 2]]
        expected = loss_with(paired, hook, other, head) - paired.loss()["next token"]
        assert rise == pytest.approx(expected, abs=1e-9), name
    with pytest.raises(DataError, match="no two of 3 examples are read at the same position"):
        probes.ablation(subject.with_data(data[torch.tensor([0, 2, 4])]), mode="resample", **quick)


def test_attribution_takes_means_without_padding(subject: Subject) -> None:
    effects = measured(subject, unpaired(subject, subject.data), "mean")
    other = refilled(subject)
    same = measured(other, unpaired(other, other.data), "mean")
    assert np.allclose(effects.exact, same.exact, atol=1e-9)
    assert np.allclose(effects.first_order, same.first_order, atol=1e-9)
    weights, rows = own(subject).double(), torch.arange(len(subject.data))
    for site, exact in zip(components(subject), effects.exact, strict=True):
        if site.kind != "mlp":
            continue
        x = subject.activation(site.hook)
        mean = (x * weights[..., None]).sum(0) / weights.sum(0)[:, None]
        with torch.no_grad():
            logits = subject.model.run_with_hooks(
                subject.data.tokens, fwd_hooks=[(site.hook, lambda x, hook, m=mean: m.expand_as(x))]
            )[rows, subject.answer_positions]
        score = logits[rows, subject.targets[:, 0]] - logits.mean(-1)
        assert exact == pytest.approx(effects.score - score.numpy(), abs=1e-9), str(site)


def test_circuits_take_means_without_padding(subject: Subject) -> None:
    other = refilled(subject)
    graph = Graph(subject.model.config, 1, (), ("pos",))
    means = [
        Scorer(each, graph, unpaired(each, each.data), "mean").means for each in (subject, other)
    ]
    assert torch.allclose(*means, atol=1e-12)
    senders = [str(sender) for sender in graph.senders]
    weights = own(subject).double()[..., None]
    written = subject.activation("blocks.1.hook_mlp_out")
    expected = (written * weights).sum(0) / weights.sum(0)
    assert any(torch.allclose(one[0], expected, atol=1e-9) for one in means[0]), senders
    whole = replace(subject.data, lengths=None)
    padded = Scorer(subject, graph, unpaired(subject, whole), "mean").means
    assert not torch.allclose(means[0], padded, atol=1e-3)


def test_made_up_inputs_hold_tokens_that_the_model_can_have(subject: Subject) -> None:
    """Random tokens of a language model are not the filler; of a module whose vocabulary nobody
    states, they are those of its prompts.
    """
    patterns = collect(subject, kept_rows(subject, 30, 0))
    made = repeated_tokens(subject, patterns, 0)
    filler = subject.data.tokens[~own(subject)].unique().numpy()
    assert made is not None and not np.isin(made, filler).any()

    hooks = {"blocks.0.hook_resid_pre": "blocks.0.hook_resid_pre"}
    wrapped = mechint.wrap(subject.model, hooks, n_ctx=6, d_vocab=400)
    made = repeated_tokens(subject.with_model(wrapped), patterns, 0)
    assert made is not None
    assert set(np.unique(made)) <= set(subject.data.tokens[own(subject)].tolist())
