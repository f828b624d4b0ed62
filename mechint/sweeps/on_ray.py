"""Groups as tasks of a Ray cluster that shares the sweep's directory.

Ray runs a task again whose process or node died; it goes on from what it committed last. Ctrl-C and
SIGTERM let the tasks commit their states, and end them.
"""

from __future__ import annotations

import importlib
import logging
import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError, RunError
from mechint.registry.plugins import given_plugins, load_plugins
from mechint.sweeps.directory import PLAN, rows_of, run_group
from mechint.sweeps.planning import Row, RunGroup
from mechint.system.parallel import interruptible

RETRIES = 10
"""Times that a task is run again whose node or process died."""

QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no request to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # as it will be by default, and warns that it is not
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what nodes say of their end would go to our stdout
}

log = logging.getLogger(__name__)


def run_on_ray(groups: Sequence[RunGroup], out: Path, device: str = "cpu") -> Iterator[list[Row]]:
    """Every group as a Ray task of one core (and one GPU on "cuda"), on the cluster that
    RAY_ADDRESS or a running Ray of this machine names, else on one that ends with this process.

    Raises:
        RunError: there is no Ray, a node does not see the sweep's directory, or a task died
            `RETRIES` times.
    """
    ray = _connect()
    gpus = int(device.startswith("cuda"))
    task = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=RETRIES, scheduling_strategy="SPREAD")(
        _work
    )
    plugins = given_plugins()
    waiting = {task.remote(group, out.resolve(), device, plugins): group for group in groups}
    told = False
    with interruptible() as interrupted:
        while waiting:
            if interrupted.is_set() and not told:
                told = True
                for one in waiting:
                    ray.cancel(one)  # SIGINT for a task that runs
            for one in ray.wait(list(waiting), timeout=0.2)[0]:
                yield _rows(ray, one, waiting.pop(one), out)
    if told:
        raise KeyboardInterrupt


def _connect() -> Any:
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise RunError(
            "executor ray: Ray is not installed; pip install ray, or use --executor local"
        ) from error
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise RunError(f"executor ray: no cluster: {error}") from error
    return ray


def _work(group: RunGroup, out: Path, device: str, plugins: Sequence[str]) -> tuple[str, list[Row]]:
    """On a node: its name, and the rows of the group; it sees the files of plug-ins, as `out`."""
    ray: Any = importlib.import_module("ray")  # by name: it need not be installed to check types
    if not (out / PLAN).exists():
        raise RunError(
            f"executor ray: {platform.node()} does not see {out}; choose an --out on a file system "
            "that all nodes share"
        )
    load_plugins(plugins)
    return ray.get_runtime_context().get_node_id(), run_group(group, out, device)


def _rows(ray: Any, one: Any, group: RunGroup, out: Path) -> list[Row]:
    """The rows of a task that has ended."""
    try:
        node, rows = ray.get(one)
    except ray.exceptions.TaskCancelledError:
        return rows_of(group, out)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, MechintError):
            raise error.cause from None
        raise
    except ray.exceptions.RayError as error:
        raise RunError(f"executor ray: {error}; the sweep goes on with --resume") from error
    log.info("group %s ran on node %s", group.name, node)
    return rows
