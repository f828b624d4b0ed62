"""Mapping files: other projects' names, against those projects' formulas written out here."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from mechint.checkpoints import load_checkpoint
from mechint.cli import main
from mechint.errors import CheckpointError
from tests.checkpoints.test_readers import randoms, transposed, transposed_logits

D, HEADS, VOCAB, CTX = 8, 2, 7, 5

OWN = """
format: lab
config: {act_fn: gelu, attention_dir: bidirectional, n_heads: 2}
weights:
  embed.W_E: tok.weight
  pos_embed.W_pos: {from: pos, pattern: 1 pos d_model -> pos d_model}
  "blocks.{layer}.ln1.w": "enc.{layer}.norm_a.weight"
  "blocks.{layer}.ln1.b": "enc.{layer}.norm_a.bias"
  "blocks.{layer}.ln2.w": "enc.{layer}.norm_b.weight"
  "blocks.{layer}.ln2.b": "enc.{layer}.norm_b.bias"
  "blocks.{layer}.attn.W_QKV":
    from: "enc.{layer}.att.in_proj_weight"
    pattern: (qkv head d_head) d_model -> qkv head d_model d_head
  "blocks.{layer}.attn.b_QKV":
    from: "enc.{layer}.att.in_proj_bias"
    pattern: (qkv head d_head) -> qkv head d_head
  "blocks.{layer}.attn.W_O":
    {from: "enc.{layer}.att.out_proj.weight", pattern: d_model (head d_head) -> head d_head d_model}
  "blocks.{layer}.attn.b_O": "enc.{layer}.att.out_proj.bias"
  "blocks.{layer}.mlp.W_in": {from: "enc.{layer}.mlp.0.weight", pattern: d_mlp d_model -> d_model d_mlp}
  "blocks.{layer}.mlp.b_in": "enc.{layer}.mlp.0.bias"
  "blocks.{layer}.mlp.W_out": {from: "enc.{layer}.mlp.2.weight", pattern: d_model d_mlp -> d_mlp d_model}
  "blocks.{layer}.mlp.b_out": "enc.{layer}.mlp.2.bias"
  ln_final.w: norm.weight
  ln_final.b: norm.bias
  unembed.W_U: {from: tok.weight, pattern: v d_model -> d_model v}
ignore: ["*.running"]
task: {name: max-of-list, n: 7}
"""  # noqa: E501


class Block(torch.nn.Module):
    """Pre-norm attention by PyTorch and a sequential MLP, as people write them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_a, self.norm_b = torch.nn.LayerNorm(D), torch.nn.LayerNorm(D)
        self.att = torch.nn.MultiheadAttention(D, HEADS, batch_first=True)
        linear = torch.nn.Linear
        self.mlp = torch.nn.Sequential(linear(D, 12), torch.nn.GELU(), linear(12, D))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm_a(x)
        x = x + self.att(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm_b(x))


class Lab(torch.nn.Module):
    """A transformer with names that no reader knows; its unembedding is the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tok = torch.nn.Embedding(VOCAB, D)
        self.pos = torch.nn.Parameter(torch.randn(1, CTX, D))
        self.enc = torch.nn.ModuleList(Block() for _ in range(2))
        self.norm = torch.nn.LayerNorm(D)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tok(tokens) + self.pos[:, : tokens.shape[1]]
        for block in self.enc:
            x = block(x)
        return self.norm(x) @ self.tok.weight.T


def lab(folder: Path, **more: Any) -> tuple[Path, Lab]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Lab().double().eval()
        with torch.no_grad():
            for weight in model.parameters():
                weight += 0.2 * torch.randn_like(weight)
    state = {f"module.{name}": value for name, value in model.state_dict().items()}
    torch.save({"net_state": state, "heads": HEADS, **more}, folder / "lab.pt")
    (folder / "own.yaml").write_text("state: net_state\n" + OWN)
    return folder / "lab.pt", model


def test_a_mapping_file_opens_what_no_reader_knows(tmp_path, capsys):
    path, model = lab(tmp_path)
    with pytest.raises(CheckpointError, match="--mapping FILE"):
        load_checkpoint(path)
    opened = load_checkpoint(path, mapping=tmp_path / "own.yaml")
    tokens = torch.tensor(list(itertools.product(range(VOCAB), repeat=2)))
    with torch.no_grad():
        torch.testing.assert_close(opened.model(tokens), model(tokens), atol=1e-10, rtol=1e-9)
    assert opened.format == "lab" and opened.config.n_layers == 2
    assert opened.task is not None and opened.task.name == "max-of-list"
    with pytest.raises(SystemExit) as end:
        main(["checkpoint", "info", str(path), "--mapping", str(tmp_path / "own.yaml")])
    assert not end.value.code and "lab" in capsys.readouterr().out


def test_a_mapping_beside_the_file_is_used(tmp_path):
    path, _ = lab(tmp_path)
    (tmp_path / "own.yaml").rename(tmp_path / "mapping.yaml")
    assert load_checkpoint(path).format == "lab"
    (tmp_path / "mapping.yaml").write_text("colors: {a: b}\n")  # of something else
    with pytest.raises(CheckpointError, match="no format knows it"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("weights:", "wieghts:"), "has no 'wieghts'"),
        (("E: tok.weight", "E: {from: tok.weight, times: 2}"), "W_E: got {'from'.*, 'times'"),
        (("E: tok.weight", "E: {from: tok.weight, scale: 2}"), "before it is saved"),
        (("from: pos, pattern", "from: pos, rearrange"), "no 'rearrange'; name it pattern"),
        (("ln_final.w", "ln_final.[w]"), "name each tensor"),
        (("E: tok.weight", "E: token.weight"), "lacks token.weight, for embed.W_E"),
        (("1 pos d_model ->", "2 pos d_model ->"), "cannot become pos_embed.W_pos"),
        (('ignore: ["*.running"]', "ignore: [x]"), "has enc.0.running, which mechint"),
        (("n_heads: 2", "n_heads: {from: n_head}"), "n_heads: .* expected the value itself"),
        (("act_fn: gelu", "act_fn: tanh"), "act_fn='tanh'"),
        (("ln_final.b: norm.bias", "ln_final.b: {zeros: [8, -1]}"), "got {'zeros': .*; expected"),
        (('ignore: ["*.running"]', "ignore:"), "ignore: got None"),
        (("task: {name: max-of-list, n: 7}", "task: max"), "task: got 'max'"),
        (("task:", "split: {rule: python-shuffle}\ntask:"), "'split'; write a reader"),
    ],
)
def test_a_wrong_mapping_is_one_line(tmp_path, change, text):
    path, _ = lab(tmp_path)
    content = torch.load(path, weights_only=True)
    content["net_state"]["module.enc.0.running"] = torch.ones(2)
    torch.save(content, path)
    file = tmp_path / "own.yaml"
    file.write_text(file.read_text().replace(*change))
    with pytest.raises(CheckpointError, match=text) as caught:
        load_checkpoint(path, mapping=file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("prefix", ["net.", "_forward_module.", "module._orig_mod.", "averaged"])
def test_wrappers_of_other_libraries_are_taken_off(tmp_path, prefix):
    state = transposed(8, 3, d=8)
    averaged = prefix == "averaged"
    wrapped = {f"{'module.' if averaged else prefix}{n}": v for n, v in state.items()}
    wrapped |= {"n_averaged": torch.tensor(7)} if averaged else {}
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "a.ckpt")
    opened = load_checkpoint(tmp_path / "a.ckpt")
    tokens = torch.tensor([[1, 2, 7], [6, 0, 7]])
    expected = transposed_logits(state, tokens, causal=True)
    torch.testing.assert_close(opened.model(tokens), expected, atol=1e-9, rtol=1e-9)


def test_an_unknown_prefix_is_named(tmp_path):
    wrapped = {f"backbone.{name}": value for name, value in transposed(8, 3, d=8).items()}
    torch.save(wrapped, tmp_path / "a.pt")
    with pytest.raises(CheckpointError, match=r"holds backbone\."):
        load_checkpoint(tmp_path / "a.pt")


def test_one_module_per_head_is_known(tmp_path):
    shapes = {"tok_embed.weight": (VOCAB, D), "pos_embed.weight": (CTX, D)}
    shapes |= {"layers.0.W_O.weight": (D, D), "unembed.weight": (VOCAB, D)}
    shapes |= {
        f"layers.0.heads.{head}.W_{which}.weight": (D // HEADS, D)
        for head in range(HEADS)
        for which in "QKV"
    }
    state = randoms(shapes)
    torch.save(state, tmp_path / "heads.pt")
    tokens = torch.randint(VOCAB, (4, CTX), generator=torch.Generator().manual_seed(0))
    x = state["tok_embed.weight"][tokens] + state["pos_embed.weight"]
    mixed = []
    for head in range(HEADS):
        at = f"layers.0.heads.{head}."
        q, k, v = (x @ state[f"{at}W_{which}.weight"].T for which in "QKV")
        mixed.append(F.scaled_dot_product_attention(q, k, v, is_causal=True))
    logits = (x + torch.cat(mixed, -1) @ state["layers.0.W_O.weight"].T) @ state["unembed.weight"].T
    opened = load_checkpoint(tmp_path / "heads.pt")
    torch.testing.assert_close(opened.model(tokens), logits, atol=1e-9, rtol=1e-9)
    assert opened.format == "separate-heads" and not opened.config.use_bias


def test_literals_and_heads_that_share_keys(tmp_path):
    """Of two query heads and one key head; against the formula."""
    state = randoms({"q": (4, 4), "k": (4, 2), "v": (4, 2), "o": (4, 4), "u": (4, 4)})
    torch.save(state, tmp_path / "a.pt")
    given = {
        "config": {"n_heads": 2, "act_fn": "relu", "attention_dir": "causal"},
        "weights": {
            "embed.W_E": {"identity": 4},
            "pos_embed.W_pos": {"ones": [3, 4]},
            "blocks.0.attn.W_Q": {"from": "q", "pattern": "m (head h) -> head m h"},
            "blocks.0.attn.W_K": {"from": "k", "pattern": "m h -> 1 m h"},
            "blocks.0.attn.W_V": {"from": "v", "pattern": "m h -> 1 m h"},
            "blocks.0.attn.W_O": {"from": "o", "pattern": "(head h) m -> head h m"},
            "unembed.W_U": "u",
        },
    }
    opened = load_checkpoint(tmp_path / "a.pt", mapping=given)
    tokens = torch.tensor([[0, 3, 1], [2, 2, 0]])
    x = torch.eye(4).double()[tokens] + 1
    q, k, v = (x @ state[name] for name in "qkv")
    mixed = [F.scaled_dot_product_attention(part, k, v, is_causal=True) for part in q.split(2, -1)]
    expected = (x + torch.cat(mixed, -1) @ state["o"]) @ state["u"]
    torch.testing.assert_close(opened.model(tokens).double(), expected, atol=1e-5, rtol=1e-5)
