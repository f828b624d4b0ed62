"""Settings of every test: one thread per worker, no deadline, and shapes checked at run time.

Where functions have jaxtyping's shapes in their signatures, every call is held to them in the
tests, and only there: a tensor of another shape or type is an error.
"""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # several processes share the cores

import jaxtyping
import pytest
import torch
from hypothesis import settings

from tests import shapes

sys.modules["mechint_shapes"] = shapes  # pytest's import mode leaves `tests` without attributes
# jaxtyping's own decorator wraps every function, whether it has shapes or not: a task that is plain
# Python took five times as long
jaxtyping.jaxtyped = lambda typechecker: typechecker  # pyright: ignore
jaxtyping.install_import_hook(["mechint"], "mechint_shapes.check_shapes")

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it

PUBLISHED = "MECHINT_PUBLISHED names no folder of published checkpoints"

settings.register_profile("mechint", deadline=None, max_examples=30)
settings.load_profile("mechint")


@pytest.fixture
def published() -> Path:
    """The folder of published checkpoints, where the environment names one."""
    if "MECHINT_PUBLISHED" not in os.environ:
        pytest.skip(PUBLISHED)
    return Path(os.environ["MECHINT_PUBLISHED"])


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how many tests ran without a published file, in a line of their own."""
    skipped = terminalreporter.stats.get("skipped", [])
    without = sum(PUBLISHED in str(getattr(report, "longrepr", "")) for report in skipped)
    if without:
        terminalreporter.write_line(
            f"{without} tests of published models were skipped, since {PUBLISHED}; plants in the "
            "same formats ran"
        )


@pytest.fixture(params=[1, 2, 3])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """The threads of PyTorch: 1, 2 and 3."""
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)
