"""Groups as one Slurm array job, whose tasks stop in time and are queued again.

Slurm sends SIGTERM before the time is up and before it takes a node back; a run then commits its
state within a step, and the task asks to be queued again. So a sweep may take longer than the time
limit of a partition.
"""

from __future__ import annotations

import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from mechint.errors import ParameterError, RunError
from mechint.files import write_text
from mechint.plugins import given_plugins
from mechint.sweeps.executors.base import Job
from mechint.sweeps.plan import Row

OURS = ("concurrent", "groups_per_task", "setup")
"""Options that sbatch does not know: tasks at once, groups one after another in a task, and a
line of shell that runs before them."""

DEFAULTS = {"job-name": "mechint-sweep", "signal": "B:TERM@120", "cpus-per-task": "1"}

BODY = """\
first=$((SLURM_ARRAY_TASK_ID * {per_task}))
{command} --only $first:$((first + {per_task})) &
child=$!
trap 'kill -TERM $child' TERM
wait $child
status=$?
while kill -0 $child 2>/dev/null; do wait $child; status=$?; done
if [ $status -eq 130 ]; then
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit $status
"""


def script(
    n_groups: int, out: Path, device: str = "cpu", options: Mapping[str, str] | None = None
) -> str:
    """The batch script of a sweep with `n_groups` groups in the directory `out`.

    options: ``concurrent``, ``groups_per_task`` and ``setup``; every other one becomes
    ``#SBATCH --NAME=VALUE``, e.g. time, mem, partition, account, signal.

    Raises:
        ParameterError: an option that sbatch could not read.
    """
    given = dict(options or {})
    per_task = _count(given, "groups_per_task", 1)
    tasks = math.ceil(n_groups / per_task)
    array = f"0-{tasks - 1}"
    if "concurrent" in given:
        array += f"%{_count(given, 'concurrent', 1)}"
    setup = given.get("setup", "")
    words = {
        **DEFAULTS,
        **({"gres": "gpu:1"} if device.startswith("cuda") else {}),
        **{name.replace("_", "-"): value for name, value in given.items() if name not in OURS},
        "array": array,
        "output": f"{out.resolve()}/slurm-%a.log",
        "open-mode": "append",
    }
    for name, value in words.items():
        if not re.fullmatch(r"[a-z][a-z0-9-]*", name) or "\n" in value:
            raise ParameterError(f"--slurm {name}={value!r}: expected an option of sbatch")
    lines = [f"#SBATCH --{name}={value}" for name, value in words.items()]
    command = [sys.executable, "-m", "mechint", "sweep", str(out.resolve()), "--resume"]
    command += [word for text in given_plugins() for word in ("--plugin", text)]
    body = BODY.format(command=shlex.join([*command, "--device", device]), per_task=per_task)
    return "\n".join(["#!/bin/bash", *lines, "#SBATCH --requeue", *filter(None, [setup]), body])


def _count(options: Mapping[str, str], name: str, default: int) -> int:
    text = options.get(name, str(default))
    if not re.fullmatch(r"[1-9]\d{0,5}", text):
        raise ParameterError(f"--slurm {name}={text}: expected a number from 1")
    return int(text)


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """The options of ``--slurm KEY=VALUE``.

    >>> parse_options(["time=1:00:00", "mem=4G"])
    {'time': '1:00:00', 'mem': '4G'}
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise ParameterError(f"--slurm {text!r}: expected KEY=VALUE, such as time=4:00:00")
        found[name.strip().lstrip("-")] = value.strip()
    return found


def on_slurm(job: Job) -> Iterator[list[Row]]:
    """Submit one array over all groups of the sweep; ``mechint sweep DIR`` shows how it stands.

    Groups that are finished end at once when their turn comes.
    """
    last = 1 + max((number for number, _ in job.groups), default=-1)
    text = script(last, job.out, job.device, job.options)
    file = job.out / "sweep.sbatch"
    write_text(file, text)
    if shutil.which("sbatch") is None:
        raise RunError(
            f"executor slurm: sbatch is not on the PATH; submit {file} where it is, or use "
            "--executor local"
        )
    done = subprocess.run(["sbatch", str(file)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"executor slurm: sbatch refused {file}: {' '.join(done.stderr.split())}")
    for _, group in job.groups:
        yield group.rows("submitted")
