"""One part of a plan: its directories locked and opened, its ensembles trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from mechint.errors import MechintError
from mechint.models.untouched import plain_arithmetic
from mechint.training.resume import open_runs
from mechint.training.run import Run
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
    with as_planned(device, threads), contextlib.ExitStack() as locks:
        new = set[Path | None]()  # where no earlier call has written
        for run in runs:
            if run.directory is not None:
                run.directory.check(run.spec.to_dict(), resume)
                locks.enter_context(run.directory.lock())
                if not run.directory.check(run.spec.to_dict(), resume):
                    new.add(run.path)
        for group in open_runs(runs, ensemble, resume):
            trained = None
            try:
                trained = Ensemble(group.runs, group.states, device, progress, group.ensemble)
                trained.train()
            except MechintError:
                if trained is None or trained.step == 0:
                    for run in group.runs:
                        if run.directory is not None and run.path in new:
                            run.directory.withdraw()
                raise
            if any(run.status == "interrupted" for run in group.runs):
                return
