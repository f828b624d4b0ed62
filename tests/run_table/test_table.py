"""Tables of models: rows from runs, sweeps and checkpoints, probe columns, caching, steps, CSV."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import multiprocessing
import os
import shutil
import signal
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import mechint
import probes
import tasks
from mechint.errors import CheckpointError, ParameterError, UnknownNameError
from mechint.run_table import Measurement, Runs
from mechint.run_table.entries import Entry, with_steps
from mechint.run_table.page import chance_of, over_steps, page_of_table, settings_of

SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 16}
STEPS = {"steps": 6, "evaluate_every": 3, "checkpoints": "linear", "n_checkpoints": 3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds of a tiny run, two widths."""
    place = tmp_path_factory.mktemp("runs")
    for width in (16, 24):
        task = tasks.make("modular-arithmetic", p=7)
        model = {**SMALL, "d_model": width}
        mechint.train(task, model, STEPS, seeds=(0, 1, 2), out=place / f"d{width}")
    return place


def test_a_row_per_run_with_what_differs_and_the_last_metrics(folder: Path) -> None:
    frame = mechint.runs(folder).frame()
    assert len(frame) == 6
    assert list(frame["status"]) == ["finished"] * 6
    assert sorted(frame["model.d_model"]) == [16] * 3 + [24] * 3
    assert "model.n_heads" not in frame, "the same everywhere"
    assert set(frame["seed"]) == {0, 1, 2} and set(frame["step"]) == {6}
    for _, row in frame.iterrows():
        lines = (Path(row["path"]) / "metrics.jsonl").read_text().splitlines()
        assert row["test.loss"] == json.loads(lines[-1])["test.loss"]


def test_chance_is_that_of_the_task_that_the_runs_were_trained_on(folder: Path) -> None:
    """A setting in which no row differs is no column, and chance depends on it."""
    rows = mechint.runs(folder).rows()
    assert "task.p" not in rows[0]
    assert chance_of(rows) == {"chance": pytest.approx(1 / 7)}
    one = next(path for path in sorted(folder.glob("*/*")) if (path / "config.json").is_file())
    assert chance_of(mechint.runs(one).over_steps().rows()) == {"chance": pytest.approx(1 / 7)}


def test_runs_by_different_losses_can_be_told_apart(tmp_path: Path) -> None:
    """Their train.loss and test.loss are of different probabilities."""
    task = tasks.make("modular-arithmetic", p=7)
    for loss in ("softmax", "stablemax"):
        mechint.train(task, SMALL, {**STEPS, "loss": loss}, out=tmp_path / loss)
    frame = mechint.runs(tmp_path).frame()
    assert list(frame["train.loss_function"]) == ["softmax", "stablemax"]
    assert all(isinstance(value, float) for value in frame["train.loss"])


@pytest.mark.full
def test_hugging_face_models_are_rows_of_the_task_that_is_named(
    tmp_path: Path, folder: Path
) -> None:
    """Their config.json is not that of a run, which states a task of its own."""
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = {"vocab_size": 8, "n_positions": 4, "n_embd": 8, "n_layer": 1, "n_head": 2}
    for name in "ab":
        torch.manual_seed(ord(name))
        made = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0))
        made.save_pretrained(tmp_path / "models" / name)
    directories = [tmp_path / "models" / name for name in "ab"]
    tables = [
        mechint.runs(paths, task="modular-arithmetic", p=7).probe("ablation").rows()
        for paths in (directories, tmp_path / "models")
    ]
    assert tables[0] == tables[1]
    for row, path in zip(tables[0], directories, strict=True):
        assert row["path"] == str(path) and "status" not in row
        subject = mechint.load(path, task="modular-arithmetic", p=7)
        found = probes.ablation(subject).metrics
        scalars = {key: value for key, value in found.items() if isinstance(value, float)}
        kept = {key: float(row[f"ablation.{key}"]) for key in scalars}
        assert scalars and kept == pytest.approx(scalars, nan_ok=True)
    assert not list((tmp_path / "models").rglob("probes")), "nothing is kept in another's directory"
    (run, *_) = folder.glob("d16/*")
    with pytest.raises(ParameterError, match="a run states its task"):
        mechint.runs([directories[0], run], task="modular-arithmetic", p=7)


def test_probe_columns_are_the_probe_s_numbers(folder: Path) -> None:
    table = mechint.runs(folder / "d16").probe("embedding").probe("gradients")
    row = table.rows()[1]
    subject = mechint.load(Path(row["path"]) / "ckpt.pt")
    for name in ("embedding", "gradients"):
        metrics = probes.run(name, subject).metrics
        scalars = {key: value for key, value in metrics.items() if isinstance(value, float)}
        assert scalars
        for key, value in scalars.items():
            column = f"{name}.{key.removeprefix(f'{name}.')}"
            assert row[column] == pytest.approx(value, nan_ok=True), key


def test_what_was_measured_is_kept_and_goes_with_the_weights(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mechint.runs(folder / "d24").probe("embedding")
    first = table.rows()
    monkeypatch.setattr(Entry, "subject", lambda entry: pytest.fail("opened again"))
    assert table.rows() == first
    other = mechint.runs(folder / "d24").probe("embedding", seed=5)
    with pytest.raises(pytest.fail.Exception, match="opened again"):
        other.rows()
    changed = Path(first[0]["path"]) / "ckpt.pt"
    weights = changed.read_bytes()
    changed.write_bytes((Path(first[1]["path"]) / "ckpt.pt").read_bytes())
    with pytest.raises(pytest.fail.Exception, match="opened again"):
        table.rows()
    changed.write_bytes(weights)


@pytest.mark.full
def test_workers_give_the_same_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = mechint.runs(folder / "d16").probe("embedding", permutations=19)
    several = dataclasses.replace(one, workers=2)
    assert several.rows() == one.rows()
    monkeypatch.setattr(multiprocessing, "get_context", lambda _: pytest.fail("a process for it"))
    monkeypatch.setattr(Entry, "subject", lambda entry: pytest.fail("opened again"))
    assert several.rows() == one.rows(), "a table is measured once"


def test_subjects_and_files_opened_by_a_function_are_rows(folder: Path) -> None:
    files = sorted(folder.glob("d16/*/ckpt.pt"))
    opened = mechint.runs(files, opener=lambda path: mechint.load(path)).probe("embedding").rows()
    subjects = {f"m{i}": mechint.load(file) for i, file in enumerate(files)}
    given = mechint.runs(subjects).probe("embedding").rows()
    assert [row["name"] for row in given] == ["m0", "m1", "m2"]
    for row, other, file in zip(given, opened, files, strict=True):
        assert other["path"] == str(file)
        columns = {name: value for name, value in row.items() if name.startswith("embedding.")}
        assert columns == {name: other[name] for name in columns} and len(columns) > 3
    assert mechint.runs(subjects["m0"]).rows()[0]["name"] == "model-0"


def test_checkpoints_of_ones_own_loop_have_steps_and_accuracy(folder: Path, tmp_path: Path) -> None:
    """Steps are in the names; the accuracy is counted here, where no evaluation was kept."""
    kept = sorted(folder.glob("d16/*/ckpt.pt"))[:2]
    files = [tmp_path / "step1000.pt", tmp_path / "step300.pt"]
    for source, file in zip(kept, files, strict=True):
        shutil.copy(source, file)
    table = mechint.runs(files, opener=mechint.load).over_steps().probe("norms", null_models=19)
    rows = table.rows()
    assert [row["step"] for row in rows] == [300, 1000] and over_steps(rows)
    for row, file in zip(rows, reversed(files), strict=True):
        subject = mechint.load(file)
        inputs = subject.task.inputs()
        right = subject.model(inputs)[:, -1].argmax(-1) == inputs[:, :2].sum(-1) % 7
        assert row["accuracy"] == pytest.approx(float(right.double().mean()))
    same = tmp_path / "other-300.pt"
    shutil.copy(kept[0], same)
    with pytest.raises(CheckpointError, match="the step in their names"):
        mechint.runs([*files, same], opener=mechint.load).over_steps()


def test_rows_come_as_soon_as_they_are_measured(folder: Path) -> None:
    opened = list[Path]()

    def opener(path: Path) -> mechint.Subject:
        opened.append(path)
        return mechint.load(path)

    files = sorted(folder.glob("d16/*/ckpt.pt"))
    table = mechint.runs(files, opener=opener).probe("embedding", permutations=19)
    rows = table.each()
    first = next(rows)
    assert opened == files[:1] and first["embedding.verdict"]
    assert [first, *rows] == list(table.each()) and len(opened) == len(files)


class Deadly(Entry):
    """A model that is too large for the process that opens it."""

    def subject(self) -> mechint.Subject:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


@pytest.mark.full
def test_a_worker_that_dies_is_named_in_one_line(tmp_path: Path) -> None:
    entries = (Deadly(tmp_path / "a", "a"), Deadly(tmp_path / "b", "b"))
    table = Runs(entries, (Measurement.of("embedding"),), workers=2)
    for row in table.rows():
        assert row["embedding.error"].startswith("a worker process was killed")


def test_csv_and_figure(folder: Path, tmp_path: Path) -> None:
    table = mechint.runs(folder).probe("embedding")
    again = pd.read_csv(table.csv(tmp_path / "t.csv"))
    assert list(again["name"]) == list(table.frame()["name"])
    shown = table.figure(x="model.d_model", y="test.loss", color="seed")
    assert len([trace for trace in shown.spec["data"] if trace.get("mode") != "lines"]) == 3
    mean = table.figure(x="model.d_model", y="test.loss").spec["data"][-1]
    frame = table.frame().groupby("model.d_model")["test.loss"].mean()
    assert np.allclose(mean["y"], frame.to_numpy(), rtol=1e-4)
    with pytest.raises(UnknownNameError, match=r"test\.los"):
        table.figure(x="model.d_model", y="test.los")


def test_a_refused_model_keeps_its_row(folder: Path) -> None:
    rows = mechint.runs(folder / "d16").probe("irreps").rows()
    other = mechint.runs(folder / "d16").probe("subspace").rows()
    assert len(rows) == len(other) == 3
    assert all("does not apply" in row["subspace.error"] for row in other)


def test_a_checkpoint_file_and_bad_places(folder: Path, tmp_path: Path) -> None:
    file = next(folder.rglob("ckpt.pt"))
    (row,) = mechint.runs(file).probe("embedding").rows()
    assert row["path"] == str(file) and row["embedding.verdict"]
    with pytest.raises(CheckpointError, match="there is no such file"):
        mechint.runs(tmp_path / "none")
    with pytest.raises(CheckpointError, match="holds neither a run nor a checkpoint"):
        mechint.runs(tmp_path)
    with pytest.raises(CheckpointError, match="keeps no checkpoints"):
        mechint.runs(file).over_steps()
    with pytest.raises(ParameterError, match="workers=0"):
        mechint.runs(file, workers=0)
    with pytest.raises(UnknownNameError):
        mechint.runs(file).probe("fouriers")


def rows_of_seeds(n: int) -> list[dict[str, object]]:
    """Models that differ in their seed: a number with a null, one without, and a constant one."""
    return [
        {
            "name": f"seed-{seed}",
            "path": f"s{seed}",
            "status": "finished",
            "seed": seed,
            "test.accuracy": 0.9 + seed / 100,
            "lens.verdict": "yes",
            "lens.top": 1.0 + seed,
            "lens.top.p": 0.01,
            "lens.error": seed * 1e-7,
            "lens.final": 1.0,
            "lens.final.p": 0.01,
        }
        for seed in range(n)
    ]


def test_seeds_are_points_and_not_a_curve() -> None:
    """Only what varies is drawn, and a value per model."""
    page = page_of_table(rows_of_seeds(3), "seeds")
    assert list(page.figures) == ["test.accuracy", "lens.top", "lens.error"]
    (trace,) = page.figures["lens.top"].spec["data"]
    assert trace["mode"] == "markers" and trace["x"] == [0, 1, 2]


def test_a_sweep_over_one_setting_is_answered() -> None:
    """Kruskal and Wallis by hand: ranks 1 2 3 | 4 5 6 have H = 12/42 (12 + 75) - 21 = 3.857."""
    rows = [
        {"name": f"{place}", "path": f"{place}", "train.lr": 0.1 * (1 + place // 3)}
        | {"seed": place % 3, "test.accuracy": 0.9 + place / 100}
        for place in range(6)
    ]
    answer = page_of_table(rows, "sweep").verdict
    assert "91% at 0.1" in answer and "94% at 0.2" in answer and "6 of 6" in answer
    p = float(answer.partition("p = ")[2].partition(";")[0])
    assert p == pytest.approx(math.erfc(math.sqrt(3.857 / 2)), rel=0.03)
    assert not page_of_table(rows[:4], "sweep").verdict  # one model at the second value
    for row in rows:
        row["train.weight_decay"] = row["test.accuracy"]
    assert not page_of_table(rows, "sweep").verdict  # two settings differ


def test_models_of_different_tasks_are_named_by_their_task() -> None:
    """Parameters of different tasks do not differ, tasks do; no setting orders them."""
    changes = zip(rows_of_seeds(3), ("a", "b", "c"), (0.1, 0.1, 0.2), strict=True)
    rows = [
        {**row, "task": task, f"task.{task}": 1, "model.d_vocab": row["seed"], "train.lr": lr}
        for row, task, lr in changes
    ]
    assert settings_of(rows) == ["seed", "task", "train.lr"]
    (trace,) = page_of_table(rows, "tasks").figures["lens.top"].spec["data"]
    assert len(set(trace["x"])) == 3 and trace["y"] == [1.0, 2.0, 3.0]


def test_models_of_a_sweep_are_rows_and_dots() -> None:
    kinds = ("clock", "pizza", "clock", "clock")
    rows = [
        {**row, "train.lr": 0.1 * (1 + row["seed"] % 2), "lens.mechanism": kind}
        | {"train.warmup": 10 + row["seed"] % 2}  # follows from the rate: no second setting
        | dict.fromkeys((f"train.s{place}" for place in range(9)), row["seed"] % 2)
        for row, kind in zip(rows_of_seeds(4), kinds, strict=True)
    ]
    page = page_of_table(rows, "sweep")
    columns = page.sections[0].tables["models"].columns
    assert columns["lens.mechanism"] == list(kinds) and columns["lens.verdict"] == ["yes"] * 4
    assert "train.s0" in columns and "train.s8" not in columns, "the CSV has them all"
    (dots,) = page.figures["test.accuracy"].plots[0].layers
    assert dots.kind == "points" and dots.x == [0.1, 0.2, 0.1, 0.2] and len(dots.y) == 4


def test_models_of_one_name_are_called_by_their_paths(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a/model.pt", "b/model.pt", "z.pt", "z.pt")]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    names = [entry.name for entry in mechint.runs(paths).entries]
    assert names == [*map(str, paths[:2]), "z.pt", "z.pt"]


@pytest.mark.parametrize(
    ("style", "others"),
    [
        ("epoch=0-step={}.ckpt", "behind 'step'"),
        ("epoch={}-val_loss=0.{loss}.ckpt", ""),
        ("iter={}-loss={loss}.pt", "behind 'iter'"),
        ("model_{}_v2.pt", "in"),
        ("step0_epoch{}.pt", "behind 'epoch'"),
        ("run3-{}.pt", "in"),
        ("model.{}.pt", ""),
        ("Ckpt-{}-of-30.pt", "behind 'ckpt'"),
        ("commit7_deep{loss}_it_{}.pth", "behind 'it'"),
        ("lr0.001_{}.pt", ""),
        ("model{loss}_{}.pt", "in"),
    ],
)
def test_the_step_is_the_number_that_counts_steps(style: str, others: str) -> None:
    """Names of PyTorch Lightning, nanoGPT and the like; losses fall while steps rise."""
    steps = (0, 2, 4, 8, 15, 30)
    names = [style.format(step, loss=f"{99 - step}") for step in steps]
    entries = [Entry(Path("own") / name, name) for name in reversed(names)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = with_steps(entries)
    assert found is not None
    assert [(one.step, one.name) for one in found] == list(zip(steps, names, strict=True))
    assert [others in str(one.message) for one in said] == [True] * bool(others)


@pytest.mark.parametrize("names", [["a1_v2.pt", "b1_v2.pt"], ["a.pt", "b2.pt"], ["x0.5.pt"] * 2])
def test_names_without_a_number_that_differs_have_no_step(names: list[str]) -> None:
    assert with_steps([Entry(Path("own") / name, name) for name in names]) is None


def test_names_of_runs_in_a_table_that_a_spreadsheet_or_a_terminal_would_obey(
    folder: Path, tmp_path: Path
) -> None:
    source = next(folder.glob("d16/*/config.json")).parent
    names = [b"b\xff\xfe", b"=cmd|calc", b"x\x1b[31mred\x07", b"-1+1", b"@sum", b"plain"]
    for name in names:
        shutil.copytree(source, tmp_path / os.fsdecode(name))
    table = mechint.runs(tmp_path).csv(tmp_path / "table.csv")
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["name"] for row in rows] == [
        *("'-1+1", "'=cmd|calc", "'@sum", "b\\udcff\\udcfe", "plain", "x\\x1b[31mred\\x07"),
    ]
    assert {row["task"] for row in rows} == {"modular-arithmetic"}
    assert all(float(row["test.loss"]) > 0 for row in rows)
