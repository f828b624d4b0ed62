"""Opening checkpoints: mechint's own and those that other projects trained.

    checkpoint = load_checkpoint("model.pt", task="modular-arithmetic", parameters={"p": 113})
    subject = checkpoint.subject()

`mechint.checkpoints.reader` documents how a reader for another format is written.
"""

from __future__ import annotations

from mechint.checkpoints._convert import convert
from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.open import load, load_checkpoint
from mechint.checkpoints.reader import Assumption, ParsedCheckpoint, SafeTensors
from mechint.checkpoints.save import save_checkpoint
from mechint.checkpoints.splits import SplitRule

__all__ = [
    "Assumption",
    "Checkpoint",
    "ParsedCheckpoint",
    "SafeTensors",
    "SplitRule",
    "convert",
    "load",
    "load_checkpoint",
    "save_checkpoint",
]
