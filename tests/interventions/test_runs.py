"""Every edit on every engine, alone and together with others, is what plain hooks make of it."""

from __future__ import annotations

import copy
import dataclasses
import warnings
import weakref
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mechint.config import LLAMA, ModelConfig
from mechint.errors import ParameterError
from mechint.interventions import (
    Add,
    Compute,
    EditedRuns,
    Intervention,
    Mean,
    Replace,
    Site,
    Take,
    Zero,
    path,
    resumes,
)
from mechint.models.foreign.bridge import bridge_of
from mechint.models.transformer import HookedTransformer

N, POS, LAYERS, HEADS, WIDTH = 6, 5, 3, 2, 8
NATIVE: dict[str, dict[str, Any]] = {
    "GPT-2": {"normalization_type": "LN", "act_fn": "gelu_new"},
    "Llama": {**LLAMA, "use_qk_norm": True},
    "attention alone": {"attn_only": True},
    "bidirectional": {"attention_dir": "bidirectional", "normalization_type": "LNPre"},
    "constant attention": {"attention_rate": 0.5, "n_loops": 2, "n_layers": 2},
}
BRIDGED = ("gpt2", "llama", "gpt_neox", "gemma3_text")


@cache
def model_of(kind: str) -> Any:
    if kind.startswith("hooked "):
        model = native(kind.removeprefix("hooked "))
        model.add_hook("blocks.0.mlp.hook_post", lambda x, hook: x / 2)  # runs in every edited run
        assert not resumes(model)
        return model
    if kind not in BRIDGED:
        return native(kind)
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"vocab_size": 12, "hidden_size": WIDTH, "num_hidden_layers": LAYERS, "head_dim": 4}
    sizes |= {"intermediate_size": 16, "num_attention_heads": HEADS, "sliding_window": 3}
    sizes |= {"max_position_embeddings": 16}
    sizes |= {} if kind in ("gpt2", "gpt_neox") else {"num_key_value_heads": 1}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        made = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
        return noisy(bridge_of(made).double())


def native_config(kind: str) -> ModelConfig:
    sizes = {"n_layers": LAYERS, "d_model": WIDTH, "n_heads": HEADS, "n_ctx": POS}
    return ModelConfig(**{**sizes, "d_vocab": 12, "d_vocab_out": 12, **NATIVE[kind]})


def native(kind: str) -> HookedTransformer:
    return noisy(HookedTransformer(native_config(kind), seed=1).double().eval())


def noisy(model: Any) -> Any:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype))
    return model


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    """Inputs of unlike lengths, padded, and for each one to take activations from, which begins as
    it does in some.
    """
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(12, (N, POS), generator=generator)
    reads = torch.tensor([4, 2, 4, 3, 4, 2])
    tokens[4, :3] = tokens[0, :3]
    tokens[5, :2] = tokens[1, :2]
    return tokens, reads, torch.tensor([4, 5, 0, 2, 2, 1])


class ByHooks:
    """Edits by plain hooks, from the tokens, written a second time."""

    def __init__(self, model: Any, tokens: Tensor, reads: Tensor) -> None:
        self.model, self.tokens, self.reads = model, tokens, reads
        self.known: dict[str, Tensor] = {}

    def seen(self, hook: str) -> Tensor:
        if hook in self.known:
            return self.known[hook]
        found: list[Tensor] = []
        with torch.no_grad():
            self.model.run_with_hooks(
                self.tokens, fwd_hooks=[(hook, lambda x, hook: found.append(x.clone()))]
            )
        self.known[hook] = found[0]
        return found[0]

    def replaced(self, x: Tensor, row: int, edit: Intervention) -> Tensor:
        """The activation x of one input, (pos, …), edited position by position."""
        site, x = edit.site, x.clone()
        turned = site.hook.endswith("hook_pattern")
        x = x.transpose(0, 1) if turned else x
        place = {"answer": int(self.reads[row]), None: None}.get(site.pos, site.pos)  # type: ignore[arg-type]
        place = place[row] if isinstance(place, tuple) else place
        width = x.shape[1] if site.per_head else x.shape[-1]
        for pos in range(len(x)) if place is None else [place]:
            for unit in site.units or range(width):
                at = (pos, unit) if site.per_head else (pos, ..., unit)
                x[at] = self.value(edit, x, row, pos, at)
        return x.transpose(0, 1) if turned else x

    def value(self, edit: Intervention, x: Tensor, row: int, pos: int, at: Any) -> Tensor:
        if isinstance(edit, Zero):
            return torch.zeros_like(x[at])
        if isinstance(edit, Take | Mean):
            there = self.seen(edit.site.hook)
            there = there.transpose(1, 2) if edit.site.hook.endswith("hook_pattern") else there
            if isinstance(edit, Take):
                return there[(int(edit.source[row]), *at)]
            if edit.site.pos == "answer":
                rows = range(len(there))
                return torch.stack([there[(r, int(self.reads[r]), *at[1:])] for r in rows]).mean(0)
            return there[(slice(None), *at)].mean(0)
        if isinstance(edit, Compute):
            return 2 * x[at] + pos
        given = edit.value if isinstance(edit, Replace) else edit.delta  # type: ignore[attr-defined]
        given = given.expand(N, *((POS,) if edit.site.pos is None else ()), *given.shape[-1:])
        given = given[row, pos] if edit.site.pos is None else given[row]
        given = given if edit.site.per_head else given[..., at[-1]]
        return x[at] + given if isinstance(edit, Add) else given

    def under(self, edits: Sequence[Intervention]) -> Tensor:
        for edit in edits:  # not within a forward
            self.seen(edit.site.hook)
        hooks = []
        for edit in edits:

            def hook(x: Tensor, hook: Any, edit: Any = edit) -> Tensor:
                return torch.stack([self.replaced(one, row, edit) for row, one in enumerate(x)])

            hooks.append((edit.site.hook, hook))
        with torch.no_grad():
            logits = self.model.run_with_hooks(self.tokens, fwd_hooks=hooks)
        return logits[torch.arange(N), self.reads]


def double(part: Tensor, at: Any) -> Tensor:
    """Twice what it is, and the position, which the edit is told."""
    places = at.positions if part.dim() > at.positions.dim() + (part.dim() == 4) else None
    assert places is not None
    return 2 * part + places.reshape(*places.shape, *[1] * (part.dim() - 2))


def sets_of_edits(model: Any, source: Tensor) -> list[list[Intervention]]:
    """Every kind of edit at every kind of site alone, then several in several layers."""
    generator = torch.Generator().manual_seed(5)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    has_mlp = "blocks.0.hook_mlp_out" in model.hook_dict
    depth = 1 + max(int(n.split(".")[1]) for n in model.hook_dict if n.startswith("blocks."))
    alone: list[Intervention] = []
    for layer in range(depth):
        for pos in (None, 1, "answer", tuple(range(3)) * 2):
            z, stream = Site.of("head", layer, pos, (1,)), Site.resid_pre(layer, pos)
            spread = (POS,) if pos is None else ()
            alone += [Take(z, source), Zero(z), Take(stream, source)]
            alone += [Replace(stream, random(N, *spread, WIDTH)), Add(stream, random(WIDTH))]
            alone += [Take(Site.attention(layer, pos), source)]
            if has_mlp:
                alone += [
                    Take(Site.mlp(layer, pos), source),
                    Zero(Site.neurons(layer, (0, 3), pos)),
                ]
        alone += [Mean(Site.of("head", layer, None, (0,))), Mean(Site.attention(layer, "answer"))]
        alone += [Compute(Site.resid_pre(layer), double), Compute(Site.of("head", layer), double)]
        alone += [Take(Site(f"blocks.{layer}.attn.hook_pattern", None, (0,)), source)]
        alone += [Zero(Site(f"blocks.{layer}.attn.hook_v", 1, (0,)))]
        alone += [Add(Site.of("resid_post", layer), random(N, POS, WIDTH))]
    alone += [Zero(Site("hook_embed", 1))]
    own = torch.arange(N)
    frozen = [Take(Site(f"blocks.{layer}.attn.hook_pattern"), own) for layer in range(depth)]
    last = depth - 1
    together = [
        [
            Take(Site.head(0, 1), source),
            Zero(Site.head(last, 0)),
            Add(Site.resid_pre(1), random(8)),
        ],
        [Zero(Site.resid_pre(1, 1)), *frozen],
        [Take(Site.head(layer, 0), source) for layer in range(depth)],
        [Take(Site.head(0, 0, "answer"), own), Take(Site.resid_pre(last, 2), source)],
        [Add(Site.resid_pre(last), random(8)), Zero(Site.resid_pre(last, "answer"))],
        [],
    ]
    return [*([one] for one in alone), *together]


@pytest.mark.parametrize(
    ("kind", "stack"),
    [
        *((kind, 1 << 24) for kind in (*NATIVE, "hooked GPT-2")),
        *(pytest.param(kind, 1, marks=pytest.mark.full) for kind in ("GPT-2", "Llama")),
        *(pytest.param(kind, 1 << 24, marks=pytest.mark.full) for kind in BRIDGED),
    ],
)
def test_edits_are_those_of_hooks(kind: str, stack: int) -> None:
    model = model_of(kind)
    tokens, reads, source = inputs()
    runs, hooks = EditedRuns(model, tokens, reads, stack=stack), ByHooks(model, tokens, reads)
    expected_engine = "blocks" if kind in BRIDGED else "native"
    assert runs.engine == ("whole" if kind.startswith("hooked") else expected_engine)
    sets = sets_of_edits(model, source)
    found = runs.under(sets)
    for edits, logits in zip(sets, found, strict=True):
        torch.testing.assert_close(
            logits, hooks.under(edits), atol=1e-9, rtol=1e-9, msg=lambda m, e=edits: f"{e}: {m}"
        )


SENDER = Site.head(0, 1)
RECEIVERS = [Site.read("q", 1, 0), Site.read("q", 2, 1), Site.read("k", 2, 1), Site.read("v", 1, 1)]
RECEIVERS += [Site.read("mlp", 1), Site.read("logits")]


def reads_by_a_second_model(
    model: Any, tokens: Tensor, reads: Tensor, change: Tensor, receivers: Sequence[Site]
) -> Tensor:
    """Logits when what the receivers read is the stream and `change`, by plain hooks: what each
    makes of it is computed by a copy of the model that is run from there.
    """
    other, hooks, stream = copy.deepcopy(model), [], dict[str, Tensor]()
    for site in receivers:
        delta = torch.zeros_like(change)
        where = slice(None) if site.pos is None else (torch.arange(N), reads)
        delta[where] = change[where]
        if site.layer is None:
            hooks.append(("blocks.2.hook_resid_post", lambda x, hook, d=delta: x + d))
            continue
        block, kind = f"blocks.{site.layer}", site.hook[-7]
        if site.hook.endswith("mlp_in"):

            def put(x: Tensor, hook: Any, block: str = block, d: Tensor = delta) -> Tensor:
                start, found = int(block.split(".")[1]), list[Tensor]()
                middle = stream[f"{block}.hook_resid_mid"] + d
                edits = [(f"{block}.hook_resid_mid", lambda x, hook: middle)]
                edits += [(f"{block}.hook_mlp_out", lambda x, hook: found.append(x.clone()))]
                other.run_with_hooks(middle, start_at_layer=start, fwd_hooks=edits)
                return found[0]

            out = f"{block}.hook_mlp_out"
        else:

            def put(
                x: Tensor, hook: Any, block: str = block, d: Tensor = delta, u: Any = site.units
            ) -> Tensor:
                start, found = int(block.split(".")[1]), list[Tensor]()
                edits = [(hook.name, lambda x, hook: found.append(x.clone()))]
                changed = stream[f"{block}.hook_resid_pre"] + d
                other.run_with_hooks(changed, start_at_layer=start, fwd_hooks=edits)
                x = x.clone()
                x[:, :, list(u)] = found[0][:, :, list(u)]
                return x

            out = f"{block}.attn.hook_{kind}"
        hooks += [(out, put)]
    keep = [
        (f"blocks.{at}.hook_resid_{end}", lambda x, hook: stream.update({hook.name: x.clone()}))
        for at in range(LAYERS)
        for end in ("pre", "mid")
    ]
    with torch.no_grad():
        logits = model.run_with_hooks(tokens, fwd_hooks=[*keep, *hooks])
    return logits[torch.arange(N), reads]


@pytest.mark.parametrize("kind", ["GPT-2", "Llama"])
@pytest.mark.parametrize("pos", [None, "answer"])
def test_paths_are_those_of_plain_hooks(kind: str, pos: Any) -> None:
    """Alone and into several layers at once, where what a receiver writes reaches the later ones,
    and beside an edit of what is written.
    """
    model = model_of(kind)
    tokens, reads, source = inputs()
    own, runs = torch.arange(N), EditedRuns(model, tokens, reads)
    z = ByHooks(model, tokens, reads).seen(SENDER.hook)[:, :, 1]
    change = (z[source] - z) @ model.W_O[0, 1].detach()
    receivers = [dataclasses.replace(one, pos=pos) for one in RECEIVERS]
    groups = [*([one] for one in receivers), receivers[:2], receivers]
    found = runs.under([path(runs, SENDER, group, source, own) for group in groups])
    for group, logits in zip(groups, found, strict=True):
        expected = reads_by_a_second_model(model, tokens, reads, change, group)
        torch.testing.assert_close(logits, expected, atol=1e-9, rtol=1e-9)
    assert path(runs, Site.head(2, 0), receivers[:5], source, own) == []  # none stands behind it
    late = EditedRuns(model, tokens, reads).under(
        [[*path(runs, SENDER, receivers[:1], source, own), Zero(Site.mlp(2))]]
    )
    without = copy.deepcopy(model)
    with torch.no_grad():
        without.get_parameter("blocks.2.mlp.W_out").zero_()
        for name, weight in without.named_parameters():
            weight.mul_(name != "blocks.2.mlp.b_out")
    expected = reads_by_a_second_model(without, tokens, reads, change, receivers[:1])
    torch.testing.assert_close(late[0], expected, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("kind", BRIDGED)
def test_paths_on_a_bridge_are_those_of_its_own_hooks(kind: str) -> None:
    model = model_of(kind)
    tokens, reads, _ = inputs()
    runs = EditedRuns(model, tokens, reads)
    change = torch.randn(N, POS, 1, WIDTH, dtype=torch.float64)
    sites = [Site.read("q", 1, 0), Site.read("q", 2, 1), Site.read("v", 2, 0)]
    found = runs.under([[Add(site, change) for site in sites]])[0]
    model.set_use_split_qkv_input(True)
    try:
        hooks = [
            (site.hook, lambda x, hook, u=site.units[0]: x.index_add(2, torch.tensor([u]), change))
            for site in sites
        ]
        with torch.no_grad():
            logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    finally:
        model.set_use_split_qkv_input(False)
    torch.testing.assert_close(found, logits[torch.arange(N), reads], atol=1e-9, rtol=1e-9)
    assert (found - runs.logits).abs().max() > 1e-3
    for layer in range(LAYERS):  # past a norm behind attention, too
        bias = model.blocks[layer].attn.b_O
        written = runs.written_by(layer).sum(2) + (0 if bias is None else bias)
        expected = runs.recorded(f"blocks.{layer}.hook_attn_out")
        torch.testing.assert_close(written, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("on", [False, True])
def test_a_bridge_shows_afterwards_what_it_showed_before(on: bool) -> None:
    model = model_of(BRIDGED[0])
    tokens, reads, _ = inputs()
    model.set_use_split_qkv_input(on)
    EditedRuns(model, tokens, reads).under([Add(Site.read("q", 1, 0), torch.ones(1, WIDTH))])
    assert model.cfg.use_split_qkv_input == on


@pytest.mark.parametrize("kind", ["Llama", "hooked GPT-2", "gpt2"])
def test_gradients_are_slopes_of_small_edits(kind: str) -> None:
    model = model_of(kind)
    tokens, reads, source = inputs()
    runs, own = EditedRuns(model, tokens, reads), torch.arange(N)
    classes = torch.stack([own, own + 6], 1)
    sites = [Site.of("head", 0), Site.of("head", 2), Site.resid_pre(1)]
    hooks = [site.hook for site in sites]
    found = torch.zeros(len(sites), N, dtype=torch.float64)
    for rows, parts in runs.gradients(
        hooks, lambda logits, rows: logits.diff(dim=1)[:, 0], own, classes=classes
    ):
        for site, hook in enumerate(hooks):
            value, slope, places = parts[hook]
            there = runs.recorded(hook)[source[rows][:, None], places]
            found[site, rows] = ((there - value) * slope).flatten(1).sum(1)
    for index, site in enumerate(sites):
        x = runs.recorded(site.hook)
        steps = [Replace(site, x + step * (x[source] - x)) for step in (-1e-5, 1e-5)]
        below, above = runs.under(steps, classes=classes).diff(dim=-1)[..., 0]
        torch.testing.assert_close(found[index], (above - below) / 2e-5, atol=1e-6, rtol=1e-5)


def test_blocks_that_read_earlier_ones_are_not_skipped() -> None:
    """A bridge whose last block takes a part of what the first one wrote, past the stream."""
    model = copy.deepcopy(model_of("llama"))
    first, last = model.original_model.model.layers[0], model.original_model.model.layers[-1]
    kept: list[Tensor] = []
    first.mlp.register_forward_hook(lambda module, args, out: kept.__setitem__(slice(None), [out]))
    last.mlp.register_forward_hook(lambda module, args, out: out + kept[0])
    tokens, reads, source = inputs()
    runs, hooks = EditedRuns(model, tokens, reads), ByHooks(model, tokens, reads)
    for site in (Site.head(0, 1), Site.head(1, 0), Site.head(2, 1), Site.resid_pre(1)):
        found = runs.under([Take(site, source)])[0]
        torch.testing.assert_close(found, hooks.under([Take(site, source)]), atol=1e-9, rtol=1e-9)
    plain = model_of("llama")
    assert (runs.logits - EditedRuns(plain, tokens, reads).logits).abs().max() > 1e-3


def test_what_cannot_be_edited_is_refused() -> None:
    tokens, reads, source = inputs()
    runs = EditedRuns(model_of("GPT-2"), tokens, reads)
    hooked = EditedRuns(model_of("hooked GPT-2"), tokens, reads)
    for one, edit, expected in (
        (runs, Zero(Site("blocks.9.hook_mlp_out")), "blocks.9.hook_mlp_out: the model has none"),
        (runs, Take(Site.head(0, 7), source), "7 is not among the 2"),
        (hooked, Zero(Site.read("q", 1, 0)), "does not show what a receiver reads"),
        (runs, Zero(Site.resid_pre(0, 5)), "position 5 is asked for"),
    ):
        with pytest.raises(ParameterError, match=expected):
            one.under([edit])
    with pytest.raises(ParameterError, match="expected heads, attention or an MLP"):
        path(runs, Site("hook_embed"), [Site.read("q", 1, 0)], source, source)


class Doubled(HookedTransformer):
    """A model that computes something else than its configuration says."""

    def forward(self, *args: Any, **options: Any) -> Any:
        return 2 * super().forward(*args, **options)


def test_the_mathematics_of_a_model_is_held_against_its_logits() -> None:
    tokens, reads, source = inputs()
    model = Doubled(native_config("GPT-2"), seed=1).double().eval()
    runs, hooks = EditedRuns(model, tokens, reads), ByHooks(model, tokens, reads)
    assert (
        runs.engine == "whole" and EditedRuns(model_of("GPT-2"), tokens, reads).engine == "native"
    )
    edit = Take(Site.head(1, 0), source)
    torch.testing.assert_close(runs.under([edit])[0], hooks.under([edit]), atol=1e-9, rtol=1e-9)


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [one.untyped_storage() for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]


class MostHeld(TorchDispatchMode):
    """The most bytes that tensors made inside took at one moment."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.now = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage.data_ptr() for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage.data_ptr() not in given:  # no view of what is counted, or was there before
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if id(storage) not in self.known:
            self.known.add(id(storage))
            self.now += storage.nbytes()
            self.bytes = max(self.bytes, self.now)
            weakref.finalize(storage, self._forget, id(storage), storage.nbytes())

    def _forget(self, storage: int, nbytes: int) -> None:
        self.known.discard(storage)
        self.now -= nbytes


@pytest.mark.parametrize("stack", [1 << 20, 1 << 22])
def test_a_stacked_forward_keeps_to_its_bytes(stack: int) -> None:
    """By a count of all tensors made, beside what is recorded and the result."""
    sizes = {"n_layers": 3, "d_model": 64, "n_heads": 4, "n_ctx": 12, "normalization_type": "LN"}
    model = HookedTransformer(ModelConfig(**sizes, d_vocab=50, d_vocab_out=50), seed=0).eval()
    tokens = torch.randint(50, (256, 12), generator=torch.Generator().manual_seed(0))
    reads, other = torch.full((256,), 11), torch.arange(255, -1, -1)
    one = torch.ones(64)
    for edits in (
        [Take(Site.head(layer, head), other) for layer in (0, 1) for head in range(4)],
        [Zero(Site.resid_pre(layer, pos)) for layer in (0, 1) for pos in (2, 5)],
        [Add(Site.read("q", 1, head), one) for head in range(4)],
        [[Add(Site.read(letter, 1), one) for letter in "qkv"]],
        [Zero(Site.neurons(1, (unit,))) for unit in range(4)],
    ):
        runs = EditedRuns(model, tokens, reads, stack=stack)
        runs.under(edits)  # records
        with MostHeld() as most:
            result = runs.under(edits)
        assert stack / 3 < most.bytes - result.nbytes < stack


def test_output_groups_that_left_early_keep_their_answer() -> None:
    early = {"output_sizes": (2, 10), "read_layers": (1, 3)}
    config = ModelConfig(**{**native_config("GPT-2").to_dict(), **early})
    model = noisy(HookedTransformer(config, seed=1).double().eval())
    tokens, reads, source = inputs()
    runs, hooks = EditedRuns(model, tokens, reads), ByHooks(model, tokens, reads)
    edits = [Take(one, source) for one in (Site.attention(0), Site.mlp(0), Site.resid_pre(1))]
    for edit, found in zip(edits, runs.under(edits), strict=True):
        torch.testing.assert_close(found, hooks.under([edit]), atol=1e-9, rtol=1e-9)
        late = edit.site.hook == "blocks.1.hook_resid_pre"
        assert torch.equal(found[:, :2], runs.logits[:, :2]) == late


def test_constant_attention_reads_positions_after_the_answer() -> None:
    """Zeroing one of them was taken to change nothing, in a causal model too."""
    model, (tokens, _, _) = model_of("constant attention"), inputs()
    reads, later = torch.ones(N, dtype=torch.int64), Zero(Site.resid_pre(0, pos=3))
    runs = EditedRuns(model, tokens, reads)
    (found,) = runs.under([later])
    expected = ByHooks(model, tokens, reads).under([later])
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    assert (found - runs.logits).abs().max() > 0.01
