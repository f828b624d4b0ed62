"""mechint trains small transformers on tasks whose algorithm is known, and opens them up.

    import mechint, probes
    subject = mechint.load("ckpt.pt")
    result = probes.run("fourier", subject)

Public names load when they are first used; importing mechint imports no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from mechint.system.packages import BESIDE, find_beside

if TYPE_CHECKING:  # for editors; the names load by `__getattr__`
    from mechint.account import Account as Account
    from mechint.account.account import analyze as analyze
    from mechint.account.card import save_pretrained as save_pretrained
    from mechint.calibration import calibrate as calibrate
    from mechint.checkpoints import load as load
    from mechint.config import ModelConfig as ModelConfig
    from mechint.config import TrainConfig as TrainConfig
    from mechint.config import setting as setting
    from mechint.decide import Claim as Claim
    from mechint.errors import MechintError as MechintError
    from mechint.explanation import Audit as Audit
    from mechint.explanation import Explanation as Explanation
    from mechint.explanation import audit as audit
    from mechint.explanation import certify as certify
    from mechint.explanation import compare as compare
    from mechint.explanation import explain as explain
    from mechint.explanation import head as head
    from mechint.explanation import site as site
    from mechint.models.foreign.wrapped import wrap as wrap
    from mechint.models.transformer import HookedTransformer as HookedTransformer
    from mechint.planted.calibration import Calibration as Calibration
    from mechint.planted.calibration import Trial as Trial
    from mechint.probe import Need as Need
    from mechint.probe import Probe as Probe
    from mechint.probe import Report as Report
    from mechint.probe import untrained as untrained
    from mechint.probe.results import Effect as Effect
    from mechint.probe.results import Figure as Figure
    from mechint.probe.results import Finding as Finding
    from mechint.probe.results import Null as Null
    from mechint.probe.results import PaperClaim as PaperClaim
    from mechint.probe.results import ProbeResult as ProbeResult
    from mechint.probe.results import Table as Table
    from mechint.run_table import Runs as Runs
    from mechint.run_table import runs as runs
    from mechint.shipped import example as example
    from mechint.studies import Study as Study
    from mechint.studies import reproduce as reproduce
    from mechint.subject import Subject as Subject
    from mechint.task import IGNORE as IGNORE
    from mechint.task import Batch as Batch
    from mechint.task import Chance as Chance
    from mechint.task import Control as Control
    from mechint.task import FiniteTask as FiniteTask
    from mechint.task import GeneratedTask as GeneratedTask
    from mechint.task import Output as Output
    from mechint.task import Program as Program
    from mechint.task import Step as Step
    from mechint.task import Symmetry as Symmetry
    from mechint.task import Task as Task
    from mechint.task import Variable as Variable
    from mechint.task import Vocabulary as Vocabulary
    from mechint.training import Run as Run
    from mechint.training import train as train

__version__ = "0.2.0"

_MODULES = {
    "mechint.account": "Account",
    "mechint.account.account": "analyze",
    "mechint.account.card": "save_pretrained",
    "mechint.explanation": "audit certify compare explain head site Audit Explanation",
    "mechint.checkpoints": "load",
    "mechint.training": "train Run",
    "mechint.run_table": "runs Runs",
    "mechint.studies": "reproduce Study",
    "mechint.calibration": "calibrate",
    "mechint.shipped": "example",
    "mechint.subject": "Subject",
    "mechint.task": (
        "Task FiniteTask GeneratedTask IGNORE Batch Output Program Step Variable "
        "Vocabulary Symmetry Control Chance"
    ),
    "mechint.planted.calibration": "Calibration Trial",
    "mechint.probe": "Probe Need Report untrained",
    "mechint.config": "setting ModelConfig TrainConfig",
    "mechint.probe.results": "ProbeResult Finding Effect Null Table Figure PaperClaim",
    "mechint.decide": "Claim",
    "mechint.models.foreign.wrapped": "wrap",
    "mechint.models.transformer": "HookedTransformer",
    "mechint.errors": "MechintError",
}
_PUBLIC = {name: module for module, names in _MODULES.items() for name in names.split()}
"""Public name → the module that has it."""

__all__ = ["__version__", *_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in BESIDE:
        return importlib.import_module(f"mechint.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mechint' has no attribute {name!r}")
    return getattr(importlib.import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def _let_threads_rest() -> None:
    """Let a thread of torch without work look for more a thousand times, and then give its core to
    others: by default it looks for so long that two threads make a step ten times slower where
    another process is at work. Torch reads it when it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


_let_threads_rest()

find_beside()
