"""Keep freed memory in the process, so that a forward does not fault its activations in anew.

glibc gives large blocks back to the kernel when they are freed; a step of a few milliseconds then
spends a tenth of its time on page faults, and the forwards of a small model's nulls a third.
Elsewhere than on glibc this does nothing.
"""

from __future__ import annotations

import ctypes
import platform

TRAINING, ANALYSIS = 1 << 30, 1 << 28
"""Bytes: what is kept of an ensemble's step, and of the forwards of a probe, whose models may fill
the machine.
"""

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)

_kept = 0


def keep_freed_memory(kept: int) -> bool:
    """Let malloc serve blocks up to `kept` bytes from memory it holds on to, or up to what was
    asked for earlier, where that is more; whether that was possible.
    """
    global _kept
    if kept <= _kept:
        return True
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    if not all([mallopt(MMAP_THRESHOLD, kept), mallopt(TRIM_THRESHOLD, kept)]):
        return False
    mallopt(TOP_PAD, 1 << 26)
    _kept = kept
    return True
