"""The benchmarks measure what they say and write the table they promise."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from benchmarks import gpu, table, throughput
from benchmarks.__main__ import check as benchmarks_check
from benchmarks.timing import BenchSettings, bounded, missing, versus


def test_rows_say_what_is_met():
    assert versus("w", (1.0, 4.0, 4.0), 4.0)["met"] and not versus("w", (1.0, 3.9, 3.9), 4.0)["met"]
    assert (
        bounded("w", 0.4, 0.5, "at most")["met"] and not bounded("w", 0.4, 0.5, "at least")["met"]
    )
    without = missing("w", 1.0, 4.0, "no peer")
    assert without["met"] is None and without["peer"] is None
    for row in (versus("w", (1.0, 4.0, 4.0), 4.0), bounded("w", 0.4, 0.5, "at most"), without):
        assert {"workload", "ours", "peer", "ratio", "target", "met"} <= row.keys()


def of_processor(cpu: str, date: str, ratio: float) -> dict:
    found = table.circumstances(2, {}) | {"rows": [versus("step, x", (0.01, 0.04, ratio), 3.0)]}
    return found | {"date": date, "machine": found["machine"] | {"cpu": cpu}}


def test_a_table_is_kept_of_every_processor(tmp_path):
    first = of_processor("A B (family 1)", "2001-01-01", 4.0)
    table.write(first, tmp_path)
    table.write(of_processor("A B (family 2)", "2001-01-02", 2.0), tmp_path)
    again = of_processor("A B (family 2)", "2001-01-03", 2.5)
    table.write(again, tmp_path)
    assert table.read("A B (family 1)", tmp_path) == json.loads(json.dumps(first))
    assert table.read("A B (family 2)", tmp_path) == json.loads(json.dumps(again))
    assert table.read("A B", tmp_path) is None
    second, first_again = (tmp_path / table.PAGE).read_text().split("## A B (family 1)")
    assert "| step, x | 10 ms | 40 ms | 2.50× | 3× | no |" in second
    assert "| step, x | 10 ms | 40 ms | 4.00× | 3× | yes |" in first_again


def test_a_check_is_against_the_same_processor(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(table, "read", partial(table.read, root=tmp_path))
    table.write(of_processor("A", "2001-01-01", 4.0), tmp_path)
    slower = of_processor("A", "2001-01-02", 3.0)["rows"]
    assert benchmarks_check(slower, "A") == 1
    assert capsys.readouterr().out == "step, x: 3.00×, kept 4.00×\n"
    assert benchmarks_check(of_processor("A", "2001-01-02", 3.9)["rows"], "A") == 0
    assert benchmarks_check(slower, "B") == 1
    assert "no table is kept of B" in capsys.readouterr().out


def test_a_ratio_that_fell_or_went_missing_is_a_loss():
    kept = [versus("a", (1.0, 4.0, 4.0), 3.0), versus("b", (1.0, 2.0, 2.0), 1.0)]
    kept.append(missing("c", None, 2.0, "no peer"))
    now = [versus("a", (1.0, 3.5, 3.5), 3.0), missing("b", 1.0, 1.0, "no peer")]
    now += [versus("c", (1.0, 1.0, 1.0), 2.0), versus("d", (1.0, 1.0, 1.0), 2.0)]
    assert table.losses(now, kept, 0.15) == ["b: not measured, kept 2.00×"]
    assert table.losses(now, kept, 0.1) == ["a: 3.50×, kept 4.00×", "b: not measured, kept 2.00×"]


@pytest.mark.full
def test_the_comparison_with_another_device_runs(capsys):
    assert gpu.main(["--device", "cpu", "--quick"]) == 0
    assert capsys.readouterr().out.count(" 0\n") == len(gpu.CASES)  # a CPU equals itself


@pytest.mark.full
def test_models_trained_and_probed_per_minute_without_a_peer(monkeypatch):
    monkeypatch.setattr("benchmarks.timing.find_peer", lambda threads: None)
    bench = BenchSettings(torch.get_num_threads(), quick=True)
    try:
        rows = list(throughput.rows(bench))
        swept = pd.read_csv(bench.folder / "swept" / "sweep.csv")
    finally:
        bench.close()
    for row in rows:
        assert row["unit"] == "models/min" and row["ours"] > 0 and row["met"] is None
        assert "models/min" in table.line(row)
    assert rows[1]["workload"].startswith("mechint sweep, addition-29, 5 steps")
    assert list(swept["step"]) == [5, 5]
    assert swept[["fourier.verdict", "progress.verdict"]].notna().all(axis=None)
    found = throughput.trained_and_probed(1, 2)
    assert len(found) == 2 and "logits.cosine" in found[0] and "restricted_loss.all" in found[1]
    assert throughput.peer_shape()["d_vocab"] == throughput.P + 1


@pytest.mark.full
def test_peer_answers_lines_with_lines(tmp_path):
    """The script in front of a stand-in for TransformerLens, in a process of its own."""
    (tmp_path / "transformer_lens.py").write_text(
        "import torch\n"
        "def HookedTransformerConfig(**shape): return shape\n"
        "def HookedTransformer(shape): return torch.nn.Embedding(shape['d_vocab'], "
        "shape['d_vocab_out'])\n"
    )
    script = Path(table.ROOT) / "benchmarks" / "peers" / "hooked_transformer.py"
    shape = {"d_vocab": 5, "d_vocab_out": 4, "n_ctx": 3, "batch": 2, "read": "last"}
    requests = [{"build": "x", "shape": shape}, {"run": "x", "steps": 2}, {"drop": "x"}]
    text = "".join(json.dumps(request) + "\n" for request in requests)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import runpy; "
        f"runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    answers = subprocess.run(
        [sys.executable, "-P", "-c", code], input=text, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    built, ran, dropped = map(json.loads, answers)
    assert built == {"parameters": 20} and ran["seconds"] > 0 and dropped == {}
