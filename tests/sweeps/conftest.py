"""What the tests of sweeps share: the settings of tiny runs, and every file of a sweep."""

from __future__ import annotations

from pathlib import Path

SMALL = (
    "p=5",
    "d_model=8",
    "n_heads=1",
    "d_mlp=8",
    "steps=4",
    "evaluate_every=2",
    "checkpoints=none",
)
TASK = "modular-arithmetic"


def trained_files(out: Path) -> dict[str, bytes]:
    """Weights, states and metrics of every run of a sweep, by path."""
    names = ("ckpt.pt", "metrics.jsonl", "state.pt")
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in out.rglob("*")
        if path.name in names
    }
