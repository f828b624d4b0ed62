"""Explanations written as Python: the file runs by itself and gives the program's answers."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner

import mechint
from mechint import planted
from mechint.cli import main
from mechint.config import ModelConfig
from mechint.errors import NotApplicableError
from mechint.explanation import Explanation, Part, audit, explain, site
from mechint.explanation.code import MAIN, MAIN_OF_ROWS, MARK, written
from mechint.explanation.measure import Bench
from mechint.explanation.parts import Products
from mechint.models.transformer import HookedTransformer
from mechint.registry import TASKS
from mechint.subject import Subject

MODELS = Path(__file__).parents[2] / "examples" / "models"


def run_file(file: Path, tokens: torch.Tensor) -> torch.Tensor:
    """What the file prints for the tokens, in a process that cannot import torch."""
    block = "import sys; sys.modules['torch'] = sys.modules['mechint'] = None; import runpy; "
    ran = subprocess.run(
        [sys.executable, "-c", f"{block}runpy.run_path({str(file)!r}, run_name='__main__')"],
        input="\n".join(" ".join(map(str, row)) for row in tokens.tolist()),
        capture_output=True,
        text=True,
        check=True,
    )
    return torch.from_numpy(np.loadtxt(ran.stdout.splitlines(), int, ndmin=2))


@pytest.mark.parametrize(("given", "said"), [("\n", "no input"), ("1 x\n", "integers")])
@pytest.mark.parametrize("main_part", [MAIN, MAIN_OF_ROWS])
def test_a_file_says_in_a_line_that_it_was_given_no_tokens(
    main_part: str, given: str, said: str
) -> None:
    text = f"import sys\n\ndef answer(t):\n    return t[0]\n{main_part}"
    command = [sys.executable, "-c", text]
    ran = subprocess.run(command, input=given, capture_output=True, text=True, check=False)
    assert ran.returncode == 1 and said in ran.stderr
    assert len(ran.stderr.splitlines()) == 1


@pytest.mark.full
def test_the_command_writes_a_file_that_runs_alone(tmp_path: Path) -> None:
    file = tmp_path / "clock.py"
    command = ["explain", str(MODELS / "clock.pt"), "--family", "frequencies"]
    ran = CliRunner().invoke(main, [*command, "--python", str(file)])
    assert ran.exit_code == 0, ran.output
    assert "model's answer on 100.0% of 421" in ran.output.replace("\n", " ")
    subject = mechint.load(MODELS / "clock.pt")
    tokens = subject.data.tokens
    found = run_file(file, tokens)
    assert torch.equal(found, subject.logits().argmax(1, keepdim=True))  # of all 841 inputs
    x, y = tokens[:, 0], tokens[:, 1]
    assert torch.equal(found[:, 0], (x + y) % 29)
    file.write_text("mine")
    ran = CliRunner().invoke(main, [*command, "--python", str(file)])
    assert ran.exit_code != 0 and file.read_text() == "mine"


@pytest.mark.full
def test_the_file_has_the_logits_that_the_audit_matched() -> None:
    subject = planted.modular_addition(13, (2, 5), noise=0.05, rotation_seed=1, seed=1).subject
    explanation = explain(subject, family="frequencies")[0].explanation
    names: dict[str, object] = {"__name__": "file"}
    exec(explanation.to_python(subject), names)
    own = subject.logits().double()
    own = own - own.mean(1, keepdim=True)
    made = torch.from_numpy(names["logits"](subject.data.tokens.numpy()))  # type: ignore[operator]
    bench = Bench.of(subject, explanation.program)
    mean = own[bench.fitted].mean(0)
    error = (own - made)[bench.judged].square().sum() / (own - mean)[bench.judged].square().sum()
    match = audit(subject, explanation).value("match")
    assert 1 - float(error) == pytest.approx(match, abs=1e-4)


def reading(subject: Subject, variable: str, n: int) -> Explanation:
    """A part that reads the logits off a variable of the task's own program."""
    assert subject.task is not None and subject.task.own_program is not None
    table = Products((((variable, torch.eye(n)[:, :2].double()),),))
    part = Part(variable, site("L0 resid_post @ answer").where, (variable,), table, reads=True)
    return Explanation(variable, subject.task.own_program, (part,))


def test_what_cannot_be_written_is_refused() -> None:
    subject = mechint.load(MODELS / "maximum.pt")
    claim = replace(reading(subject, "max", 16), parts=())
    with pytest.raises(NotApplicableError, match="no part of it gives the logits"):
        claim.to_python(subject)
    task = TASKS["max-of-list"](n=16, length=6)  # 16^6 cases
    shape = {"n_ctx": task.n_ctx, "d_vocab": task.d_vocab, "d_vocab_out": 16}
    config = ModelConfig(**shape, d_model=16, n_heads=1)
    large = Subject(HookedTransformer(config), task, n_examples=512)
    with pytest.raises(NotApplicableError, match="more than 65,536 cases"):
        reading(large, "max", 16).to_python(large)


PATHS = [
    'q"""+str(open("RAN","w"))+"""',
    'p"""x',
    "C:\\Users\\u",
    "a\nb",
    "# coding: utf-7",
    "\u202e",
]


@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_a_path_is_run_by_the_file(
    path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    subject = planted.comparison(n=4).subject
    monkeypatch.setitem(subject.provenance["checkpoint"], "path", path)
    made = written(subject, replace(reading(subject, "a < b", 2), name=path), examples=64)
    (tmp_path / "program.py").write_text(made.text)
    run_file(tmp_path / "program.py", subject.data.tokens[:3])
    names: dict[str, object] = {}
    exec(made.text.partition('if __name__ == "__main__"')[0], names)
    assert names["MADE_OF"]["checkpoint"] == path and not (tmp_path / "RAN").exists()
    assert made.text.isascii() and MARK in made.text
