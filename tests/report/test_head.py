"""What a report opens with, from a real run: accuracy beside chance, training curve, next steps."""

from __future__ import annotations

from pathlib import Path

import mechint
import tasks
from mechint import planted
from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.report import head_of


def test_the_head_of_a_run(tmp_path: Path) -> None:
    task = tasks.make("modular-arithmetic", p=7)
    small = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
    mechint.train(task, small, {"steps": 6, "evaluate_every": 2}, seeds=(0,), out=tmp_path / "r")
    run = next(path.parent for path in (tmp_path / "r").rglob("config.json"))
    opened = load_checkpoint(run)
    subject = opened.subject()
    head = head_of(opened, subject, ["norms"], "mechint demo")
    ((name, text),) = head["scores"].items()
    right = subject.correct().double().mean().item()
    assert name == "accuracy" and text == f"{right:.1%}, chance 14.3%"
    curve = head["figures"]["training"].spec
    assert curve["data"][0]["x"] == [0, 2, 4, 6]
    assert any(shape["x0"] == 6 for shape in curve["layout"]["shapes"])
    assert head["next_steps"] and all(
        command.startswith(f"mechint analyze {run} --probe ") and "norms" not in command
        for command in head["next_steps"]
    )


def test_a_lone_checkpoint_has_no_curve(tmp_path: Path) -> None:
    made = planted.modular_addition(p=7, frequencies=(1, 2), seed=0).subject
    file = tmp_path / "lone.pt"
    weights = dict(made.model.named_parameters())
    save_checkpoint(
        file, config=made.model.config, weights=weights, task=made.task, step=0, metrics={}
    )
    opened = load_checkpoint(file)
    head = head_of(opened, opened.subject(), [])
    assert head["figures"] == {} and head["scores"]["accuracy"].startswith("100.0%")
