"""A language model over its training: a row per checkpoint, asked about pairs of prompts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import mechint
from mechint.cli import main
from mechint.errors import ParameterError
from tests.probes.test_heads import language_model, pairs_it_tells_apart


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """checkpoint-10, -20 and -30, the last the same as the one before, and pairs.jsonl."""
    folder = tmp_path_factory.mktemp("series")
    model = language_model("llama", folder / "checkpoint-20")
    rows = pairs_it_tells_apart(model, 8)
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
    shutil.copytree(folder / "checkpoint-20", folder / "checkpoint-30")
    model.lm_head.weight.data.mul_(2)
    model.save_pretrained(folder / "checkpoint-10")
    return folder


@pytest.mark.full
def test_a_series_is_asked_about_prompts_and_equal_files_are_named(series: Path) -> None:
    """Twice the unembedding is twice the difference of the answers."""
    data = str(series / "pairs.jsonl")
    words = ["table", str(series), "--over-steps", "--data", data, "--probe", "heads", "--json"]
    done = CliRunner().invoke(main, words)
    rows = json.loads(done.stdout)["rows"]
    assert [row["step"] for row in rows] == [10, 20, 30]
    twice, once, again = (row["heads.difference"] for row in rows)
    assert twice == pytest.approx(2 * once, rel=1e-4) and once == again
    direct = mechint.probes.heads(mechint.load(series / "checkpoint-20", data=data))
    assert direct.metrics["difference"] == once
    assert "checkpoint-20: the same files as checkpoint-30" in done.stderr
    assert "checkpoint-10" not in done.stderr


def test_a_run_is_not_asked_about_prompts(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"task": {"name": "modular-arithmetic"}}')
    with pytest.raises(ParameterError, match=r"states its task .* got data"):
        mechint.runs(tmp_path, data=[{"prompt": [1], "answer": 2}])
