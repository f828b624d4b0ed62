"""TransformerLens's state dicts in every wrapping: recognized, completed where shapes are silent,
refused where mathematics differs.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.formats import transformer_lens
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.models import build

CONFIG = ModelConfig(
    n_layers=2,
    d_model=6,
    n_heads=2,
    n_ctx=3,
    d_vocab=6,
    d_vocab_out=5,
    act_fn="gelu",
    attention_dir="bidirectional",
)
MODEL = build(CONFIG, seed=8)
STATE = MODEL.transformer_lens_state() | {
    "blocks.0.attn.mask": torch.ones(3, 3, dtype=torch.bool).tril(),
    "blocks.0.attn.IGNORE": torch.tensor(-torch.inf),
}
CFG = {
    "act_fn": "gelu",
    "attention_dir": "bidirectional",
    "normalization_type": None,
    "n_heads": 2,
    "dtype": "torch.float32",
    "seed": 1,
}
TOKENS = torch.randint(6, (4, 3), generator=torch.Generator().manual_seed(0))


def written(folder, content) -> Path:
    torch.save(content, folder / "model.pt")
    return folder / "model.pt"


@pytest.mark.parametrize(
    "content",
    [
        {"model": STATE, "config": CFG, "epoch": 5, "test_losses": [2.0, 1.0]},
        {"state_dict": STATE, "cfg": CFG, "step": 5, "test_loss": 1.0},
        {
            "model_state_dict": {f"_orig_mod.{name}": value for name, value in STATE.items()},
            "model_config": CFG,
            "step": 5,
            "test_loss": 1.0,
        },
    ],
    ids=["model-config", "state_dict-cfg", "compiled"],
)
def test_a_state_dict_with_its_configuration(tmp_path, content):
    opened = load_checkpoint(
        written(tmp_path, content), task="modular-arithmetic", parameters={"p": 5}
    )
    assert (opened.format, opened.step, opened.metrics, opened.extra) == (
        "transformer-lens",
        5,
        {"test_loss": 1.0},
        {},
    )
    assert torch.equal(opened.model(TOKENS), MODEL(TOKENS)) and opened.task.p == 5


def test_a_configuration_beside_is_used_when_it_is_the_models(tmp_path):
    path = written(tmp_path, STATE)
    (tmp_path / "cfg.json").write_text(json.dumps(CFG | {"d_model": 6}))
    assert torch.equal(load_checkpoint(path).model(TOKENS), MODEL(TOKENS))
    (tmp_path / "cfg.json").write_text(json.dumps(CFG | {"d_model": 7}))
    assert load_checkpoint(path).config.act_fn == "relu"


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_folded_layer_norm_is_seen_in_rounded_weights(tmp_path, kind):
    """Halving moves the centered columns' means to within the type's rounding; weights that were
    never centered stay far from it.
    """
    generator = torch.Generator().manual_seed(0)
    state = {
        name: torch.randn(value.shape, generator=generator, dtype=torch.float64)
        for name, value in build(CONFIG, seed=8).transformer_lens_state().items()
    }
    plain = {name: value.to(kind) for name, value in state.items()}
    for name in [name for name in state if name.endswith(("W_Q", "W_K", "W_V", "W_in"))]:
        state[name] = state[name] - state[name].mean(-2, keepdim=True)
    folded = {name: value.to(kind) for name, value in state.items()}
    for weights, expected in ((folded, "LNPre"), (plain, None)):
        opened = load_checkpoint(written(tmp_path, weights))
        assert opened.assumed["normalization_type"].value == expected
        assert ("eps" in opened.assumed) == (expected is not None)


PLAIN = {"positional_embedding_type": "standard"}
OPTIONS = {name: None for name in transformer_lens.STATES_ARCHITECTURE}


@pytest.mark.parametrize("missing", [None, *sorted(OPTIONS)])
def test_what_no_tensor_shows_is_assumed_unless_all_of_it_is_stated(tmp_path, missing):
    given = {name: value for name, value in OPTIONS.items() if name != missing}
    path = written(tmp_path, STATE)
    (tmp_path / "cfg.json").write_text(json.dumps(CFG | given | {"d_model": 6}))
    assert ("architecture" in load_checkpoint(path).assumed) == (missing is not None)


@pytest.mark.parametrize("kind", ["shortformer", "alibi", "parallel"])
def test_another_function_of_the_same_tensors_is_assumed_away_and_said(tmp_path, kind):
    """The tensors do not tell them apart, so the assumption must; stated, it is refused."""
    path = written(tmp_path, STATE)
    opened = load_checkpoint(path)
    named = "parallel_attn_mlp" if kind == "parallel" else "positional_embedding_type"
    words = {"shortformer": "shortformer", "alibi": "ALiBi", "parallel": "beside attention"}
    assert words[kind] in opened.assumed["architecture"].why
    value = True if kind == "parallel" else kind
    (tmp_path / "cfg.json").write_text(json.dumps(CFG | {"d_model": 6, named: value}))
    with pytest.raises(CheckpointError, match=f"uses {named}={value!r}"):
        load_checkpoint(path)


def test_local_attention_of_a_later_layer_is_seen(tmp_path):
    """GPT-Neo's first layer is global."""
    causal = torch.ones(3, 3, dtype=torch.bool).tril()
    assert load_checkpoint(written(tmp_path, STATE | {"blocks.1.attn.mask": causal}))
    with pytest.raises(CheckpointError, match="uses local attention"):
        load_checkpoint(written(tmp_path, STATE | {"blocks.1.attn.mask": causal.triu(-1)}))


def test_without_a_position_embedding_positions_are_rotary(tmp_path):
    """TransformerLens makes one for every other kind; where tables of rotation are not kept, as
    among parameters alone, nothing else tells.
    """
    state = {name: value for name, value in STATE.items() if name != "pos_embed.W_pos"}
    for content in (state, {"model": state, "config": CFG | {"n_ctx": 3}}):
        with pytest.raises(CheckpointError, match="rotary positions, since it has no position"):
            load_checkpoint(written(tmp_path, content))


def test_no_position_embedding_is_a_zero_one_where_the_configuration_says_standard(tmp_path):
    state = {name: value for name, value in STATE.items() if name != "pos_embed.W_pos"}
    opened = load_checkpoint(written(tmp_path, {"model": state, "config": PLAIN}))
    assert (
        opened.config.n_ctx == 3
        and not opened.model.W_pos.any()
        and opened.assumed["zero"].value == ["pos_embed.W_pos"]
    )
    with pytest.raises(CheckpointError, match="says how many positions it reads"):
        load_checkpoint(
            written(
                tmp_path,
                {
                    "model": {n: value for n, value in state.items() if not n.endswith("mask")},
                    "config": PLAIN,
                },
            )
        )


def test_unscaled_attention_and_epsilon_come_from_the_configuration(tmp_path):
    config = load_checkpoint(
        written(tmp_path, {"model": STATE, "config": CFG | {"use_attn_scale": False, "eps": 1e-3}})
    ).config
    assert (config.scale, config.eps) == (1.0, 1e-3)


BESIDE = {"d_model": 6, "act_fn": "gelu", "attention_dir": "bidirectional"}


@pytest.mark.parametrize(
    ("inside", "beside", "act_fn", "eps"),
    [
        ({"config": {"lr": 1e-3}}, BESIDE, "gelu", 1e-5),
        ({"config": {"eps": 1e-8}}, BESIDE | {"eps": 1e-3}, "gelu", 1e-3),
        ({"config": {"d_model": 7, "act_fn": "silu"}}, BESIDE, "gelu", 1e-5),
        ({"config": {"lr": 1e-3, "model": CFG}}, {}, "gelu", 1e-5),
        ({"hyper_parameters": {"act_fn": "gelu"}}, {}, "gelu", 1e-5),
        ({"config": {"lr": 1e-3, "eps": 1e-8, "act_fn": "gelu"}}, {}, "gelu", 1e-5),
        ({"config": {"act_fn": "gelu", "eps": 1e-3}}, BESIDE | {"act_fn": "silu"}, "gelu", 1e-3),
    ],
)
def test_which_configuration_is_the_models(tmp_path, inside, beside, act_fn, eps):
    """One inside goes first where it describes this model; an optimizer's epsilon is its own."""
    (tmp_path / "cfg.json").write_text(json.dumps(beside))
    opened = load_checkpoint(written(tmp_path, {"model": STATE, **inside}))
    assert (opened.config.act_fn, opened.config.eps) == (act_fn, eps)
    assert "act_fn" not in opened.assumed


def test_snapshots_in_the_file_are_its_series(tmp_path):
    halved = {
        name: value / 2 for name, value in STATE.items() if not name.endswith(("mask", "IGNORE"))
    }
    content = {
        "model": STATE,
        "config": CFG,
        "checkpoints": [halved, STATE],
        "checkpoint_epochs": [0, 10],
    }
    opened = load_checkpoint(
        written(tmp_path, content), task="modular-arithmetic", parameters={"p": 5}
    )
    assert list(opened.series) == [0, 10] and torch.equal(
        opened.series[0]()["embed.W_E"] * 2, opened.model.W_E
    )


@pytest.mark.parametrize(
    ("state", "cfg", "text"),
    [
        ({}, {"positional_embedding_type": "rotary"}, "d_head=3: expected an even number"),
        ({}, {"parallel_attn_mlp": True}, "uses parallel_attn_mlp=True"),
        ({}, {"normalization_type": "LNPre", "final_rms": True}, "uses final_rms=True"),
        ({}, {"act_fn": "solu_ln"}, "act_fn='solu_ln' is not served; expected one of relu, gelu"),
        ({}, {"normalization_type": "RMSPost"}, "normalization_type='RMSPost' is not served"),
        ({"blocks.0.mlp.W_gate": torch.ones(6, 24)}, {}, "no configuration says whether they were"),
        (
            {"blocks.0.attn.rotary_sin": torch.ones(3, 3)},
            {"normalization_type": None},
            "table of rotations is not that of",
        ),
        (
            {"blocks.0.ln1.w": torch.ones(6)},
            {"normalization_type": "LN"},
            "says normalization_type='LN', its weights are those of RMS",
        ),
        ({"blocks.0.attn.mask": torch.eye(3, dtype=torch.bool)}, {}, "uses local attention"),
        (
            {"blocks.1.mlp.W_in": torch.ones(6, 5)},
            {},
            r"blocks.1.mlp.W_in: got shape \(6, 5\), expected \(6, 24\)",
        ),
    ],
)
def test_other_mathematics_is_refused(tmp_path, state, cfg, text):
    given = {
        name: value for name, value in CFG.items() if not (state and name == "normalization_type")
    } | cfg
    with pytest.raises(CheckpointError, match=text):
        load_checkpoint(written(tmp_path, {"model": STATE | state, "config": given}))
