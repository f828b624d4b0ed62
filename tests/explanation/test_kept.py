"""Kept audits are believed where this user kept them of the same model, task, sources and seed."""

from __future__ import annotations

import copy
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import mechint
from mechint import tasks
from mechint.checkpoints import load_checkpoint
from mechint.cli import main
from mechint.explanation import kept
from mechint.explanation.kept import keep_audits, kept_audits
from mechint.subject import Subject
from mechint.system.kept import UNVERIFIED, signed
from tests import campaigns
from tests.checkpoints.mutations import NUMBERS, TEXTS, deep

AUDIT = {
    "name": "a forged sentence",
    "family": "variables",
    "standing": "stands",
    "reason": "",
    "program": "x",
    "parts": [],
    "claims": [],
    "unaccounted_at_most": {},
    "accuracy": 1.0,
    "chance": 0.1,
    "routes": [],
    "links": [],
    "unaccounted": {"logits": 0.001, "accuracy": 0.0},
    "accounted": {"verb": "explains", "of": "logits", "share": 0.999, "at_least": 0.99, "how": ""},
    "tests": [],
    "missing": [],
    "superfluous": [],
    "notes": [],
    "n": 10,
    "seconds": 1.0,
}
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 16}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("kept") / "run"
    mechint.train(tasks.make("modular-arithmetic", p=7), SMALL, {"steps": 4}, out=out)
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "run"))


def subject_of(run: Path) -> Subject:
    return load_checkpoint(run).subject()


def test_what_is_kept_is_read_again(run: Path) -> None:
    subject, weights = subject_of(run), run / "ckpt.pt"
    keep_audits(run, weights, subject, [AUDIT], seed=3)
    assert kept_audits(run, weights, subject, seed=3) == (AUDIT,)
    (run / ".lock").unlink()  # which decides nothing
    assert kept_audits(run, weights, subject, seed=3) == (AUDIT,)
    assert kept_audits(run, weights, subject, seed=4) == ()
    assert kept_audits(run, weights, subject, seed=3, examples=64) == ()


@pytest.mark.parametrize("changed", ["task", "weights", "version", "source", "key"])
def test_audits_of_anything_else_are_not_believed(
    run: Path, changed: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subject, weights = subject_of(run), run / "ckpt.pt"
    keep_audits(run, weights, subject, [AUDIT])
    if changed == "task":
        subject = Subject(
            subject.model, tasks.make("modular-arithmetic", p=7, operation="subtract")
        )
    elif changed == "weights":
        weights.write_bytes(weights.read_bytes() + b" ")
    elif changed == "version":
        monkeypatch.setattr(mechint, "__version__", "0.0.1")
    elif changed == "source":
        monkeypatch.setattr(kept, "code_of", lambda package: f"another {package}")
    else:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "another user"))
    assert kept_audits(run, weights, subject) == ()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from places(value[key])


def forge(run: Path, chance: random.Random) -> None:
    """One value replaced or left out, or the whole file replaced by one without proof."""
    file = run / "explanation.json"
    held = json.loads(file.read_text())
    kind = chance.randrange(4)
    if kind == 0:
        file.write_text(json.dumps({"schema": held["schema"], "sha256": "0", "audits": [AUDIT]}))
        return
    if kind == 1:
        file.write_bytes(file.read_bytes()[: chance.randrange(500)])
        return
    target, key = chance.choice(list(places(held)))
    before = copy.deepcopy(held)
    if kind == 2 and isinstance(target, dict):
        target.pop(key)
    else:
        target[key] = chance.choice((*NUMBERS[:4], *TEXTS, None, [], {}, deep(70), "0" * 64))
    file.write_text(json.dumps(held) if held != before else "[]")


@pytest.mark.full
def test_fifty_forged_files_change_nothing(run: Path) -> None:
    subject, weights = subject_of(run), run / "ckpt.pt"
    whole = keep_audits(run, weights, subject, [AUDIT])
    assert whole is not None
    text, wrong = whole.read_text(), []
    for seed in range(50):
        whole.write_text(text)
        forge(run, random.Random(seed))
        for trusted in (False, True):
            found = kept_audits(run, weights, subject, trusted=trusted)
            if found and not (trusted and found[0].get("kept") == UNVERIFIED):
                wrong.append(seed)
    campaigns.record("forged kept results", "0", right=50 - len(wrong), lost_state=len(wrong))
    assert wrong == []


def test_a_forged_audit_is_in_no_view_and_a_trusted_one_says_so(run: Path, tmp_path: Path) -> None:
    subject, weights = subject_of(run), run / "ckpt.pt"
    keep_audits(run, weights, subject, [AUDIT])
    file = run / "explanation.json"
    page = tmp_path / "page.html"

    def shown(*more: str) -> tuple[str, str, str]:
        command = ["analyze", str(run), "--probe", "norms", *more]
        told = CliRunner().invoke(main, [*command, "--json"])
        text = CliRunner().invoke(main, [*command, "--light", "--out", str(page)])
        assert (told.exit_code, text.exit_code) == (0, 0), repr(text.exception)
        return told.stdout, " ".join(text.stdout.split()), page.read_text()

    assert all("forged sentence" in view.lower() for view in shown())
    held = json.loads(file.read_text())
    held["audits"][0]["unaccounted"]["logits"] = 0.002
    file.write_text(json.dumps(held))
    assert not any("forged sentence" in view.lower() for view in shown())
    for view in shown("--trust-kept"):
        assert "forged sentence" in view.lower() and "kept by somebody else" in view
    file.write_text(json.dumps(signed({**held, "origin": {}})))
    assert not any("forged sentence" in view.lower() for view in shown())
