"""Mistakes of users: one clear line, exit status 2, and nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Command, one_line


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["trane"], "unknown command 'trane'; did you mean 'train'?"),
        (["checkpoint", "inf"], "unknown command 'inf'; did you mean 'info'?"),
        (
            ["train", "modular-arithmetik"],
            "unknown task 'modular-arithmetik'; did you mean 'modular-arithmetic'?",
        ),
        (["probes", "furier"], "unknown probe 'furier'; did you mean 'fourier'?"),
        (["reproduce", "emergance"], "unknown study 'emergance'; did you mean 'emergence'?"),
        (
            ["reproduce", "emergence", "--size", "big"],
            "Invalid value for '--size': 'big' is not one of 'smoke', 'laptop', 'fresh', ",
        ),
        (["train", "listops", "--resum"], "No such option '--resum'."),
        (
            ["analyze", "gpt2"],
            "gpt2: there is no such file; a model of the Hugging Face hub is downloaded first: "
            "hf download gpt2 --local-dir gpt2",
        ),
        (
            ["train", "modular-arithmetic", "--set", "p=1"],
            "modular-arithmetic: p=1: expected 2 to 1024",
        ),
        (
            ["train", "modular-arithmetic", "--set", "pp=3"],
            "unknown parameter 'pp'; did you mean 'p'?",
        ),
        (
            ["train", "modular-arithmetic", "--seeds", "8:0"],
            "--seeds 8:0: expected from 1 to 100,000 values",
        ),
        (["train", "modular-arithmetic", "--device", "cuda:99"], "device 'cuda:99' is not there"),
        (["sweep", "none.json"], "none.json: there is no such file"),
        (["analyze"], "Missing argument 'PATH'."),
        (
            ["analyze", "none.pt", "--probe", "furier"],
            "unknown probe 'furier'; did you mean 'fourier'?",
        ),
        (["analyze", "none.pt", "--probe", "fourier"], "none.pt: there is no such file"),
        (
            ["gallery", "build", "none"],
            "none: there is no such directory to take rows of studies from",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_line(
    mechint: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    line: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert one_line(mechint(*arguments)).startswith(line)
    assert not list(tmp_path.iterdir()), "a refused command leaves nothing behind"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--lr", "1e-3"], "A setting is given as --set NAME=VALUE."),
        (["--probe", "subspace"], "probe subspace does not apply to "),
        (["--probe", "lens", "--out", "x.pdf"], "expected NAME.html"),
        (
            ["--probe", "gradients", "--set", "gradients.permutation=9"],
            "unknown gradients parameter 'permutation'; did you mean 'permutations'?",
        ),
        (
            ["--probe", "gradients", "--set", "permutations=0"],
            "gradients: permutations=0: expected 1 to 1,000,000",
        ),
    ],
)
def test_what_a_model_is_not_asked(
    mechint: Command, planted: Path, arguments: list[str], said: str
) -> None:
    assert said in one_line(mechint("analyze", planted, *arguments))
    assert not Path("x.pdf").exists()


def test_a_report_that_cannot_be_written_is_refused_before_the_work(
    mechint: Command, planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "mechint.checkpoints.load_checkpoint", lambda *_, **__: pytest.fail("the work had begun")
    )
    (tmp_path / "file").write_text("")
    for out, reason in (
        (tmp_path, "it is a directory"),
        (tmp_path / "file" / "r.html", "a part of the path is a file"),
    ):
        line = one_line(mechint("analyze", planted, "--probe", "lens", "--out", out))
        assert line.startswith(f"{out}: cannot be written: {reason}")


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="this system has no /dev/full to stand for a full disk"
)
def test_a_full_disk_loses_no_finding(mechint: Command, planted: Path) -> None:
    result = mechint("analyze", planted, "--probe", "lens", "--out", "/dev/full")
    assert result.exit_code == 2
    assert "✓ lens" in result.stdout
    assert "the disk is full" in result.stderr


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("s.toml", "[over]\np = [" + "9" * 5000 + "]", "cannot be read as TOML"),
        ("s.toml", "[over]\np = " + "[" * 5000, "nested too deep"),
    ],
    ids=["digits", "nested"],
)
def test_a_sweep_file_beyond_bounds(mechint, tmp_path, name, text, said):
    (tmp_path / name).write_text(text)
    assert said in one_line(mechint("sweep", tmp_path / name))


def test_a_data_set_of_a_hub_that_has_no_address(mechint, tmp_path, monkeypatch):
    pytest.importorskip("datasets", reason="the package datasets is not installed")

    def unknown(*_):
        raise OSError("Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    said = one_line(mechint("train", "corpus", "--set", "dataset=zzz", "--out", tmp_path / "o"))
    assert "dataset=zzz: cannot be opened: there is no such directory, and the hub" in said


@pytest.mark.parametrize("group", ["gallery", "checkpoint"])
def test_a_group_alone_prints_its_help(mechint: Command, group: str) -> None:
    result = mechint(group)
    assert result.exit_code == 2 and "\n\nCommands:\n" in result.stderr


def test_a_directory_of_a_sweep_that_is_not_there(mechint: Command) -> None:
    for more in ((), ("--resume",), ("--resume", "--over", "seed=0:2")):
        said = one_line(mechint("sweep", "S2", *more))
        assert said.startswith("sweep S2: there is no such directory of a sweep, and unknown task")
    assert "did you mean 'listops'?" in one_line(mechint("sweep", "listosp"))
    assert one_line(mechint("sweep", "runs/none")).startswith(
        "sweep runs/none: there is no such directory of a sweep, and unknown task 'runs/none'"
    )
