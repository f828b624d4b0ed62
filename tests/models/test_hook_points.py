"""The hook points are TransformerLens's own, whichever is imported first."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SAME = """
import transformer_lens.hook_points
from transformer_lens import ActivationCache, HookedRootModule, patching
assert ours.HookedRootModule is HookedRootModule is transformer_lens.HookedRootModule
assert ours.HookPoint is transformer_lens.hook_points.HookPoint
assert transformer_lens.utilities.slice.Slice is transformer_lens.utilities.Slice
assert transformer_lens.utilities.get_act_name("pattern", 0) == "blocks.0.attn.hook_pattern"
assert transformer_lens.conversion_utils.TensorConversionSet
assert "ActivationCache" in dir(transformer_lens)
assert not hasattr(transformer_lens, "no_such_name")
assert transformer_lens.__spec__.name == "transformer_lens" and "pandas" in sys.modules
"""
OURS = """
import sys
import mechint.models.hook_points as ours
assert "pandas" not in sys.modules and "transformers" not in sys.modules
for module in list(sys.modules.values()):  # as inspection does
    getattr(module, "__wrapped__", None)
assert "pandas" not in sys.modules
"""
MODULE = """
from transformer_lens.config import TransformerBridgeConfig  # runs the package's own body first
assert type(sys.modules["transformer_lens"]) is type(sys)
import transformer_lens.utilities.hf_utils
assert type(sys.modules["transformer_lens.utilities"]) is type(sys)
"""
THEIRS = """
import sys
import transformer_lens
import mechint.models.hook_points as ours
"""


def error_of(script: str, folder: Path) -> str:
    """The error of a script in a process of its own; empty where it runs to its end."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=folder, check=False
    )
    return f"{done.returncode} {done.stderr}" if done.returncode else ""


@pytest.mark.full
@pytest.mark.parametrize(
    "first",
    [OURS, OURS + MODULE, THEIRS],
    ids=["ours first", "a module of it then", "TransformerLens first"],
)
def test_classes_are_those_of_transformer_lens(first: str, tmp_path: Path) -> None:
    assert error_of(first + SAME, tmp_path) == ""


@pytest.mark.parametrize(
    "needs",
    [
        "from transformer_lens.utilities import Slice, added_since",
        "from transformer_lens.moved import nothing_of_the_kind",
    ],
    ids=["another name", "another place"],
)
def test_another_version_is_imported_whole(needs: str, tmp_path: Path) -> None:
    """A package of the same name whose modules need other names of it; the second cannot be
    imported module by module.
    """
    package = tmp_path / "transformer_lens"
    for folder in ("", "utilities", "conversion_utils", "conversion_utils/conversion_steps"):
        (package / folder).mkdir(parents=True, exist_ok=True)
        (package / folder / "__init__.py").touch()
    (package / "__init__.py").write_text(
        "import sys, types\n"
        "moved = sys.modules['transformer_lens.moved'] = types.ModuleType('moved')\n"
        "moved.nothing_of_the_kind = None\n"
        "from .HookedRootModule import HookedRootModule\n"
    )
    (package / "utilities" / "__init__.py").write_text(
        "from .slice import Slice\nadded_since = True\n"
    )
    (package / "utilities" / "slice.py").write_text("class Slice: pass\n")
    (package / "hook_points.py").write_text("class HookPoint: pass\n")
    (package / "HookedRootModule.py").write_text(f"{needs}\nclass HookedRootModule: pass\n")
    script = f"""
import mechint.models.hook_points as ours
import transformer_lens.hook_points
from transformer_lens.utilities import added_since
assert transformer_lens.__file__.startswith({str(tmp_path)!r})
assert ours.HookedRootModule is transformer_lens.HookedRootModule
assert ours.HookPoint is transformer_lens.hook_points.HookPoint
"""
    assert error_of(script, tmp_path) == ""
