"""Feed-forward networks of two operands, of the representation-theory and the pizza code, against
those projects' formulas written out here.
"""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F

from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError
from mechint.models.pair_network import PairNetwork, PairNetworkConfig, parameter_shapes
from tests.checkpoints.test_readers import randoms

N, D, H = 7, 4, 6


def pairs(n: int = N) -> torch.Tensor:
    return torch.cartesian_prod(torch.arange(n), torch.arange(n))


# --- the pizza code's linear models ---------------------------------------------------------------
def linear_state(kind: str) -> dict[str, torch.Tensor]:
    """Weights of a model type; two layers for B, C and G."""
    shapes = {"unembed.weight": (N, D), "l1.weight": (D, 2 * D if kind == "D" else D)}
    shapes["l1.bias"] = (D,)
    if kind == "X":
        shapes |= {"embed1.weight": (N, D), "embed2.weight": (N, D)}
    else:
        shapes |= {"embed.weight": (N, D)}
    if kind in "BCG":
        shapes |= {"l2.weight": (D, D), "l2.bias": (D,)}
    return randoms(shapes)


def linear_logits(kind: str, state: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    def l1(x):
        return x @ state["l1.weight"].T + state["l1.bias"]

    first = state["embed1.weight" if kind == "X" else "embed.weight"][tokens[:, 0]]
    second = state["embed2.weight" if kind == "X" else "embed.weight"][tokens[:, 1]]
    if kind == "D":
        hidden = l1(torch.cat([first, second], 1))
    elif kind in "CG":
        hidden = l1(first) + l1(second)
    else:
        hidden = l1(first + second)
    hidden = F.relu(hidden)
    if kind in "BCG":
        hidden = F.relu(hidden @ state["l2.weight"].T + state["l2.bias"])
    return hidden @ state["unembed.weight"].T


@pytest.mark.parametrize("kind", list("ABCDGX"))
def test_linear_models_compute_what_their_code_does(tmp_path, kind, monkeypatch):
    state = linear_state(kind)
    # random weights answer nothing, so the type alone must decide
    monkeypatch.setattr("mechint.checkpoints.formats.published._accuracy", lambda *_: 0.0)
    torch.save(state, tmp_path / "model_x.pt")
    (tmp_path / "config_x.json").write_text(
        json.dumps({"C": N, "model_type": kind, "frac": 0.8, "epoch": 20, "runid": "x"})
    )
    opened = load_checkpoint(tmp_path / "model_x.pt")
    assert (opened.format, opened.step, opened.task.p, opened.task.equals) == (
        "pizza",
        20,
        N,
        False,
    )
    assert opened.task.train_fraction == 0.8 and opened.split is None and not opened.assumed
    torch.testing.assert_close(
        opened.model(pairs())[:, -1], linear_logits(kind, state, pairs()), atol=1e-12, rtol=1e-9
    )


@pytest.mark.parametrize(("kind", "join"), [("B", "multiply"), ("Q", "each"), (None, "add")])
def test_what_the_type_does_not_decide_is_read_as_it_answers_best(tmp_path, kind, join):
    state = planted(join)
    torch.save(state, tmp_path / "model_x.pt")
    if kind is not None:
        (tmp_path / "config_x.json").write_text(json.dumps({"C": 5, "model_type": kind}))
    opened = load_checkpoint(tmp_path / "model_x.pt")
    assert opened.config.join == join
    assert opened.performance.accuracy == {"answer": 1.0}
    assert f"100% as {join}" in opened.assumed["join"].why


def planted(join: str) -> dict[str, torch.Tensor]:
    """Addition modulo 5 that only `join` makes: for each sum 0 … 8 a tent of three hidden units,
    zero at every other sum; powers of e are multiplied where `join` multiplies.
    """
    values, sums = torch.arange(5.0), torch.arange(9.0)
    if join == "multiply":
        values, sums = values.exp(), sums.exp()
    width = sums if join == "multiply" else torch.ones(9)
    corners = torch.stack([sums - width / 2, sums, sums + width / 2], 1)  # (sum, 3)
    tents = torch.tensor([1.0, -2.0, 1.0]) / width[:, None]  # (sum, 3), each as high as the others
    unembed = torch.zeros(5, 9, 3)
    unembed[torch.arange(9) % 5, torch.arange(9)] = tents
    return {
        "embed.weight": values[:, None],
        "l1.weight": torch.ones(27, 1),
        "l1.bias": -corners.flatten() * (0.5 if join == "each" else 1.0),
        "unembed.weight": unembed.flatten(1),
    }


def test_a_linear_model_with_other_parts_is_refused(tmp_path):
    torch.save(linear_state("A") | {"l1.extra": torch.ones(2)}, tmp_path / "model_x.pt")
    with pytest.raises(CheckpointError, match=r"has l1\.extra, which"):
        load_checkpoint(tmp_path / "model_x.pt")
    state = linear_state("A") | {"l1.weight": torch.ones(D, D + 1).double()}
    torch.save(state, tmp_path / "model_x.pt")
    with pytest.raises(CheckpointError, match=r"layers\.0\.W: got shape"):
        load_checkpoint(tmp_path / "model_x.pt")


# --- the representation-theory code's networks ----------------------------------------------------
def rep_theory(folder, state, **changes):
    torch.save(state, folder / "model.pt")
    cfg = {"group": "CyclicGroup", "group_parameter": N, "frac_train": 0.4, "seed": 2}
    (folder / "cfg.json").write_text(json.dumps(cfg | changes))
    return folder / "model.pt"


@pytest.mark.parametrize("bilinear", [False, True])
def test_networks_of_groups_compute_what_their_code_does(tmp_path, bilinear):
    width = D if bilinear else H
    layer = {} if bilinear else {"W": (2 * D, H)}
    state = randoms({"W_x": (N, D), "W_y": (N, D), **layer, "W_U": (width, N)})
    opened = load_checkpoint(rep_theory(tmp_path, state))
    x, y = state["W_x"][pairs()[:, 0]], state["W_y"][pairs()[:, 1]]
    hidden = x * y if bilinear else F.relu(torch.hstack([x, y]) @ state["W"])
    logits = opened.model(pairs())[:, -1]
    torch.testing.assert_close(logits, hidden @ state["W_U"], atol=1e-12, rtol=1e-9)
    assert opened.task.p == N and opened.seed == 2 and opened.task.train_fraction == 0.4


def test_a_network_alone_takes_its_task_from_the_caller(tmp_path):
    state = randoms({"W_x": (N, D), "W_y": (N, D), "W": (2 * D, H), "W_U": (H, N)})
    torch.save(state, tmp_path / "model.pt")
    opened = load_checkpoint(tmp_path / "model.pt", task="modular-arithmetic", parameters={"p": N})
    assert opened.config.n_ctx == 3  # the task's prompt ends with "="
    assert opened.subject().logits().shape == (N * N, N)
    with pytest.raises(CheckpointError, match="7 values and 7 answers in the file, 11 and 11"):
        load_checkpoint(tmp_path / "model.pt", task="modular-arithmetic", parameters={"p": 11})


@pytest.mark.parametrize("join", ["concat", "add", "multiply", "each"])
def test_the_answer_is_at_the_last_position_and_edits_there_reach_it(join):
    config = PairNetworkConfig(d_vocab=N, d_vocab_out=N, d_embed=D, widths=(H,), join=join, n_ctx=3)
    model = PairNetwork(config, seed=1)
    assert {name: tuple(value.shape) for name, value in model.weights().items()} == (
        parameter_shapes(config)
    )
    prompt = torch.cat([pairs(), torch.full((N * N, 1), N)], 1)
    logits = model(prompt)
    assert not logits[:, :-1].any() and logits[:, -1].any()
    zeroed = model.run_with_hooks(
        prompt, fwd_hooks=[("blocks.0.mlp.hook_post", lambda value, hook: value * 0)]
    )
    assert not zeroed.any()


# --- one-hot sums, arXiv 2602.16849 ---------------------------------------------------------------
def one_hot_plant(act: str, p: int = 5) -> dict[str, torch.Tensor]:
    """Addition modulo p by neurons of one frequency each, read by the same frequency: the product
    of cosines that a square makes, and that ReLU makes on average over phases.
    """
    torch.manual_seed(0)
    k, phase = torch.randint(1, p // 2 + 1, (400,)), torch.rand(400) * 2 * torch.pi
    angle = 2 * torch.pi * k[:, None] * torch.arange(p) / p
    w_out = torch.cos(angle + 2 * phase[:, None]).T
    scale = 0.02 if act == "square" else 0.05
    basis = torch.linalg.qr(torch.randn(p, p)).Q
    w_in = torch.cos(angle + phase[:, None])
    return {"mlp.W_in": w_in, "mlp.W_out": w_out * scale, "mlp.basis": basis}


def one_hot_logits(state: dict[str, torch.Tensor], act) -> torch.Tensor:
    x, y = pairs(state["mlp.W_in"].shape[1]).T
    return act(state["mlp.W_in"].T[x] + state["mlp.W_in"].T[y]) @ state["mlp.W_out"].T


@pytest.mark.parametrize("act", ["relu", "square"])
def test_a_one_hot_network_has_the_activation_that_gives_its_stated_loss(tmp_path, act):
    state = one_hot_plant(act)
    logits = one_hot_logits(state, F.relu if act == "relu" else torch.square)
    sums = pairs(5).sum(1) % 5
    loss = F.cross_entropy(logits, sums).item()
    assert (logits.argmax(1) == sums).all()
    content = {"model": state, "train_loss": loss, "test_loss": loss, "epoch": 3}
    torch.save(content, tmp_path / "9.pth")
    opened = load_checkpoint(tmp_path / "9.pth")
    assert (opened.format, opened.config.act_fn, opened.step) == ("one-hot", act, 3)
    assert opened.task.p == 5 and opened.assumed["task"].value == "modular-arithmetic"
    assert f"{loss:.3g} as {act}" in opened.assumed["act_fn"].why
    assert opened.performance.loss["answer"] == pytest.approx(loss, rel=1e-4)
    torch.testing.assert_close(opened.model(pairs(5))[:, -1], logits, atol=1e-5, rtol=1e-5)

    torch.save(state, tmp_path / "bare.pth")
    with pytest.raises(CheckpointError, match=r"accuracy 100% as .* --set model\.act_fn"):
        load_checkpoint(tmp_path / "bare.pth")
    (tmp_path / "p_5_ReLU").mkdir()
    torch.save(state, tmp_path / "p_5_ReLU" / "9.pth")  # the folder's name decides
    torch.save(state, tmp_path / "p_5_Quad.pth")
    for name, named in (("p_5_ReLU/9.pth", "relu"), ("p_5_Quad.pth", "square")):
        assert load_checkpoint(tmp_path / name).config.act_fn == named
    chosen = load_checkpoint(tmp_path / "bare.pth", model={"act_fn": act})
    assert chosen.config.act_fn == act and "act_fn" not in chosen.assumed


def test_a_one_hot_network_of_a_large_vocabulary_is_refused_before_its_identity_is_made(tmp_path):
    state = {"mlp.W_in": torch.zeros(1, 10**6), "mlp.W_out": torch.zeros(10**6, 1)}
    torch.save(state, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="1,000,000 tokens; expected at most 8,192"):
        load_checkpoint(tmp_path / "a.pth")


@pytest.mark.parametrize("train", [1, 4, 10])
@pytest.mark.parametrize("act", ["relu", "square"])
def test_stated_losses_of_a_split_decide_whatever_the_accuracy(tmp_path, act, train):
    """Both readings answer everything; the split itself, here of what has the least loss, is not
    in the file, and the loss of the other reading may lie between the two that are stated.
    """
    state, sums = one_hot_plant(act), pairs(5).sum(1) % 5
    found = {}
    for name, apply in (("relu", F.relu), ("square", torch.square)):
        logits = one_hot_logits(state, apply)
        assert (logits.argmax(1) == sums).all()
        found[name] = F.cross_entropy(logits, sums, reduction="none").sort().values
    own, other = found.pop(act), found.popitem()[1].mean().item()
    stated = {"train_loss": own[:train].mean().item(), "test_loss": own[train:].mean().item()}
    assert act == "square" or train > 1 or stated["train_loss"] < other < stated["test_loss"]
    (tmp_path / "Quad-or-ReLU").mkdir()
    torch.save({"model": state, "epoch": 3, **stated}, tmp_path / "Quad-or-ReLU" / "9.pth")
    assert load_checkpoint(tmp_path / "Quad-or-ReLU" / "9.pth").config.act_fn == act
