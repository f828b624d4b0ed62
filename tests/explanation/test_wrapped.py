"""Modules of one's own with a readout of their own: its sources are what it reads."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import mechint
from mechint.account import NOT_ASKED, account_of
from mechint.errors import NotApplicableError
from mechint.explanation import explain
from mechint.explanation.measure import at_readout
from mechint.explanation.sources import Sources, places_read
from mechint.planted.library import pointer_doubling
from mechint.subject import Subject

SYMBOLS, LENGTH, D, HEADS = 8, 4, 16, 2


class Attention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.value, self.out = (nn.Linear(d, d) for _ in range(4))
        self.pattern, self.v, self.z = nn.Identity(), nn.Identity(), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        def split(y: Tensor) -> Tensor:
            return y.unflatten(-1, (self.heads, -1))

        q, k, v = split(self.q(x)), split(self.k(x)), self.v(split(self.value(x)))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        mixed = torch.einsum("bhqk,bkhd->bqhd", self.pattern(scores.softmax(-1)), v)
        return self.out(self.z(mixed).flatten(2))


class Reader(nn.Module):
    """An encoder of one layer that answers once per example, from one position or from all."""

    def __init__(self, read: Any, d: int = D, heads: int = HEADS) -> None:
        super().__init__()
        self.read = read
        self.token, self.place = nn.Embedding(SYMBOLS + 1, d), nn.Parameter(torch.randn(9, d) / 3)
        self.stream, self.attention = nn.Identity(), Attention(d, heads)
        self.up, self.down, self.answer = nn.Linear(d, 64), nn.Linear(64, d), nn.Linear(d, SYMBOLS)

    def embedded(self, tokens: Tensor) -> Tensor:
        return self.token(tokens) + self.place[: tokens.shape[1]]

    def finished(self, x: Tensor) -> Tensor:
        """Logits from the stream behind attention."""
        return self.answer(self.read(x + self.down(F.relu(self.up(x)))))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.stream(self.embedded(tokens))
        return self.finished(x + self.attention(x))


READS = {
    "first": lambda x: x[:, 0],
    "last": lambda x: x[:, -1],
    "mean": lambda x: x.mean(1),
    "sum": lambda x: x.sum(1),
    "max": lambda x: x.amax(1),
}


def subject_of(net: nn.Module, rows: Tensor) -> Subject:
    hooks = {f"blocks.0.attn.hook_{name}": f"attention.{name}" for name in ("pattern", "v", "z")}
    hooks["blocks.0.hook_resid_pre"] = "stream"
    sizes = {"n_ctx": 9, "d_vocab": SYMBOLS + 1, "d_vocab_out": SYMBOLS}
    model = mechint.wrap(net.eval(), hooks=hooks, **sizes)
    return mechint.load(model, data=[{"prompt": row} for row in rows.tolist()])


def drawn(n: int, seed: int = 0) -> Tensor:
    return torch.randint(0, SYMBOLS, (n, LENGTH), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", READS)
def test_what_is_composed_of_sources_is_what_torch_computes(name: str) -> None:
    """A head, then all but a head, from other inputs, at every place that the readout reads."""
    torch.manual_seed(3)
    net = Reader(READS[name]).eval()
    rows = drawn(60).unique(dim=0)
    subject = subject_of(net, rows)
    assert subject.model_description.attention_dir == "bidirectional"
    want = {"first": [0], "last": []}.get(name, list(range(LENGTH)))
    assert list(places_read(subject)) == want
    sources = Sources(at_readout(subject))
    tokens, other = sources.tokens, torch.arange(len(rows)).roll(7)
    kept: dict[str, Tensor] = {}
    handle = net.attention.z.register_forward_hook(lambda m, a, out: kept.update(z=out.detach()))
    with torch.no_grad():
        plain = net(tokens)
    handle.remove()
    x, z = net.embedded(tokens), kept["z"]
    assert torch.allclose(sources.own_logits, plain, atol=1e-5)

    def computed(start: Tensor, heads: dict[int, Tensor]) -> Tensor:
        mixed = torch.stack([heads.get(h, z[:, :, h]) for h in range(HEADS)], 2)
        with torch.no_grad():
            return net.finished(start + net.attention.out(mixed.flatten(2)))

    stream = f"L0H{HEADS}" if len(want) > 1 else "embedding"
    for taken, start, heads in (
        ({}, x, {}),
        ({"L0H1": other}, x, {1: z[other][:, :, 1]}),
        ({stream: other, "L0H0": other}, x[other], {0: z[other][:, :, 0]}),
    ):
        assert torch.allclose(sources.logits(taken), computed(start, heads), atol=1e-5)
    every = sources.logits(dict.fromkeys(sources.names, other))
    assert torch.allclose(every, plain[other], atol=1e-5)
    own = sources.logits({"L0H0": sources.attending("L0H0", torch.full(tokens.shape, torch.nan))})
    assert torch.allclose(own, plain, atol=1e-5)
    places = torch.arange(LENGTH)[None].expand(len(rows), -1)
    same = sources.mixed("L0H0", torch.arange(len(rows))[:, None] + 0 * places)
    assert torch.allclose(sources.logits({"L0H0": same}), plain, atol=1e-5)


def test_a_module_that_shows_too_little_is_told_which_hook_is_lacking() -> None:
    hooks = {"blocks.0.hook_resid_pre": "stream", "blocks.0.attn.hook_z": "attention.z"}
    sizes = {"n_ctx": 9, "d_vocab": SYMBOLS + 1, "d_vocab_out": SYMBOLS}
    model = mechint.wrap(Reader(READS["mean"]).eval(), hooks=hooks, **sizes)
    best = explain(mechint.load(model, data=[{"prompt": row} for row in drawn(80).tolist()]))[0]
    assert best.standing in ("untested", "refused") and "blocks.0.attn.hook_v" in best.reason


@pytest.mark.full
@pytest.mark.parametrize("name", ["first", "mean"])
def test_the_largest_token_is_found_wherever_it_is_read(name: str) -> None:
    """Of a trained encoder that reads its first place, and of one that takes the mean of all."""
    torch.manual_seed(0)
    net, rows = Reader(READS[name], 32, 1), drawn(2000, 5).unique(dim=0)
    mark = torch.full((len(rows), 1 if name == "first" else 0), SYMBOLS)
    rows, right = torch.cat([mark, rows], 1), rows.amax(1)
    optimizer = torch.optim.AdamW(net.parameters(), 5e-3)
    for _ in range(400):
        loss = F.cross_entropy(net(rows), right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    best = explain(subject_of(net, rows))[0]
    program = best.explanation.over_sources
    assert best.standing == "stands" and program is not None
    fresh = drawn(500, 6)
    asked = torch.cat([mark[:1].expand(500, -1), fresh], 1)
    at = torch.full((500,), 0 if name == "first" else LENGTH - 1)
    assert float((program.answer(asked, at) == fresh.amax(1)).double().mean()) > 0.99
    assert torch.equal(program.run_python(asked, at), program.answer(asked, at))


def test_a_module_that_no_family_serves_is_untested_and_nothing_was_asked() -> None:
    tokens = torch.cartesian_prod(torch.arange(5), torch.arange(5))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(6, 5))
    wrapped = mechint.wrap(module, hooks={"hook_embed": "0"}, n_ctx=2, d_vocab=5)
    subject = mechint.load(wrapped, data=[{"prompt": one} for one in tokens.tolist()])
    found = explain(subject)
    assert found[0].standing == "untested" and "no family serves" in found[0].reason
    assert account_of(subject, {}).explained(found).verdict == NOT_ASKED
    several = explain(pointer_doubling(0.0, 0).subject)[0]
    assert several.standing == "untested" and "several outputs at once" in several.reason


def test_a_model_without_heads_is_not_asked_to_name_hooks_of_them() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.emb, self.rnn = nn.Embedding(6, 4), nn.GRU(4, 8, batch_first=True)
            self.out = nn.Linear(8, 5)

        def forward(self, tokens: Tensor) -> Tensor:
            return self.out(self.rnn(self.emb(tokens))[0])

    task = mechint.Task.of(inputs=(5, 5), answer=lambda a, b: max(a - b, 0), name="less")
    model = mechint.wrap(Recurrent(), {"hook_embed": "emb"}, n_ctx=task.n_ctx)
    with pytest.raises(NotApplicableError, match="no head") as caught:
        Sources(Subject(model, task))
    assert "hook_resid_pre" not in str(caught.value) and "wrap" not in str(caught.value)
