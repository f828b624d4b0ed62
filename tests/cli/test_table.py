"""``mechint table``: text, JSON, CSV and page."""

from __future__ import annotations

import json
from math import comb
from pathlib import Path

import pandas as pd
import pytest
import torch

import probes
from mechint import load
from mechint.cli.opening import is_folder_of_runs
from mechint.config import ModelConfig
from mechint.models import build
from mechint.run_table import find_entries
from tests.cli.conftest import Command, invoke

TRAIN = ("p=7", "d_model=16", "n_heads=2", "d_mlp=16", "steps=6", "evaluate_every=3")
KEPT = ("checkpoints=linear", "n_checkpoints=3")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cli") / "seeds"
    settings = [part for text in (*TRAIN, *KEPT) for part in ("--set", text)]
    arguments = ("train", "modular-arithmetic", *settings, "--seeds", "0:3", "--out", out)
    assert invoke(*arguments).exit_code == 0
    return out


def write_run(run: Path, seed: int, size: int, accuracy: float, **parameters: str) -> None:
    """What a table reads of a run of this size."""
    run.mkdir(parents=True)
    task, model = {"name": "x", "parameters": parameters}, {"d_model": size}
    config = {"task": task, "model": model, "train": {"seed": seed}}
    (run / "config.json").write_text(json.dumps(config))
    (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "test.accuracy": accuracy}) + "\n")


def test_a_folder_of_runs_is_a_table_however_deep_they_lie(tmp_path: Path) -> None:
    run = tmp_path / "a" / "b" / "c" / "run"
    run.mkdir(parents=True)
    assert not is_folder_of_runs(tmp_path)
    (run / "config.json").write_text('{"task": {}}')
    assert is_folder_of_runs(tmp_path) and not is_folder_of_runs(run)
    assert [entry.path for entry in find_entries(tmp_path)] == [run]


@pytest.mark.full
def test_a_folder_of_seeds_is_a_table(mechint: Command, seeds: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    page = tmp_path / "t.html"
    result = mechint("table", seeds, "--probe", "embedding", "--csv", table, "--out", page)
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(table)
    assert len(frame) == 3 and {"seed", "embedding.verdict", "test.accuracy"} <= set(frame.columns)
    assert "embedding" in page.read_text()
    assert result.stdout.count("finished") == 3
    assert result.stdout.count(" yes ") == (frame["embedding.verdict"] == "yes").sum()
    again = mechint("table", seeds, "--probe", "embedding", "--json")
    said = json.loads(again.stdout)
    rows = said["rows"]
    assert said["schema"] == 3
    assert [row["seed"] for row in rows] == sorted(frame["seed"])


def test_over_steps_has_a_row_per_checkpoint(mechint: Command, seeds: Path, tmp_path: Path) -> None:
    run = next(path.parent for path in sorted(seeds.rglob("ckpt.pt")))
    table = tmp_path / "s.csv"
    result = mechint("table", run, "--over-steps", "--probe", "embedding", "--csv", table)
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(table)
    assert len(frame) == len(list(run.rglob("step-*.pt"))) == 4
    assert frame["step"].is_monotonic_increasing
    assert frame["embedding.verdict"].notna().all()


def test_a_probe_that_was_asked_for_and_applies_nowhere_is_said(
    mechint: Command, seeds: Path, tmp_path: Path
) -> None:
    result = mechint("table", seeds, "--probe", "embedding,subspace", "--csv", tmp_path / "t.csv")
    assert result.exit_code == 2
    assert "subspace: no numbers of 3 of 3 models: " in result.stderr
    assert "embedding.verdict" in result.stdout and "embedding" not in result.stderr
    assert pd.read_csv(tmp_path / "t.csv")["embedding.verdict"].notna().all()


def test_lists_stay_lists_in_json(mechint: Command, seeds: Path) -> None:
    asked = ("--probe", "fourier", "--set", "permutations=9", "--json")
    rows = json.loads(mechint("table", seeds, *asked).stdout)["rows"]
    for row in rows:
        assert isinstance(row["fourier.logits.key_frequencies"], list)


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        (20, "passes one half at d_model 2"),
        (4, "passes one half below d_model 8, the smallest (95% interval 0 to 8)"),
        (80, "does not pass one half up to d_model 64 (95% interval 64 and beyond)"),
    ],
)
def test_where_along_a_size_the_task_is_learned(
    mechint: Command, tmp_path: Path, learned: int, said: str
) -> None:
    for size in (8, 16, 32, 64):
        for seed in range(2):
            run = tmp_path / "sweep" / f"{size}-{seed}"
            write_run(run, seed, size, float(size > learned))
    asked = ("table", tmp_path / "sweep", "--transition", "d_model")
    found = json.loads(mechint(*asked, "--json").stdout)["transition"]
    assert found["over"] == "d_model" and float(found["low"]) <= float(found["at"])
    assert f"Test accuracy {said}" in " ".join(mechint(*asked).stdout.split())
    line = mechint("table", tmp_path / "sweep", "--transition", "d_modl")
    assert line.exit_code == 2 and "unknown column 'd_modl'" in line.stderr


def test_the_factor_between_two_settings_is_that_of_fishers_test(
    mechint: Command, tmp_path: Path
) -> None:
    """One setting is learned from 32 wide on, the other from 8; six seeds a size."""
    for name, learned in (("ADD", 32), ("MAX", 8)):
        for size in (4, 8, 16, 32):
            for seed in range(6):
                run = tmp_path / "sweep" / f"{name}-{size}-{seed}"
                write_run(run, seed, size, float(size >= learned), operation=name)
    asked = ("table", tmp_path / "sweep", "--transition", "d_model", "--by", "operation")
    (found,) = json.loads(mechint(*asked, "--ratio", "2", "--json").stdout)["factors"]
    assert (found["first"], found["second"], found["verdict"]) == ("ADD", "MAX", "yes")
    assert 2 < float(found["low"]) < float(found["value"]) < float(found["high"])
    # at twice the width: ADD 8 against MAX 4 says nothing, ADD 16 against MAX 8 all, ADD 32 nothing
    assert found["p_value"] == pytest.approx(1 / comb(12, 6))
    (wide,) = json.loads(mechint(*asked, "--ratio", "4", "--json").stdout)["factors"]
    assert wide["verdict"] != "yes" and wide["p_value"] == 1
    line = " ".join(mechint(*asked, "--ratio", "2").stdout.split())
    assert "ADD against MAX: " in line and "more than 2 times: yes." in line
    assert "Test accuracy passes" not in line
    for wrong, message in (("seedd", "unknown column 'seedd'"), ("lr", "unknown column 'lr'")):
        assert message in mechint(*asked[:-1], wrong).stderr
    assert "takes --transition" in mechint(*asked[:2], "--by", "operation").stderr


def test_what_cannot_be_asked_is_said_in_one_line(
    mechint: Command, seeds: Path, tmp_path: Path
) -> None:
    foreign, data, both = (tmp_path / name for name in ("keep.pt", "data.csv", "both"))
    foreign.write_bytes(b"x")
    data.write_text("subject,age\n1,30\n")
    for arguments, message in (
        (("table", seeds, "--csv", foreign), "is not a table of mechint's and would be lost"),
        (("table", seeds, "--csv", data), "is not a table of mechint's and would be lost"),
        (("table", seeds, "--csv", both, "--out", both), "is the file of --csv too"),
        (("table", seeds, tmp_path / "none"), "there is no such file"),
        (("table", seeds, "--probe", "subspace"), "does not apply"),
        (("table", seeds, "--probe", "nroms"), "did you mean 'norms'"),
        (("table", seeds, "--explain", "--answer", "all"), "expected a number"),
        (("analyze", seeds), "mechint table PATH"),
        (("analyze", seeds, seeds), "mechint compare A B"),
        (("explain", seeds, seeds), "mechint compare A B"),
        (("analyze", seeds, "--csv", both), "expected mechint table PATH --csv FILE"),
        (("explain", seeds, "--over-steps"), "mechint table PATH --over-steps --explain"),
        (("compare", seeds), "is for two models, got 1"),
    ):
        result = mechint(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert not both.exists()
    assert (foreign.read_bytes(), data.read_text()) == (b"x", "subject,age\n1,30\n")
    for force in ((), ("--force",)):  # one of ours is written again, another's where asked for
        place = data if force else tmp_path / "ours.csv"
        for _ in range(2):
            assert mechint("table", seeds, "--csv", place, *force).exit_code == 0
            assert place.read_text().startswith("name,path")


@pytest.fixture
def foreign(tmp_path: Path) -> list[Path]:
    """Two checkpoint files that do not say their task, in a folder whose name a shell would
    split.
    """
    config = ModelConfig(n_layers=1, d_model=8, n_heads=2, d_vocab=8, d_vocab_out=7, n_ctx=3)
    places = [tmp_path / "my models" / f"{seed}.pt" for seed in (3, 4)]
    places[0].parent.mkdir()
    for seed, place in enumerate(places, start=3):
        torch.save(build(config, seed=seed).transformer_lens_state(), place)
    return places


def test_a_table_opens_files_with_the_task_that_it_is_given(
    mechint: Command, foreign: list[Path], tmp_path: Path
) -> None:
    given = ("--task", "modular-arithmetic", "--set", "p=7", "--set", "operation=subtract")
    given += ("--probe", "lens", "--seed", 2)
    table = ("--csv", tmp_path / "two.csv", "--json")
    rows = json.loads(mechint("table", *foreign, *given, *table).stdout)["rows"]
    for path, row in zip(foreign, rows, strict=True):
        subject = load(path, task="modular-arithmetic", p=7, operation="subtract")
        alone = probes.run("lens", subject, seed=2)
        numbers = {
            f"lens.{name.removeprefix('lens.')}": value
            for name, value in alone.metrics.items()
            if isinstance(value, float)
        }
        assert "lens.final_accuracy" in numbers
        assert {name: row[name] for name in numbers} == numbers
        assert row["lens.verdict"] == alone.verdict
    assert mechint("table", foreign[0], *given, "--csv", tmp_path / "one.csv").exit_code == 0
    assert len(pd.read_csv(tmp_path / "one.csv")) == 1


def test_a_table_refuses_what_it_does_not_carry_out(
    mechint: Command, seeds: Path, foreign: list[Path]
) -> None:
    norms = ("--probe", "norms")
    for arguments, text in (
        ((seeds, *norms, "--set", "null_model=9"), "a run states its task and the task's parame"),
        ((seeds, *norms, "--task", "listops", "--set", "n=5"), "files alone, got task, n"),
        ((seeds, *norms, "--device", "cuda:99"), "device 'cuda:99' is not there"),
        ((*foreign, *norms, "--device", "cuda:99"), "device 'cuda:99' is not there"),
        ((*foreign, *norms, "--set", "p=7"), "p belongs to none; name the task too"),
    ):
        result = mechint("table", *arguments)
        assert result.exit_code == 2 and text in result.stderr, arguments
