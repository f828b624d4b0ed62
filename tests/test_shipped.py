"""The examples that are installed, and the page of the package."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import mechint
from mechint.cli import main
from mechint.decide import words
from mechint.errors import UnknownNameError
from mechint.shipped import copy_examples

ROOT = Path(__file__).parents[1]


def test_examples_are_copied_once_and_never_over_others(tmp_path: Path) -> None:
    out = tmp_path / "examples"
    written = copy_examples(out)
    names = {path.relative_to(out).as_posix() for path in written}
    assert {"README.md", "circuits.py", "models/clock.pt"} <= names
    assert all(path.is_file() for path in written) and sum("models/" in one for one in names) == 5
    assert copy_examples(out) == written  # the same files: nothing to refuse
    (out / "circuits.py").write_text("mine")
    (out / "models" / "clock.pt").unlink()
    done = CliRunner().invoke(main, ["examples", str(out)])
    assert done.exit_code == 2 and (out / "circuits.py").read_text() == "mine"
    assert not (out / "models" / "clock.pt").exists()
    done = CliRunner().invoke(main, ["examples", str(out), "--force"])
    assert done.exit_code == 0 and "5 models" in done.output
    assert (out / "circuits.py").read_text() != "mine"


def test_shipped_models_open_by_name() -> None:
    subject = mechint.load(mechint.example("clock.pt"))
    assert subject.accuracy() == {"answer": 1.0}
    with pytest.raises(UnknownNameError, match=r"clock\.pt"):
        mechint.example("clok.pt")


def test_every_word_of_a_decision_can_be_looked_up() -> None:
    decided = {*words.CLAIM.values(), *words.STUDY.values(), *words.STANDINGS, *words.CLAIM}
    for word in (*decided, "not asked", "together", "Gradient symmetricity"):
        done = CliRunner().invoke(main, ["help", *word.split()])
        assert done.exit_code == 0 and done.output.lower().startswith(f"{word.lower()}: ")
        assert len(done.output.splitlines()) <= 12
    done = CliRunner().invoke(main, ["help", "superflous"])
    assert done.exit_code == 2 and "did you mean 'superfluous'?" in done.stderr
    assert all(word in CliRunner().invoke(main, ["help"]).output for word in decided)


@pytest.mark.full
def test_every_command_of_the_skill_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = CliRunner().invoke(main, ["skill"]).output
    assert len(page.splitlines()) <= 120
    lines = re.findall(
        r"^ +(mechint (?:checkpoint|analyze|explain|probes|compare|verify) .*)$", page, re.M
    )
    assert len(lines) == 11
    monkeypatch.chdir(tmp_path)
    copy_examples(tmp_path)
    rows = torch.cartesian_prod(*[torch.arange(16)] * 4)[::200].tolist()
    Path("prompts.jsonl").write_text("".join(json.dumps({"prompt": row}) + "\n" for row in rows))
    for line in lines:
        command, _, out = line.partition(" > ")
        done = CliRunner().invoke(main, shlex.split(command)[1:])
        assert done.exit_code == 0, f"{line}: {done.output}"
        if out:
            Path(out).write_text(done.stdout)
        if "--brief" in command:
            assert len(done.stdout.encode()) <= 2048 and json.loads(done.stdout)["verify"], line


def test_the_page_of_the_package_has_no_relative_link() -> None:
    pytest.importorskip("hatch_fancy_pypi_readme", reason="it writes the page of the package")
    command = [sys.executable, "-m", "hatch_fancy_pypi_readme"]
    page = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"\]\(([^)]*)\)", page)
    assert all(target.startswith(("https://", "#")) for target in targets)
    assert "<img" not in page and "docs/faq.md" in page


def test_versions_and_markers_agree() -> None:
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {mechint.__version__}\n" in cited
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]
    for package in build["build"]["targets"]["wheel"]["packages"]:
        assert (ROOT / package / "py.typed").is_file(), package
