"""Views of a value in notebooks: the terminal's text, short texts and plain tables."""

from __future__ import annotations

import html
import io
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechint.system.jsonable import to_jsonable

if TYPE_CHECKING:
    from rich.text import Text


class Shown(ABC):
    """Base of results that print as the terminal shows them; a notebook adds its styles."""

    @abstractmethod
    def text(self, width: int = 100) -> Text:
        """The result as the terminal shows it in `width` columns."""

    def __str__(self) -> str:
        return self.text().plain

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from rich.console import Console

        console = Console(record=True, file=io.StringIO(), force_terminal=True, highlight=False)
        console.print(self.text(), soft_wrap=True)
        return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")


def as_html(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table for a notebook; values as `short` has them.

    >>> as_html(["a<b"], [[0.123456789]])
    '<table><thead><tr><th>a&lt;b</th></tr></thead><tbody><tr><td>0.1235</td></tr></tbody></table>'
    """
    names = "".join(f"<th>{html.escape(name)}</th>" for name in head)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_shown(cell))}</td>' for cell in row)}</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def _shown(cell: Any) -> str:
    return cell if isinstance(cell, str) else short(cell)


def short(value: Any, limit: int = 120) -> str:
    """A value for people: numbers to four digits, at most `limit` characters.

    >>> short({"a": 0.123456789, "b": [1, 2.0]})
    'a: 0.1235, b: [1, 2]'
    """
    value = to_jsonable(value)
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(value)
    if isinstance(value, dict):
        text = ", ".join(f"{name}: {short(item)}" for name, item in value.items())
    if isinstance(value, list):
        text = "[" + ", ".join(short(item) for item in value) + "]"
    return text if len(text) <= limit else text[: limit - 1] + "…"
