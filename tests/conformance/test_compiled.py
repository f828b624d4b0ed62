"""Modules whose compiled code takes no hooks: nothing is said of an edit that did not run."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import mechint
from mechint import planted
from mechint.errors import ParameterError
from mechint.interventions import Zero, loss_under
from mechint.models import build

HOOKS = {
    "hook_embed": "embed",
    "blocks.0.hook_resid_pre": "before",
    "blocks.0.hook_mlp_out": "mlp",
    "blocks.0.hook_resid_post": "after",
}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.out = nn.Embedding(10, 8), nn.Linear(8, 7)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
        self.before, self.after = nn.Identity(), nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.before(self.embed(tokens).cumsum(1))
        return self.out(self.after(x + self.mlp(x)))


def compiled(how: str) -> Any:
    net: Any = Net()
    if how == "outer":
        net = torch.compile(net, backend="eager")
    elif how == "in place":
        net.compile(backend="eager")
    elif how == "a part":
        net.mlp.compile(backend="eager")
    for grad in (True, False):  # compiled now, without hooks, for every number of examples
        with torch.set_grad_enabled(grad):
            for n in (1, 2, 5, 49):
                net.eval()(torch.zeros(n, 3, dtype=torch.int64))
    return net


@pytest.mark.full
@pytest.mark.parametrize("how", ["outer", "in place", "a part"])
def test_a_compiled_module_is_measured_as_the_plain_one(how: str) -> None:
    given = planted.modular_addition(7, (1, 2)).subject
    tokens, net = given.data.tokens, Net()
    model = mechint.wrap(compiled(how), HOOKS, n_ctx=3)
    subject = mechint.Subject(model, given.task, data=given.data)
    with torch.no_grad():
        x = net.embed(tokens).cumsum(1)
        expected = nn.functional.cross_entropy(net.out(x)[:, -1], subject.targets[:, 0])
        whole = net(tokens)[:, -1]
    assert loss_under(subject, [Zero("L0 MLP")])["answer"] == pytest.approx(float(expected))
    assert torch.allclose(subject.logits(), whole, atol=1e-5)
    assert not torch.allclose(subject.logits(hooks=[("hook_embed", lambda x, hook: 0 * x)]), whole)


class Switched(Net):
    """Its MLP is computed beside the module that is hooked."""

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.before(self.embed(tokens))
        return self.out(self.after(x + self.mlp.forward(x)))


def test_a_submodule_that_never_runs_and_a_script_are_one_line() -> None:
    with pytest.raises(ParameterError, match=r"hook blocks.0.hook_mlp_out did not run in a forw"):
        mechint.wrap(Switched(), HOOKS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scripts are deprecated
        script: Any = torch.jit.trace(Net(), torch.zeros(2, 3, dtype=torch.int64))
    with pytest.raises(ParameterError, match="a module of TorchScript, which takes no hooks"):
        mechint.wrap(script, HOOKS)


def test_an_edit_whose_hook_never_runs_is_an_error() -> None:
    subject = planted.modular_addition(7, (1, 2)).subject
    model: Any = build(subject.model.config)
    model.load_state_dict(subject.model.state_dict())
    name = "blocks.0.hook_mlp_out"
    bypassed = mechint.Subject(model, subject.task, data=subject.data)
    model.blocks[0].hook_mlp_out.forward = lambda x: x
    before = loss_under(bypassed)
    assert loss_under(bypassed, [Zero("L0 MLP")]) != before
    point = model.hook_dict[name]
    model.hook_dict[name] = type(point)()  # a point that no forward passes
    for ask in (
        lambda: loss_under(bypassed, [Zero("L0 MLP")]),
        lambda: bypassed.logits(hooks=[(name, lambda x, hook: 0 * x)]),
    ):
        with pytest.raises(ParameterError, match=f"hook {name}: it did not run in this forward"):
            ask()


class Silent(Net):
    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(tokens)


class PartlySilent(Net):
    """Only what is behind the last block has gradients."""

    def forward(self, tokens: Tensor) -> Tensor:
        with torch.no_grad():
            x = self.before(self.embed(tokens).cumsum(1))
            x = self.after(x + self.mlp(x))
        return self.out(x)


@pytest.mark.parametrize(
    ("net", "names"),
    [(Silent, ("das", "gradients", "interference", "llc")), (PartlySilent, ("das",))],
)
def test_a_forward_without_gradients_is_one_line(net: Any, names: tuple[str, ...]) -> None:
    given = planted.modular_addition(7, (1, 2)).subject
    model = mechint.wrap(net(), HOOKS, n_ctx=3, weights={"W_E": "embed.weight"})
    subject = mechint.Subject(model, given.task, data=given.data)
    for name in names:
        with pytest.raises(ParameterError, match=r"keeps no gradients.*torch\.no_grad"):
            mechint.probes.run(name, subject)
