"""The saved state of an ensemble: one file, so that one rename commits all of its models.

It lies in the directory of the ensemble's first run for as long as any of its runs trains. A file
that is damaged is refused in one line.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from mechint.checkpoints.content import check_file
from mechint.errors import CheckpointError, RunError, first_line
from mechint.system.files import write_bytes

State = dict[str, Any]
"""The saved state of an ensemble of n runs, of which m still train.

ensemble: its identifier; runs: n mappings of status, step, error, metrics_bytes and metrics_sha256
(of metrics.jsonl up to there); step, threads, device ("cpu" or "cuda"); values (m, parameter);
optimizer: name → (m, …); generators: m states of random generators; stale_evaluations: m numbers;
file: where it was read from, of one that was.
"""

_KINDS = {
    "ensemble": str,
    "runs": list,
    "step": int,
    "threads": int,
    "device": str,
    "values": torch.Tensor,
    "optimizer": dict,
    "generators": list,
    "stale_evaluations": list,
}
_RUN_KINDS = {"status": str, "step": int, "error": str, "metrics_bytes": int, "metrics_sha256": str}
REMEDY = "delete it and --resume starts its runs anew"


def write_state(file: Path, state: State) -> None:
    """Make `state` the saved state, durably."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_bytes(file, buffer.getvalue(), within=file.parent)


def read_state(file: Path) -> State:
    """The state in `file`, whole and of the right types; RunError where it is not."""
    if not file.is_file():
        raise RunError(f"{file}: it is not a regular file, expected a saved state; {REMEDY}")
    try:
        check_file(file)  # sizes, checksums and opcodes, past which torch reads
        state = torch.load(file, weights_only=True)
    except CheckpointError as error:
        said = str(error).removeprefix(f"{file}: ")
        raise RunError(f"{file}: damaged ({said}); {REMEDY}") from error
    except pickle.UnpicklingError as error:
        raise RunError(
            f"{file}: refused: it is damaged, or would run pickled code; {REMEDY}"
        ) from error
    except Exception as error:  # torch and pickle raise nearly anything on a damaged file
        raise RunError(f"{file}: damaged ({first_line(error, 120)}); {REMEDY}") from error
    wrong = "state" if not isinstance(state, dict) else _wrong(state, _KINDS)
    if wrong is None:
        wrong = next(filter(None, (_wrong(run, _RUN_KINDS) for run in state["runs"])), None)
    if wrong is not None:
        raise RunError(f"{file}: damaged: {wrong} is missing or of a wrong type; {REMEDY}")
    return state


def check_known(known: Any, file: Path) -> Mapping[str, Any]:
    """`known`, the status of one run that `file` holds; RunError where it is none."""
    wrong = _wrong(known, _RUN_KINDS)
    if wrong is not None:
        raise RunError(f"{file}: damaged: {wrong} is missing or of a wrong type; {REMEDY}")
    return known


def _wrong(values: Any, kinds: Mapping[str, type]) -> str | None:
    """The first name that `values` lacks, or has with another type; None where all is right."""
    if not isinstance(values, dict):
        return "status"
    return next((name for name in kinds if not isinstance(values.get(name), kinds[name])), None)
