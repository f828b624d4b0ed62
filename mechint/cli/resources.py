"""What memory, disk and time runs need, checked and said before they start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechint.cli.common import print_error
from mechint.durations import in_words
from mechint.errors import MechintError, counted

if TYPE_CHECKING:
    from mechint.training import Spec

ROUGH_RATE = 1.5e9
"""Bytes of a step (`mechint.training.estimate.model_bytes`) per second on one core, within a factor
of three: what decides whether it is worth timing a few steps.
"""

WORTH_TIMING = 30.0


def check_and_announce(
    specs: list[Spec],
    device: str,
    workers: int = 1,
    groups: Sequence[Sequence[int]] | None = None,
    *,
    advice: str = "take fewer --workers",
) -> None:
    """Refuse runs for which there is no memory or disk; say on stderr what memory, disk and time
    the others will take, before they take it.

    groups: places in `specs` that train together; the plan's own choice when None; advice: how
    fewer ensembles train side by side.

    Raises:
        MechintError: one model, or the ensembles that `workers` train side by side, need more
            memory than there is. RunError: the runs need more room on the disk than there is.
    """
    from mechint.models import find_device
    from mechint.training.estimate import (
        check_disk,
        check_fits,
        free_memory,
        model_bytes,
        parameter_count,
    )
    from mechint.training.plan import part_of, partition
    from mechint.training.timing import estimate_seconds

    target = find_device(device)
    free = free_memory(target)
    for spec in specs:
        check_fits(spec, free)
    disk = check_disk(specs)
    if groups is None:
        parts = partition(specs, target.type)
    else:
        parts = [part_of(specs, members) for members in groups]
    at_once = sorted((part.bytes * len(part.members) for part in parts), reverse=True)[:workers]
    if sum(at_once) > free:
        raise MechintError(
            f"training {counted(len(at_once), 'ensemble')} at once takes about "
            f"{sum(at_once) / 2**30:.3g} GiB of memory, and {free / 2**30:.3g} GiB are free; make "
            f"the models or their batches smaller, or {advice}"
        )
    rough = sum(model_bytes(specs[p.members[0]]) * len(p.members) for p in parts) / ROUGH_RATE
    rough *= max(spec.train.steps for spec in specs)
    several = (
        f"{len(specs)} models in {counted(len(parts), 'ensemble')} of " if len(specs) > 1 else ""
    )
    size = max(parameter_count(spec.model) for spec in specs)
    memory = max(sum(at_once) / 2**30, 0.01)
    text = f"{several}{size:,} parameters: about {memory:.2g} GiB of memory"
    text += f", {bytes_in_words(disk)} of disk" if disk else ""
    if rough > WORTH_TIMING:
        seconds = estimate_seconds(specs, target) / max(1, min(workers, len(parts)))
        text += f", about {in_words(seconds)} for the steps alone on idle cores"
    print_error(text)


def bytes_in_words(size: int) -> str:
    """Bytes in the unit that suits them.

    >>> bytes_in_words(20_000), bytes_in_words(35_400_000), bytes_in_words(12 * 10**9)
    ('0.02 MB', '35 MB', '12 GB')
    """
    unit, name = (10**9, "GB") if size >= 10**9 else (10**6, "MB")
    number = size / unit
    return f"{number:,.0f} {name}" if number >= 10 else f"{number:.2g} {name}"
