"""A sweep: a table of runs that can stop and go on, on this machine, on Ray or on Slurm.

The plan is the product of the values swept over. Runs that may train as one ensemble form a group,
the unit that an executor is given. A group keeps its rows in a file of its own, so that any number
of workers share a sweep's directory:

    DIR/sweep.json            the plan; another plan is refused
    DIR/GROUP/RUN/            a run directory
    DIR/GROUP/rows.jsonl      one row a run: id, parameters, status, path, metrics
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mechint.config import TrainConfig, assign
from mechint.errors import MechintError, ParameterError, RunError
from mechint.files import make_directory, write_text
from mechint.registry import TASKS

if TYPE_CHECKING:
    from mechint.training import Spec

PLAN, ROWS = "sweep.json", "rows.jsonl"
UNFINISHED = ("failed", "interrupted", "running", "submitted", "waiting")

Row = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing that keeps them from being one ensemble.

    settings: ``name=value`` texts of every run; runs: swept name → value of each.
    """

    task: str
    settings: tuple[str, ...]
    runs: tuple[Mapping[str, Any], ...]

    @property
    def id(self) -> str:
        """A name that depends on the configurations alone."""
        return _digest([self.task, self.settings, self.runs])

    def specs(self, out: Path) -> list[Spec]:
        """The runs as training takes them, with their directories; raises what a wrong value
        raises.
        """
        from mechint.models import config_class
        from mechint.training import spec

        kind = TASKS[self.task]
        targets = {"task": kind, "model": config_class(kind.model_kind), "train": TrainConfig}
        made = []
        for row in self.rows():
            values = assign(
                [
                    *self.settings,
                    *(_text(name, value) for name, value in row["parameters"].items()),
                ],
                targets,
            )
            made.append(
                spec(
                    kind.from_dict(values["task"]),
                    values["model"],
                    values["train"],
                    out=out / self.id / row["id"],
                )
            )
        return made

    def rows(self, status: str = "waiting") -> list[Row]:
        """One row a run, before there is anything to report."""
        rows = []
        for swept in self.runs:
            rows.append(
                {
                    "id": _digest([self.task, self.settings, swept]),
                    "parameters": dict(swept),
                    "status": status,
                    "path": None,
                    "metrics": {},
                }
            )
        return rows


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:10]


def _text(name: str, value: Any) -> str:
    """A swept value as a ``--set`` text; a seed is the training's."""
    text = value if isinstance(value, str) else json.dumps(value)
    return f"{'train.seed' if name == 'seed' else name}={text}"


def parse_values(text: str) -> tuple[str, list[Any]]:
    """The name and the values of an ``--over``: a range of integers ``0:8``, a list ``8,16,32``, or
    JSON.

    >>> (parse_values("seed=0:3"), parse_values("lr=1e-3,2e-3"),
    ...     parse_values("operation=add,multiply"))
    (('seed', [0, 1, 2]), ('lr', [0.001, 0.002]), ('operation', ['add', 'multiply']))
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    if not equals or not name or not values:
        raise ParameterError(f"--over {text!r}: expected name=first:end or name=value,value")
    first, colon, last = values.partition(":")
    if colon and first.lstrip("-").isdigit() and last.lstrip("-").isdigit():
        found: list[Any] = list(range(int(first), int(last)))
    elif values.startswith("["):
        try:
            found = json.loads(values)
        except json.JSONDecodeError as error:
            raise ParameterError(f"--over {text!r}: {error}") from error
    else:
        found = [_value(part) for part in values.split(",")]
    if not found:
        raise ParameterError(f"--over {text!r}: holds no value")
    return name, found


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)
    except json.JSONDecodeError:
        return text.strip()


def plan(task: str, settings: Sequence[str], over: Mapping[str, Sequence[Any]]) -> list[Group]:
    """All groups of a sweep, every configuration checked before anything is trained.

    Args:
        task: name of the task; settings: ``name=value`` of every run; over: name → values; "seed"
            is the training's.
    """
    from mechint.training.optimizer import PER_MODEL_FIELDS

    groups: dict[str, list[dict[str, Any]]] = {}
    for values in itertools.product(*over.values()):
        swept = dict(zip(over, values, strict=True))
        shape = {
            name: value
            for name, value in swept.items()
            if name.removeprefix("train.") not in PER_MODEL_FIELDS
        }
        groups.setdefault(json.dumps(shape), []).append(swept)
    made = [Group(task, tuple(settings), tuple(runs)) for runs in groups.values()]
    for group in made:
        group.specs(Path())
    return made


def keep_plan(groups: Sequence[Group], out: Path) -> None:
    """Write the plan into `out`; RunError if `out` belongs to another sweep or to a run."""
    text = json.dumps([dataclasses.asdict(group) for group in groups], indent=1)
    file = make_directory(out) / PLAN
    if file.exists():
        if json.loads(file.read_text(encoding="utf-8")) != json.loads(text):
            raise RunError(
                f"{out}: holds another sweep; choose another --out, or give the directory "
                "itself to go on with it"
            )
    elif any(out.iterdir()):
        raise RunError(f"{out}: holds something else; choose an empty directory for the sweep")
    else:
        write_text(file, text)


def read_plan(out: Path) -> list[Group]:
    """The groups of the sweep in the directory `out`."""
    try:
        entries = json.loads((out / PLAN).read_text(encoding="utf-8"))
        return [
            Group(entry["task"], tuple(entry["settings"]), tuple(entry["runs"]))
            for entry in entries
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{out}: holds no sweep: {error}") from error


def rows_of(group: Group, out: Path) -> list[Row]:
    """What is known of a group's runs."""
    file = out / group.id / ROWS
    if not file.exists():
        return group.rows()
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def run_group(
    group: Group, out: Path, device: str = "cpu", progress: Callable[[Any], None] | None = None
) -> list[Row]:
    """Train one group, or return its rows where it is finished; a failure is a row, not an
    exception.
    """
    from mechint.results import to_jsonable
    from mechint.training import train_many

    known = rows_of(group, out)
    if not any(row["status"] in UNFINISHED for row in known):
        return known
    rows = group.rows("failed")
    make_directory(out / group.id)
    try:
        runs = train_many(group.specs(out), resume=True, device=device, progress=progress)
    except MechintError as error:
        rows = [row | {"error": str(error)} for row in rows]
    else:
        for row, run in zip(rows, runs, strict=True):
            row |= {
                "status": run.status,
                "path": str(run.path),
                "metrics": to_jsonable(run.final),
            } | ({"error": run.error} if run.error else {})
    write_text(out / group.id / ROWS, "".join(json.dumps(row) + "\n" for row in rows))
    return rows


# --- executors ------------------------------------------------------------------------------------
def local(
    groups: Iterable[Group], out: Path, device: str, progress: Callable[[Any], None] | None
) -> Iterator[list[Row]]:
    """One group after another in this process, until Ctrl-C."""
    for group in groups:
        rows = run_group(group, out, device, progress)
        yield rows
        if any(row["status"] == "interrupted" for row in rows):
            raise KeyboardInterrupt


def on_ray(
    groups: Iterable[Group], out: Path, device: str, progress: Callable[[Any], None] | None
) -> Iterator[list[Row]]:
    """Every group as a Ray task, on a cluster that shares the directory; finished groups first."""
    try:
        import ray
    except ImportError as error:
        raise RunError(
            "executor ray: Ray is not installed; pip install 'mechint[ray]', or use "
            "--executor local"
        ) from error
    ray.init(ignore_reinit_error=True, log_to_driver=False)
    work = ray.remote(num_cpus=1, num_gpus=int(device.startswith("cuda")))(run_group)
    waiting = [work.remote(group, out.resolve(), device) for group in groups]
    while waiting:
        done, waiting = ray.wait(waiting)
        yield from ray.get(done)


def on_slurm(
    groups: Iterable[Group], out: Path, device: str, progress: Callable[[Any], None] | None
) -> Iterator[list[Row]]:
    """One Slurm array job, a group a task; returns once it is submitted, and ``mechint sweep DIR``
    shows how it stands.
    """
    groups = list(groups)
    command = [
        sys.executable,
        "-m",
        "mechint",
        "sweep",
        str(out.resolve()),
        "--device",
        device,
        "--only",
    ]
    gpu = "#SBATCH --gres=gpu:1\n" if device.startswith("cuda") else ""
    header = (
        "#!/bin/bash\n#SBATCH --job-name=mechint-sweep\n#SBATCH "
        f"--array=0-{len(groups) - 1}\n#SBATCH --output={out.resolve()}/slurm-%a.log\n{gpu}"
    )
    script = out / "sweep.sbatch"
    write_text(script, f"{header}{shlex.join(command)} $SLURM_ARRAY_TASK_ID\n")
    if shutil.which("sbatch") is None:
        raise RunError(
            f"executor slurm: sbatch is not on the PATH; submit {script} where it is, or use "
            "--executor local"
        )
    done = subprocess.run(["sbatch", str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"executor slurm: sbatch refused {script}: {' '.join(done.stderr.split())}")
    for group in groups:
        yield group.rows("submitted")


EXECUTORS = {"local": local, "ray": on_ray, "slurm": on_slurm}


def run_sweep(
    groups: Sequence[Group],
    out: Path,
    executor: str = "local",
    device: str = "cpu",
    progress: Callable[[Any], None] | None = None,
) -> Iterator[list[Row]]:
    """Run every group that is not finished yet; yields the rows of each group as they come.

    Raises:
        RunError: `out` belongs to another sweep, or the executor is not there.
    """
    keep_plan(groups, out)
    return EXECUTORS[executor](groups, out, device, progress)
