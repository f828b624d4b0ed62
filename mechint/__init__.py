"""mechint trains small transformers on tasks whose algorithm is known, and opens them up.

    import mechint, probes
    subject = mechint.load("ckpt.pt")
    result = probes.run("fourier", subject)

Public names load when they are first used; importing mechint imports no torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "load": "mechint.checkpoints",
    "load_checkpoint": "mechint.checkpoints",
    "Checkpoint": "mechint.checkpoints",
    "train": "mechint.training",
    "Run": "mechint.training",
    "runs": "mechint.run_table",
    "Runs": "mechint.run_table",
    "compare": "mechint.run_table",
    "Comparison": "mechint.run_table",
    "reproduce": "mechint.studies",
    "calibrate": "mechint.calibration",
    "Subject": "mechint.subject",
    "Task": "mechint.task",
    "FiniteTask": "mechint.task",
    "GeneratedTask": "mechint.task",
    "Batch": "mechint.task",
    "Output": "mechint.task",
    "Variable": "mechint.task",
    "Vocabulary": "mechint.task",
    "Symmetry": "mechint.task",
    "Control": "mechint.task",
    "Chance": "mechint.task",
    "Study": "mechint.studies",
    "Probe": "mechint.probe",
    "Need": "mechint.probe",
    "Report": "mechint.probe",
    "setting": "mechint.config",
    "ModelConfig": "mechint.config",
    "TrainConfig": "mechint.config",
    "ProbeResult": "mechint.results",
    "Finding": "mechint.results",
    "Null": "mechint.results",
    "Table": "mechint.results",
    "Figure": "mechint.results",
    "Claim": "mechint.results",
    "load_dictionary": "mechint.dictionaries",
    "export_activations": "mechint.dictionaries",
    "activation_batches": "mechint.dictionaries",
    "wrap": "mechint.models.wrapped",
    "HookedTransformer": "mechint.models.transformer",
    "MechintError": "mechint.errors",
}

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mechint' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _warn_where_hidden(names: tuple[str, ...] = ("tasks", "probes")) -> None:
    """Say so when another package of a name this common would be imported in place of ours; imports
    neither.
    """
    here = Path(__file__).resolve().parents[1]
    for name in names:
        spec = importlib.util.find_spec(name)
        found = Path(spec.origin).resolve() if spec is not None and spec.origin else None
        if found is not None and found != here / name / "__init__.py" and (here / name).is_dir():
            warnings.warn(
                (
                    f"package {name!r} is taken from {found}, which hides mechint's own in "
                    f"{here / name}; rename or remove one"
                ),
                stacklevel=3,
            )


_warn_where_hidden()
