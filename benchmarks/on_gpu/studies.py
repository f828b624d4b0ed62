"""The studies at the paper's own size, each for what a part's time allows; they go on next time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from benchmarks.on_gpu.checks import Row
from mechint.studies import reproduce

SECONDS = 400.0
"""Of training per call: with the measurements a part ends within eight minutes."""


def rows(study: str, device: str, quick: bool) -> Iterator[Row]:
    """One row: the verdicts so far, and how many runs wait. A quick look takes size smoke."""
    size = "smoke" if quick else "full"
    done = reproduce(study, size, device=device, budget=20.0 if quick else SECONDS)
    verdicts = Counter(claim.verdict for claim in done.claims)
    yield {
        "name": f"study {study}, size {size}",
        "value": done.waiting,
        "limit": None,
        "unit": "runs to be trained",
        "holds": None if done.waiting else True,
        "note": "; ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items())),
    }
