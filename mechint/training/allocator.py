"""Keep freed memory in the process, so that a training step does not fault its activations in anew.

glibc gives large blocks back to the kernel when they are freed; a step of a few milliseconds then
spends a tenth of its time on page faults. Elsewhere than on glibc this does nothing.
"""

from __future__ import annotations

import ctypes
import functools
import platform

TRIM_THRESHOLD, TOP_PAD, MMAP_THRESHOLD = -1, -2, -3  # of mallopt(3)


@functools.cache
def keep_freed_memory(kept: int = 1 << 30) -> bool:
    """Let malloc serve blocks up to `kept` bytes from memory it holds on to; whether that was
    possible.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(
        [mallopt(MMAP_THRESHOLD, kept), mallopt(TRIM_THRESHOLD, kept), mallopt(TOP_PAD, 1 << 26)]
    )
