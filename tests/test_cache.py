"""Kept activations are those that the model gives now: against fresh Subjects, after every way to
edit a weight, a hook or the kept tensor itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import mechint
from mechint import planted
from mechint.interventions import Mean, Site, loss_under
from mechint.models.foreign import bridge
from mechint.subject import Subject
from mechint.subject.activations import LOGITS

POST = "blocks.0.mlp.hook_post"
W_OUT = "blocks.0.mlp.W_out"


# --- the model is edited --------------------------------------------------------------------------
def _no_grad(model: Any) -> None:
    with torch.no_grad():
        model.get_parameter(W_OUT).zero_()


def _set_data(model: Any) -> None:
    weight = model.get_parameter(W_OUT)
    weight.data = torch.zeros_like(weight)


def _load(model: Any) -> None:
    model.load_state_dict({**model.state_dict(), W_OUT: torch.zeros(120, 15)})


def _new_parameter(model: Any) -> None:
    mlp = model.blocks[0].mlp
    mlp.W_out = nn.Parameter(torch.zeros_like(mlp.W_out))


def _step(model: Any) -> None:
    weight = model.get_parameter(W_OUT)
    weight.grad = weight.detach().clone()
    torch.optim.SGD([weight], lr=1.0).step()
    weight.grad = None


def _inference(model: Any) -> None:
    with torch.inference_mode():
        model.get_parameter(W_OUT).zero_()


def _hook(model: Any) -> None:
    model.add_hook("blocks.0.hook_mlp_out", lambda activation, hook: activation * 0)


EDITS = [_no_grad, _set_data, _load, _new_parameter, _step, _inference, _hook]


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_model_is_asked_again(edit: Callable[[Any], None]) -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    subject = subject.with_model(copy.deepcopy(subject.model))
    before, kept = subject.accuracy(), subject.activation("blocks.0.hook_mlp_out", "answer")
    assert before == {"answer": 1.0} and bool(kept.any())
    assert list(subject.stream([LOGITS], at="answer"))
    edit(subject.model)
    fresh = Subject(subject.model, subject.task)
    assert subject.accuracy() == fresh.accuracy() != before
    assert not bool(subject.activation("blocks.0.hook_mlp_out", "answer").any())
    ((_, streamed),) = subject.stream([LOGITS], at="answer")
    assert torch.equal(streamed[LOGITS], fresh.logits())
    assert subject.loss() == fresh.loss()


def test_the_model_of_a_wrapped_module_and_of_a_bridge_is_asked_again() -> None:
    module = nn.Sequential(nn.Embedding(12, 8), nn.BatchNorm1d(3), nn.Linear(8, 11))
    wrapped = mechint.wrap(module, {"hook_embed": "0"}, weights={"W_E": "0.weight"})
    tokens = planted.modular_addition(11, (2, 3)).subject.data
    native = bridge.boot_native(
        {"n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "d_mlp": 16, "n_ctx": 3}
        | {"d_vocab": 12, "d_vocab_out": 11, "act_fn": "relu", "normalization_type": "LN"},
        seed=1,
    )
    edits = [
        (wrapped, lambda: nn.init.normal_(module[2].weight)),
        (wrapped, lambda: module[1].running_var.mul_(2)),  # a buffer
        (native, lambda: nn.init.normal_(next(native.parameters()))),
        (native, lambda: native.add_hook("blocks.0.hook_mlp_out", lambda x, hook: x * 0)),
    ]
    for model, edit in edits:
        subject = Subject(model.eval(), None, data=tokens)
        before = subject.logits()
        assert subject.logits() is before  # kept, not computed again
        edit()
        after = subject.logits()
        assert torch.equal(after, Subject(model, None, data=tokens).logits())
        assert not torch.equal(after, before)


# --- what was handed out is edited ----------------------------------------------------------------
def _centered(x: torch.Tensor) -> None:
    x -= x.mean(0)


def _zeroed_in_grid(x: torch.Tensor) -> None:
    x.view(11, 11, -1)[:, :, 0] = 0


@pytest.mark.parametrize("edit", [_centered, _zeroed_in_grid])
@pytest.mark.parametrize("name", [POST, LOGITS])
def test_an_edit_of_what_was_handed_out_reaches_nobody_else(
    edit: Callable[[torch.Tensor], None], name: str
) -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    handed = subject.activation(name, "answer")
    expected = handed.clone()
    assert subject.activation(name, "answer") is handed
    edit(handed)
    assert not torch.equal(handed, expected)
    assert torch.equal(subject.activation(name, "answer"), expected)
    assert subject.accuracy() == {"answer": 1.0}
    ((_, streamed),) = subject.stream([name], at="answer")
    edit(streamed[name])  # a view of what is kept
    assert torch.equal(subject.activation(name, "answer"), expected)


def test_what_is_not_finite_is_kept_too() -> None:
    subject = planted.modular_addition(11, (2, 3)).subject
    scores = subject.activation("blocks.0.attn.hook_attn_scores")
    assert bool(scores.isneginf().any())
    assert subject.activation("blocks.0.attn.hook_attn_scores") is scores


# --- the model is in training mode ----------------------------------------------------------------
class Noisy(nn.Module):
    """A planted model behind statistics of batches and dropout, which in training differ from one
    forward to the next.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.drop = inner, nn.Dropout(0.8)
        self.scale = nn.BatchNorm1d(3, affine=False, momentum=0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.scale(self.drop(self.inner(tokens)))


def noisy() -> Any:
    inner = copy.deepcopy(planted.modular_addition(11, (2, 3)).subject.model)
    return mechint.wrap(
        Noisy(inner), {POST: f"inner.{POST}"}, weights={"W_E": "inner.embed.W_E"}, d_vocab_out=11
    )


def test_a_model_in_training_mode_is_asked_in_evaluation_mode_and_left_as_it_was() -> None:
    task = planted.modular_addition(11, (2, 3)).subject.task
    expected = Subject(noisy().eval(), task)
    model = noisy().train()
    model.module.drop.eval()  # of some modules only
    modes = [module.training for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    random = torch.get_rng_state()
    subject = Subject(model, task)
    double = [(POST, lambda activation, hook: 2 * activation)]
    assert torch.equal(subject.logits(), expected.logits())
    assert torch.equal(subject.logits(hooks=double), expected.logits(hooks=double))
    assert subject.accuracy() == expected.accuracy() == {"answer": 1.0}
    mean = [Mean(Site(POST))]
    assert loss_under(subject, mean) == loss_under(expected, mean)
    for _, found in subject.with_limits(chunk=50).stream([POST]):
        assert found[POST].shape[1:] == (3, 120)
        assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
