"""Fixtures of the tests of sweeps: the settings of tiny runs, and every file of a sweep."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mechint.sweeps.on_ray import QUIET

SMALL = (
    "p=5",
    "d_model=8",
    "n_heads=1",
    "d_mlp=8",
    "steps=4",
    "evaluate_every=2",
    "checkpoints=none",
)
TASK = "modular-arithmetic"


def trained_files(out: Path) -> dict[str, bytes]:
    """Weights, statuses and metrics of every run of a sweep, by path."""
    names = ("ckpt.pt", "metrics.jsonl", "status.json")
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.name in names
    }


def longer(steps: int) -> tuple[str, ...]:
    """`SMALL` for so many steps."""
    return tuple(f"steps={steps}" if text == "steps=4" else text for text in SMALL)


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A Ray cluster of two nodes of one core each, which the executor finds."""
    for name, value in QUIET.items():  # some are read when Ray is imported
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at 15 other tests starve the workers
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *filter(None, sys.path)]))
    node = {"num_cpus": 1, "object_store_memory": 80_000_000}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    cluster.add_node(**node)
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
