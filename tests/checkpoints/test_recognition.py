"""Files that are nobody's checkpoint: hostile, truncated, foreign, empty or missing; one line each,
and no code runs.
"""

from __future__ import annotations

import pickle
import warnings

import pytest
import torch
from safetensors.torch import save_file

import mechint
from mechint.checkpoints import ParsedCheckpoint, load_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError, ParameterError
from mechint.models import build
from mechint.registry import CHECKPOINT_FORMATS
from tests.checkpoints.bombs import Hostile

CONFIG = ModelConfig(d_model=4, n_heads=1, d_vocab=3, d_vocab_out=2)


def refused(path) -> str:
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    text = str(caught.value)
    assert "\n" not in text and str(path) in text
    return text


@pytest.mark.parametrize(
    "wrap",
    [
        lambda bad: bad,
        lambda bad: {"format": "mechint", "state": {"a": torch.ones(1)}, "metrics": [bad]},
        lambda bad: {"model": [bad]},
    ],
    ids=["bare", "inside", "beside no module"],
)
def test_pickled_code_is_refused_and_does_not_run(tmp_path, wrap):
    torch.save(wrap(Hostile(tmp_path / "ran")), tmp_path / "bad.pt")
    assert "would run pickled code" in refused(tmp_path / "bad.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_a_bare_pickle_is_refused_and_does_not_run(tmp_path, protocol):
    (tmp_path / "bad.pt").write_bytes(pickle.dumps(Hostile(tmp_path / "ran"), protocol))
    refused(tmp_path / "bad.pt")
    state = {"embed.W_E": torch.ones(1)}
    torch.save(state, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    assert "PyTorch before version 1.6; write it again" in refused(tmp_path / "old.pt")
    assert not (tmp_path / "ran").exists()


def test_missing_empty_and_foreign_files(tmp_path):
    assert "there is no such file" in refused(tmp_path / "none.pt")
    for name, content, text in [
        ("empty.pt", b"", "the file is empty"),
        ("text.pt", b"hello, world", "neither a PyTorch nor a safetensors file"),
        (
            "pointer.pt",
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "a Git LFS pointer",
        ),
        ("noise.pt", b"\x80\x02" + bytes(range(200)), "a bare pickle"),
        ("noise.safetensors", b"\xff" * 64, "not a whole safetensors file"),
        ("archive.pt", b"PK\x03\x04" + bytes(300), "truncated or damaged"),
    ]:
        (tmp_path / name).write_bytes(content)
        assert text in refused(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ({"weight": torch.ones(2)}, "holds weight; no format knows it (formats: "),
        ({}, "holds an empty mapping"),
        (torch.ones(3), "holds a Tensor, not a state dict"),
        ([torch.ones(3)], "holds a list, not a state dict"),
        ({"model": {"fc.weight": torch.ones(2)}, "epoch": 3}, "holds model, epoch"),
    ],
)
def test_tensors_that_are_no_known_model(tmp_path, content, text):
    torch.save(content, tmp_path / "other.pt")
    assert text in refused(tmp_path / "other.pt")


def test_directories_without_a_model(tmp_path):
    assert "a directory without a model: expected ckpt.pt, " in refused(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x02cos\nmkdir\nX\x01\x00\x00\x00a\x85R.")
    assert "other forms are written anew by save_pretrained" in refused(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot be read as JSON"):
        load_checkpoint(tmp_path)


def test_a_file_of_a_hugging_face_model_names_its_directory(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "gpt2"}')
    for name in ("config.json", "model.safetensors.index.json"):
        (tmp_path / name).write_text('{"model_type": "gpt2"}')
        assert f"the directory {tmp_path}" in refused(tmp_path / name)
    save_file({"wte.weight": torch.ones(2, 2)}, tmp_path / "model.safetensors")
    assert f"give its directory, {tmp_path}" in refused(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text("{")
    assert "no format knows it" in refused(tmp_path / "model.safetensors")


def test_a_safetensors_file_under_another_ending(tmp_path):
    state = build(CONFIG).transformer_lens_state()
    save_file(state, tmp_path / "model.bin")
    assert torch.equal(load_checkpoint(tmp_path / "model.bin").model.W_E, state["embed.W_E"])


def test_the_number_of_tokens_may_be_said_of_a_model_that_does_not(tmp_path):
    module = torch.nn.Sequential(torch.nn.Embedding(2, 4), torch.nn.Linear(4, 2))
    data, hooks = [{"prompt": [0, 1, 0, 1]}], {"hook_embed": "0"}
    with pytest.raises(ParameterError, match=r"mechint\.load\(model, data=…, d_vocab=…\)"):
        mechint.load(module, hooks=hooks, data=data)
    subject = mechint.load(module, hooks=hooks, data=data, d_vocab=2)
    assert torch.equal(subject.logits()[0], module(torch.tensor([0, 1, 0, 1]))[-1])
    stated = mechint.wrap(module, hooks, d_vocab=2)
    with pytest.raises(ParameterError, match="reads 2 tokens; got d_vocab=3"):
        mechint.load(stated, data=data, d_vocab=3)


# --- formats of third parties ---------------------------------------------------------------------
def read_ours(path, content):
    """A third party's format: a mapping with the key "ours"."""
    if not isinstance(content, dict) or "ours" not in content:
        return None
    return ParsedCheckpoint(
        config=CONFIG, weights=build(CONFIG, seed=content["ours"]).weights(), step=3
    )


def test_a_third_partys_format_is_recognized_and_a_broken_one_warns(tmp_path):
    torch.save({"ours": 5}, tmp_path / "theirs.pt")
    targets = {
        "ours": f"{read_ours.__module__}:read_ours",
        "broken": "no_such_module_anywhere:read",
    }
    for name, target in targets.items():
        CHECKPOINT_FORMATS.add(name, target)
    try:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            opened = load_checkpoint(tmp_path / "theirs.pt")
        assert (opened.format, opened.step) == ("ours", 3) and torch.equal(
            opened.model.W_E, build(CONFIG, seed=5).W_E
        )
        assert any("'broken'" in str(warning.message) for warning in seen)
    finally:
        for name in targets:
            CHECKPOINT_FORMATS.remove(name)
