"""Models with more tokens, or more or fewer classes, than the task asks for."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from mechint.checkpoints import load_checkpoint
from mechint.config import ModelConfig
from mechint.errors import CheckpointError
from mechint.models import build
from mechint.registry import TASKS


def saved(folder, task, **changes):
    """The state dict of a model for `task`, changed in size."""
    config = ModelConfig.for_task(task, d_model=8, n_heads=2, output_sizes=None, **changes)
    model = build(config, seed=1)
    torch.save(model.transformer_lens_state(), folder / "model.pt")
    return folder / "model.pt", model


@pytest.mark.parametrize(
    ("name", "parameters", "unused"),
    [("rasp", {"n": 4, "length": 5}, 1), ("palindromes", {"n": 6, "half_length": 2}, 3)],
)
def test_tokens_that_never_occur_are_accepted_and_listed(tmp_path, name, parameters, unused):
    task = TASKS[name].from_dict(parameters)
    path, model = saved(tmp_path, task, d_vocab=task.d_vocab + unused)
    opened = load_checkpoint(path, name, parameters=parameters)
    assert opened.assumed["d_vocab"].value == task.d_vocab == opened.config.d_vocab
    tokens = opened.subject().data.tokens[:5]
    torch.testing.assert_close(opened.model(tokens), model(tokens))


def test_a_wrong_modulus_is_no_unused_token(tmp_path):
    path, _ = saved(tmp_path, TASKS["modular-arithmetic"](p=13))
    with pytest.raises(CheckpointError, match="--task modular-arithmetic --set p=13 would fit"):
        load_checkpoint(path, "modular-arithmetic", parameters={"p": 12})


def test_fewer_classes_are_a_setting(tmp_path):
    """Nanda's adder answers with the ten digits alone (T14)."""
    task = TASKS["digit-sum"](digits=2)
    path, model = saved(tmp_path, task, d_vocab_out=10)
    asked = {"task": "digit-sum", "parameters": {"digits": 2}}
    with pytest.raises(CheckpointError, match=f"--set model.d_vocab_out={task.d_vocab_out}"):
        load_checkpoint(path, **asked)
    opened = load_checkpoint(path, **asked, model={"d_vocab_out": task.d_vocab_out})
    tokens = opened.subject().data.tokens[:5]
    own, padded = model(tokens), opened.model(tokens)
    torch.testing.assert_close(padded[..., :10], own)
    torch.testing.assert_close(padded.log_softmax(-1)[..., :10], own.log_softmax(-1))


def test_more_classes_are_left_out(tmp_path):
    task = TASKS["max-of-list"](n=4, length=3)
    path, model = saved(tmp_path, task, d_vocab_out=task.d_vocab_out + 2)
    opened = load_checkpoint(path, "max-of-list", parameters={"n": 4, "length": 3})
    assert dataclasses.asdict(opened.config)["d_vocab_out"] == task.d_vocab_out
    assert opened.extra["classes_left_out"] == 2 and "d_vocab_out" in opened.assumed
    tokens = opened.subject().data.tokens[:5]
    torch.testing.assert_close(opened.model(tokens), model(tokens)[..., : task.d_vocab_out])
