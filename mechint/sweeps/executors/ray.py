"""Groups as tasks of a Ray cluster that shares the sweep's directory."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Iterator
from typing import Any

from mechint.errors import RunError
from mechint.sweeps.executors.base import Job
from mechint.sweeps.plan import Row
from mechint.sweeps.table import run_group


def on_ray(job: Job) -> Iterator[list[Row]]:
    """Every group as a Ray task of one core (and one GPU on "cuda"); finished groups first."""
    try:
        ray: Any = importlib.import_module("ray")
    except ImportError as error:
        raise RunError(
            "executor ray: Ray is not installed; pip install 'mechint[ray]', or use "
            "--executor local"
        ) from error
    ray.init(ignore_reinit_error=True, log_to_driver=False, logging_level=logging.ERROR)
    work = ray.remote(num_cpus=1, num_gpus=int(job.device.startswith("cuda")))(run_group)
    waiting = [work.remote(group, job.out.resolve(), job.device) for _, group in job.groups]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)
