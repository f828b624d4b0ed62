"""One ensemble of a plan: its directories locked and opened, its runs trained and committed."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mechint.errors import MechintError, RunError
from mechint.models.foreign.untouched import plain_arithmetic
from mechint.training.plan import identifier
from mechint.training.run import DONE, Run
from mechint.training.run_directory import (
    RunDirectory,
    State,
    read_manifest,
    read_state,
    write_state,
)
from mechint.training.schedule import Progress
from mechint.training.trainer import Ensemble


@contextlib.contextmanager
def as_planned(device: torch.device, threads: int | None = None) -> Iterator[None]:
    """Compute as the plan says while the block runs, whatever the caller's settings of torch: in
    plain arithmetic on `device`, with gradients, new tensors on the CPU, and with `threads`
    threads, whose number decides the order of sums; as many as now when None.
    """
    before = torch.get_num_threads()
    elsewhere = torch.get_default_device().type != "cpu"
    with (
        plain_arithmetic(device),
        torch.enable_grad(),
        torch.device("cpu") if elsewhere else contextlib.nullcontext(),
        torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext(),
    ):
        torch.set_num_threads(threads or before)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def train_part(
    runs: Sequence[Run],
    ensemble: str,
    device: torch.device,
    progress: Callable[[Progress], None] | None = None,
    resume: bool = False,
    threads: int = 1,
) -> None:
    """Train the runs of one part of a plan; each then holds what became of it.

    Args:
        runs: in the order of the plan; ensemble: the part's identifier.
        resume: whether a directory may hold its run already.
        threads: to compute with.

    Raises:
        RunError: a directory holds something else, is damaged, or another process writes there.
    """
    directories = [run.directory for run in runs if run.directory is not None]
    with as_planned(device, threads), contextlib.ExitStack() as locks:
        for run in runs:
            if run.directory is not None:
                run.directory.check(run.spec, resume)
                locks.enter_context(run.directory.lock())
        in_directories = len(directories) == len(runs)
        if in_directories and all(
            os.path.lexists(directory.config_file) for directory in directories
        ):
            # of the configurations they were begun with, which may lack settings added since
            ensemble = identifier([directory.asked_for() for directory in directories])
        state = _restore(runs, directories, ensemble, resume) if in_directories else None
        known = state["runs"] if state else [directory.status() for directory in directories]
        left = [run for run in runs if run.status not in DONE]
        commit = _committer(runs, directories, ensemble, threads) if in_directories else None
        trained = Ensemble(left, device, progress, state, commit) if left else None
        if in_directories:
            _open(runs, directories, ensemble, known)
        if trained is not None:
            try:
                trained.train()
            except MechintError:
                for directory, before in zip(directories, known, strict=False):
                    if trained.step == 0 and before is None:  # refused before the first step
                        directory.withdraw()
                raise
        elif state is not None:  # a kill came between the last commit and what follows it
            _publish(runs, directories)


def _restore(
    runs: Sequence[Run], directories: Sequence[RunDirectory], ensemble: str, resume: bool
) -> State | None:
    """Take the runs to where their ensemble's saved state has them, which is returned; where there
    is none, runs that are done stay, and the others are at the start.
    """
    there = [
        directory.check(run.spec, resume) for run, directory in zip(runs, directories, strict=True)
    ]
    file = directories[0].state_file
    if os.path.lexists(file):
        state = read_state(file)
        if state["ensemble"] != ensemble or len(state["runs"]) != len(runs):
            raise _apart(file, len(state["runs"]), directories[0].path)
        for run, known in zip(runs, state["runs"], strict=True):
            run.take(known, file)
        return state | {"file": file}
    for run, directory, known in zip(runs, directories, there, strict=True):
        if known:
            _refuse_member_of_another(directory, ensemble)
            run.load()
        if run.status not in DONE or (run.status != "failed" and directory.lacks_weights()):
            directory.status_file.unlink(missing_ok=True)
            run.take(None)
    return None


def _refuse_member_of_another(directory: RunDirectory, ensemble: str) -> None:
    """RunError where a run goes on with an ensemble that it would be torn out of."""
    other = (read_manifest(directory.manifest_file) or {}).get("ensemble")
    if not isinstance(other, dict) or other.get("id") == ensemble:
        return
    file = Path(os.path.normpath(directory.path / str(other.get("state"))))
    if directory.status() is None and file.name == "state.pt" and file.is_file():
        raise _apart(file, other.get("models"), directory.path)


def _apart(file: Path, models: Any, path: Path) -> RunError:
    return RunError(
        f"{path}: stopped as one of {models} runs that train together; resume all of them with the "
        f"command that began them, or delete {file} to begin anew"
    )


def _open(
    runs: Sequence[Run], directories: Sequence[RunDirectory], ensemble: str, known: Sequence[Any]
) -> None:
    """Make the directories say which runs they hold, and hold no more than their state knows."""
    state_file, changed = directories[0].state_file, dict[str, Path]()
    for run, directory, before in zip(runs, directories, known, strict=True):
        place = os.path.relpath(state_file.absolute(), directory.path.absolute())
        member = {"id": ensemble, "models": len(runs), "state": place}
        goes_on = run.status not in DONE
        for name in directory.open(run.spec, member, before, goes_on):
            changed.setdefault(name, directory.path)
    if changed:
        warnings.warn(
            f"{next(iter(changed.values()))}: goes on with other {', '.join(changed)} than before "
            "(manifest.json says which), so its bits may differ from those of the plan",
            stacklevel=4,
        )


def _committer(
    runs: Sequence[Run], directories: Sequence[RunDirectory], ensemble: str, threads: int
) -> Callable[[State], None]:
    """The function that makes the ensemble's tensors, and where its runs stand, its saved state."""

    def commit(tensors: State) -> None:
        for directory in directories:
            directory.check_held()
        known = [run.known() for run in runs]
        state = {"ensemble": ensemble, "threads": threads, "runs": known, **tensors}
        write_state(directories[0].state_file, state)
        _publish(runs, directories)

    return commit


def _publish(runs: Sequence[Run], directories: Sequence[RunDirectory]) -> None:
    """Write the status of runs that are done; drop the state once all are."""
    for run, directory in zip(runs, directories, strict=True):
        if run.status in DONE:
            directory.keep_status(run.known())
    if all(run.status in DONE for run in runs):
        directories[0].state_file.unlink(missing_ok=True)
