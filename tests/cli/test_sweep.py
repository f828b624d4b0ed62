"""``mechint sweep``: a table from the command line, its state, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import probes
from mechint import load
from tests.cli.conftest import Command, one_line
from tests.sweeps.conftest import SMALL, TASK

SETTINGS = [part for text in SMALL for part in ("--set", text)]


def test_the_command(mechint: Command, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    arguments = ["sweep", TASK, *SETTINGS, "--over", "seed=0:2", "--over", "d_mlp=8,16"]
    done = mechint(*arguments, "--out", out, "--workers", 1)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 4
    stands = mechint("sweep", out, "--json")
    rows = json.loads(stands.stdout)
    assert sorted(row["id"] for row in rows) == [
        f"seed={seed},d_mlp={width}" for seed in (0, 1) for width in (16, 8)
    ]
    assert {row["status"] for row in rows} == {"finished"}
    assert "4 finished" in stands.stderr
    assert mechint("sweep", out, "--resume").exit_code == 0
    other = ["sweep", TASK, *SETTINGS, "--over", "lr=1e-3,2e-3"]
    assert "holds another sweep" in one_line(mechint(*other, "--out", out))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").touch()
    assert "holds something else" in one_line(mechint(*other, "--out", tmp_path / "notes"))


@pytest.mark.parametrize(
    "options",
    [
        ["--over", "seed=0:99"],
        ["--set", "lr=9"],
        ["--preset", "fast"],
        ["--group-size", 1],
        ["--out", "elsewhere"],
        ["--search", "lr=1e-4..1e-2"],
    ],
)
def test_the_plan_of_a_directory_stands(
    mechint: Command, tmp_path: Path, options: list[object]
) -> None:
    (tmp_path / "sweep.json").write_text("[]")
    for more in ([], ["--resume"], ["--dry-run"]):
        line = one_line(mechint("sweep", tmp_path, *options, *more))
        assert f"{options[0]}: what a directory holds is planned already" in line


def test_resume_begins_a_sweep_that_is_not_there(mechint: Command, tmp_path: Path) -> None:
    out = tmp_path / "none"
    swept = ["sweep", TASK, *SETTINGS, "--over", "seed=0:2", "--resume", "--out", out]
    assert mechint(*swept).exit_code == 0 and (out / "seed=1" / "ckpt.pt").is_file()


def test_texts_of_a_file_are_read_as_on_the_command_line(mechint: Command, tmp_path: Path) -> None:
    toml = tmp_path / "sweep.toml"  # TOML has no null
    toml.write_text(
        f'task = "{TASK}"\n[set]\nbatch_size = "none"\n[over]\nbatch_size = ["none", "8", 4]\n'
    )
    done = mechint("sweep", toml, "--out", tmp_path / "out", "--dry-run")
    assert done.exit_code == 0, done.output
    names = [line.partition(": ")[2] for line in done.stdout.splitlines()]
    assert names[0].startswith("batch_size=null") and names[1:] == ["batch_size=8", "batch_size=4"]


def test_a_file_describes_a_sweep(mechint: Command, tmp_path: Path) -> None:
    toml = tmp_path / "sweep.toml"
    toml.write_text(
        'task = "modular-arithmetic"\n[set]\np = 5\nsteps = 2\nd_model = 8\nn_heads = '
        "1\n[over]\nseed = [0, 1]\n"
    )
    done = mechint("sweep", toml, "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout)) == 2
    toml.write_text(f'task = "{TASK}"\n[over]\nseed = "0:3"\n')
    assert "seed=2" in mechint("sweep", toml, "--dry-run").stdout
    for text, said in (
        ("task = 3\n", "expected task = NAME, and [set] and [over] besides"),
        (f'task = "{TASK}"\n[over]\nseed = 3\n', "over.seed=3: expected a list of values, or a"),
        (f'task = "{TASK}"\nsets = 3\n', "sets: expected only task = NAME, [set] and [over]"),
    ):
        toml.write_text(text)
        assert said in one_line(mechint("sweep", toml))


def test_a_dry_run_prints_and_does_nothing(mechint: Command, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    arguments = ["sweep", TASK, *SETTINGS, "--over", "seed=0:2", "--dry-run", "--out", out]
    assert mechint(*arguments).stdout == "group 0000: seed=0, seed=1\n"
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "nothing is swept; give --over"),
        (["--over", "seeds=0:2"], "unknown parameter 'seeds'; did you mean 'seed'"),
        (["--over", "seed=0:2", "--slurm", "time"], "expected KEY=VALUE"),
        (["--over", "seed=0:2", "--slurm", "time=3"], "--slurm: is for --executor slurm"),
        (["--over", "lr=0,1"], "lr=0"),
        (["--over", "seed=0:2", "--probe", "nrms"], "unknown probe 'nrms'"),
        (["--over", "seed=0:2", "--device", "gpu"], "device 'gpu': expected one of cpu, cuda"),
        (["--over", "d_model=65536", "--set", "n_layers=1000"], "one model of modular-arithmetic"),
    ],
)
def test_refused(mechint: Command, tmp_path: Path, arguments: list[str], text: str) -> None:
    assert text in one_line(mechint("sweep", TASK, *arguments, "--out", tmp_path / "s"))
    assert not (tmp_path / "s").exists()


@pytest.mark.full
def test_the_table_of_a_sweep_has_the_numbers_of_its_probes(
    mechint: Command, tmp_path: Path
) -> None:
    out = tmp_path / "sweep"
    swept = ["--over", "seed=0:2", "--over", "d_mlp=8,16", "--workers", 2, "--out", out]
    chosen = ["--probe", "progress", "--set", "progress.samples=3", "--probe", "embedding"]
    done = mechint("sweep", TASK, *SETTINGS, *swept, *chosen)
    assert done.exit_code == 0, done.output
    rows = pd.read_csv(out / "sweep.csv")
    assert len(rows) == 4 and rows["embedding.verdict"].notna().all()
    for row in rows.to_dict("records"):
        subject = load(Path(row["path"]))
        result = probes.run("progress", subject, samples=3)
        assert row["progress.loss.all"] == pytest.approx(result.metrics["loss.all"])
    assert not list(out.glob("*/probes")), "a run holds what training wrote"


def measured(mechint: Command, folder: Path) -> Path:
    """A sweep of two seeds, with the numbers of a probe."""
    swept = ["sweep", TASK, *SETTINGS, "--over", "seed=0:2", "--probe", "embedding", "--out"]
    assert mechint(*swept, folder / "sweep").exit_code == 0
    return folder / "sweep"


def test_a_sweep_that_is_done_is_measured_where_its_table_is_gone(
    mechint: Command, tmp_path: Path
) -> None:
    out = measured(mechint, tmp_path)
    (out / "sweep.csv").unlink()
    assert mechint("sweep", out).exit_code == 0
    assert pd.read_csv(out / "sweep.csv")["embedding.verdict"].notna().all()
    (out / "probes.json").write_text("[3]")
    assert "probes.json: damaged" in one_line(mechint("sweep", out, "--resume"))


def test_a_damaged_run_is_named_and_leaves_the_table(mechint: Command, tmp_path: Path) -> None:
    out = measured(mechint, tmp_path)
    config, table = out / "seed=0" / "config.json", (out / "sweep.csv").read_bytes()
    config.write_bytes(config.read_bytes()[:200])
    for status, words in ((0, ("sweep", out)), (2, ("sweep", out, "--resume"))):
        result = mechint(*words)
        assert result.exit_code == status and f"{config}: cannot be read as JSON" in result.stderr
        assert [line.split()[1] for line in result.stdout.splitlines()] == ["failed", "finished"]
        assert (out / "sweep.csv").read_bytes() == table
