"""Modules as people write them: in-place operations, functional dropout, averaged attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mechint
import tasks
from mechint.errors import DataError, ParameterError, UnknownNameError
from mechint.interventions import EditedRuns
from mechint.models.foreign.wrapped import WrappedModule
from mechint.probe import Need, unmet_need
from mechint.subject import Subject

P = 7
TASK = tasks.make("modular-arithmetic", p=P)


class Writes(nn.Module):
    """A small network, whose operations write over their input where `inplace`."""

    def __init__(self, inplace: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.inplace = inplace
        self.embed, self.pos = nn.Embedding(P + 1, 16), nn.Parameter(torch.randn(3, 16))
        self.l1, self.l2 = nn.Linear(48, 32), nn.Linear(32, P)
        self.act, self.skip = nn.ReLU(inplace=inplace), nn.Linear(32, 32)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        if self.inplace:
            x += self.pos
        else:
            x = x + self.pos
        x = self.act(self.l1(x.flatten(1)))
        out = self.skip(x)
        if self.inplace:
            out += x
        else:
            out = out + x
        return self.l2(out)


HOOKS = {
    "hook_embed": "embed",
    "blocks.0.mlp.hook_pre": "l1",
    "blocks.0.mlp.hook_post": "act",
    "blocks.0.hook_mlp_out": "skip",
}


def twins(hooks: dict[str, str] = HOOKS) -> tuple[WrappedModule, WrappedModule]:
    return tuple(mechint.wrap(Writes(inplace), hooks) for inplace in (True, False))  # type: ignore[return-value]


@pytest.mark.parametrize("hooks", [HOOKS, {"blocks.0.mlp.hook_pre": "act:input"}])
def test_what_is_cached_of_a_module_that_works_in_place_is_that_of_its_plain_twin(hooks) -> None:
    writes, plain = twins(hooks)
    tokens = TASK.examples().tokens
    ours, theirs = writes.run_with_cache(tokens)[1], plain.run_with_cache(tokens)[1]
    for name in hooks:
        assert torch.equal(ours[name], theirs[name]), name
    assert bool((ours["blocks.0.mlp.hook_pre"][:, -1] < 0).any())


def gradients(model: Any, tokens: Tensor, names: Any, score: Any) -> dict[str, Any]:
    """Hook → activation, gradient and positions, of answers at the last position."""
    reads = torch.full((len(tokens),), tokens.shape[1] - 1)
    ((_, found),) = EditedRuns(model, tokens, reads).gradients(
        names, score, torch.arange(len(tokens))
    )
    return found


def test_gradients_at_a_module_that_works_in_place_are_those_of_its_plain_twin() -> None:
    tokens = TASK.examples().tokens
    found = [
        gradients(model, tokens, HOOKS, lambda logits, rows: logits[:, 0]) for model in twins()
    ]
    for name in HOOKS:
        for ours, theirs in zip(found[0][name], found[1][name], strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6), name
    assert bool(found[0]["hook_embed"][1].any())


class Beside(nn.Module):
    """A block whose MLP input goes past the MLP, too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mlp, self.out = nn.Embedding(P + 1, 8), nn.Linear(8, 8), nn.Linear(8, P)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        return self.out(x + torch.tanh(self.mlp(x)))


def test_a_gradient_is_of_what_passes_the_hook_alone() -> None:
    module, tokens = Beside(), TASK.examples().tokens
    name = "blocks.0.mlp.hook_in"
    model = mechint.wrap(module, {"hook_embed": "embed", name: "mlp:input"})

    def score(logits: Tensor, rows: Tensor) -> Tensor:
        return logits.square().sum(-1)

    beside = module.embed(tokens).detach()
    given = beside.clone().requires_grad_()
    logits = module.out(beside + torch.tanh(module.mlp(given)))[:, -1]
    (expected,) = torch.autograd.grad(score(logits, tokens).sum(), given)
    _, found, _ = gradients(model, tokens, ["hook_embed", name], score)[name]
    torch.testing.assert_close(found, expected)


class Dropping(nn.Module):
    """Dropout that does not ask whether the module trains."""

    def __init__(self, ask: bool = False, n: int = 3) -> None:
        super().__init__()
        self.ask, self.n = ask, n
        self.embed, self.out = nn.Embedding(P + 1, 16), nn.Linear(16 * n, P)

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.dropout(self.embed(tokens), 0.5, self.training or not self.ask)
        return self.out(x.flatten(1))


def test_a_module_that_stays_random_is_refused_when_it_is_wrapped() -> None:
    module = Dropping()
    state = torch.random.get_rng_state()
    with pytest.raises(ParameterError, match=r"F\.dropout\(x, p, self\.training\)") as caught:
        mechint.wrap(module, {"hook_embed": "embed"})
    assert "\n" not in str(caught.value)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert mechint.wrap(Dropping(ask=True), {"hook_embed": "embed"}).module.training


def test_a_module_of_another_length_is_checked_by_its_data() -> None:
    four = mechint.wrap(Dropping(n=4), {"hook_embed": "embed"})
    assert not four.checked
    data = TASK.examples()
    longer = type(data)(torch.zeros(5, 4).long(), torch.zeros(5, 4, 1).long())
    with pytest.raises(ParameterError, match="two forwards of the same tokens"):
        Subject(four, None, data=longer)


class Attends(nn.Module):
    def __init__(self, average: bool) -> None:
        super().__init__()
        self.average, self.embed = average, nn.Embedding(P + 1, 8)
        self.attention, self.weights = nn.MultiheadAttention(8, 4, batch_first=True), nn.Identity()
        self.out = nn.Linear(8, P)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        y, weights = self.attention(x, x, x, average_attn_weights=self.average)
        self.weights(weights)
        return self.out(y)


def test_attention_that_is_averaged_over_heads_is_refused() -> None:
    hooks = {"hook_embed": "embed", "blocks.0.attn.hook_pattern": "weights"}
    with pytest.raises(ParameterError, match="average_attn_weights=False"):
        mechint.wrap(Attends(average=True), hooks)
    model = mechint.wrap(Attends(average=False), hooks)
    shape = model.description
    assert (shape.n_heads, shape.d_model, shape.d_vocab_out) == (4, 8, P)
    with pytest.raises(ParameterError, match="give n_heads=4"):
        mechint.wrap(Attends(average=False), hooks, n_heads=2)


def test_sizes_are_learned_without_weights_and_a_wrong_one_is_named() -> None:
    model = mechint.wrap(Writes(False), HOOKS)
    assert model.description.d_model == 16 and model.description.d_vocab_out == P
    with pytest.raises(ParameterError, match="shows d_vocab_out=7, and wrap was given"):
        mechint.wrap(Writes(False), HOOKS, d_vocab_out=9)


def test_a_refusal_names_the_argument_that_is_missing() -> None:
    subject = Subject(mechint.wrap(Writes(False), {"blocks.0.mlp.hook_pre": "l1"}), TASK)
    for need, argument in (
        (Need.EMBEDDING, 'weights={"W_E"'),
        (Need.RESIDUAL, "blocks.0.hook_resid_post"),
        (Need.ATTENTION, "blocks.0.attn.hook_pattern"),
        (Need.REINITIALIZE, "make="),
    ):
        reason = str(unmet_need(need, subject))
        assert ": give wrap " in reason and argument in reason
    with pytest.raises(UnknownNameError, match=r"add hooks=.*hook_resid_pre"):
        subject.check_hook("blocks.0.hook_resid_pre")


def test_tokens_that_a_module_does_not_know_are_refused_in_one_line() -> None:
    module = torch.nn.Sequential(torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5))
    wrapped = mechint.wrap(module, {"hook_embed": "0"})
    with pytest.raises(DataError, match="tokens up to 5 at 2 positions"):
        wrapped(torch.tensor([[1, 5]]))
