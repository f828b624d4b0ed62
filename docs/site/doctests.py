"""Doctests as blocks of code in the reference; without it Markdown takes ``>>>`` for quotes."""

from __future__ import annotations

import re
from typing import Any

import griffe

DOCTEST = re.compile(r"^>>> .*\n?(?:.+\n?)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fence the doctests of every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """`text` with each doctest, up to the next empty line, in a fence.

    >>> fenced("Sum.\\n\\n>>> 1 + 1\\n2\\n")
    'Sum.\\n\\n```pycon\\n>>> 1 + 1\\n2\\n```\\n'
    """
    return DOCTEST.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
