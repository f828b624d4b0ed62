"""Reading files within bounds, and writing them so that nobody ever sees half of one.

Reading: regular files alone (a pipe would hang), up to a size, nested up to a depth. Writing: a
file is written beside its place, flushed to the disk and renamed over it; a place that is not a
regular file (a pipe, ``/dev/null``) is written to as it stands.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import os
import secrets
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from mechint.errors import MechintError, RunError, spell

MAX_JSON = 64 << 20
"""Bytes of a JSON file that is read whole."""

MAX_YAML = 1 << 18
"""Bytes of a YAML configuration, which is read at some 200 kB per second."""

MAX_DEPTH = 64
"""Levels of lists and mappings within each other in a file from outside."""

MAX_VALUES = 2_000_000
"""Values in a file from outside, shared ones counted wherever they stand."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of a text that a spreadsheet runs."""

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


# --- reading --------------------------------------------------------------------------------------
def regular_file(path: str | Path, error: type[MechintError] = RunError) -> os.stat_result:
    """The system's record of the regular file `path`, links followed.

    Raises:
        error: there is no such file, it cannot be looked at, or it is a directory, a pipe or a
            device.
    """
    try:
        known = Path(path).stat()
    except FileNotFoundError as missing:
        raise error(f"{path}: there is no such file") from missing
    except (OSError, ValueError) as refused:
        raise error(f"{path}: cannot be read: {_reason(refused)}") from refused
    if not stat.S_ISREG(known.st_mode):
        kind = "a directory" if stat.S_ISDIR(known.st_mode) else "a pipe or a device"
        raise error(f"{path}: it is {kind}, expected a regular file")
    return known


def read_bytes(
    path: str | Path, limit: int = MAX_JSON, error: type[MechintError] = RunError
) -> bytes:
    """The content of the regular file `path`; `error` where it has more than `limit` bytes."""
    size = regular_file(path, error).st_size
    if size > limit:
        raise error(f"{path}: {size:,} bytes, expected at most {limit:,}")
    try:
        with Path(path).open("rb") as file:
            return file.read(limit)
    except OSError as refused:
        raise error(f"{path}: cannot be read: {_reason(refused)}") from refused


def digest_of(path: str | Path) -> str:
    """SHA-256 of the content of a regular file."""
    regular_file(path)
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: str | Path, error: type[MechintError] = RunError) -> Any:
    """The JSON in `path`, None where there is no such file; `error` where it is damaged."""
    if not os.path.exists(path):  # noqa: PTH110  # which raises for no path
        return None
    return parse_json(read_bytes(path, MAX_JSON, error), path, error)


def parse_json(data: bytes | str, path: str | Path, error: type[MechintError] = RunError) -> Any:
    """The JSON text `data` of `path` as values; `error` where it is damaged or nested too deep."""
    return _parsed(lambda: json.loads(data), path, "JSON", error)


def read_toml(path: str | Path, error: type[MechintError] = RunError) -> Any:
    """The TOML in `path` as values; `error` where it is damaged or nested too deep."""
    data = read_bytes(path, MAX_JSON, error)
    return _parsed(lambda: tomllib.loads(data.decode("utf-8")), path, "TOML", error)


def read_yaml(path: str | Path, error: type[MechintError] = RunError) -> Any:
    """The YAML in `path`, None where there is no such file; plain values alone."""
    if not Path(path).exists():
        return None
    import yaml

    data = read_bytes(path, MAX_YAML, error)
    return _parsed(lambda: yaml.safe_load(data), path, "YAML", error)


def _parsed(read: Callable[[], Any], path: str | Path, kind: str, error: type[MechintError]) -> Any:
    try:
        value = read()
    except RecursionError as damaged:
        raise error(f"{path}: cannot be read as {kind}: nested too deep") from damaged
    except Exception as damaged:  # YAML's constructors raise others than ValueError, too
        text = " ".join(str(damaged).split())[:160]
        raise error(f"{path}: cannot be read as {kind}: {text}") from damaged
    check_nesting(value, path, error)
    return value


def check_nesting(value: Any, path: str | Path, error: type[MechintError] = RunError) -> None:
    """`error` where lists and mappings in `value` nest deeper than `MAX_DEPTH`, contain themselves,
    or hold more than `MAX_VALUES` values.
    """
    budget, pending = MAX_VALUES, [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            raise error(f"{path}: lists and mappings nest deeper than {MAX_DEPTH} levels")
        if isinstance(item, dict):
            inner = [*item.keys(), *item.values()]
        elif isinstance(item, list | tuple | set | frozenset):
            inner = list(item)
        else:
            continue
        budget -= len(inner)
        if budget < 0:
            raise error(f"{path}: holds more than {MAX_VALUES:,} values")
        pending += [(part, depth + 1) for part in inner if isinstance(part, dict | list | tuple)]


def _reason(error: OSError | ValueError) -> str:
    number = error.errno if isinstance(error, OSError) else None
    return (
        _REASONS.get(number or 0) or (isinstance(error, OSError) and error.strerror) or f"{error}"
    )


# --- writing --------------------------------------------------------------------------------------
def write_error(path: str | Path, error: OSError) -> RunError:
    """The RunError that says why `path` cannot be written.

    >>> print(write_error("out.html", OSError(28, "No space left on device")))
    out.html: cannot be written: the disk is full; free some space or choose another place
    """
    return RunError(f"{path}: cannot be written: {_reason(error)}")


@contextlib.contextmanager
def replacing(
    path: str | Path, durable: bool = True, *, within: Path | None = None
) -> Iterator[Path]:
    """A temporary path beside `path`; what is written there takes the place of `path` when the
    block ends well.

    Args:
        durable: wait until the disk has it, so that it survives a loss of power too.
        within: a directory that others may have made, out of which no link may lead: links below
            it are refused, where elsewhere the target of a link is written.

    Makes directories on the way. After an error the temporary file is gone, `path` is as it was.
    The file keeps the permissions of the one that it replaces.

    Raises:
        RunError: `path` is a directory, cannot be written, or the disk is full.
    """
    path = Path(path)
    beside: Path | None = None
    if within is not None:
        refuse_links(path, within)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "is a directory")
        if path.exists() and not path.is_file():
            yield path
            return
        place = path.resolve()  # a link stays a link, its target is replaced
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name[:50]}.{secrets.token_hex(6)}.part")  # <= 219 bytes
        yield beside
        with contextlib.suppress(FileNotFoundError):
            beside.chmod(stat.S_IMODE(place.stat().st_mode))
        if durable:
            _flush(beside)
        beside.replace(place)
        if durable:
            _flush(place.parent)
    except OSError as error:
        raise write_error(path, error) from error
    finally:
        if beside is not None:
            with contextlib.suppress(OSError):  # of a file system that is read-only
                beside.unlink()


def refuse_links(path: Path, within: Path) -> None:
    """RunError where `path`, or a directory between it and `within`, is a symbolic link."""
    for part in (path, *path.parents):
        if part == within:
            return
        if part.is_symlink():
            raise RunError(f"{part}: is a link; expected a file or directory of the run's own")


def clear_partial(directory: Path) -> None:
    """Remove files that killed writers left half-written in `directory`; for its one writer."""
    for left in directory.glob(".*.part"):
        with contextlib.suppress(OSError):
            left.unlink()


def _flush(path: Path) -> None:
    """Wait until the disk has the file, or the names in the directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_bytes(
    path: str | Path, data: bytes, durable: bool = True, *, within: Path | None = None
) -> None:
    """Make `data` the content of `path`, as `replacing` does; RunError if it cannot be."""
    with replacing(path, durable, within=within) as beside:
        beside.write_bytes(data)


def write_text(path: str | Path, text: str, *, within: Path | None = None) -> None:
    """Make `text`, in UTF-8, the content of `path`, as `replacing` does; RunError if it cannot
    be.
    """
    write_bytes(path, text.encode(errors="backslashreplace"), within=within)


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as CSV with a column for each of their names, lists and mappings as JSON text.

    A text that a spreadsheet would run as a formula begins with an apostrophe.

    >>> print(csv_text([{"name": "=cmd()", "size": 2}, {"name": "b", "all": [1]}]))
    name,size,all
    '=cmd(),2,
    b,,[1]
    <BLANKLINE>
    """
    names, text = list(dict.fromkeys(name for row in rows for name in row)), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, names))
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value)
    if isinstance(value, str):
        return f"'{spell(value)}" if value.startswith(FORMULA) else spell(value)
    return value


def make_directory(path: str | Path) -> Path:
    """The directory `path`, made if it is not there; RunError if it cannot be."""
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise RunError(f"{path}: it is a file, expected a directory") from error
    except OSError as error:
        raise write_error(path, error) from error
    return Path(path)


def read_json_lines(path: str | Path) -> list[dict[str, Any]]:
    """The objects of a file with one JSON value per line, such as metrics.jsonl.

    A line that is cut short or holds something else is left out; a file that is not there has none.
    """
    try:
        regular_file(path)
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except (MechintError, OSError):
        return []
    rows = []
    for line in lines:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict):
            rows.append(row)
    return rows
