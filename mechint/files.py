"""Writing files so that a reader sees the old content or the new, never half of it.

A file is written beside its place, flushed to the disk and renamed over it. What the operating
system refuses becomes a RunError of one line. A place that is no regular file (a pipe,
``/dev/null``) is written to as it stands.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from mechint.errors import RunError

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space or choose another place",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another place",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EEXIST: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory, expected a file",
    errno.ENAMETOOLONG: "the name is too long",
}


def write_error(path: str | Path, error: OSError) -> RunError:
    """The RunError that says why `path` cannot be written.

    >>> print(write_error("out.html", OSError(28, "No space left on device")))
    out.html: cannot be written: the disk is full; free some space or choose another place
    """
    return RunError(
        f"{path}: cannot be written: {_REASONS.get(error.errno or 0) or error.strerror or error}"
    )


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes the place of `path` when the
    block ends well.

    Directories on the way are made. After an error the temporary file is gone and `path` is as it
    was.

    Raises:
        RunError: `path` is a directory, cannot be written, or the disk is full.
    """
    path = Path(path)
    beside: Path | None = None
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if path.exists() and not path.is_file():
            yield path
            return
        place = path.resolve()  # a link stays a link, its target is replaced
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name[:200]}.{os.getpid()}.part")
        yield beside
        _flush(beside)
        beside.replace(place)
        _flush(place.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if beside is not None:
            beside.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Wait until the disk has the file, or the names in the directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(path: str | Path, data: bytes) -> None:
    """Make `data` the content of `path`; RunError if it cannot be."""
    with replacing(path) as beside:
        beside.write_bytes(data)


def write_text(path: str | Path, text: str) -> None:
    """Make `text`, in UTF-8, the content of `path`; RunError if it cannot be."""
    write_bytes(path, text.encode())


def make_directory(path: str | Path) -> Path:
    """The directory `path`, made if it is not there; RunError if it cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise RunError(f"{path}: it is a file, expected a directory") from error
    except OSError as error:
        raise write_error(path, error) from error
    return Path(path)
