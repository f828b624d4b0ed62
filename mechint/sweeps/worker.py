"""A process that runs the groups it is sent, one line of JSON each, and reports line by line.

Run as ``python -m mechint.sweeps.worker`` by the local executor.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from mechint.errors import MechintError
from mechint.plugins import load_given_plugins
from mechint.sweeps.plan import from_json
from mechint.sweeps.table import run_group
from mechint.training.workers import to_parent


def work(source: TextIO, send: Callable[[dict[str, Any]], None]) -> None:
    """Run groups until `source` ends; a worker does not outlive its parent by more than a
    report.
    """
    parent = os.getppid()

    def progress(now: Any) -> None:
        if os.getppid() != parent:
            os._exit(1)
        send(dataclasses.asdict(now))

    try:
        load_given_plugins()
    except MechintError as error:
        send({"error": str(error)})
        return
    for line in source:
        task = json.loads(line)
        (group,) = from_json([task["group"]])
        try:
            send({"rows": run_group(group, Path(task["out"]), "cpu", progress)})
        except MechintError as error:
            send({"error": str(error)})


if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # training listens for itself
    work(sys.stdin, to_parent())
