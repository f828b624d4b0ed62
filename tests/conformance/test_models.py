"""Every kind of model keeps the promises of a hooked model: hooks by name, values as they pass,
nothing left behind, and no capability that it does not have.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import mechint
import tasks
from mechint.config import LLAMA, ModelConfig
from mechint.errors import MechintError, ParameterError, UnknownNameError
from mechint.models import build
from mechint.models.foreign import bridge
from mechint.models.foreign.local import quiet
from mechint.models.linear_bottleneck import LinearBottleneckConfig
from mechint.models.pair_network import PairNetworkConfig
from mechint.models.protocol import Capability, capabilities, describe, hook_names, reinitialized
from mechint.models.transformer import HookedTransformer
from mechint.models.two_layer import TwoLayerConfig
from mechint.subject import Subject
from mechint.subject.activations import LOGITS, Recorder, position_axis
from mechint.task import IGNORE, Batch
from tests.conformance import architectures

P = 7
NATIVE = {
    "n_layers": 2,
    "d_model": 8,
    "n_heads": 2,
    "d_head": 4,
    "d_mlp": 16,
    "act_fn": "relu",
    "d_vocab": P + 1,
    "n_ctx": 3,
    "normalization_type": "LN",
}


class Plain(nn.Module):
    """A module such as people write: no hooks, one answer per example."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(P + 1, 8)
        self.layers = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, P, bias=False))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.layers(self.embedding(tokens[:, :2]).flatten(1))


def wrapped() -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return mechint.wrap(
            Plain(),
            {
                "hook_embed": "embedding",
                "blocks.0.mlp.hook_pre": "layers.1:input",
                "blocks.0.mlp.hook_post": "layers.1",
            },
            weights={"W_E": "embedding.weight", "W_U": lambda module: module.layers[2].weight.T},
            make=Plain,
            d_mlp=12,
        )


def huggingface(kind: str, **settings: Any) -> Any:
    """A tiny model at random weights, saved to disk and opened from there."""
    with quiet(), tempfile.TemporaryDirectory() as place:
        architectures.made(kind, **settings).save_pretrained(place)
        return bridge.bridge_of(bridge.load_directory(Path(place)), Path(place))


def transformer(**changes: Any) -> Any:
    sizes = {"n_layers": 2, "d_model": 8, "n_heads": 2, "d_vocab": P + 1, "n_ctx": 3}
    return build(ModelConfig(**{**sizes, "d_vocab_out": P, **changes}), seed=1).eval()


KINDS: dict[str, Callable[[], Any]] = {
    "transformer": lambda: transformer(normalization_type="LN"),
    "attention-only, bidirectional": lambda: transformer(
        attn_only=True, attention_dir="bidirectional"
    ),
    "weight-tied": lambda: transformer(n_loops=2),
    "blocks of Llama": lambda: transformer(**LLAMA, use_qk_norm=True, qkv_bias=True),
    "linear bottleneck": lambda: build(LinearBottleneckConfig(n=6, width=3, n_tasks=2, n_out=2)),
    "two layers": lambda: build(TwoLayerConfig(d=6, width=3)),
    "pair network": lambda: build(
        PairNetworkConfig(d_vocab=P + 1, d_vocab_out=P, d_embed=6, widths=(5,), n_ctx=3)
    ),
    "native bridge": lambda: bridge.boot_native(NATIVE, seed=1),
    "gpt2": lambda: huggingface("gpt2", n_inner=64),
    "llama": lambda: huggingface("llama"),
    "gpt_neox": lambda: huggingface("gpt_neox"),
    "olmo": lambda: huggingface("olmo"),
    "wrapped module": wrapped,
}
NO_TOKENS = ("linear bottleneck", "two layers")

SHAPES = {  # n_layers, d_model, n_heads, d_mlp, d_vocab, d_vocab_out, attention_dir
    "transformer": (2, 8, 2, 32, P + 1, P, "causal"),
    "attention-only, bidirectional": (2, 8, 2, None, P + 1, P, "bidirectional"),
    "weight-tied": (4, 8, 2, 32, P + 1, P, "causal"),
    "blocks of Llama": (2, 8, 2, 32, P + 1, P, "causal"),
    "linear bottleneck": (0, None, None, None, None, None, None),
    "two layers": (0, None, None, None, None, None, None),
    "pair network": (1, 6, None, 5, P + 1, P, None),
    "native bridge": (2, 8, 2, 16, P + 1, P + 1, "causal"),
    "gpt2": (2, 16, 2, 64, 20, 20, "causal"),
    "llama": (2, 16, 2, 24, 20, 20, "causal"),
    "gpt_neox": (2, 16, 2, 24, 20, 20, "causal"),
    "olmo": (2, 16, 2, 24, 20, 20, "causal"),
    "wrapped module": (1, 8, None, 12, P + 1, P, None),
}


@cache
def made(kind: str) -> Any:
    return KINDS[kind]()


def inputs(kind: str, n: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    if kind in NO_TOKENS:
        return torch.randn(n, 6, generator=generator)
    return torch.randint(P, (n, 3), generator=generator)


def subject_of(kind: str, **options: Any) -> Subject:
    tokens = inputs(kind)
    targets = torch.full((len(tokens), 3, 1), -1)
    targets[:, 2] = tokens[:, :1].long().clamp(0, P - 1)
    return Subject(made(kind), None, data=Batch(tokens, targets), **options)


def attached(model: Any) -> dict[str, int]:
    """Hooks of every sort on every submodule and hook point."""
    found = {}
    for name, module in model.named_modules():
        kinds = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
        found[name] = sum(map(len, kinds)) + len(getattr(module, "fwd_hooks", ()))
    return found


QUICK = ("transformer", "gpt2", "wrapped module")
"""Kinds that are tested each time; all others in the full suite."""


def kinds(*names: str) -> list[Any]:
    """Parameters of these kinds, all but the quick ones marked for the full suite."""
    marks = pytest.mark.full
    return [name if name in QUICK else pytest.param(name, marks=marks) for name in names]


every = pytest.mark.parametrize("kind", kinds(*KINDS))


@every
def test_a_recorded_value_is_what_passes_the_hook_point(kind: str) -> None:
    model, tokens, seen = made(kind), inputs(kind), {}
    names = sorted(hook_names(model))
    points = {name: model.hook_dict[name] for name in names}
    handles = [
        point.register_forward_hook(lambda _, args, out, name=name: seen.__setitem__(name, out))
        for name, point in points.items()
    ]
    with torch.no_grad():
        logits = model(tokens)
    for handle in handles:
        handle.remove()
    found = Recorder(model).record(tokens, [*names, LOGITS])
    assert torch.equal(found[LOGITS], logits)
    for name in names:
        # a bridge's hooks see heads apart and after the position, its modules sometimes do not
        turned = "hook_rot_" in name and not isinstance(model, HookedTransformer)
        passed = seen[name].transpose(1, 2) if turned else seen[name]
        assert torch.equal(found[name].flatten(), passed.flatten()), name


@every
def test_the_shape_is_told(kind: str) -> None:
    shape = describe(made(kind))
    assert (
        shape.n_layers,
        shape.d_model,
        shape.n_heads,
        shape.d_mlp,
        shape.d_vocab,
        shape.d_vocab_out,
        shape.attention_dir,
    ) == SHAPES[kind]


@every
def test_chunks_positions_and_one_forward_for_all_names(kind: str) -> None:
    model, calls = made(kind), []
    whole = subject_of(kind)
    names = [name for name in sorted(whole.hooks) if name.startswith(("blocks.0.", "hook_"))]
    names = [name for name in names if whole.activation(name).shape[0] == 5]
    small = subject_of(kind, chunk=2, memory=0)
    assert (
        small.chunk == 2
    )  # asked once before forwards are counted: a bridge tells its shape by one
    first = model.hook_dict[names[0]]
    handle = first.register_forward_hook(lambda *_: calls.append(1))
    try:
        parts = small.activations(names)
    finally:
        handle.remove()
    assert 3 <= len(calls) <= 4  # three chunks, and one example whose size is looked at
    for name in names:
        assert torch.allclose(parts[name], whole.activation(name), atol=1e-6, equal_nan=True)
    if kind in NO_TOKENS:
        return
    names = [name for name in names if parts[name].shape[position_axis(name)] == 3]
    at_answer = subject_of(kind).activations(names, at="answer")
    for name in names:
        expected = whole.activation(name).select(position_axis(name), 2)
        assert torch.allclose(at_answer[name], expected, atol=1e-6, equal_nan=True), name


@every
def test_nothing_is_left_behind_after_an_error(kind: str) -> None:
    subject = subject_of(kind)
    model, name = subject.model, min(subject.hooks)
    before, state = attached(model), torch.get_rng_state()

    def fail(activation: Tensor, hook: Any) -> None:
        raise ZeroDivisionError

    model.train()
    with pytest.raises(ZeroDivisionError), subject.untouched():
        assert not model.training
        subject.logits(hooks=[(name, fail)], at=None)
    assert model.training and attached(model) == before
    assert torch.equal(torch.get_rng_state(), state)
    model.eval()
    with pytest.raises(UnknownNameError, match=r"did you mean|hook"):
        subject.activation("blocks.0.hook_nothing")


@every
def test_a_hook_edits_what_comes_after_it(kind: str) -> None:
    subject = subject_of(kind)
    first = {"linear bottleneck": "hook_encoded", "two layers": "hook_post"}.get(kind, "hook_embed")
    plain = subject.logits(at=None)
    edited = subject.logits(hooks=[(first, lambda activation, hook: 2 * activation)], at=None)
    assert not torch.allclose(plain, edited)
    assert torch.equal(plain, subject_of(kind).logits(at=None))


@every
def test_capabilities_are_true(kind: str) -> None:
    model = made(kind)
    can = capabilities(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    if Capability.EDIT_WEIGHTS in can:
        tokens = inputs(kind)
        with torch.no_grad():
            before = model(tokens)
            model.load_state_dict({name: value * 1.5 for name, value in state.items()})
            assert not torch.allclose(before, model(tokens))
            model.load_state_dict(state)
            assert torch.equal(before, model(tokens))
    if Capability.REINITIALIZE in can:
        random = torch.get_rng_state()
        one, same, other = (reinitialized(model, seed) for seed in (3, 3, 4))
        assert torch.equal(torch.get_rng_state(), random)
        drawn = [list(each.parameters()) for each in (one, same, other, model)]
        shapes = [[tuple(value.shape) for value in each] for each in drawn]
        assert shapes[0] == shapes[2] == shapes[3]
        assert all(map(torch.equal, drawn[0], drawn[1]))
        assert not all(map(torch.equal, drawn[0], drawn[2]))
        assert hook_names(one) == hook_names(model)
    assert (Capability.RESUME in can) == (type(model).__name__ == "HookedTransformer")
    assert (Capability.HEAD_WEIGHTS in can) == (describe(model).n_heads is not None)


def embedded(hooks: Any, **options: Any) -> Any:
    return mechint.wrap(Plain(), hooks, **options)


def of_plain_tokens(model: Any) -> Subject:
    tokens = inputs("wrapped module")
    return Subject(model, None, data=Batch(tokens, torch.zeros(5, 3, 1).long()))


EMBEDDING = {"hook_embed": "embedding"}


@pytest.mark.parametrize(
    ("ask", "said"),
    [
        (lambda: embedded({"hook_embed": "embeding"}), "unknown submodule"),
        (lambda: embedded({"embed": "embedding"}), "TransformerLens's names"),
        (lambda: embedded(EMBEDDING, weights={"W_X": "embedding.weight"}), "unknown weight"),
        (lambda: Subject(Plain(), None), r"no hooks by name.*mechint\.wrap"),
        (lambda: mechint.wrap(lambda tokens: tokens, EMBEDDING), "wrap: got a function"),  # pyright: ignore
        (
            lambda: of_plain_tokens(embedded(EMBEDDING)).untrained(),
            "WrappedModule cannot draw new initial weights",
        ),
    ],
)
def test_a_module_that_cannot_be_wrapped_or_drawn_anew(
    ask: Callable[[], object], said: str
) -> None:
    with pytest.raises(MechintError, match=said):
        ask()


def test_a_wrapped_module_answers_as_the_module_does() -> None:
    model, tokens = made("wrapped module"), inputs("wrapped module")
    with torch.no_grad():
        assert torch.equal(model(tokens)[:, -1], model.module(tokens))
        assert torch.equal(model(tokens)[:, 0], model.module(tokens))
        hidden = model.module.layers[:2](model.module.embedding(tokens[:, :2]).flatten(1))
    found = subject_of("wrapped module").activation("blocks.0.mlp.hook_post", at="answer")
    assert torch.equal(found, hidden)


class Recurrent(nn.Module):
    """A recurrent layer between the embedding and the logits, its positions first or second."""

    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(P + 1, 8)
        self.layer = nn.GRU(8, 6, batch_first=batch_first)
        self.out = nn.Linear(6, P)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        if self.layer.batch_first:
            return self.out(self.layer(x)[0])
        return self.out(self.layer(x.transpose(0, 1))[0].transpose(0, 1))


def test_an_activation_whose_positions_come_first_is_refused() -> None:
    first, second = Recurrent(batch_first=False), Recurrent(batch_first=True)
    second.load_state_dict(first.state_dict())
    hooks = {"blocks.0.hook_resid_post": "layer"}
    right = mechint.wrap(second, hooks)
    tokens = torch.randint(0, P, (7, 3), generator=torch.Generator().manual_seed(0))
    with pytest.raises(ParameterError, match="batch_first=True") as caught:
        mechint.wrap(first, hooks)
    assert "\n" not in str(caught.value)
    for rows in (7, 3, 1):  # three examples of three positions, too
        assert right(tokens[:rows]).shape == (rows, 3, P)
    unhooked = mechint.wrap(first, {})
    assert torch.allclose(unhooked(tokens), right(tokens), atol=1e-6)
    with pytest.raises(ParameterError, match="wrap: logits has shape"):
        mechint.wrap(nn.Embedding(P + 1, P), {}, call=lambda m, x: m(x).transpose(0, 1))


class Usual(nn.Module):
    """A module that returns and calls its parts in one of people's ways, `how`."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.embedding, self.out = how, nn.Embedding(P + 1, 4), nn.Linear(4, P)
        self.part = Part(how)

    def forward(self, tokens: Tensor, targets: Any = None) -> Any:
        x = self.embedding(tokens)
        if self.how in ("list", "named", "dict"):
            x = self.part(x)
            x = x.h if self.how == "named" else x["h" if self.how == "dict" else 0]
        elif self.how == "keyword":
            x = self.part(mask=None, hidden=x)
        elif self.how == "twice":
            x = self.part(torch.relu(self.part(x)))
        logits = self.out(x)
        answers = {"pair": (logits, None), "single": (logits,), "mapping": {"logits": logits}}
        return answers.get(self.how, None if self.how == "nothing" else logits)


class Named(NamedTuple):
    h: Tensor
    more: int


class Part(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.map = how, nn.Linear(4, 4)

    def forward(self, hidden: Tensor, mask: Any = None) -> Any:
        h = self.map(hidden)
        found = {"list": [h, 1], "named": Named(h, 1), "dict": {"h": h}}
        return found.get(self.how, h)


@pytest.mark.parametrize("how", ["pair", "single", "mapping"])
def test_the_logits_are_found_in_what_a_module_returns(how: str) -> None:
    module, tokens = Usual(how), inputs("wrapped module")
    found = mechint.wrap(module, {"hook_embed": "embedding"})(tokens)
    assert torch.equal(found, module.out(module.embedding(tokens)))


@pytest.mark.parametrize(
    ("how", "place"), [("list", "part"), ("named", "part"), ("keyword", "part:input")]
)
def test_the_first_of_what_a_submodule_gives_or_is_given_is_hooked(how: str, place: str) -> None:
    module, tokens = Usual(how), inputs("wrapped module")
    name = "blocks.0.hook_resid_post"
    model = mechint.wrap(module, {name: place})
    own = model(tokens)
    _, kept = model.run_with_cache(tokens)
    x = module.embedding(tokens)
    assert torch.equal(kept[name], x if how == "keyword" else module.part.map(x))
    edited = model.run_with_hooks(tokens, fwd_hooks=[(name, lambda x, hook: 2 * x)])
    assert torch.equal(own, module(tokens)) and not torch.allclose(own, edited)


@pytest.mark.parametrize(
    ("how", "hooks", "said"),
    [
        ("nothing", {}, "the module returns a NoneType; expected logits"),
        ("dict", {"blocks.0.hook_resid_post": "part"}, "is a dict; expected a tensor"),
        ("twice", {"blocks.0.hook_resid_post": "part"}, "runs more than once in a forward"),
        ("twice", {"blocks.0.hook_resid_pre": "part:input"}, "runs more than once in a forward"),
        ("plain", ["embedding"], "hooks as a list; expected an nn.Module and"),
        ("plain", {"hook_embed": nn.Linear(1, 1)}, "its place is or gives no submodule"),
        ("plain", {"hook_embed": lambda module: None}, "its place is or gives no submodule"),
    ],
)
def test_what_cannot_be_wrapped_is_said_in_one_line(how: str, hooks: Any, said: str) -> None:
    with pytest.raises(ParameterError) as caught:
        mechint.wrap(Usual(how), hooks)(inputs("wrapped module"))
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_a_module_that_answers_once_gives_that_answer_wherever_it_is_asked() -> None:
    """As a bracket classifier whose target stands at the first position."""
    model, task = made("wrapped module"), tasks.modular_arithmetic(p=P)
    last = task.examples()
    targets = torch.full_like(last.targets, IGNORE)
    targets[:, 0] = last.targets[:, -1]
    first = Subject(model, task, data=Batch(last.tokens, targets))
    second = Subject(model, task, data=last)
    assert torch.equal(first.logits(), second.logits()) and first.logits().any()
    assert first.loss() == second.loss() and first.accuracy() == second.accuracy()


@pytest.mark.full
def test_the_table_in_the_docs_says_which_probe_serves_which_model() -> None:
    """`tests.conformance.models_table` makes it from real runs; here each cell is held against what
    the probe says of the model today.
    """
    from mechint.registry import PROBES
    from tests.conformance.models_table import COLUMNS, PAGE, subject_of

    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if "|" in line]
    heading, _, *cells = rows
    assert heading == ["probe", *COLUMNS]
    assert [row[0].strip("`") for row in cells] == list(PROBES.names())
    for column, kind in enumerate(COLUMNS.values(), start=1):
        subject = subject_of(kind)
        for row in cells:
            probe = PROBES[row[0].strip("`")]()
            applies = probe.applicable(subject) is None
            assert applies == (row[column] == "yes"), (row[0], kind, probe.applicable(subject))
