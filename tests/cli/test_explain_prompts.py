"""`mechint explain` of prompts: from a file, and what is refused."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

from tests.cli.conftest import invoke

MODEL = Path(__file__).parents[2] / "examples" / "models" / "maximum.pt"


def test_prompts_of_a_file_and_the_program_that_is_written(tmp_path: Path) -> None:
    file, program = tmp_path / "prompts.jsonl", tmp_path / "program.py"
    rows = [[a, b, c, 5] for a in range(16) for b in range(0, 16, 2) for c in range(0, 16, 3)]
    file.write_text("\n".join(json.dumps({"prompt": row}) for row in rows))
    result = invoke("explain", MODEL, "--data", file, "--python", program, "--json")
    assert result.exit_code == 0, result.output
    best = json.loads(result.stdout)["audits"][0]
    assert (best["family"], best["standing"]) == ("induced", "stands")
    assert best["program"].splitlines()[:2] == ["v0 = max(t)  # L0H0", "return v0"]
    assert {"coverage", "path patching", "interchange", "composed inputs"} <= {
        t["kind"] for t in best["tests"]
    }
    assert runpy.run_path(str(program))["answer"]([3, 9, 2, 5]) == 9


def test_what_is_refused_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def rule(tokens):\n    return tokens.amax(1)\n")
    claim = ["--claim", "L0H0 attends largest token"]
    for arguments, expected in (
        (["--claim", f"{file}:rule"], "expected 'L0H1 attends largest token'"),
        ([*claim, "--program", f"{file}:missing"], "unknown function 'missing'"),
        ([*claim, "--program", f"{tmp_path}/no.py:rows"], "there is no such file"),
        ([*claim, "--family", "induced"], "expected one of them"),
        (["--sample", f"{file}:rows"], "explain --sample: expected --data FILE"),
    ):
        result = invoke("explain", MODEL, *arguments)
        (line,) = result.stderr.splitlines()
        assert result.exit_code == 2 and expected in line, (arguments, line)
