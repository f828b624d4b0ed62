"""Streams that end early, cannot write a sign, or are not there; and what a stop says."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mechint.cli.common import INTERRUPTED
from tests.cli.conftest import Command

RICH, PLAIN = ("probes", "fourier"), ("tasks",)
"""A command whose output rich writes, and one of click's."""


@pytest.mark.parametrize("command", [RICH, PLAIN], ids=" ".join)
def test_a_reader_that_has_seen_enough_is_no_failure(command: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "mechint", *command]
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "ascii"},
        pytest.param({"PYTHONIOENCODING": "latin-1"}, marks=pytest.mark.full),
        pytest.param(
            {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, marks=pytest.mark.full
        ),
    ],
    ids=str,
)
def test_an_encoding_that_lacks_a_sign(settings: dict[str, str]) -> None:
    words = [sys.executable, "-m", "mechint", *RICH]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONIOENCODING"}
    environment = inherited | settings
    done = subprocess.run(words, capture_output=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"fourier") and b"?" in done.stdout


@pytest.mark.parametrize("command", [RICH, PLAIN], ids=" ".join)
def test_no_stdout_at_all(command: tuple[str, ...]) -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "mechint", *command]
    done = subprocess.run(words, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.full
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device of Linux")
def test_a_full_disk_below_stderr_ends_no_training(tmp_path: Path) -> None:
    settings = [f"--set {one}" for one in ("p=5", "steps=4", "d_model=8", "n_heads=1")]
    words = [
        sys.executable,
        "-m",
        "mechint",
        "train",
        "modular-arithmetic",
        "--out",
        tmp_path / "a",
    ]
    with Path("/dev/full").open("w") as full:
        command = [*words, *" ".join(settings).split()]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=full, check=False)
    assert done.returncode == 0 and (tmp_path / "a" / "ckpt.pt").is_file()


def test_a_user_without_a_home(
    mechint: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of ``--user 12345`` in a container."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    unknown = KeyError("getpwuid(): uid not found")
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(unknown))
    settings = [f"--set {one}" for one in ("p=5", "steps=4", "d_model=8", "n_heads=1")]
    words = ["modular-arithmetic", "--out", tmp_path / "a", *" ".join(settings).split()]
    assert mechint("train", *words).exit_code == 0
    for verb in ("analyze", "table"):
        assert mechint(verb, tmp_path / "a", "--probe", "norms").exit_code == 0


@pytest.mark.parametrize(
    ("command", "work", "said"),
    [
        (("calibrate", "llc"), "mechint.calibration.calibrate", "; with --out, the probes that"),
        (("train", "listops"), "mechint.training.train_many", "; --resume goes on with it\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_a_stop_says(
    mechint: Command,
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    work: str,
    said: str,
) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(work, stopped)
    out = ("--out", tmp_path) if command[0] == "train" else ()
    result = mechint(*command, *out)
    assert result.exit_code == INTERRUPTED
    assert f"mechint: stopped{said}" in result.stderr


TRAINING = ("train", "modular-arithmetic", "--set", "p=5", "--set", "steps=20")


@pytest.mark.parametrize("end", ["2>&1 >/dev/null | true", "2>&-", "2>&1 | head -0"])
def test_a_training_goes_on_where_nobody_reads_its_progress(tmp_path: Path, end: str) -> None:
    words = [sys.executable, "-m", "mechint", *TRAINING, "--out", str(tmp_path / "run")]
    line = f"""set -o pipefail; {shlex.join(words)} {end}"""
    done = subprocess.run(["bash", "-c", line], check=False, capture_output=True)
    assert done.returncode == 0
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "finished"


def test_waiting_threads_of_torch_give_way_from_python_too() -> None:
    asked = "import os, sys, mechint; print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules)"
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    }
    words = [sys.executable, "-c", asked]
    done = subprocess.run(words, capture_output=True, env=environment, check=True, text=True)
    assert done.stdout.splitlines()[-1] == "1000 False"
