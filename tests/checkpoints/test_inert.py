"""Pickled modules are read without their code; arrays of numpy are left out."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.checkpoints.content import read_content
from mechint.checkpoints.inert import KNOWN, NumberType, number
from mechint.errors import CheckpointError
from mechint.models import build
from tests.checkpoints.bases import CONFIG, pickled_module
from tests.checkpoints.bombs import Hostile, bombs, members_of, write_members


def test_a_pickled_model_is_rescued_without_its_classes(tmp_path):
    opened = load_checkpoint(pickled_module(tmp_path, Hostile(tmp_path / "ran")))
    assert opened.config.act_fn == "gelu" and opened.config.attention_dir == "bidirectional"
    assert "act_fn" not in opened.assumed and "normalization_type" not in opened.assumed
    assert torch.equal(opened.model.W_E, build(CONFIG, seed=1).W_E)
    assert not (tmp_path / "ran").exists()


def test_numpy_beside_the_weights_is_left_out_or_read(tmp_path):
    state = build(CONFIG).transformer_lens_state()
    histories = {"train_losses": np.ones(5), "notes": np.array(["a", 1], dtype=object)}
    content = {"model": state, "epoch": np.int64(7), "test_loss": np.float32(2.5), **histories}
    torch.save(content, tmp_path / "a.pth")
    opened = load_checkpoint(tmp_path / "a.pth")
    assert opened.step == 7 and opened.metrics == {"test_loss": 2.5}
    assert set(read_content(tmp_path / "a.pth")) == {"model", "epoch", "test_loss"}


@pytest.mark.parametrize("kind", ["f2", ">f8", "i1", "u8", "?"])
def test_numbers_of_numpy_are_those_of_python(tmp_path, kind):
    value = np.array([1], dtype=kind)[0]
    torch.save({"value": value}, tmp_path / "a.pt")
    assert read_content(tmp_path / "a.pt")["value"] == 1


BOMBS = bombs()


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_that_grows_or_sets_state_is_refused_at_once(tmp_path, kind, recwarn):
    path = pickled_module(tmp_path)
    load_checkpoint(path)  # with all that mechint imports for it
    members = members_of(path)
    name = next(name for name in members if name.endswith("data.pkl"))
    members |= {name.replace("data.pkl", "data/0"): bytes(1 << 20), name: BOMBS[kind]}
    write_members(path, members)
    before = "torch._dynamo" in sys.modules
    with pytest.raises(CheckpointError) as refused:
        load_checkpoint(path)
    assert str(refused.value).isprintable()
    assert ("torch._dynamo" in sys.modules) == before


def test_nothing_can_be_set_on_what_a_file_may_name():
    for one in KNOWN.values():
        with pytest.raises(AttributeError):
            one.__defaults__ = (1,)


@pytest.mark.parametrize("state", [(3, "|", None, None, None, -1, -1, 63), (3, "|"), (3, "O"), 5])
def test_a_type_of_numbers_takes_the_state_of_a_plain_one_alone(state):
    kind = NumberType("f8")
    with pytest.raises(ValueError, match="type of numbers"):
        kind.__setstate__(state)
    kind.__setstate__((3, ">", None, None, None, -1, -1, 0))
    assert number(kind, np.array(2.5, ">f8").tobytes()) == 2.5
