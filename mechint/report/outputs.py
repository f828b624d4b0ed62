"""Places that a page may be written to: one that takes a file, and not over what another wrote."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from mechint.errors import RunError
from mechint.system.files import write_error

MARK = b'<meta name="generator" content="mechint">'
"""Stands in the head of every page of ours."""


def check_writable(
    path: str | Path,
    *,
    force: bool = False,
    mark: bytes = MARK,
    kind: str = "a page of mechint's",
) -> None:
    """Find out now whether `path` will take a page, before hours of work; leaves nothing behind.

    Args:
        force: a file that is not a page of mechint's may be replaced; mark, kind: of
            `refuse_foreign`.

    Raises:
        RunError: it is a directory, it or its directory cannot be written, or it is a file that
            mechint did not write.
    """
    path = Path(path)
    if path.is_dir():
        raise RunError(f"{path}: cannot be written: it is a directory, expected a file")
    try:
        parent = path.resolve().parent
        while not parent.exists():
            parent = parent.parent
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(13, "permission denied")
        if not path.exists() or path.is_file():
            with tempfile.TemporaryFile(dir=parent):
                pass
        refuse_foreign(path, force=force, mark=mark, kind=kind)
    except RuntimeError as error:  # a circle of links
        raise RunError(f"{path}: cannot be written: {error}") from error
    except OSError as error:
        raise write_error(path, error) from error


def refuse_foreign(
    path: Path, *, force: bool = False, mark: bytes = MARK, kind: str = "a page of mechint's"
) -> None:
    """Raise RunError where `path` is a file without `mark` in its first bytes, which all files of
    that kind have: by default, one that is not a page of mechint's.
    """
    if force or not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        head = file.read(4096)
    if mark not in head:
        raise RunError(
            f"{path}: is not {kind} and would be lost; choose another name, or replace it with "
            "--force"
        )
