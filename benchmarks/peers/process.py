"""A peer as a process of its own environment that answers one JSON line a request, so that it and
ours can take turns.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from mechint.errors import MechintError

VARIABLE = "MECHINT_BENCH_PEER_PYTHON"
ROOT = Path(__file__).parents[2]
OWN = ROOT / ".venv-peer" / "bin" / "python"  # what `make .venv-peer/.installed` makes
NONE = (
    "no peer: `make .venv-peer/.installed`, or let "
    f"{VARIABLE} name a Python with transformer-lens 3.9"
)


class Peer:
    """TransformerLens 3.9 in the environment of `python`; `versions` says which one answered."""

    def __init__(self, python: Path, threads: int) -> None:
        # -P: the folder of the script is not where its imports come from
        command = [str(python), "-P", str(Path(__file__).with_name("hooked_transformer.py"))]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )
        self.versions: dict[str, str] = self.ask(threads=threads)["versions"]

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to one request (see `hooked_transformer`)."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise MechintError(
                f"the peer {self.process.args!r} ended at {request}: what it wrote before says why"
            )
        return json.loads(line)

    def close(self) -> None:
        self.process.communicate()  # the end of its input ends it


def find_peer(threads: int) -> Peer | None:
    """The peer that the environment names, or that make made; None where there is none.

    Raises:
        MechintError: the environment names a Python that there is not.
    """
    named = os.environ.get(VARIABLE)
    if named and not Path(named).exists():
        raise MechintError(
            f"{VARIABLE}={named}: there is no such file; expected a Python with "
            "transformer-lens 3.9"
        )
    python = Path(named) if named else OWN
    return Peer(python, threads) if python.exists() else None
