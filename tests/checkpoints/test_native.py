"""mechint's own checkpoint: what is written is what is read, bit for bit, as .pt and as
safetensors.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mechint
from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.checkpoints.content import read_content
from mechint.config import ModelConfig, TrainConfig
from mechint.errors import CheckpointError, MechintError, RunError
from mechint.models import ARCHITECTURES, build, config_class, kind_of
from mechint.probe import Need, unmet_need
from mechint.registry import TASKS

TASK = TASKS["modular-arithmetic"](p=5, operation="subtract")
CONFIG = ModelConfig(
    d_model=8, n_heads=2, d_vocab=TASK.d_vocab, d_vocab_out=TASK.d_vocab_out, n_ctx=TASK.n_ctx
)
MODEL = build(CONFIG, seed=4)
METRICS = {"test_accuracy": 0.75, "test_loss": float("nan"), "curve": [1, 2.5], "note": None}


def write(path, config=CONFIG, model=MODEL, task=TASK, **changes):
    known = {"step": 12, "metrics": METRICS, "train": TrainConfig(steps=40, seed=7), "seed": 7}
    save_checkpoint(path, config=config, weights=model.weights(), task=task, **known | changes)
    return path


def same_weights(a, b) -> bool:
    return set(a.weights()) == set(b.weights()) and all(
        torch.equal(value, b.weights()[name]) for name, value in a.weights().items()
    )


@pytest.mark.parametrize(
    ("name", "format"), [("ckpt.pt", "mechint"), ("ckpt.safetensors", "safetensors")]
)
def test_round_trip(tmp_path, name, format):
    opened = load_checkpoint(write(tmp_path / name))
    assert (opened.format, opened.step, opened.seed, opened.config, opened.task) == (
        format,
        12,
        7,
        CONFIG,
        TASK,
    )
    assert same_weights(opened.model, MODEL) and not opened.model.training
    assert np.isnan(opened.metrics["test_loss"]) and opened.metrics["curve"] == [1, 2.5]
    assert (
        opened.train["steps"] == 40 and opened.extra["versions"]["mechint"] == mechint.__version__
    )
    subject = opened.subject()
    assert subject.split_seed == 7 and subject.provenance["checkpoint"]["format"] == format
    assert len(subject.logits()) == 25


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
def test_the_bytes_depend_on_the_contents_alone(tmp_path, suffix):
    first, second = write(tmp_path / f"a.{suffix}"), write(tmp_path / f"another.{suffix}")
    assert first.read_bytes() == second.read_bytes()


@given(
    st.builds(
        ModelConfig,
        n_layers=st.integers(1, 2),
        n_loops=st.integers(1, 2),
        use_bias=st.booleans(),
        attn_only=st.booleans(),
        normalization_type=st.sampled_from([None, "LN", "LNPre"]),
        d_model=st.just(4),
        n_heads=st.sampled_from([1, 2]),
        d_vocab=st.integers(1, 5),
        d_vocab_out=st.integers(1, 5),
        attention_rate=st.floats(0, 1),
    )
)
def test_every_configuration_comes_back(tmp_path_factory, config):
    folder, model = tmp_path_factory.mktemp("round"), build(config, seed=1)
    for name in ("a.pt", "b.safetensors"):
        opened = load_checkpoint(write(folder / name, config, model, task=None))
        assert opened.config == config and same_weights(opened.model, model)
        assert opened.task is None and opened.step == 12


@pytest.mark.parametrize("kind", [kind for kind in ARCHITECTURES if kind != "transformer"])
def test_students_come_back(tmp_path, kind):
    model = build(config_class(kind)(), seed=3)
    assert kind_of(model.config) == kind
    opened = load_checkpoint(write(tmp_path / "ckpt.pt", model.config, model, task=None))
    assert (
        type(opened.model) is type(model)
        and opened.config == model.config
        and same_weights(opened.model, model)
    )


def test_numbers_of_numpy_and_torch_become_plain(tmp_path):
    path = write(
        tmp_path / "ckpt.pt",
        metrics={"a": np.float64(0.5), "b": torch.tensor(2.0), "c": np.arange(2)},
    )
    assert read_content(path)["metrics"] == {"a": 0.5, "b": 2.0, "c": [0, 1]}


def test_what_the_caller_says_about_the_task(tmp_path):
    write(tmp_path / "ckpt.pt")
    write(tmp_path / "bare.pt", task=None)
    assert load_checkpoint(
        tmp_path / "ckpt.pt", parameters={"operation": "add"}
    ).task == dataclasses.replace(TASK, operation="add")
    assert (
        load_checkpoint(tmp_path / "bare.pt", task="modular-arithmetic", parameters={"p": 5}).task.p
        == 5
    )
    assert (
        unmet_need(Need.TASK, mechint.load(tmp_path / "bare.pt"))
        == "no task is known for it; name one with --task and --set"
    )
    assert "--task modular-arithmetic --set p=5" in load_checkpoint(tmp_path / "bare.pt").proposals


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            {"task": "modular-arithmetic", "parameters": {"p": 7}},
            r"5 in the file, 7 in the task; --task modular-arithmetic --set p=5 .*would fit",
        ),
        ({"parameters": {"p": 5}}, "does not say which task"),
        ({"task": "modular-arithmetik"}, "did you mean 'modular-arithmetic'"),
        ({"task": "modular-arithmetic", "parameters": {"p": 1.5}}, r"p=1\.5"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not there; this machine has cpu"),
        ({"device": "gpu"}, "device 'gpu': expected one of cpu"),
    ],
)
def test_what_the_caller_says_wrongly(tmp_path, asked, said):
    with pytest.raises(MechintError, match=said):
        load_checkpoint(write(tmp_path / "bare.pt", task=None), **asked)


def test_a_parameter_of_the_task_may_be_called_path(tmp_path):
    """A corpus has a path of its own, which was taken for the checkpoint's."""
    (tmp_path / "text.txt").write_text("the cat sat on the mat. " * 200)
    with pytest.raises(CheckpointError, match=r"nowhere\.pt"):
        mechint.load(tmp_path / "nowhere.pt", task="corpus", path=str(tmp_path / "text.txt"))
    for door in (mechint.load, load_checkpoint):
        with pytest.raises(TypeError, match="positional"):
            door(tmp_path / "nowhere.pt", "corpus", "cpu")


def test_a_file_that_names_its_task_says_so_where_another_does_not_fit(tmp_path):
    """The advice given opens the file; a task of its own that does not fit is not offered."""
    file = write(tmp_path / "ckpt.pt")
    for task, parameters in (("modular-arithmetic", {"p": 7}), ("groups", {}), (None, {"p": 7})):
        with pytest.raises(CheckpointError) as caught:
            load_checkpoint(file, task=task, parameters=parameters)
        said = "the file names modular-arithmetic with p=5; leave out --task and --set"
        assert str(caught.value).endswith(said)
    assert load_checkpoint(file).task == TASK
    wrong = write(tmp_path / "wrong.pt", task=dataclasses.replace(TASK, p=7))
    with pytest.raises(CheckpointError, match=r"--set p=5 .*would fit"):
        load_checkpoint(wrong)


# --- run directories ------------------------------------------------------------------------------
def test_a_run_directory_gives_its_last_checkpoint_and_the_others_as_series(tmp_path):
    models = {step: build(CONFIG, seed=step) for step in (2, 10, 100)}
    for step, model in models.items():
        write(tmp_path / "checkpoints" / f"step-{step}.pt", model=model, step=step)
    assert load_checkpoint(tmp_path).step == 100  # a run that was killed has no ckpt.pt yet
    write(tmp_path / "ckpt.pt", model=models[100], step=100)
    subject = load_checkpoint(tmp_path).subject()
    assert list(subject.series) == [2, 10, 100]
    assert same_weights(subject.at_step(10).model, models[10]) and same_weights(
        subject.model, models[100]
    )


def test_a_directory_of_several_seeds_says_which_to_choose(tmp_path):
    for seed in (0, 1):
        write(tmp_path / f"seed-{seed}" / "ckpt.pt")
    with pytest.raises(CheckpointError, match="holds 2 runs; choose one of seed-0, seed-1"):
        load_checkpoint(tmp_path)


def test_damaged_contents_are_named(tmp_path):
    content = read_content(write(tmp_path / "ckpt.pt"))
    for change, text in [
        ({"version": 99}, "version 99, expected 1; a newer mechint may read it"),
        ({"state": None}, "whose state is damaged"),
        (
            {"config": {"d_model": -1}},
            "its configuration is not usable: model: d_model=-1: expected 1 to",
        ),
        ({"config": {"d_modle": 8}}, "did you mean 'd_model'"),
        ({"kind": "diffusion"}, "unknown architecture 'diffusion'"),
        (
            {
                "state": {
                    name: value for name, value in content["state"].items() if name != "embed.W_E"
                }
            },
            "lacks embed.W_E",
        ),
        (
            {"task": {"name": "no-such-task", "parameters": {}}},
            "the task it names cannot be made: unknown task 'no-such-task'",
        ),
    ]:
        torch.save(content | change, tmp_path / "damaged.pt")
        with pytest.raises(MechintError, match=text):
            load_checkpoint(tmp_path / "damaged.pt")


def test_a_place_that_cannot_be_written(tmp_path):
    with pytest.raises(RunError, match="it is a directory"):
        write(tmp_path)
