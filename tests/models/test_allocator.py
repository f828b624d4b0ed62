"""Freed memory stays in the process: asked for in a process of its own, whose page faults count."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
import torch
from mechint.models import allocator

torch.set_num_threads(1)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(8):
        torch.zeros(16 << 20).add_(1.0)  # 64 MB, given back each time
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(faults(), end=" ")
assert allocator.keep_freed_memory(allocator.ANALYSIS)
faults()
print(faults(), end=" ")
assert allocator.keep_freed_memory(1 << 20), "never less than was asked for"
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc")
def test_what_is_freed_is_not_faulted_in_anew() -> None:
    run = subprocess.run([sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True)
    before, kept, still = map(int, run.stdout.split())
    assert kept < before / 10 and still < before / 10
