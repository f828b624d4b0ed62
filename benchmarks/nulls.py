"""False positives of probes on models that were not trained, by how their weights were drawn.

    python -m benchmarks.nulls        # the table of docs/nulls.md

Files of others begin from other initializations than mechint's own, which no file states. Each
model is written under TransformerLens's names, opened as a file of others is, and asked by probes
whose findings can be true of a model that answers at chance. A finding whose null is right says
"yes" as often as its level allows.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from scipy.stats import binom
from torch import Tensor

import mechint
from benchmarks.kept import made
from mechint import probes, tasks
from mechint.config import ModelConfig
from mechint.models.initial import initialize, parameter_shapes
from mechint.probe.results import VERDICTS

P, MODELS, CONFIDENCE = 11, 200, 0.99
CONFIG = ModelConfig(d_model=16, n_heads=2, d_vocab=P + 1, d_vocab_out=P, n_ctx=3, d_mlp=32)
ASKED = ("attention", "norms")
"""Probes whose null is of models, and not of permuted tokens or classes."""
Draw = Callable[[str, tuple[int, ...], torch.Generator], Tensor]


def fans(name: str, shape: tuple[int, ...]) -> tuple[int, int]:
    """Inputs and outputs of a weight of this name, all heads together."""
    if name.endswith("W_O"):
        return shape[0] * shape[1], shape[2]
    if len(shape) == 3:
        return shape[1], shape[0] * shape[2]
    return shape[0], shape[-1]


def pytorch(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """`nn.Embedding`: N(0, 1); `nn.Linear`: uniform in ±1/√inputs, biases too."""
    value = torch.empty(shape)
    if name.startswith(("embed", "pos_embed")):
        return value.normal_(generator=generator)
    inputs = {"b_O": CONFIG.d_model, "b_out": 32}.get(name.rpartition(".")[2], CONFIG.d_model)
    bound = 1 / math.sqrt(fans(name, shape)[0] if len(shape) > 1 else inputs)
    return value.uniform_(-bound, bound, generator=generator)


def small(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """N(0, 0.02), biases zero (GPT-2)."""
    value = torch.zeros(shape)
    return value if ".b_" in name else value.normal_(0, 0.02, generator=generator)


def xavier(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Uniform in ±√(6 / (inputs + outputs)), biases zero (Glorot and Bengio 2010)."""
    value = torch.zeros(shape)
    bound = math.sqrt(6 / sum(fans(name, shape)))
    return value if ".b_" in name else value.uniform_(-bound, bound, generator=generator)


KINDS: Mapping[str, Draw | None] = {
    "PyTorch's default": pytorch,
    "N(0, 0.02)": small,
    "Xavier": xavier,
    "mechint's": None,
}


def weights_of(kind: str, seed: int) -> dict[str, Tensor]:
    """The weights of an untrained model."""
    draw = KINDS[kind]
    if draw is None:
        return initialize(CONFIG, seed)
    generator = torch.Generator().manual_seed(seed)
    shapes = parameter_shapes(CONFIG)
    return {name: draw(name, shape, generator) for name, shape in shapes.items()}


def claim_of(metric: str) -> str:
    """The claim of a finding, by the metric whose null it has.

    >>> claim_of("norms.L0 MLP.deviation"), claim_of("operand.largest_preference")
    ('L0 MLP', 'operand.largest_preference')
    """
    return metric.removeprefix("norms.").removesuffix(".deviation")


def findings(kind: str, first: int, count: int) -> Iterator[tuple[str, str, float, str]]:
    """(probe, claim, level, verdict) of every finding on the models of one kind."""
    task = tasks.make("modular-arithmetic", p=P)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.pt"
        for seed in range(first, first + count):
            torch.save(weights_of(kind, seed), file)
            subject = mechint.load(file, task=task)
            assert not subject.knows_initialization
            for name in ASKED:
                for found in probes.run(name, subject, seed=seed).findings:
                    if found.tested and found.alpha is not None:
                        yield name, claim_of(found.tested[0]), found.alpha, found.verdict


def measure(kind: str, first: int, count: int) -> list[dict[str, Any]]:
    """Counts of verdicts for each probe and claim, on `count` models of one kind."""
    counts: dict[tuple[str, str, float], Counter[str]] = {}
    for probe, claim, level, verdict in findings(kind, first, count):
        counts.setdefault((probe, claim, level), Counter())[verdict] += 1
    return [
        {"initialization": kind, "probe": probe, "claim": claim, "level": level}
        | {"first": first, "version": mechint.__version__, **one}
        for (probe, claim, level), one in counts.items()
    ]


def rows(measured: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row of the table for each initialization, probe and claim: the counts of all parts."""
    counts: dict[tuple[str, str, str, float], Counter[str]] = {}
    for part in measured:
        key = part["initialization"], part["probe"], part["claim"], part["level"]
        one = counts.setdefault(key, Counter())
        one.update({verdict: part.get(verdict, 0) for verdict in VERDICTS})
    table: list[dict[str, Any]] = []
    for (kind, probe, claim, level), one in sorted(counts.items()):
        n = one.total()
        most = int(binom.ppf((1 + CONFIDENCE) / 2, n, level))
        table.append(
            {"initialization": kind, "probe": probe, "claim": claim, "level": level}
            | {"models": n, "yes": one["yes"], "at most": most, "unclear": one["unclear"]}
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", action="append", choices=list(KINDS))
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--first", type=int, default=0, help="seed of the first")
    parser.add_argument("--part", type=Path, help="write the counts there, to be joined later")
    parser.add_argument("--join", type=Path, nargs="+", help="print the table of parts")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.join:
        found = [row for file in given.join for row in json.loads(file.read_text())["rows"]]
    else:
        kinds = given.kind or list(KINDS)
        found = [row for kind in kinds for row in measure(kind, given.first, given.models)]
    if given.part:
        command = f"python -m benchmarks.nulls --models {given.models}"
        kept = {"origins": [made(command)], "rows": found}
        given.part.write_text(json.dumps(kept, indent=1) + "\n")
    table = rows(found)
    print("| " + " | ".join(table[0]) + " |")
    print("| --- | --- | --- |" + " ---: |" * 5)
    for row in table:
        print("| " + " | ".join(str(value) for value in row.values()) + " |")


if __name__ == "__main__":
    main()
