"""`make gpu` where there is no GPU: what a part gives is kept row by row, and an error, another
commit or a limit of time costs no more than it must.
"""

from __future__ import annotations

import math
import shutil
import subprocess

import pytest
import torch

from benchmarks.on_gpu import equivalence, needs, precision
from benchmarks.on_gpu import parts as on_gpu
from benchmarks.on_gpu.checks import apart, at_most, farthest, unmeasured
from mechint.training import manifest, spec
from mechint.training.run import Run


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A part that measures two rows and breaks at the third; the folder of its results."""

    def measured(part, device, quick, seconds):
        yield at_most("first", 0.1, 1.0, "nats")
        yield unmeasured("second", "nothing to measure it on")
        if part == "broken":
            raise RuntimeError("the device went away")

    monkeypatch.setattr(on_gpu, "measured", measured)
    monkeypatch.setattr(on_gpu, "clean_commit", lambda: "0123abc")
    return tmp_path


def test_rows_measured_before_a_failure_are_on_disk(kept):
    with pytest.raises(RuntimeError, match="went away"):
        on_gpu.run_part("broken", "cpu", False, kept, 60.0)
    found = on_gpu.kept_parts(kept)["broken"]
    assert [row["name"] for row in found["rows"]] == ["first", "second"]
    assert found["finished"] is False and not on_gpu.is_done("broken", "cpu", kept)


def test_a_finished_part_is_done_on_its_device_alone(kept):
    assert not on_gpu.is_done("whole", "cpu", kept)
    assert on_gpu.run_part("whole", "cpu", False, kept, 60.0)
    assert on_gpu.is_done("whole", "cpu", kept) and not on_gpu.is_done("whole", "cuda", kept)


def test_a_part_of_code_that_git_does_not_know_is_never_done(kept, monkeypatch):
    """None is not the same commit as None."""
    monkeypatch.setattr(on_gpu, "clean_commit", lambda: None)
    assert on_gpu.run_part("whole", "cpu", False, kept, 60.0)
    assert not on_gpu.is_done("whole", "cpu", kept)
    monkeypatch.setattr(on_gpu, "clean_commit", lambda: "0123abc")
    assert not on_gpu.is_done("whole", "cpu", kept), "it was measured on other code"


@pytest.mark.skipif(shutil.which("git") is None, reason="makes a repository")
def test_changed_code_is_not_its_commit(tmp_path):
    def git(*words):
        asked = ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words]
        return subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True)

    assert on_gpu.clean_commit(tmp_path) is None
    git("init")
    (tmp_path / "code.py").write_text("a = 1\n")
    git("add", ".")
    git("commit", "--message", "first")
    first = on_gpu.clean_commit(tmp_path)
    assert first == git("rev-parse", "HEAD").stdout.strip()
    results = tmp_path / "benchmarks" / "results"
    results.mkdir(parents=True)
    (results / "gpu.json").write_text("{}")
    assert on_gpu.clean_commit(tmp_path) == first, "results are no code"
    (tmp_path / "code.py").write_text("a = 2\n")
    assert on_gpu.clean_commit(tmp_path) is None


def test_when_all_is_done_it_says_so(kept, monkeypatch, capsys):
    monkeypatch.setattr(on_gpu, "PARTS", ("whole",))
    assert on_gpu.run_part("whole", "cpu", False, kept, 60.0)
    assert on_gpu.main(["--device", "cpu", "--folder", str(kept)]) == 0
    assert f"all parts are done at 0123abc, in {kept}" in capsys.readouterr().out


def test_a_part_that_is_stopped_or_left_fails_the_whole(monkeypatch, capsys):
    def late(command, timeout, **_):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(on_gpu.subprocess, "run", late)
    named = ["equivalence", "--device", "cpu"]
    assert on_gpu.main(named) == 1 and "stopped after its time" in capsys.readouterr().out
    assert on_gpu.main([*named, "--minutes", "0"]) == 1
    assert "left for the next time" in capsys.readouterr().out


def test_all_parts_are_kept_in_one_file(kept):
    for name in ("whole", "other"):
        assert on_gpu.run_part(name, "cpu", False, kept, 60.0)
    assert [path.name for path in kept.iterdir()] == ["gpu.json"]
    assert list(on_gpu.kept_parts(kept)) == ["whole", "other"]


def test_parts_share_the_minutes_of_a_call(monkeypatch, tmp_path, capsys):
    """Each has its own limit or what is left of the call, and is told so."""
    clock, limits = [0.0], []

    def run(command, timeout, **_):
        limits.append((timeout, 60 * float(command[command.index("--part-minutes") + 1])))
        assert command[command.index("--folder") + 1] == str(tmp_path)
        clock[0] += timeout
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(on_gpu.subprocess, "run", run)
    monkeypatch.setattr(on_gpu.time, "monotonic", lambda: clock[0])
    words = ["equivalence", "probes", "precision", "--device", "cpu", "--folder", str(tmp_path)]
    assert on_gpu.main([*words, "--minutes", "9", "--part-minutes", "6"]) == 1
    assert limits == [pytest.approx((360.0, 360.0)), pytest.approx((180.0, 180.0))]
    assert "precision: left for the next time" in capsys.readouterr().out


def test_packages_that_are_needed_are_named_before_anything_runs():
    assert needs.missing() == []
    assert needs.missing((*needs.NEEDED, "no_such_package")) == ["no_such_package"]


def test_a_package_that_is_only_on_the_path_has_no_version():
    assert manifest._version("no-such-package") == "unknown"
    assert manifest._version("torch") == torch.__version__


def test_a_quick_look_does_not_count_as_done(kept):
    on_gpu.run_part("whole", "cpu", True, kept, 60.0)
    assert not on_gpu.is_done("whole", "cpu", kept)


def test_an_error_of_one_training_costs_its_own_row_alone(monkeypatch):
    train = equivalence.train

    def broken(task, *rest, **options):
        if task.name == "listops":
            raise RuntimeError("CUDA error: an illegal memory access")
        return train(task, *rest, **options)

    monkeypatch.setattr(equivalence, "train", broken)
    cut = equivalence.TRAININGS[:2] + equivalence.TRAININGS[-1:]
    monkeypatch.setattr(equivalence, "TRAININGS", cut)
    twice, *found = list(equivalence.rows("cpu", quick=True))[len(equivalence.CAPTURED) :]
    assert twice["holds"] and twice["value"] == 0, "on a CPU equal trainings give equal bits"
    assert [row["holds"] for row in found] == [True, True, False, False, True, True]
    place, _, said = found[2]["note"].rpartition(": ")
    assert place.startswith("RuntimeError at tests/test_on_gpu.py:"), "the innermost line of ours"
    assert said == "an illegal memory access"


def test_an_error_of_one_probe_costs_its_own_row_alone(monkeypatch, tmp_path):
    class Broken:
        def run(self, subject, seed):
            raise TypeError("can't convert cuda:0 device type tensor to numpy")

    probes = {"norms": Broken, "weights": equivalence.PROBES["weights"]}
    monkeypatch.setattr(equivalence, "PROBES", probes)
    monkeypatch.setattr(equivalence, "quick_probes", lambda: ["norms", "weights"])
    monkeypatch.setattr(on_gpu, "measured", lambda *_: equivalence.probe_rows("cpu", quick=True))
    assert not on_gpu.run_part("probes", "cpu", True, tmp_path, 60.0)
    broken, whole = on_gpu.kept_parts(tmp_path)["probes"]["rows"]
    assert broken["holds"] is False and "TypeError" in broken["note"]
    assert whole["holds"] and whole["value"] == 0.0


def test_numbers_that_are_missing_or_not_finite_do_not_hold():
    assert apart([1.0, 2.0], [1.0]) == math.inf and apart([math.nan], [1.0]) == math.inf
    assert not at_most("x", math.inf, 1.0, "nats")["holds"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without a GPU")
def test_without_a_gpu_it_says_so(capsys):
    assert on_gpu.main([]) == 2
    assert "no GPU" in capsys.readouterr().out


def test_an_unknown_part_is_named(capsys):
    with pytest.raises(SystemExit):
        on_gpu.main(["equivalense"])
    assert "no such part: equivalense" in capsys.readouterr().err


def test_precisions_are_trained_and_the_short_look_judges_nothing():
    found = list(precision.rows("cpu", quick=True))
    assert [row["name"].partition(":")[0] for row in found] == ["float32", "tf32", "bf16"]
    assert all(row["holds"] is None and "after 4 steps" in row["note"] for row in found)


def test_no_precision_pays_for_the_start_of_the_device(monkeypatch):
    """The clock of each starts after a few steps of the same settings."""
    trained, timed = [], []

    def train(task, model, settings, device):
        trained.append((settings["precision"], settings["steps"] == precision.WARM_UP))
        run = Run(spec(task, model, settings))
        run.metrics = [{"step": 4, "test.accuracy": 1.0}]
        return [run]

    def seconds(action):
        before = len(trained)
        action()
        (call,) = trained[before:]
        timed.append(call)
        return {"float32": 3.0, "tf32": 2.0, "bf16": 1.0}[call[0]] + 100 * call[1]

    monkeypatch.setattr(precision, "train", train)
    monkeypatch.setattr(precision, "seconds", seconds)
    found = list(precision.rows("cpu", quick=False))
    assert timed == [
        (name, first) for name in ("float32", "tf32", "bf16") for first in (True, False)
    ]
    assert [row["value"] for row in found] == [3.0, 2.0, 1.0]
    assert "3.00 times the speed of float32" in found[2]["note"]


def test_metrics_are_paired_by_name_and_the_farthest_is_named():
    nan, inf = math.nan, math.inf
    ours = {"a": 1.0, "nan": nan, "inf": inf, "less": -inf, "big": 1000.0}
    assert farthest(dict(reversed(ours.items())), ours) == (0.0, "a")
    assert farthest({**ours, "big": 1002.0}, ours) == (0.002, "big")
    for name, value in {"nan": 1.0, "inf": -inf, "a": nan, "less": 0.0}.items():
        assert farthest({**ours, name: value}, ours) == (inf, name)
    shifted = {"b" if name == "a" else name: value for name, value in ours.items()}
    assert farthest(shifted, ours) == (inf, "a, b on one side alone")
    assert farthest({}, {}) == (0.0, "none")
