"""The same plan gives the same bits: whatever the workers, the turns and the memory; and what a
model in an ensemble has in common with the model trained alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import tasks
from mechint.errors import MechintError
from mechint.task import batch as memory
from mechint.training import Run, spec, train, train_many
from mechint.training import api as training_api
from mechint.training.plan import EnsemblePart, partition

ADDITION = tasks.make("modular-arithmetic", p=7, train_fraction=0.6)
SMALL = {"d_model": 16, "n_heads": 2, "d_mlp": 32}
BRIEF = {"steps": 20, "evaluate_every": 10, "checkpoints": None}


def table(out: Path | None, widths: tuple[int, ...] = (16, 24), seeds: int = 3) -> list:
    """Runs of two shapes, several seeds each."""
    return [
        spec(
            ADDITION,
            {**SMALL, "d_model": width},
            BRIEF,
            seed=seed,
            out=None if out is None else out / f"{width}-{seed}",
        )
        for width in widths
        for seed in range(seeds)
    ]


def bits(runs: list[Run]) -> list[dict[str, torch.Tensor]]:
    return [run.subject().model.weights() for run in runs]


def same(ours: list[dict[str, torch.Tensor]], theirs: list[dict[str, torch.Tensor]]) -> bool:
    return all(
        torch.equal(a[name], b[name]) for a, b in zip(ours, theirs, strict=True) for name in a
    )


@pytest.fixture
def cores() -> Iterator[Callable[[int], None]]:
    """Sets how many threads torch uses where nobody asks, which it takes from the cores."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.full
def test_cores_do_not_matter(
    tmp_path: Path, cores: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Layer norms and softmaxes add up in another order on another number of threads."""
    monkeypatch.setattr(training_api, "LARGE", 1)
    task = tasks.make("listops", operands=2, depth=2)
    train = {"steps": 3, "eval_examples": 20, "checkpoints": None}
    left = []
    for number in (1, 3):
        cores(number)
        one = spec(task, {"d_model": 32, "n_layers": 2}, train, out=tmp_path / str(number))
        left.append(bits(train_many([one])))
        assert torch.get_num_threads() == number, "it is as it was"
        manifest = json.loads((tmp_path / str(number) / "manifest.json").read_text())
        assert manifest["threads"] == 2
    assert same(*left)


def test_free_memory_and_finished_runs_do_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train_many(table(tmp_path / "whole"))
    monkeypatch.setattr(memory, "free_memory", lambda: 1 << 26)
    train_many(table(tmp_path / "parts", widths=(24,)))
    again = train_many(table(tmp_path / "parts"), resume=True)
    assert same(bits(again), bits(whole))


def test_the_order_of_execution_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = train_many(table(None))

    def reversed_partition(*arguments: object) -> list[EnsemblePart]:
        return partition(*arguments)[::-1]

    monkeypatch.setattr(training_api, "partition", reversed_partition)
    again = train_many(table(None))
    assert same(bits(again), bits(whole))


def test_the_partition_follows_from_the_plan(tmp_path: Path) -> None:
    specs = table(None, seeds=5)
    parts = partition(specs)
    assert sorted(i for part in parts for i in part.members) == list(range(10))
    assert [len(part.members) for part in parts] == [5, 5]
    assert partition(table(tmp_path, seeds=5)) == parts, "where runs lie has no say"
    assert {len(part.members) for part in partition(specs, most=2)} <= {1, 2}
    for part in parts:
        assert len({specs[i].model for i in part.members}) == 1


def test_one_large_ensemble_has_two_threads() -> None:
    large = [spec(tasks.make("modular-arithmetic", p=113))]
    small = [spec(tasks.make("modular-arithmetic", p=7), {"d_model": 16, "n_heads": 1})]
    assert training_api.threads_of(partition(large)) == 2
    assert training_api.threads_of(partition(small)) == 1
    assert training_api.threads_of(partition(large * 4)) == 1


def test_a_model_that_memory_cannot_hold_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda: 1000)
    with pytest.raises(MechintError, match="one model of digit-sum needs about"):
        train(tasks.make("digit-sum"), train={"steps": 4})
