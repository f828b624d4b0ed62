"""Small whole checkpoints of every family, as files that mutations start from."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mechint.checkpoints import save_checkpoint
from mechint.checkpoints.open import MAPPING
from mechint.config import ModelConfig
from mechint.models import build
from mechint.registry import TASKS

P = 5
CONFIG = ModelConfig(d_model=4, n_heads=2, d_vocab=P + 1, d_vocab_out=P, n_ctx=3, d_mlp=6)


def _randoms(shapes: dict[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def native(folder: Path, ending: str = "pt") -> Path:
    task = TASKS["modular-arithmetic"](p=P)
    path = folder / f"ckpt.{ending}"
    model = build(CONFIG, seed=1)
    metrics = {"test.accuracy": 0.5, "curve": [1.0, 0.5], "note": {"a": None}}
    save_checkpoint(
        path, config=CONFIG, weights=model.weights(), task=task, step=3, metrics=metrics, seed=2
    )
    return path


def safetensors(folder: Path) -> Path:
    return native(folder, "safetensors")


def transformer_lens(folder: Path) -> Path:
    state = build(CONFIG, seed=1).transformer_lens_state()
    config = {"act_fn": "relu", "n_heads": 2, "d_model": 4, "eps": 1e-5}
    content = {
        "model": state,
        "config": config | {"initializer_range": 0.8 / np.sqrt(4)},  # as TransformerLens's to_dict
        "epoch": 3,
        "test_losses": [2.0, 1.0],
        "checkpoints": [state],
        "checkpoint_epochs": [3],
    }
    torch.save(content, folder / "model.pt")
    return folder / "model.pt"


def _transposed(n_ctx: int, d_vocab: int) -> dict[str, torch.Tensor]:
    d, heads, d_head, d_mlp = 4, 2, 2, 6
    shapes = {"embed.W_E": (d, d_vocab), "pos_embed.W_pos": (n_ctx, d), "unembed.W_U": (d, d_vocab)}
    shapes |= {f"blocks.0.attn.W_{which}": (heads, d_head, d) for which in "KQV"}
    shapes |= {"blocks.0.attn.W_O": (d, heads * d_head), "blocks.0.mlp.W_in": (d_mlp, d)}
    shapes |= {"blocks.0.mlp.b_in": (d_mlp,), "blocks.0.mlp.W_out": (d, d_mlp)}
    return _randoms(shapes | {"blocks.0.mlp.b_out": (d,)})


def progress_measures(folder: Path) -> Path:
    config = {"p": P, "fn_name": "add", "frac_train": 0.4, "seed": 1}
    torch.save({"model": _transposed(3, P + 1), "config": config, "epoch": 9}, folder / "9.pth")
    return folder / "9.pth"


def pizza(folder: Path) -> Path:
    config = {"funcs": f"lambda x: (x[0]+x[1])%{P}", "C": P, "attn_coeff": 0.5, "act_fn": "ReLU"}
    (folder / "config_x.json").write_text(json.dumps({**config, "runid": "x", "frac": 0.8}))
    torch.save(_transposed(2, P), folder / "model_x.pt")
    return folder / "model_x.pt"


def pizza_linear(folder: Path) -> Path:
    config = {"C": P, "model_type": "A", "frac": 0.8, "runid": "y"}
    (folder / "config_y.json").write_text(json.dumps(config))
    shapes = {
        "embed.weight": (P, 4),
        "unembed.weight": (P, 4),
        "l1.weight": (4, 4),
        "l1.bias": (4,),
    }
    torch.save(_randoms(shapes), folder / "model_y.pt")
    return folder / "model_y.pt"


def rep_theory(folder: Path) -> Path:
    config = {"group": "SymmetricGroup", "group_parameter": 3, "frac_train": 0.4, "seed": 1}
    (folder / "cfg.json").write_text(json.dumps(config))
    shapes = {"W_x": (6, 4), "W_y": (6, 4), "W": (8, 5), "W_U": (5, 6)}
    torch.save(_randoms(shapes), folder / "model.pt")
    return folder / "model.pt"


def one_hot(folder: Path) -> Path:
    shapes = {"mlp.W_in": (7, P), "mlp.W_out": (P, 7), "mlp.basis": (P, P)}
    content = {"model": _randoms(shapes), "train_loss": 2.0, "test_loss": 2.0, "epoch": 3}
    torch.save(content, folder / "3.pth")
    return folder / "3.pth"


def nanogpt(folder: Path) -> Path:
    d = 4
    shapes = {"transformer.wte.weight": (9, d), "transformer.wpe.weight": (6, d)}
    shapes |= {"transformer.ln_f.weight": (d,), "lm_head.weight": (9, d)}
    at = "transformer.h.0."
    shapes |= {f"{at}ln_{i}.weight": (d,) for i in (1, 2)}
    shapes |= {f"{at}attn.c_attn.weight": (3 * d, d), f"{at}attn.c_proj.weight": (d, d)}
    shapes |= {f"{at}mlp.c_fc.weight": (4 * d, d), f"{at}mlp.c_proj.weight": (d, 4 * d)}
    content = {"model": _randoms(shapes), "model_args": {"n_head": 2}, "iter_num": 5}
    torch.save(content, folder / "ckpt.pt")
    return folder / "ckpt.pt"


def transformer_lens_native(folder: Path) -> Path:
    d = 4
    shapes = {"embed.weight": (6, d), "pos_embed.weight": (3, d), "unembed.weight": (5, d)}
    for letter in "qkvo":
        shapes |= {f"blocks.0.attn.{letter}.weight": (d, d), f"blocks.0.attn.{letter}.bias": (d,)}
    shapes |= {"blocks.0.mlp.in.weight": (6, d), "blocks.0.mlp.in.bias": (6,)}
    shapes |= {"blocks.0.mlp.out.weight": (d, 6), "blocks.0.mlp.out.bias": (d,)}
    torch.save(_randoms(shapes), folder / "tl4.pt")
    (folder / "cfg.json").write_text(json.dumps({"d_model": d, "n_heads": 2, "act_fn": "gelu"}))
    return folder / "tl4.pt"


def pickled_module(folder: Path, other: Any = None) -> Path:
    """A module saved whole, of a library that is gone, with an object of another kind in it."""
    gone = types.ModuleType("a_library_that_left")
    for name in ("Part", "Config"):
        kind = type(name, (torch.nn.Module,) if name == "Part" else (), {})
        kind.__module__ = gone.__name__
        setattr(gone, name, kind)
    sys.modules[gone.__name__] = gone
    model = gone.Part()
    for name, value in build(CONFIG, seed=1).transformer_lens_state().items():
        *places, kind = name.split(".")
        owner = model
        for place in places:
            if place not in owner._modules:
                owner.add_module(place, gone.Part())
            owner = owner._modules[place]
        owner.register_parameter(kind, torch.nn.Parameter(value))
    model.cfg = gone.Config()
    known = {"d_model": 4, "act_fn": "gelu", "attention_dir": "bidirectional"}
    known |= {"normalization_type": None, "initializer_range": np.float64(0.1)}
    vars(model.cfg).update(known, device=torch.device("cpu"))
    model.other = other
    torch.save(model, folder / "module.pt")
    sys.modules.pop(gone.__name__)
    return folder / "module.pt"


def separate_heads(folder: Path) -> Path:
    shapes = {"tok_embed.weight": (P, 4), "pos_embed.weight": (3, 4), "unembed.weight": (P, 4)}
    shapes |= {f"layers.0.heads.{i}.W_{part}.weight": (2, 4) for i in (0, 1) for part in "QKV"}
    torch.save(_randoms(shapes | {"layers.0.W_O.weight": (4, 4)}), folder / "model.pt")
    return folder / "model.pt"


def mapped(folder: Path) -> Path:
    """A file of separate heads beside a mapping of a stranger's, which is the one for it."""
    text = """format: separate-heads
config: {act_fn: relu, attention_dir: causal}
weights:
  embed.W_E: tok_embed.weight
  pos_embed.W_pos: pos_embed.weight
  "blocks.{layer}.attn.W_Q":
    {from: "layers.{layer}.heads.{head}.W_Q.weight", pattern: head h m -> head m h}
  "blocks.{layer}.attn.W_K":
    {from: "layers.{layer}.heads.{head}.W_K.weight", pattern: head h m -> head m h}
  "blocks.{layer}.attn.W_V":
    {from: "layers.{layer}.heads.{head}.W_V.weight", pattern: head h m -> head m h}
  "blocks.{layer}.attn.W_O":
    {from: "layers.{layer}.W_O.weight", pattern: m (head h) -> head h m}
  "blocks.{layer}.attn.b_O": {zeros: 4}
  unembed.W_U: {from: unembed.weight, pattern: v m -> m v}
task: {name: modular-arithmetic, p: 4}
ignore: ["*.bias"]
"""
    (folder / MAPPING).write_text(text)
    return separate_heads(folder)


def mapped_pair(folder: Path) -> Path:
    text = """format: rep-theory
architecture: pair-network
config: {join: concat}
weights: {embed.W_E: W_x, embed_y.W_E: W_y, layers.0.W: W, unembed.W_U: W_U}
"""
    (folder / MAPPING).write_text(text)
    return rep_theory(folder)


BASES: dict[str, Callable[[Path], Any]] = {
    made.__name__: made
    for made in (
        native,
        safetensors,
        transformer_lens,
        progress_measures,
        pizza,
        pizza_linear,
        rep_theory,
        one_hot,
        nanogpt,
        separate_heads,
        transformer_lens_native,
        pickled_module,
        mapped,
        mapped_pair,
    )
}
