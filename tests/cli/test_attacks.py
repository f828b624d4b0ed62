"""Files that were tampered with, places that cannot be written, and names that are hostile."""

from __future__ import annotations

import errno
import shutil
import stat
from pathlib import Path

import pytest

from mechint.prompts.reading import PromptReader
from tests.cli.conftest import Command, invoke
from tests.cli.test_train import SMALL


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of the same steps and other seeds."""
    out = tmp_path_factory.mktemp("runs") / "S"
    train = ("train", "modular-arithmetic", *SMALL, "--seeds", "0:2", "--out", out)
    assert invoke(*train).exit_code == 0
    return out


@pytest.mark.full
def test_a_file_system_that_cannot_be_written_loses_no_result(
    mechint: Command, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(next(runs.glob("seed-*")), tmp_path / "run")

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    for name in ("write_bytes", "touch", "mkdir", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    result = mechint("analyze", run, "--probe", "lens")
    assert result.exit_code == 0 and "lens" in result.stdout
    assert "Traceback" not in result.output


def test_a_report_keeps_the_permissions_of_the_file_that_it_replaces(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report.html"
    report.write_text("")
    report.chmod(0o600)
    assert mechint("analyze", planted, "--probe", "lens", "--out", report).exit_code == 0
    assert stat.S_IMODE(report.stat().st_mode) == 0o600 and report.stat().st_size > 10_000


def test_a_name_of_a_folder_is_printed_without_its_escapes(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    for name in ("a\x1b[31mred", "b"):
        (tmp_path / name).mkdir()
        shutil.copy(planted, tmp_path / name / "ckpt.pt")
    result = mechint("compare", *sorted(tmp_path.iterdir()), "--probe", "lens")
    assert "\x1b[31m" not in result.output and "red" in result.output


def test_an_answer_file_of_one_huge_line_is_refused_by_its_size(tmp_path: Path) -> None:
    from mechint.errors import DataError
    from mechint.system.files import MAX_JSON

    file = tmp_path / "huge.txt"
    with file.open("wb") as opened:
        opened.truncate(MAX_JSON + 1)  # sparse: nothing is written
    with pytest.raises(DataError, match="expected at most") as caught:
        PromptReader(file, None, 10).read()
    assert "\n" not in str(caught.value)
