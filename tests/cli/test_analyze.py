"""``mechint analyze`` and ``mechint checkpoint`` on a checkpoint whose mechanism is known."""

from __future__ import annotations

import html
import json
import math
import re
import shlex
from pathlib import Path

import pytest
import torch
from click.testing import Result

import probes
from mechint.checkpoints import load_checkpoint
from mechint.config import ModelConfig
from mechint.models import build
from mechint.planted import composition, modular_addition
from mechint.probe import quick_probes
from mechint.probe.results import ProbeResult
from mechint.probe.text import VERDICTS
from mechint.system.jsonable import short
from tests.cli.conftest import Command, one_line, save


def data(result: Result) -> dict:
    """The one account that was printed."""
    assert result.exit_code == 0, result.output
    return account(result)


def account(result: Result) -> dict:
    read = json.loads(result.stdout, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    assert list(read) == ["schema", "accounts", "verify"] and read["schema"] == 3
    (only,) = read["accounts"]
    return only


@pytest.mark.full
def test_json_holds_what_a_machine_needs_and_nothing_else(mechint: Command, planted: Path) -> None:
    found = data(mechint("analyze", planted, "--probe", "fourier", "--json"))
    assert list(found) == [
        *("path", "title", "step", "parameters", "quality", "verdict", "caveat", "audits"),
        *("refused", "assumed", "warnings", "provenance", "results", "next"),
    ]
    assert (found["path"], found["title"]) == (str(planted), "Addition mod 23, one layer")
    assert (found["step"], found["warnings"], found["next"]) == (12, [], [])
    (quality,) = found["quality"]
    assert (quality["output"], quality["accuracy"], quality["n"]) == ("answer", 1.0, 23 * 23)
    assert quality["chance"] == pytest.approx(1 / 23)
    assert quality["chance_loss"] == pytest.approx(math.log(23))
    assert list(found["results"]) == ["fourier"]
    fourier = found["results"]["fourier"]
    assert not {"arrays", "figures"} & set(fourier)
    assert fourier["verdict"] == "yes" and found["verdict"] == fourier["lead"] != ""
    for finding in fourier["findings"]:
        assert finding["verdict"] in VERDICTS and finding["headline"]
        assert finding["verdict"] != "yes" or finding["effect"]["value"] > finding["least"]
    assert fourier["metrics"]["logits.key_frequencies"] == [3, 7, 10]


@pytest.mark.full
def test_the_terminal_shows_the_account_and_every_number_where_asked(
    mechint: Command, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    shown = mechint("analyze", planted, "--probe", "fourier")
    assert shown.exit_code == 0 and not shown.stderr
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("Addition mod 23, one layer") and "100%" in lines[1]
    assert re.fullmatch(r"THE LOGITS USE THREE FREQUENCIES, 1?\d\d%.*: 3, 7, 10\.", lines[3])
    assert any(line.startswith("✓ fourier ") for line in lines)
    assert "logits.key_frequencies" not in shown.stdout
    full = mechint("analyze", planted, "--probe", "fourier", "--full").stdout
    assert full.startswith(shown.stdout.rstrip())
    assert "logits.key_frequencies  [3, 7, 10]" in full and "±" in full


def test_p_is_that_of_the_null_in_the_row(
    mechint: Command, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Value, mean and spread of every number that has a null, as `--json` has them."""
    monkeypatch.setenv("COLUMNS", "160")
    asked = ("analyze", planted, "--probe", "embedding")
    rows = mechint(*asked, "--full").stdout.splitlines()
    result = ProbeResult.from_dict(data(mechint(*asked, "--json"))["results"]["embedding"])
    assert "svd.rank_90" in result.null
    for name, null in result.null.items():
        (row,) = (line for line in rows if line.startswith(f"  {name}  "))
        assert f"  {short(null.observed)} " in row and row.endswith(null.p_text), name
        assert f"null {short(null.mean)} ± {short(null.std)} (" in row, name


@pytest.mark.full
def test_a_report_is_written_and_the_same_again(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    first, second = tmp_path / "new" / "a.html", tmp_path / "b.html"
    assert (
        f"report written to {first}"
        in mechint("analyze", planted, "--probe", "fourier", "--out", first).stderr
    )
    mechint("analyze", planted, "--probe", "fourier", "--out", second)
    text = first.read_text()
    assert text.replace(str(first), str(second)) == second.read_text()
    assert "3, 7, 10" in text


@pytest.mark.full
def test_quick_probes_run_when_none_is_named(
    mechint: Command, planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mechint.system.progress.EVERY", 1e9)  # progress of a loaded machine
    result = mechint("analyze", planted, "--json")
    found = data(result)
    assert set(found["results"]) <= set(quick_probes())
    assert {"fourier", "lens"} <= set(found["results"])
    leading = max(found["results"].values(), key=lambda one: bool(one["lead"]) * one["lead_rank"])
    assert found["verdict"] == leading["lead"] != ""
    assert found["next"] == [
        f"mechint analyze {planted} --out report.html",
        f"mechint explain {planted}",
    ]
    assert not result.stderr


def test_settings_reach_the_probe_and_the_task(mechint: Command, planted: Path) -> None:
    few = data(
        mechint("analyze", planted, "--probe", "gradients", "--set", "permutations=9", "--json")
    )
    null = few["results"]["gradients"]["null"]["gradients.below_shuffled"]
    assert null["samples"] == 9
    task = ["--task", "modular-arithmetic", "--set", "p=23", "--set", "operation=subtract"]
    named = mechint("analyze", planted, *task, "--probe", "lens", "--json")
    assert data(named)["results"]["lens"]["metrics"]["lens.final_accuracy"] < 0.1


def test_a_probe_that_does_not_apply_does_not_lose_the_others(
    mechint: Command, planted: Path, tmp_path: Path
) -> None:
    asked = ("--probe", "gradients,subspace", "--probe", "lens", "--json")
    result = mechint("analyze", planted, *asked, "--out", tmp_path / "r.html")
    assert result.exit_code == 2
    assert set(account(result)["results"]) == {"gradients", "lens"}
    assert "mechint: probe subspace does not apply to" in result.stderr
    assert (tmp_path / "r.html").exists()


def test_info(mechint: Command, planted: Path) -> None:
    shown = mechint("checkpoint", "info", planted)
    assert "task.parameters.p" in shown.stdout and "weights" in shown.stdout
    first = shown.stdout.partition("\n\n")[0]
    assert "(mechint)" in first and "task modular-arithmetic" in first
    assert re.search(r"all 529 [\d.]+%   chance 4\.3%   loss ", first, re.MULTILINE)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A state dict that says neither its task nor its activation function, in a folder whose name
    a shell would split.
    """
    config = ModelConfig(
        n_layers=1, d_model=8, n_heads=2, d_vocab=8, d_vocab_out=7, n_ctx=3, act_fn="gelu",
        attention_dir="bidirectional",
    )  # fmt: skip
    path = tmp_path / "my models" / "bare.pt"
    path.parent.mkdir()
    torch.save(build(config, seed=3).transformer_lens_state(), path)
    return path


MADE_BY = r'made by</summary><code class="command">(.*?)</code>'


def test_the_command_of_a_section_finds_what_the_section_shows(
    mechint: Command, bare: Path, tmp_path: Path
) -> None:
    page = tmp_path / "report.html"
    given = ("--task", "modular-arithmetic", "--set", "p=7", "--set", "operation=subtract")
    given += ("--set", "model.act_fn=gelu", "--set", "model.attention_dir=bidirectional")
    given += ("--set", "attention.samples=99", "--seed", "5")
    given += ("--set", "attention.untrained=3", "--set", "attention.alpha=0.1")
    found = data(
        mechint("analyze", bare, "--probe", "lens,attention", *given, "--json", "--out", page)
    )
    made = dict.fromkeys(re.findall(MADE_BY, page.read_text()))
    commands = [command for command in made if "--out" not in command]  # not the whole page's
    assert commands
    again = {}
    for command in commands:
        words = shlex.split(html.unescape(command))
        assert words[0] == "mechint"
        again |= data(mechint(*words[1:], "--json"))["results"]
    assert "attention" in again and again.items() <= found["results"].items()


def test_another_answer_is_asked_about(mechint: Command, tmp_path: Path) -> None:
    path = save(composition(n=3, k=2, hops=(2,)).subject, tmp_path / "ckpt.pt")
    asked = ("analyze", path, "--probe", "lens")
    page = tmp_path / "report.html"
    found = data(mechint(*asked, "--answer", "0", "--json", "--out", page))
    whole = probes.lens(load_checkpoint(path).subject(), answer=0)
    assert found["results"]["lens"]["metrics"] == whole.to_dict()["metrics"]
    assert f"--answer 0 --out {page}" in page.read_text()
    table = mechint("table", *asked[1:], "--answer", "all", "--csv", tmp_path / "all.csv")
    assert table.exit_code == 0 and "lens.final_accuracy" in (tmp_path / "all.csv").read_text()
    assert "answer=7: " in one_line(mechint(*asked, "--answer", "7"))
    assert "--answer last: expected a number" in one_line(mechint(*asked, "--answer", "last"))


# --- a task that nobody names ---------------------------------------------------------------------
@pytest.fixture
def unnamed(tmp_path: Path) -> Path:
    """The weights of an addition modulo 23 without the task's name."""
    subject = modular_addition(p=23, frequencies=(3, 7, 10)).subject
    return save(subject, tmp_path / "bare.pt", task=None)


def test_analyze_opens_with_what_a_task_would_add(mechint: Command, unnamed: Path) -> None:
    shown = mechint("analyze", unnamed, "--probe", "embedding").stdout
    opening = " ".join(shown.partition("Model without a task")[0].split())  # lines are wrapped
    assert opening.startswith("warning: no task is known, so only probes that need none apply; ")
    assert "--task modular-arithmetic --set p=23" in opening
    named = mechint(
        "analyze", unnamed, "--probe", "embedding", "--task", "modular-arithmetic", "--set", "p=23"
    )
    assert "no task is known" not in named.output


@pytest.mark.full
def test_the_first_next_step_names_the_task_that_fits(mechint: Command, unnamed: Path) -> None:
    found = json.loads(mechint("analyze", unnamed, "--seed", 3, "--json").stdout)["accounts"][0]
    task = "--task modular-arithmetic --set p=23"
    assert found["next"][0] == f"mechint analyze {unnamed} {task} --seed 3"
    again = mechint("analyze", unnamed, "--probe", "norms", *task.split())
    assert again.exit_code == 0 and again.stdout.startswith("Addition mod 23, one layer")
