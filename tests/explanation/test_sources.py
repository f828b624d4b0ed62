"""Sources: compositions equal patched forwards, and the tests made of them tell planted programs
from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from mechint.config import ModelConfig
from mechint.errors import NotApplicableError, UnknownNameError
from mechint.explanation.rules import Inputs, weighted_tokens
from mechint.explanation.sources import (
    EMBEDDING,
    Group,
    Sources,
    composed,
    draw_rows,
    kept_without,
    moved_key,
    order_of,
    reads,
    routed,
    same_values,
    scrubbed,
    swapped,
)
from mechint.models.transformer import HookedTransformer
from mechint.subject import Subject
from mechint.task import Batch
from tests.explanation.test_forgeries import Head, by_hand, copies

N, CTX, VOCAB = 24, 5, 7
SHAPES = [
    {"n_layers": 1, "n_heads": 1, "attn_only": True},
    {"n_layers": 1, "n_heads": 4, "normalization_type": "LN"},
    {"n_layers": 2, "n_heads": 2, "use_bias": True},
    {"n_layers": 3, "n_heads": 2, "normalization_type": "LN", "use_bias": True},
    {"n_layers": 2, "n_heads": 2, "attention_dir": "bidirectional"},
]


def model_of(**shape: Any) -> HookedTransformer:
    config = ModelConfig(d_model=16, d_vocab=VOCAB, d_vocab_out=VOCAB, n_ctx=CTX, **shape)
    model = HookedTransformer(config, seed=3)
    with torch.no_grad():
        for number, weight in enumerate(model.parameters()):  # biases, too
            draw = torch.Generator().manual_seed(number)
            weight += 0.3 * torch.randn(weight.shape, generator=draw)
    return model


def tokens_of(n: int = N, ctx: int = CTX, vocab: int = VOCAB, seed: int = 0) -> Tensor:
    return torch.randint(vocab, (n, ctx), generator=torch.Generator().manual_seed(seed))


def sources_of(**shape: Any) -> Sources:
    tokens = tokens_of()
    return Sources(Subject(model_of(**shape), None, data=Batch(tokens, tokens[..., None])))


def patched(sources: Sources, taken: dict[str, Tensor]) -> Tensor:
    """Logits of the whole model with every head's output at the answer put there by hand."""
    model, tokens = sources.subject.model, sources.tokens
    names = ["blocks.0.hook_resid_pre"]
    names += [f"blocks.{layer}.attn.hook_z" for layer in range(sources.subject.n_layers)]
    held: dict[str, Tensor] = {}
    model.run_with_hooks(
        tokens, fwd_hooks=[(n, lambda x, hook, n=n: held.update({n: x.clone()})) for n in names]
    )

    def put(name: str) -> Any:
        def edit(x: Tensor, hook: Any) -> Tensor:
            x = x.clone()
            if name.endswith("resid_pre"):
                x[:, -1] = held[name][taken.get(EMBEDDING, torch.arange(len(x))), -1]
                return x
            layer = name.split(".")[1]
            for head in range(x.shape[2]):
                rows = taken.get(f"L{layer}H{head}", torch.arange(len(x)))
                x[:, -1, head] = held[name][rows, -1, head]
            return x

        return edit

    return model.run_with_hooks(tokens, fwd_hooks=[(n, put(n)) for n in names])[:, -1]


def output_of(subject: Subject, head: str) -> Tensor:
    """The output of a head at the answer, before its W_O."""
    layer, index = map(int, head[1:].split("H"))
    return subject.activation(f"blocks.{layer}.attn.hook_z", "answer")[:, index]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_composition_is_a_patched_forward(shape: dict[str, Any]) -> None:
    sources = sources_of(**shape)
    assert torch.allclose(sources.logits({}), sources.own_logits, atol=1e-5)
    some = [EMBEDDING, sources.heads[-1]]
    for names in ([sources.heads[0]], some, sources.names):
        taken = {name: order_of(N, name) for name in names}
        assert torch.allclose(sources.logits(taken), patched(sources, taken), atol=1e-5)
        assert not torch.allclose(sources.logits(taken), sources.own_logits, atol=1e-3)
    every = {name: order_of(N, 1) for name in sources.names}  # the whole input is another
    assert torch.allclose(sources.logits(every), sources.own_logits[order_of(N, 1)], atol=1e-5)
    expected = sources.logits(taken)  # with a hook it cannot be resumed, and runs through its hooks
    sources.subject.model.add_hook("blocks.0.hook_resid_post", lambda x, hook: x)
    assert torch.allclose(sources.logits(taken), expected, atol=1e-5)


def test_outputs_under_patterns_and_mixed_keys() -> None:
    sources = sources_of(n_layers=2, n_heads=2, normalization_type="LN")
    for head in sources.heads:
        own = sources.attending(head, sources.pattern(head))
        assert torch.allclose(own, output_of(sources.subject, head), atol=1e-5)
        unsaid = torch.full((N, CTX), torch.nan)
        assert torch.allclose(sources.attending(head, unsaid), own, atol=1e-5)
        same = torch.arange(N)[:, None].expand(N, CTX)
        assert torch.allclose(sources.mixed(head, same), own, atol=1e-5)
    # keys of layer 0 from other inputs are the layer on an input of mixed tokens
    rows = torch.stack([order_of(N, key) for key in range(CTX)], 1)
    rows[:, -1] = torch.arange(N)
    mixed = sources.tokens[rows, torch.arange(CTX)]
    _, cache = sources.subject.model.run_with_cache(mixed)
    z = torch.einsum("nt,ntd->nd", sources.pattern("L0H1"), cache["v", 0][:, :, 1])
    assert torch.allclose(sources.mixed("L0H1", rows), z, atol=1e-5)


def test_names_that_are_none() -> None:
    sources = sources_of(n_layers=1, n_heads=2)
    for name, ask in (
        ("L0H7", lambda: sources.logits({"L0H7": torch.arange(N)})),
        ("L1H0", lambda: sources.pattern("L1H0")),
    ):
        with pytest.raises(UnknownNameError, match=name):
            ask()
    subject = sources.subject
    vars(subject)["hooks"] = subject.hooks - {"blocks.0.attn.hook_v"}
    with pytest.raises(NotApplicableError, match="hook_v"):
        Sources(subject)


def test_an_order_has_no_fixed_point_and_partners_share_their_values() -> None:
    assert not bool((order_of(50, "a") == torch.arange(50)).any())
    codes = tokens_of(50, 1, 4)
    rows = same_values(codes, "a")
    assert torch.equal(codes[rows], codes) and torch.equal(rows.sort().values, torch.arange(50))
    assert int((rows == torch.arange(50)).sum()) == 0


# --- a planted copy -------------------------------------------------------------------------------
def copier(attends: float = 30.0) -> Subject:
    """A head that looks for the largest of four tokens and writes it; its unembedding reads it."""
    n = 6
    one = Head([attends * i for i in range(n)] + [-attends], brings=torch.eye(n + 1))
    model = by_hand(n + 1, 5, [one], direct=copies(0, n, 10.0))
    tokens = tokens_of(300, 5, n)
    tokens[:, -1] = n
    return Subject(model, None, data=Batch(tokens, tokens[..., None]))


def test_tests_of_a_planted_copy() -> None:
    sources = Sources(copier())
    tokens = sources.tokens
    largest = tokens[:, :4].argmax(1)
    assert torch.equal(sources.own, tokens[:, :4].amax(1))
    group = Group(("L0H0",), lambda tokens, at: {"m": tokens[:, :4].amax(1)})

    def one_hot(key: Tensor) -> Tensor:
        return torch.nn.functional.one_hot(key, 5).float()

    right = composed(sources, [group], lambda v: v["m"], [EMBEDDING])
    assert right.share == 1.0 and right.null is not None and right.null < 0.6
    assert swapped(sources, [group], 0, lambda v: v["m"]).share == 1.0
    assert swapped(sources, [group], 0, lambda v: 5 - v["m"]).share == 0.0
    assert scrubbed(sources, [group], [EMBEDDING]).share == 1.0
    whole = Group(("L0H0",), lambda tokens, at: {"m": tokens})  # which no two inputs share
    assert scrubbed(sources, [whole], [EMBEDDING]).n == 0
    assert kept_without(sources, [EMBEDDING]).share == 1.0
    assert kept_without(sources, ["L0H0"]).share < 0.6
    true = routed(sources, {"L0H0": one_hot(largest)})
    assert true.share == 1.0 and true.null is not None and true.null < 0.6
    assert routed(sources, {"L0H0": one_hot(tokens[:, :4].argmin(1))}).share < 0.2
    fixed = one_hot(torch.zeros_like(largest))
    assert routed(sources, {"L0H0": fixed}).null is None  # the same for all inputs
    said = routed(sources, {"L0H0": fixed}, ["L0H0"])  # and said to be so
    assert said.null is not None and abs(said.null - said.share) < 0.2
    operands = torch.arange(5) < 4
    moved = moved_key(
        sources, ["L0H0"], largest, operands.expand(300, 5),
        lambda key: tokens.gather(1, key[:, None])[:, 0],
    )  # fmt: skip
    assert (moved.share, moved.null) == (1.0, 0.0)
    seen = reads(sources, {"L0H0": one_hot(largest).bool()})
    assert seen.share == 1.0 and seen.null is not None and seen.null < 0.6
    first = reads(sources, {"L0H0": (torch.arange(5) == 0).expand(300, 5)})
    assert first.share < 0.6


def test_a_key_has_the_attention_of_the_token_that_comes_to_it() -> None:
    """Where attention is by token alone, a half-exchanged prompt is what its forward gives."""
    subject = copier(0.7)
    sources = Sources(subject)
    inputs = Inputs(sources.tokens, sources.at, True, 7)
    weights = weighted_tokens(inputs, sources.pattern("L0H0")).weights
    assert isinstance(weights, Tensor)
    rows = draw_rows(sources, Group(("L0H0",), lambda t, at: {}, (1, 3)), "mixed")
    counted_back = draw_rows(sources, Group(("L0H0",), lambda t, at: {}, (-4, -2)), "mixed")
    for drawn, places in ((rows, (1, 3)), (counted_back, (1, 3))):
        moved = drawn != torch.arange(300)[:, None]
        assert moved.any(0).nonzero().flatten().tolist() == list(places)
    mixed = sources.tokens[rows, torch.arange(5)]
    exact = output_of(subject.with_data(Batch(mixed, mixed[..., None])), "L0H0")
    for given in (weights, "own"):
        found = sources.mixed("L0H0", rows, given)
        torch.testing.assert_close(found, exact, atol=1e-4, rtol=1e-4)
    assert (sources.mixed("L0H0", rows) - exact).abs().max() > 0.1


def test_compositions_of_tokens_that_no_input_has_together_are_counted_apart() -> None:
    """The answer is the head's bag; tokens 3 and 4 are never together."""
    subject = copier()
    tokens = subject.data.tokens.clone()
    tokens[:150][tokens[:150] == 4] = 3
    tokens[150:][tokens[150:] == 3] = 4
    sources = Sources(subject.with_data(Batch(tokens, tokens[..., None])))
    group = Group(
        ("L0H0",),
        lambda tokens, at: {"bag": torch.stack([(tokens == x).sum(1) for x in range(5)], 1)},
        mask=lambda tokens, at: torch.ones_like(tokens).bool() & (torch.arange(5) < 4),
    )

    def largest(values: Mapping[str, Tensor]) -> Tensor:
        return 4 - (values["bag"] > 0).flip(1).int().argmax(1)

    found = composed(sources, [group], largest)
    rows = draw_rows(sources, group, "composed", 0, 0)
    mixed = [set(one) for one in tokens[rows, torch.arange(5)].tolist()]
    apart = sum({3, 4} <= one for one in mixed)
    assert 0 < apart <= found.left and found.n + found.left == 300
    moved = swapped(sources, [group], 0, largest)
    assert 0 < moved.n < 300
