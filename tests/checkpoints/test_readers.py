"""Readers of other projects' files, against those projects' formulas written out here."""

from __future__ import annotations

import json
import re

import pytest
import torch
import torch.nn.functional as F

from mechint.checkpoints import load_checkpoint
from mechint.errors import CheckpointError


def randoms(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator, dtype=torch.float64) * 0.4
        for name, shape in shapes.items()
    }


# --- transposed weights --------------------------------------------------------------------------
def transposed(
    vocab: int, n_ctx: int, d: int = 10, heads: int = 4, layers: int = 1, mask: bool = True
) -> dict[str, torch.Tensor]:
    head = d // heads  # d need not divide: the pizza code draws its widths at random
    shapes = {"embed.W_E": (d, vocab), "pos_embed.W_pos": (n_ctx, d), "unembed.W_U": (d, vocab)}
    for layer in range(layers):
        shapes |= {f"blocks.{layer}.attn.W_{which}": (heads, head, d) for which in "KQV"} | {
            f"blocks.{layer}.attn.W_O": (d, heads * head)
        }
        shapes |= {f"blocks.{layer}.mlp.W_in": (4 * d, d), f"blocks.{layer}.mlp.b_in": (4 * d,)}
        shapes |= {f"blocks.{layer}.mlp.W_out": (d, 4 * d), f"blocks.{layer}.mlp.b_out": (d,)}
    state = randoms(shapes)
    return state | (
        {f"blocks.{layer}.attn.mask": torch.ones(n_ctx, n_ctx).tril() for layer in range(layers)}
        if mask
        else {}
    )


def transposed_logits(
    state, tokens, rate: float = 1.0, causal: bool = False, act=F.relu
) -> torch.Tensor:
    """Logits (batch, pos, vocab), one head at a time."""
    x = state["embed.W_E"].T[tokens] + state["pos_embed.W_pos"][: tokens.shape[1]]
    for layer in range(sum(name.endswith("W_K") for name in state)):
        p = {
            name.split(".", 2)[2]: value
            for name, value in state.items()
            if name.startswith(f"blocks.{layer}.")
        }
        z = []
        for head in range(p["attn.W_K"].shape[0]):
            q, k, v = (x @ p[f"attn.W_{which}"][head].T for which in "QKV")
            scores = q @ k.mT / k.shape[-1] ** 0.5
            if causal:
                scores = scores + torch.full_like(scores, -1e10).triu(1)
            z.append((rate * scores.softmax(-1) + (1 - rate)) @ v)
        x = x + torch.cat(z, -1) @ p["attn.W_O"].T
        if "mlp.W_in" in p:
            x = x + act(x @ p["mlp.W_in"].T + p["mlp.b_in"]) @ p["mlp.W_out"].T + p["mlp.b_out"]
    return x @ state["unembed.W_U"]


def pizza_config(**changes) -> dict:
    known = {"name": "modadd_7", "funcs": "lambda x: (x[0]+x[1])%7", "C": 7, "func": None}
    known |= {"n_heads": 4, "d_model": 10, "n_layers": 1, "attention_dir": "casual"}
    known |= {"act_fn": "ReLU", "attn_coeff": 1, "diff_vocab": 0, "eqn_sign": 0}
    return known | {"epoch": 20, "frac": 0.8, "runid": "x"} | changes


def pizza(folder, state, **changes):
    torch.save(state, folder / "model_x.pt")
    (folder / "config_x.json").write_text(json.dumps(pizza_config(**changes)))
    return folder / "model_x.pt"


@pytest.mark.parametrize("separate", [0, 1, True])
@pytest.mark.parametrize("sign", [False, 1])
@pytest.mark.parametrize(
    ("rate", "layers", "activation"), [(1, 1, "ReLU"), (0.004, 2, "GeLU"), (0.0, 3, "ReLU")]
)
def test_pizza_models_compute_what_their_code_does(
    tmp_path, separate, sign, rate, layers, activation
):
    state = transposed(7 * (1 + separate) + bool(sign), 2 + bool(sign), layers=layers)
    said = {"attn_coeff": rate, "diff_vocab": separate, "eqn_sign": sign, "act_fn": activation}
    opened = load_checkpoint(pizza(tmp_path, state, **said, n_layers=layers))
    task = opened.task
    assert (opened.format, task.p, task.operation, task.equals, task.separate_vocabulary) == (
        "pizza",
        7,
        "add",
        bool(sign),
        bool(separate),
    )
    tokens = task.inputs()
    expected = transposed_logits(
        state, tokens, rate, act=F.gelu if activation == "GeLU" else F.relu
    )[..., :7]
    torch.testing.assert_close(opened.model(tokens), expected, atol=1e-9, rtol=1e-9)
    assert opened.config.attention_rate == rate and opened.config.attention_dir == "bidirectional"


@pytest.mark.parametrize(
    ("funcs", "operation"),
    [
        ("lambda x: (x[0]-x[1])%7", "subtract"),
        ("lambda x:(x[0] * x[1]) % 7", "multiply"),
        ("lambda x: (x[0]**2+x[0]*x[1]+x[1]**2)%7", "x^2+xy+y^2"),
    ],
)
def test_pizza_functions_are_compared_and_never_evaluated(tmp_path, funcs, operation):
    assert (
        load_checkpoint(pizza(tmp_path, transposed(7, 2), funcs=funcs)).task.operation == operation
    )
    hostile = f"open({str(tmp_path / 'ran')!r}, 'w').close()"
    opened = load_checkpoint(pizza(tmp_path, transposed(7, 2), funcs=hostile))
    assert opened.task is None and not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"act_fn": "Tanh"}, "act_fn='Tanh' is not served; expected one of ReLU"),
        ({"attn_coeff": None}, r"states attention_rate .* in config_x.json or model_x.json"),
        ({"attn_coeff": 1.5}, "expected 0 to 1"),
    ],
)
def test_pizza_models_that_cannot_be_served_say_why(tmp_path, changes, text):
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(pizza(tmp_path, transposed(7, 2), **changes))


@pytest.mark.parametrize(
    ("name", "operation"),
    [("add", "add"), ("subtract", "subtract"), ("x2xyy2", "x^2+xy+y^2"), ("rand", None)],
)
def test_progress_measures_models_compute_what_their_code_does(tmp_path, name, operation):
    state = transposed(8, 3, d=8)
    config = {"p": 7, "d_model": 8, "fn_name": name, "frac_train": 0.4, "seed": 1, "lr": 1e-3}
    content = {
        "model": state,
        "config": config,
        "epoch": 9,
        "train_losses": [2.0, 1.5],
        "test_loss": torch.tensor(3.0),
    }
    torch.save(content, tmp_path / "9.pth")
    opened = load_checkpoint(tmp_path / "9.pth")
    assert (opened.format, opened.step, opened.metrics) == (
        "progress-measures",
        9,
        {"train_loss": 1.5, "test_loss": 3.0},
    )
    assert (opened.task and opened.task.operation) == operation
    tokens = torch.tensor([[x, y, 7] for x in range(7) for y in range(7)])
    logits = opened.model(tokens)
    torch.testing.assert_close(
        logits,
        transposed_logits(state, tokens, causal=True)[..., : logits.shape[-1]],
        atol=1e-9,
        rtol=1e-9,
    )
    assert logits.shape[-1] == (8 if operation is None else 7)


def test_a_full_run_gives_its_snapshots_as_series(tmp_path):
    state, early = (
        transposed(8, 3, d=8),
        {name: value / 2 for name, value in transposed(8, 3, d=8).items()},
    )
    content = {
        "state_dicts": [early, state],
        "epochs": [0, 100],
        "config": {"p": 7, "fn_name": "add"},
    }
    torch.save(content, tmp_path / "full.pth")
    subject = load_checkpoint(tmp_path / "full.pth").subject()
    assert list(subject.series) == [0, 100] and torch.equal(
        subject.at_step(100).model.W_E, subject.model.W_E
    )
    assert torch.equal(subject.at_step(0).model.W_E * 2, subject.model.W_E) and subject.at_step(
        0
    ).logits().shape == (49, 7)


# --- nanoGPT --------------------------------------------------------------------------------------
def nanogpt(bias: bool, prefix: str = "", d: int = 12, layers: int = 2) -> dict[str, torch.Tensor]:
    shapes = {
        "transformer.wte.weight": (9, d),
        "transformer.wpe.weight": (6, d),
        "transformer.ln_f.weight": (d,),
        "transformer.ln_f.bias": (d,),
    }
    for layer in range(layers):
        at = f"transformer.h.{layer}."
        shapes |= {f"{at}ln_{i}.{kind}": (d,) for i in (1, 2) for kind in ("weight", "bias")}
        for name, rows, columns in (
            ("attn.c_attn", 3 * d, d),
            ("attn.c_proj", d, d),
            ("mlp.c_fc", 4 * d, d),
            ("mlp.c_proj", d, 4 * d),
        ):
            shapes |= {f"{at}{name}.weight": (rows, columns), f"{at}{name}.bias": (rows,)}
    state = {
        name: value for name, value in randoms(shapes).items() if bias or not name.endswith("bias")
    }
    state["lm_head.weight"] = state["transformer.wte.weight"]
    state["transformer.h.0.attn.bias"] = torch.ones(
        1, 1, 6, 6
    ).tril()  # the mask of machines without flash attention
    return {prefix + name: value for name, value in state.items()}


def nanogpt_logits(state, tokens, heads: int) -> torch.Tensor:
    def through(name, x):
        return F.linear(x, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(name, x):
        return F.layer_norm(
            x, x.shape[-1:], state[f"{name}.weight"], state.get(f"{name}.bias"), 1e-5
        )

    x = state["transformer.wte.weight"][tokens] + state["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(2):
        at = f"transformer.h.{layer}."
        q, k, v = (
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part in through(f"{at}attn.c_attn", norm(f"{at}ln_1", x)).chunk(3, -1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + through(f"{at}attn.c_proj", mixed)
        x = x + through(f"{at}mlp.c_proj", F.gelu(through(f"{at}mlp.c_fc", norm(f"{at}ln_2", x))))
    return through("lm_head", norm("transformer.ln_f", x))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("prefix", ["", "_orig_mod.", "module._orig_mod."])
def test_nanogpt_computes_what_its_code_does(tmp_path, bias, prefix):
    args = {"n_layer": 2, "n_head": 3, "n_embd": 12, "block_size": 6, "vocab_size": 9}
    content = {"model": nanogpt(bias, prefix), "model_args": args | {"bias": bias, "dropout": 0.1}}
    content |= {"optimizer": {}, "iter_num": 50, "best_val_loss": torch.tensor(1.5)}
    content["config"] = {"dataset": "x"}
    torch.save(content, tmp_path / "ckpt.pt")
    opened = load_checkpoint(tmp_path)  # its output directory
    assert (opened.format, opened.step, opened.metrics, opened.task) == (
        "nanogpt",
        50,
        {"best_val_loss": 1.5},
        None,
    )
    assert opened.config.use_bias == bias and opened.extra == {"config": {"dataset": "x"}}
    assert {name: item.value for name, item in opened.assumed.items()} == {"act_fn": "gelu"}
    tokens = torch.randint(9, (4, 6), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        opened.model(tokens), nanogpt_logits(nanogpt(bias), tokens, 3), atol=1e-9, rtol=1e-9
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lm_head.bias", torch.ones(9)),
        ("transformer.h.0.attn.q_norm.weight", torch.ones(4)),
        ("transformer.h.0.attn.bias", torch.eye(6).expand(1, 1, 6, 6)),
    ],
)
def test_nanogpt_weights_without_a_place_are_refused(tmp_path, name, value):
    content = {"model": nanogpt(True) | {name: value.clone()}, "model_args": {"n_head": 3}}
    torch.save(content, tmp_path / "ckpt.pt")
    with pytest.raises(
        CheckpointError, match=f"has {name.removeprefix('transformer.')}, which .* no place for"
    ):
        load_checkpoint(tmp_path / "ckpt.pt")


@pytest.mark.parametrize(
    "lacking",
    [r"h\.0\.mlp\.c_proj\.bias", r"h\.0\.attn\.c_attn\.bias", r"h\.0\.ln_2\.bias", r"ln_.*bias"],
)
def test_a_bias_that_some_layers_lack_is_zero_there_and_no_others(tmp_path, lacking):
    """Neither taken from another layer, nor a model without biases where layer norms have none."""
    state = {n: value for n, value in nanogpt(True).items() if not re.search(lacking, n)}
    torch.save({"model": state, "model_args": {"n_head": 3}}, tmp_path / "ckpt.pt")
    tokens = torch.randint(9, (4, 6), generator=torch.Generator().manual_seed(0))
    expected = nanogpt_logits(state, tokens, 3)
    torch.testing.assert_close(load_checkpoint(tmp_path / "ckpt.pt").model(tokens), expected)


@pytest.mark.parametrize(
    ("lacking", "ours"),
    [
        ("mlp.c_fc.weight", "mlp.W_in"),
        ("mlp.c_proj.weight", "mlp.W_out"),
        ("attn.c_attn.weight", "attn.W_Q"),
        ("ln_1.weight", "ln1.w"),
    ],
)
@pytest.mark.parametrize("layer", [0, 1])
def test_a_layer_without_a_matrix_is_refused_by_its_name(tmp_path, lacking, ours, layer):
    state = nanogpt(True)
    del state[f"transformer.h.{layer}.{lacking}"]
    torch.save({"model": state, "model_args": {"n_head": 3}}, tmp_path / "ckpt.pt")
    with pytest.raises(CheckpointError, match=rf"blocks\.{layer}\.{ours}"):
        load_checkpoint(tmp_path / "ckpt.pt")
