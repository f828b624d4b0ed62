"""The heads that matter on SmolLM2: against transformers' forwards and the exact patches alone, and
against TransformerLens's bridge.

    MECHINT_SMOLLM2=build/language-models/smollm2 python -m benchmarks --only language
    python -m benchmarks.language DIRECTORY PAIRS.jsonl      # another model, or other pairs

`make slow-language-models` makes the directory. Times are of the processor, since a patch of a
language model takes seconds and other work on the machine takes turns with it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import mechint
from benchmarks import table
from benchmarks.timing import BenchSettings, Row, bounded, missing, paired, versus
from mechint.errors import MechintError
from mechint.interventions import Site
from mechint.models.foreign.bridge import bridge_of, load_directory
from mechint.registry import PROBES
from mechint.subject import Subject
from mechint.subject.counterfactuals import choose_variable, draw
from mechint.subject.pairs import Pairs
from probes._attention import scores
from probes._heads.measures import PairRuns

VARIABLE = "MECHINT_SMOLLM2"
PAIRS = Path(__file__).parents[1] / "examples" / "language-model" / "names.jsonl"
MOST = 4.0
"""Times the forwards and the exact patches that the whole analysis may take."""
EVERY, FEW = 10, 6
"""Heads patched on both sides: each tenth; and pairs, all of one shape."""


def processor(action: Callable[[], Any]) -> float:
    """Processor seconds of one call in this process."""
    start = time.process_time()
    action()
    return time.process_time() - start


def drawn(subject: Subject) -> Pairs:
    """The pairs that the probe `heads` draws."""
    variable = choose_variable(subject.task, None)
    return draw(subject, variable, 256, 0, relation="minimal", least=2)


def forwards(model: Any, subject: Subject) -> None:
    """One forward of transformers on every prompt, those of one length together, and on the random
    tokens that are repeated.
    """
    lengths: dict[int, list[tuple[int, ...]]] = {}
    for one in subject.task.prompts:  # type: ignore[union-attr]
        lengths.setdefault(len(one.tokens), []).append(tuple(one.tokens))
    made = scores.language_repeats(subject, 0)
    rows = [torch.tensor(some) for some in lengths.values()]
    with torch.no_grad():
        for tokens in rows if made is None else [*rows, torch.from_numpy(made)]:
            model(tokens)


def against_transformers(folder: Path, pairs: Path) -> Iterator[Row]:
    """The whole probe as a multiple of transformers' forwards and our exact patches."""
    from transformers import AutoModelForCausalLM

    subject = mechint.load(folder, data=pairs)
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="eager", dtype=torch.float32
    ).eval()
    result: list[Any] = []
    took = processor(lambda: result.append(PROBES["heads"]().run(subject)))
    theirs = processor(lambda: forwards(model, subject))
    runs, moved = PairRuns.of(subject, drawn(subject)), result[0].arrays["by_head"]
    heads = [Site.head(*place) for place in np.argwhere(np.isfinite(moved)).tolist()]
    patches = processor(lambda: runs.measure([[one] for one in heads]))
    note = (
        f"{took:.0f} s of processor time; the forwards in transformers {theirs:.1f} s, the exact "
        f"patches of {len(heads)} heads {patches:.0f} s; {len(runs.units)} pairs both ways"
    )
    name = f"the heads that matter, {pairs.stem}, beside forwards and exact patches"
    yield bounded(name, took / (theirs + patches), MOST, "at most", unit="×", note=note)


class Bridged:
    """A few pairs of one shape on TransformerLens's bridge."""

    def __init__(self, folder: Path, runs: PairRuns) -> None:
        rows = range(len(runs))
        tokens, length = runs.runs.tokens, int(runs.runs.reads[runs.own[rows[0]]]) + 1
        self.base, self.source = (tokens[one][:, :length] for one in (runs.own, runs.other))
        self.classes, self.first = runs.classes, int(runs.first[0])
        self.n = len(self.base)
        self.model = bridge_of(load_directory(folder), folder)

    def difference(self, logits: Tensor) -> Tensor:
        """(pair,) logit of the source's answer above the base's."""
        own, other = self.classes.T
        rows = torch.arange(self.n)
        return logits[rows, -1, other] - logits[rows, -1, own]

    def kept(self) -> dict[str, Tensor]:
        """Heads' outputs of the sources."""
        with torch.no_grad():
            _, cache = self.model.run_with_cache(
                self.source, names_filter=lambda name: name.endswith("attn.hook_z")
            )
        return {name: cache[name] for name in cache}

    def exact(self, heads: Sequence[Site]) -> np.ndarray:
        """(head,) mean change of the difference when each is taken from the source."""
        kept, found = self.kept(), []

        def put(z: Tensor, hook: Any, head: int, name: str) -> Tensor:
            z = z.clone()
            z[:, self.first :, head] = kept[name][:, self.first :, head]
            return z

        with torch.no_grad():
            base = self.difference(self.model(self.base))
            for one in heads:
                edit = (one.hook, partial(put, head=one.units[0], name=one.hook))
                logits = self.model.run_with_hooks(self.base, fwd_hooks=[edit])
                found.append(float((self.difference(logits) - base).mean()))
        return np.array(found)

    def attributed(self) -> np.ndarray:
        """(layer, head) the same to first order, by one backward."""
        kept, here = self.kept(), dict[str, Tensor]()

        def keep(z: Tensor, hook: Any, name: str) -> Tensor:
            here[name] = z.detach().requires_grad_(True) if not z.requires_grad else z
            here[name].retain_grad()
            return here[name]

        with torch.enable_grad():
            hooks = [(name, partial(keep, name=name)) for name in kept]
            self.difference(self.model.run_with_hooks(self.base, fwd_hooks=hooks)).sum().backward()
        rows = []
        for layer in range(len(kept)):
            name = f"blocks.{layer}.attn.hook_z"
            gradient = here[name].grad
            assert gradient is not None
            change = (kept[name] - here[name].detach())[:, self.first :]
            rows.append((change * gradient[:, self.first :]).sum((1, 3)).mean(0))
        return torch.stack(rows).numpy()


def against_bridge(bench: BenchSettings, folder: Path, data: Path) -> Iterator[Row]:
    """Attribution of all heads, and exact patches of each tenth, on the same pairs."""
    subject = mechint.load(folder, data=data)
    pairs = drawn(subject)
    shapes = torch.stack([pairs.reads, PairRuns.of(subject, pairs).first], 1)
    shape = shapes.unique(dim=0, return_inverse=True)[1]
    group = (shape == shape.mode().values).nonzero().flatten()

    def again() -> PairRuns:
        return PairRuns.of(subject, pairs[group[: 2 * FEW]])

    runs = again()
    theirs = Bridged(folder, runs)
    every = runs.heads
    heads = every[::EVERY]

    def exact() -> np.ndarray:
        return again().measure([[one] for one in heads]).moved.mean(1)

    def attributed() -> np.ndarray:
        found = np.array([*again().first_order().values()])
        return found.reshape(subject.n_layers, -1) / theirs.n

    if not np.allclose(exact(), theirs.exact(heads), atol=1e-3):
        raise MechintError("language: ours and the bridge's exact patches differ")
    if not np.allclose(attributed(), theirs.attributed(), atol=1e-2):
        raise MechintError("language: ours and the bridge's attributions differ")
    against = "TransformerLens 4.3's bridge"
    about = f"{theirs.n} pairs of {theirs.base.shape[1]} tokens"
    for name, ours, peer, note in (
        ("attribution of all heads", attributed, theirs.attributed, about),
        (
            f"exact patches of {len(heads)} heads",
            exact,
            lambda: theirs.exact(heads),
            f"{about}; each {EVERY}th of {len(every)} heads",
        ),
    ):
        measured = paired(
            lambda ours=ours: processor(ours),
            lambda peer=peer: processor(peer),
            bench.repeats(3),
        )
        yield versus(f"SmolLM2, {name}", measured, 1.0, against=against, note=note)


def rows(bench: BenchSettings) -> Iterator[Row]:
    """The rows of a language model."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        why = f"{VARIABLE} names no directory; `make slow-language-models` makes one"
        yield missing("the heads that matter, SmolLM2", None, MOST, why, "at most")
        return
    yield from against_transformers(Path(folder), PAIRS)
    yield from against_bridge(bench, Path(folder), PAIRS)


if __name__ == "__main__":
    for row in against_transformers(Path(sys.argv[1]), Path(sys.argv[2])):
        print(table.line(row), row["note"], sep="\n")
