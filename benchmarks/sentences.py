"""One hundred sentences that probes print, drawn by seed, for other code to test.

    python -m benchmarks.sentences find 0 1 2 --checkpoints FOLDER --found FOUND # models by number
    python -m benchmarks.sentences draw --found FOUND   # writes benchmarks/results/sentences.json
    python -m benchmarks.sentences keep --found FOUND   # keeps FOUND/outcomes.json beside them
    python -m benchmarks.retest --found FOUND           # holds each against numpy and torch alone

Every "yes" and "no" of the probes in `ASKED` on the models of `models()` is written to FOUND, with
the inputs and answers that the model was asked; `draw` takes 100 of them without replacement. The
list is committed before it is tested.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mechint
from benchmarks.explanations import EXAMPLES, PUBLISHED, Model
from mechint import probes, tasks
from mechint.errors import MechintError
from mechint.probe import quick_probes
from mechint.probes._embedding.probe import value_tokens
from mechint.training import train
from mechint.training.origins import Origin

COUNT, SEED, MODELS = 100, 57, 20
RESULT = Path(__file__).parent / "results" / "sentences.json"
OUTCOMES = RESULT.with_name("retested.json")
SOURCES = ("benchmarks/sentences.py", "mechint/decide", "mechint/probe", "probes")
ASKED = ("ablation", "attribution", "gradients", "neurons", "norms", "progress", "weights")
"""Probes asked beside those that `mechint analyze` runs."""
TRAINED: dict[str, tuple[str, dict[str, Any], int]] = {
    "addition of 13, all pairs": ("modular-arithmetic", {"p": 13, "train_fraction": 1.0}, 400),
    "addition of 23, early": ("modular-arithmetic", {"p": 23}, 200),
    "random table of 11": (
        "modular-arithmetic",
        {"p": 11, "labels": "shuffled", "train_fraction": 1.0},
        400,
    ),
    "maximum of 4": ("max-of-list", {"length": 4, "n": 12}, 400),
    "repeats, early": ("repeated-tokens", {"length": 6}, 300),
}
"""Name → task, its parameters, steps: models that have memorized, or have hardly learned."""
LEFT_OUT = ("7r4zst7evs", "C113_MLP", "tracr", "S5_T", "D61_T", "wd_10", "rib", "baseline")
"""Of the published models those whose files other code would have to read by rules of their own,
and those of which another of their kind is asked.
"""


def models() -> list[tuple[str, Any]]:
    """Name and file or training of every model: shipped, published and trained here."""
    shipped = [(f"examples/{one.stem}", one) for one in sorted(EXAMPLES.glob("*.pt"))]
    chosen = [one for one in PUBLISHED if not any(name in one.file for name in LEFT_OUT)]
    return [*shipped, *((one.name, one) for one in chosen), *TRAINED.items()]


def load(made: Any, checkpoints: Path, out: Path) -> tuple[Any, Path]:
    """The subject, and the file that its weights are read from."""
    if isinstance(made, tuple):
        task, parameters, steps = made
        folder = out / "runs" / "-".join([task, *map(str, parameters.values())])
        small = {"d_model": 32, "n_heads": 2, "d_mlp": 64}
        if not (folder / "ckpt.pt").exists():
            train(tasks.make(task, **parameters), small, {"steps": steps, "seed": 3}, out=folder)
        return mechint.load(folder / "ckpt.pt"), folder / "ckpt.pt"
    if isinstance(made, Path):
        return mechint.load(made), made
    assert isinstance(made, Model)
    task = made.task and tasks.make(made.task, **made.settings)
    subject: Any = mechint.load(checkpoints / made.file, task=task, model=dict(made.model))
    return subject if made.answer is None else subject.with_answer(
        made.answer
    ), checkpoints / made.file


def find(number: int, checkpoints: Path, out: Path) -> dict[str, Any]:
    """All decided findings on one model; its inputs are written beside them."""
    name, made = models()[number]
    subject, file = load(made, checkpoints, out)
    found: list[dict[str, Any]] = []
    for probe in [*quick_probes(), *ASKED]:
        start = time.process_time()
        try:
            result = probes.run(probe, subject)
        except MechintError as reason:
            print(f"  {probe}: {reason}", flush=True)
            continue
        kept = {
            key: value for key, value in result.metrics.items() if len(json.dumps(value)) < 4000
        }
        for place, finding in enumerate(result.findings):
            if finding.verdict != "unclear":
                said = {"model": name, "probe": probe, "place": place, **finding.to_dict()}
                found.append(said | {"text": str(finding), "metrics": kept})
        print(f"  {probe}: {time.process_time() - start:.0f} s", flush=True)
    write_inputs(subject, out / f"{number}.npz")
    told = {"model": name, "number": number, "file": str(file), "findings": found}
    (out / f"{number}.json").write_text(json.dumps(told, indent=1))
    return told


def write_inputs(subject: Any, path: Path) -> None:
    """Inputs and answers of a model, and what of them other code has to be told."""
    split, own = subject.split, subject.data.own_positions()
    np.savez(
        path,
        tokens=subject.data.tokens.numpy(),
        inside=np.ones(tuple(subject.data.tokens.shape), bool) if own is None else own.numpy(),
        rows=subject.answer_examples.numpy(),
        positions=subject.answer_positions.numpy(),
        targets=subject.targets.numpy(),
        slices=np.array([[s.start, s.stop] for s in subject.task.output_slices.values()]),
        values=np.array(subject.task.symmetry.tokens if subject.task.symmetry else []),
        embedded=np.array(value_tokens(subject)),
        train=np.array([]) if split is None else split["train"].numpy(),
        causal=subject.model_description.attention_dir != "bidirectional",
    )


def draw(found: Path) -> list[dict[str, Any]]:
    """`COUNT` of the sentences found, by seed."""
    told = [json.loads(file.read_text()) for file in sorted(found.glob("*.json"))]
    assert len(told) >= MODELS, f"{len(told)} models of at least {MODELS}"
    every = [
        {"number": one["number"], "model": one["model"], "probe": said["probe"]}
        | {"place": said["place"], "verdict": said["verdict"], "text": said["text"]}
        for one in told
        for said in one["findings"]
    ]
    every.sort(key=lambda one: (one["number"], one["probe"], one["place"]))
    drawn = random.Random(SEED).sample(every, min(COUNT, len(every)))
    print(f"{len(drawn)} of {len(every)} sentences on {len(told)} models")
    return drawn


def with_origin(rows: Sequence[Any], command: str, sources: Sequence[str]) -> str:
    """Rows as they are kept, with the origin of what `command` made."""
    kept = {"origins": [Origin.now(command, sources).to_dict()], "rows": rows}
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["list", "find", "inputs", "draw", "keep"])
    parser.add_argument("numbers", nargs="*", type=int)
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"))
    parser.add_argument("--found", type=Path, default=Path("runs/sentences"))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    given.found.mkdir(parents=True, exist_ok=True)
    if given.what == "list":
        for number, (name, _) in enumerate(models()):
            print(number, name)
    for number in given.numbers if given.what == "find" else []:
        start = time.process_time()
        told = find(number, given.checkpoints, given.found)
        spent = time.process_time() - start
        print(f"{told['model']}: {len(told['findings'])} sentences, {spent:.0f} s", flush=True)
    for number in given.numbers if given.what == "inputs" else []:
        subject, _ = load(models()[number][1], given.checkpoints, given.found)
        write_inputs(subject, given.found / f"{number}.npz")
    if given.what == "draw":
        command = f"python -m benchmarks.sentences draw --found {given.found}"
        RESULT.write_text(with_origin(draw(given.found), command, SOURCES))
    if given.what == "keep":
        outcomes = json.loads((given.found / "outcomes.json").read_text())
        command = f"python -m benchmarks.retest --found {given.found}"
        OUTCOMES.write_text(with_origin(outcomes, command, (*SOURCES, "benchmarks/retest.py")))


if __name__ == "__main__":
    main()
