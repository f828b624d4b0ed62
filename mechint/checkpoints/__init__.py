"""Opening checkpoints: mechint's own and those that other projects trained.

    checkpoint = load_checkpoint("model.pt", task="modular-arithmetic", parameters={"p": 113})
    subject = checkpoint.subject()

`mechint.checkpoints.reader` documents how a reader for another format is written. The names load
when they are first used: training writes checkpoints and opens none.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mechint.checkpoints.checkpoint import Checkpoint
    from mechint.checkpoints.open import load, load_checkpoint
    from mechint.checkpoints.reader import Assumption, ParsedCheckpoint, SafeTensors, SplitRule
    from mechint.checkpoints.save import save_checkpoint

__all__ = [
    "Assumption",
    "Checkpoint",
    "ParsedCheckpoint",
    "SafeTensors",
    "SplitRule",
    "load",
    "load_checkpoint",
    "save_checkpoint",
]

_MODULES = {
    "Checkpoint": "checkpoint",
    "load": "open",
    "load_checkpoint": "open",
    "Assumption": "reader",
    "ParsedCheckpoint": "reader",
    "SafeTensors": "reader",
    "save_checkpoint": "save",
    "SplitRule": "reader",
}
"""Name → the module that has it."""


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
