"""A model as a folder with its account as the card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import mechint
from mechint import planted
from mechint.errors import CheckpointError, RunError
from mechint.subject import Subject


@pytest.fixture(scope="module")
def clock() -> Subject:
    return mechint.load(mechint.example("clock.pt"))


def test_a_model_comes_back_with_its_task_split_and_step(clock: Subject, tmp_path: Path) -> None:
    account = mechint.analyze(clock, "fourier")
    out = clock.save_pretrained(tmp_path / "clock", account)
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    back = mechint.load(out)
    assert repr(back.task) == repr(clock.task) and torch.equal(back.logits(), clock.logits())
    assert back.split is not None and clock.split is not None
    assert all(torch.equal(back.split[name], clock.split[name]) for name in clock.split)
    assert back.provenance["checkpoint"]["step"] == 2000
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: mechint\n") and account.verdict in card
    assert account.findings("yes")[0][1].headline in card
    assert "examples/models" not in card and str(tmp_path) not in card
    (row,) = mechint.runs(out).probe("lens").rows()
    assert row["lens.verdict"] and row["name"] == "clock"


def test_a_model_of_unknown_split_stays_so(tmp_path: Path) -> None:
    plant = planted.modular_addition(7, (2,)).subject
    unknown = Subject(plant.model, plant.task, split=None)
    back = mechint.load(unknown.save_pretrained(tmp_path, mechint.analyze(unknown, "lens")))
    assert back.split is None


def test_what_is_there_is_not_replaced(clock: Subject, tmp_path: Path) -> None:
    account = mechint.analyze(clock, "lens")
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(RunError, match="is there already"):
        clock.save_pretrained(tmp_path, account)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]
    clock.save_pretrained(tmp_path, account, force=True)
    assert "mine" not in (tmp_path / "README.md").read_text()


def test_a_wrapped_module_is_refused(clock: Subject, tmp_path: Path) -> None:
    wrapped = mechint.wrap(torch.nn.Embedding(30, 29), hooks={}, weights={"W_E": "weight"})
    with pytest.raises(CheckpointError, match="architectures"):
        clock.with_model(wrapped).save_pretrained(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_of_hugging_face_is_not_taken_for_one(tmp_path: Path, clock: Subject) -> None:
    clock.save_pretrained(tmp_path, mechint.analyze(clock, "lens"))
    config = tmp_path / "config.json"
    stated = json.loads(config.read_text())
    config.write_text(json.dumps({**stated, "format": "other"}))
    with pytest.raises(CheckpointError):
        mechint.load(tmp_path)
