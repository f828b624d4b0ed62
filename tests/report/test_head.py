"""What a report opens with, from a real run: accuracy beside chance, training curve, next steps."""

from __future__ import annotations

import re
from pathlib import Path

import mechint
import tasks
from mechint import planted
from mechint.checkpoints import load_checkpoint, save_checkpoint
from mechint.report import head_of
from mechint.report.head import percent


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
    test = subject.correct()[task.split(0)["test"]].double().mean().item()
    said = f"test {percent(test)}, all 49 examples {percent(right)}, chance 14.3%"
    assert name == "accuracy" and text == said
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
    assert head["figures"] == {} and head["scores"]["accuracy"].startswith("test 100.0%, all 49 ")


def test_a_memorizer_shows_its_test_accuracy_first(tmp_path: Path) -> None:
    task = tasks.make("modular-arithmetic", p=7, train_fraction=0.6, labels="shuffled")
    small = {"d_model": 16, "n_heads": 2, "d_mlp": 64}
    (run,) = mechint.train(task, small, {"steps": 150, "lr": 1e-2}, seeds=(0,), out=tmp_path / "r")
    assert run.final["train.accuracy"] == 1.0
    opened = load_checkpoint(tmp_path / "r")
    test = run.final["test.accuracy"]
    whole = (29 + test * 20) / 49
    said = f"test {percent(test)}, all 49 examples {percent(whole)}, chance 14.3%"
    assert test < 0.5 and head_of(opened, opened.subject(), [])["scores"] == {"accuracy": said}
    assert f"test accuracy {test:.4g}; on all 49 examples accuracy {whole:.4g}" in str(
        opened.performance
    )


def test_without_a_split_the_accuracy_says_what_it_is_of(tmp_path: Path) -> None:
    task = tasks.make("max-of-list", n=16, length=3)
    small = {"d_model": 8, "n_heads": 1, "d_mlp": 8}
    mechint.train(task, small, {"steps": 2}, seeds=(0,), out=tmp_path / "r")
    opened = load_checkpoint(tmp_path / "r")
    ((_, text),) = head_of(opened, opened.subject(), [])["scores"].items()
    assert re.fullmatch(r"[\d.]+% on 1,024 examples, chance [\d.]+%", text)
