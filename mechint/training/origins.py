"""Origin of numbers that are kept in a checkout: the command that made them, its commit, and a
digest of the sources that decide them, so that a table older than these can be named.

A page in Markdown holds its origins in a comment, a file of JSON under "origins".
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from mechint.errors import one_line
from mechint.system.files import write_text
from mechint.training.manifest import manifest

ROOT = Path(__file__).parents[2]
BY_HAND = "<!-- by hand: a command that writes this page leaves what follows -->\n"
COMMENT = re.compile(r"<!-- origins (\[.*?\]) -->")


@dataclass(frozen=True)
class Origin:
    """Origin of a table or of some rows of it.

    of: what it is the origin of, "" for the whole; command: what makes it again; commit: of the
    checkout that made it, "unknown" outside of one; sources: files and folders, from the root of
    the repository, that decide the numbers; digest: of their code then.
    """

    of: str
    command: str
    commit: str
    sources: tuple[str, ...]
    digest: str

    @classmethod
    def now(cls, command: str, sources: Sequence[str], of: str = "", root: Path = ROOT) -> Origin:
        """The origin of what `command` makes with the code of this checkout."""
        commit = str(manifest()["commit"] or "unknown")
        return cls(of, one_line(command, 200), commit, tuple(sources), digest_of(sources, root))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Origin:
        """The origin that `to_dict` wrote."""
        return cls(
            **{**{one.name: data[one.name] for one in fields(cls)}, "sources": (*data["sources"],)}
        )

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return {**vars(self), "sources": list(self.sources)}

    def is_older(self, root: Path = ROOT) -> bool:
        """True if code that decides the numbers has changed since they were made."""
        return digest_of(self.sources, root) != self.digest

    def __str__(self) -> str:
        about = f"{self.of}: " if self.of else ""
        return f"{about}`{self.command}` at {self.commit[:8]}"


def digest_of(sources: Sequence[str], root: Path = ROOT) -> str:
    """A digest of the code of `sources`; comments, docstrings, imports and places do not count."""
    codes = sorted(_code(file.read_text(encoding="utf-8")) for file in _files(sources, root))
    return hashlib.sha256("\n".join(codes).encode()).hexdigest()[:16]


def _files(sources: Iterable[str], root: Path) -> Iterator[Path]:
    for source in sources:
        place = root / source
        yield from sorted(place.rglob("*.py")) if place.is_dir() else [place] * place.is_file()


@functools.cache
def _code(text: str) -> str:
    """The code of a file without what decides no number."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [one for one in body if not _is_silent(one)]  # pyright: ignore[reportAttributeAccessIssue]
    return ast.dump(tree)


def _is_silent(node: ast.AST) -> bool:
    text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    return text or isinstance(node, ast.Import | ast.ImportFrom)


def comment(origins: Sequence[Origin]) -> str:
    """The line of a page that holds its origins.

    >>> page = "# Table\\n" + comment([Origin("das", "make it", "1234", ("a.py",), "5678")])
    >>> [one.of for one in origins_in(page)]
    ['das']
    """
    return f"<!-- origins {json.dumps([one.to_dict() for one in origins])} -->"


def origins_in(text: str) -> list[Origin]:
    """The origins that a page in Markdown or a file of JSON states."""
    if text.lstrip().startswith("{"):
        held = json.loads(text)
        found = held.get("origins") or (held.get("provenance") or {}).get("origins") or []
    else:
        found = [one for held in COMMENT.findall(text) for one in json.loads(held)]
    return [Origin.from_dict(one) for one in found]


def older(text: str, root: Path = ROOT) -> list[Origin]:
    """The origins in a page or file whose sources have changed since."""
    return [one for one in origins_in(text) if one.is_older(root)]


def keep_row(path: Path, row: dict[str, Any], origin: Origin) -> dict[str, Any]:
    """Write a row into a file of JSON that keeps the others, by what its origin is of."""
    kept: dict[str, Any] = {"origins": [], "rows": {}}
    if path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))
    others = [one for one in kept["origins"] if one["of"] != origin.of]
    kept = {"origins": [*others, origin.to_dict()], "rows": {**kept["rows"], origin.of: row}}
    write_text(path, json.dumps(kept, indent=1) + "\n")
    return kept


def write_page(path: Path, text: str) -> None:
    """Write a page that a command makes; what is written by hand on it, below `BY_HAND`, stays."""
    kept = path.read_text(encoding="utf-8") if path.is_file() else ""
    _, mark, words = kept.partition(BY_HAND)
    write_text(path, f"{text.rstrip()}\n\n{mark}{words}" if mark else text)


def sources_of_probe(name: str) -> tuple[str, ...]:
    """The sources that decide what a built-in probe finds: its own, and the rule of decision.

    >>> sources_of_probe("gradients")
    ('mechint/decide', 'probes/_gradients.py')
    """
    own = f"probes/_{name.replace('-', '_')}"
    return "mechint/decide", own if (ROOT / own).is_dir() else f"{own}.py"
