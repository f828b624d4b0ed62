"""One writer per directory: a lock that dies with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from mechint.errors import RunError
from mechint.system.files import make_directory, read_bytes, regular_file, write_error

PATIENCE = 0.2
"""Seconds that a writer waits for a lock, since `is_locked` holds it for a moment."""

MAX_LOCK = 4096
"""Bytes of a lock file, which says what holds it."""


class BusyError(RunError):
    """Another process is writing where this one would."""


def is_locked(directory: str | Path) -> bool:
    """Return whether a process holds the lock of `directory`; nothing is made or written there."""
    path = Path(directory) / ".lock"
    try:
        if not path.is_file():
            return False
        with FileLock(path, timeout=0):
            return False
    except Timeout:
        return True
    except (OSError, NotImplementedError):  # not ours to open, or no locks are kept there
        return False


@contextlib.contextmanager
def locked(directory: str | Path, *, wait: bool = False) -> Iterator[Callable[[], None]]:
    """Be the one writer of `directory` (which is made) while the block runs; with `wait` as soon as
    another one has ended.

    Yields a function to be called before each write of a long block: it raises a RunError where the
    directory is no longer the one that was locked, because somebody moved, removed or replaced it.

    Raises:
        BusyError: another process holds it; the message names that process.
    """
    path = make_directory(directory) / ".lock"
    if os.path.lexists(path):  # which asks a link where it leads
        regular_file(path)
    lock = FileLock(path, timeout=-1 if wait else PATIENCE, thread_local=False)
    try:
        lock.acquire(poll_interval=0.01)
    except Timeout as error:
        holder = "another process"
        with contextlib.suppress(RunError):
            holder = read_bytes(path, MAX_LOCK).decode(errors="replace")[:200].strip() or holder
        raise BusyError(
            f"{directory}: {holder} is writing there; wait until it has ended, or choose another "
            "directory"
        ) from error
    except OSError as error:
        raise write_error(path, error) from error
    try:
        held = path.stat()
        with contextlib.suppress(OSError):  # on a full disk the others are not told who it is
            path.write_text(f"process {os.getpid()} on {platform.node()}")

        def check_held() -> None:
            with contextlib.suppress(OSError):
                if os.path.samestat(held, path.stat()):
                    return
            raise RunError(
                f"{directory}: was moved, removed or replaced while this process wrote there; what "
                "it had saved is where the directory is now"
            )

        yield check_held
    finally:
        lock.release()
