"""The studies at the paper's own size, each for what a part's time allows; on the same machine they
go on with the next call, since runs/ is kept there.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

from benchmarks.on_gpu.checks import Row, guarded, unmeasured
from benchmarks.on_gpu.needs import DRAWING, missing
from mechint.studies import reproduce

SHARE = 5 / 6
"""Of a part's seconds for training; measuring takes the rest."""

QUICK_SECONDS = 20.0


def rows(study: str, device: str, quick: bool, seconds: float) -> Iterator[Row]:
    """One row: the verdicts so far, and how many runs wait. A quick look takes size smoke."""
    budget = QUICK_SECONDS if quick else SHARE * seconds
    size = "smoke" if quick else "full"
    name = f"study {study}, size {size}"
    yield guarded(name, functools.partial(_row, name, study, size, device, budget))


def smoke(studies: Sequence[str], device: str, quick: bool, seconds: float) -> Iterator[Row]:
    """A row a study at size smoke, which trains every arm of it a little."""
    budget = QUICK_SECONDS if quick else SHARE * seconds / len(studies)
    for study in studies:
        name = f"study {study}, size smoke"
        yield guarded(name, functools.partial(_row, name, study, "smoke", device, budget))


def _row(name: str, study: str, size: str, device: str, budget: float) -> Row:
    if absent := missing(DRAWING):
        return unmeasured(name, f"not installed here: {', '.join(absent)}")
    done = reproduce(study, size, device=device, budget=budget)
    verdicts = Counter(claim.verdict for claim in done.claims)
    return {
        "name": name,
        "value": done.waiting,
        "limit": None,
        "unit": "runs to be trained",
        "holds": None if done.waiting else True,
        "note": "; ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
    }
