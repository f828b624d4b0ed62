"""Makes ``curves.json`` and ``probes.json``, the recorded behavior that test_golden.py guards.

    OMP_NUM_THREADS=1 python -m tests.golden.make             # both files
    OMP_NUM_THREADS=1 python -m tests.golden.make curves      # or one of them
    OMP_NUM_THREADS=1 python -m tests.golden.make "circuits on planted induction"  # or one probe

Run it only when behavior is meant to change, and say in the commit what changed and why. A refactor
must pass against the files as they are, in which a metric that is renamed on purpose is renamed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mechint.system.jsonable import to_jsonable
from tests.golden import cases

HERE = Path(__file__).parent


def curves() -> dict[str, Any]:
    """Run → seed → its evaluations."""
    return {name: to_jsonable(cases.curves(name)) for name in cases.RUNS}


def measurement(name: str) -> dict[str, Any]:
    """Verdict, metrics and nulls of one measurement."""
    metrics, nulls, verdict = cases.measure(name)
    return {"verdict": verdict, "metrics": to_jsonable(metrics), "nulls": to_jsonable(nulls)}


def probes() -> dict[str, Any]:
    """Measurement → metrics and nulls."""
    return {name: measurement(name) for name in cases.MEASUREMENTS}


def dump(value: Any, indent: int = 0) -> str:
    """JSON with a line for everything that fits in one, floats with all their digits."""
    line = json.dumps(value, ensure_ascii=False)
    if len(line) + indent <= 100 or not isinstance(value, dict | list):
        return line
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        key_text = [json.dumps(key, ensure_ascii=False) + ": " for key in value]
        items = zip(key_text, value.values(), strict=True)
        parts = [pad + key + dump(item, indent + 1) for key, item in items]
        return "{\n" + ",\n".join(parts) + "\n" + " " * indent + "}"
    parts = [pad + dump(item, indent + 1) for item in value]
    return "[\n" + ",\n".join(parts) + "\n" + " " * indent + "]"


def main(names: list[str]) -> None:
    makers = {"curves": curves, "probes": probes}
    for name in names or makers:
        if name in makers:
            file, made = HERE / f"{name}.json", makers[name]()
        else:
            file = HERE / "probes.json"
            made = {**json.loads(file.read_text(encoding="utf-8")), name: measurement(name)}
        file.write_text(dump(made) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
