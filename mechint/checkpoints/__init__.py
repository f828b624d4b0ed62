"""Opening checkpoints: mechint's own and those that other projects trained.

    checkpoint = load_checkpoint("model.pt", task="modular-arithmetic", parameters={"p": 113})
    subject = checkpoint.subject()

`mechint.checkpoints.found` documents how a reader for another format is written.
"""

from __future__ import annotations

from mechint.checkpoints.checkpoint import Checkpoint
from mechint.checkpoints.converting import convert
from mechint.checkpoints.found import Found, SafeTensors
from mechint.checkpoints.native import save_checkpoint
from mechint.checkpoints.opening import load, load_checkpoint

__all__ = ["Checkpoint", "Found", "SafeTensors", "convert", "load", "load_checkpoint", "save_checkpoint"]
