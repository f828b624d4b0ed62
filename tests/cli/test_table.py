"""``mechint analyze`` on several models: text, JSON, CSV and page."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.conftest import Command

TRAIN = ("p=7", "d_model=16", "n_heads=2", "d_mlp=16", "steps=6", "evaluate_every=3")
KEPT = ("checkpoints=linear", "n_checkpoints=3")


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from click.testing import CliRunner

    from mechint.cli import main

    out = tmp_path_factory.mktemp("cli") / "seeds"
    settings = [part for text in (*TRAIN, *KEPT) for part in ("--set", text)]
    arguments = ["train", "modular-arithmetic", *settings, "--seeds", "0:3", "--out", str(out)]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    return out


def test_a_folder_of_seeds_is_a_table(mechint: Command, seeds: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    page = tmp_path / "t.html"
    result = mechint("analyze", seeds, "--probe", "norms", "--csv", table, "--out", page)
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(table)
    assert len(frame) == 3 and {"seed", "norms.status", "test.accuracy"} <= set(frame.columns)
    assert "norms" in page.read_text() and "mechint table" in page.read_text()
    assert result.stdout.count("finished") == 3
    again = mechint("analyze", seeds, "--probe", "norms", "--json")
    rows = json.loads(again.stdout)["rows"]
    assert [row["seed"] for row in rows] == sorted(frame["seed"])


def test_over_steps_has_a_row_per_checkpoint(mechint: Command, seeds: Path, tmp_path: Path) -> None:
    run = next(path.parent for path in sorted(seeds.rglob("ckpt.pt")))
    table = tmp_path / "s.csv"
    result = mechint("analyze", run, "--over-steps", "--probe", "norms", "--csv", table)
    assert result.exit_code == 0, result.output
    frame = pd.read_csv(table)
    assert len(frame) == len(list(run.rglob("step-*.pt"))) == 4
    assert frame["step"].is_monotonic_increasing
    assert frame["norms.status"].notna().all()


def test_two_checkpoints_side_by_side(mechint: Command, seeds: Path) -> None:
    first, second, _ = sorted(path.parent for path in seeds.rglob("ckpt.pt"))
    result = mechint("analyze", first, second, "--probe", "gradients", "--json")
    found = json.loads(result.stdout)
    assert [row["path"] for row in found["rows"]] == [str(first), str(second)]
    assert found["comparison"]["accuracy.first"] <= 1.0
    shown = mechint("analyze", first, second, "--probe", "norms").stdout
    assert "linear CKA of their last layers" in " ".join(shown.split())


def test_what_cannot_be_asked_is_said_in_one_line(
    mechint: Command, seeds: Path, tmp_path: Path
) -> None:
    foreign, data = tmp_path / "keep.pt", tmp_path / "data.csv"
    foreign.write_bytes(b"x")
    data.write_text("subject,age\n1,30\n")
    for arguments, message in (
        (("analyze", seeds, "--csv", foreign), "is not a table of mechint's and would be lost"),
        (("analyze", seeds, "--csv", data), "is not a table of mechint's and would be lost"),
        (("analyze", seeds, tmp_path / "none"), "there is no such file"),
        (("analyze", seeds, "--probe", "subspace"), "does not apply"),
        (("analyze", seeds, "--probe", "nroms"), "did you mean 'norms'"),
    ):
        result = mechint(*arguments)
        assert result.exit_code == 2, arguments
        assert message in result.stderr and result.stderr.count("\n") == 1, result.stderr
    assert (foreign.read_bytes(), data.read_text()) == (b"x", "subject,age\n1,30\n")
    for force in ((), ("--force",)):  # one of ours is written again, another's where asked for
        place = data if force else tmp_path / "ours.csv"
        for _ in range(2):
            assert mechint("analyze", seeds, "--csv", place, *force).exit_code == 0
            assert place.read_text().startswith("name,path")
