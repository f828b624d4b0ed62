"""One writer per directory: a lock that dies with the process that holds it."""

from __future__ import annotations

import contextlib
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from mechint.errors import RunError
from mechint.files import make_directory, write_error

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None


class BusyError(RunError):
    """Another process is writing where this one would."""


def clear_partial(directory: Path) -> None:
    """Remove what killed writers left half-written in `directory`; only its one writer may ask."""
    for left in directory.glob(".*.part"):
        with contextlib.suppress(OSError):
            left.unlink()


def is_locked(directory: str | Path) -> bool:
    """Whether a process holds the lock of `directory`; nothing is made or written there."""
    if fcntl is None:
        return False
    try:
        with (Path(directory) / ".lock").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # nobody ever wrote there, it is not ours to read, or no locks are kept there
        return False
    return False


@contextlib.contextmanager
def locked(directory: str | Path, *, wait: bool = False) -> Iterator[Callable[[], None]]:
    """Be the one writer of `directory` (which is made) while the block runs; with `wait` as soon as
    another one has ended.

    What it gives is to be called before each write of a long block: it raises a RunError where the
    directory is no longer the one that was locked, because somebody moved, removed or replaced it.

    The lock is `flock` on DIR/.lock, so it dies with its holder, however that ends. On NFS the
    kernel turns it into a lock on the server, which other machines see; where a file system keeps
    no locks, a warning says so and the block runs without one.

    Raises:
        BusyError: another process holds it; the message names that process.
    """
    directory = make_directory(directory)
    if fcntl is None:
        yield lambda: None
        return
    path = directory / ".lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise write_error(path, error) from error
    try:
        try:
            if not _take(descriptor, wait):
                holder = os.read(descriptor, 200).decode(errors="replace").strip()
                raise BusyError(
                    f"{directory}: {holder or 'another process'} is writing there; wait until it "
                    "has ended, or choose another directory"
                )
        except OSError as error:
            warnings.warn(
                f"{directory}: the file system keeps no locks ({error.strerror}); make sure that "
                "one process writes there",
                stacklevel=3,
            )
        with contextlib.suppress(OSError):  # on a full disk the others are not told who it is
            os.truncate(descriptor, 0)
            os.write(descriptor, f"process {os.getpid()} on {platform.node()}".encode())
        yield lambda: _check_held(directory, descriptor)
    finally:
        os.close(descriptor)


def _take(descriptor: int, wait: bool) -> bool:
    """Take the lock; False where another process has it. One that merely looks (`is_locked`) has it
    for a moment, shared, and is waited for.
    """
    assert fcntl is not None
    for _ in range(1000):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(1e-3)
    return False


def _check_held(directory: Path, descriptor: int) -> None:
    """RunError where DIR/.lock is not the file that `descriptor` has locked."""
    try:
        if os.path.samestat(os.fstat(descriptor), (directory / ".lock").stat()):
            return
    except OSError:  # it is not there any more
        pass
    raise RunError(
        f"{directory}: was moved, removed or replaced while this process wrote there; what it had "
        "committed is where the directory is now"
    )
