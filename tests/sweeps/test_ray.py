"""Sweeps on a real Ray cluster of two nodes on this machine, one of which dies."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from mechint.errors import RunError
from mechint.sweeps import on_ray, plan, run_sweep
from tests.sweeps.conftest import TASK, longer, trained_files


@pytest.mark.slow
def test_both_nodes_work_and_one_may_die(
    tmp_path: Path,
    two_nodes: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO, on_ray.__name__)
    widths = [8, 16, 24, 32]
    groups = plan(TASK, (*longer(400), "evaluate_every=200"), {"seed": [0, 1], "d_mlp": widths})
    list(run_sweep(groups, tmp_path / "here"))

    spare = two_nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    rows = []
    for number, done in enumerate(run_sweep(groups, tmp_path / "ray", "ray")):
        rows += done
        if number == 0:
            two_nodes.remove_node(spare, allow_graceful=False)
    nodes = {message.split()[-1] for message in caplog.messages if " ran on node " in message}
    assert len(nodes) > 1
    assert [row["status"] for row in rows] == ["finished"] * 8
    assert trained_files(tmp_path / "here") == trained_files(tmp_path / "ray")
    assert capfd.readouterr().out == "", "Ray says nothing"


@pytest.mark.slow
def test_a_directory_that_nodes_do_not_share(tmp_path: Path, two_nodes: Any) -> None:
    groups = plan(TASK, longer(4), {"seed": [0]})
    out = tmp_path / "sweep"
    with pytest.raises(RunError, match=r"does not see .*; choose an --out on a file system"):
        list(on_ray.run_on_ray(groups, out))  # no plan was written there
