"""The memory of a probe at its largest moment does not grow with the number of examples."""

from __future__ import annotations

import json
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mechint.models.protocol import describe
from mechint.prompts import Prompts
from mechint.registry import PROBES
from mechint.subject import Subject, activations, subject
from tests.conformance.test_models import made
from tests.marks import full_where

MEMORY = 1 << 19
"""Bytes of a subject's limit: seven texts in a chunk."""

POSITIONS, VOCABULARY = 16, 20
SETTINGS = {
    "ablation": {"null_samples": 9},
    "attention": {"examples": 8, "samples": 9},
    "attribution": {"only_correct": False, "examples": 64},
    "gradients": {"permutations": 2},
    "interference": {"batches": 2, "null_samples": 4},
    "lens": {},
    "weights": {"draws": 9},
}
"""Probes of a language model, the fewest samples, and fewer examples kept whole than there are."""


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    return [one.untyped_storage() for one in tree_leaves(tree) if isinstance(one, torch.Tensor)]


class MostHeld(TorchDispatchMode):
    """The most bytes that tensors made inside took at one moment."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = self.now = 0
        self.known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = {storage.data_ptr() for storage in _storages((args, kwargs))}
        for storage in _storages(result):
            if storage.data_ptr() not in given:  # no view of what is counted, or was there before
                self._count(storage)
        return result

    def _count(self, storage: torch.UntypedStorage) -> None:
        if id(storage) not in self.known:
            self.known.add(id(storage))
            self.now += storage.nbytes()
            self.bytes = max(self.bytes, self.now)
            weakref.finalize(storage, self._forget, id(storage), storage.nbytes())

    def _forget(self, storage: int, nbytes: int) -> None:
        self.known.discard(storage)
        self.now -= nbytes


def prompts(place: Path, n: int) -> Prompts:
    """`n` prompts of random tokens in pairs that differ in the answer."""
    rows = torch.randint(3, VOCABULARY, (n // 2, 2, POSITIONS - 1)).tolist()
    lines = [
        {"prompt": a, "answer": 1, "counterfactual": {"prompt": b, "answer": 2}} for a, b in rows
    ]
    path = place / f"{n}.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return Prompts(path=str(path), vocab_size=VOCABULARY)


def held(probe: str, subject: Subject) -> int:
    with MostHeld() as most:
        PROBES[probe](**SETTINGS[probe]).run(subject, seed=0)
    return most.bytes


@pytest.mark.parametrize("probe", full_where({"ablation", "attribution", "interference"}, SETTINGS))
def test_more_texts_take_no_more_than_their_numbers(
    probe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (activations, subject):
        monkeypatch.setattr(module, "LEAST_WORKING_BYTES", 1)
    torch.manual_seed(0)
    model, (few, many) = made("gpt2"), (32, 128)
    least, most = (
        held(probe, Subject(model, prompts(tmp_path, n), memory=MEMORY)) for n in (few, many)
    )
    forward = 4 * POSITIONS * (describe(model).width(POSITIONS) + VOCABULARY)
    assert most - least < (many - few) * forward / 10
