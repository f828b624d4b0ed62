"""One part of a plan: its directories locked and opened, its ensembles trained."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import torch

from mechint.errors import MechintError
from mechint.training.graphs import current
from mechint.training.resume import open_runs
from mechint.training.run import Run
from mechint.training.schedule import Progress
from mechint.training.trainer import Ensemble


@contextlib.contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Compute with `count` threads while the block runs: how many there are decides the order of
    sums, so the plan says it, not the machine.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
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
    with on_threads(threads), current(device), contextlib.ExitStack() as locks:
        for run in runs:
            if run.directory is not None:
                run.directory.check(run.spec.to_dict(), resume)
                locks.enter_context(run.directory.lock())
        for group in open_runs(runs, ensemble, resume):
            try:
                Ensemble(group.runs, group.states, device, progress, group.ensemble).train()
            except MechintError:
                for run in group.runs:
                    if run.directory is not None:
                        run.directory.withdraw()
                raise
            if any(run.status == "interrupted" for run in group.runs):
                return
