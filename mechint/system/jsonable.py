"""Values as JSON (tensors, arrays, tuples and numbers that are not finite), and for people: the
terminal's text, short texts and plain tables.
"""

# what a caller hands over is of any type
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import base64
import dataclasses
import html
import io
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Shaped

if TYPE_CHECKING:
    from rich.text import Text


def to_jsonable(value: Any) -> Any:
    """`value` as JSON values.

    Tensors, arrays, tuples and sets become lists, keys become text, and so does a number that is
    not finite ("nan", "inf", "-inf"). What JSON does not know becomes its text.

    >>> to_jsonable({1: (2.0, float("inf"))})
    {'1': [2.0, 'inf']}
    """
    if isinstance(value, Mapping):
        return {str(to_jsonable(key)): to_jsonable(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        return to_jsonable(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        return [to_jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number; a truth value, a text, NaN and ∞ are none.

    >>> [is_number(value) for value in (1, 0.5, True, float("nan"), float("inf"), "1", None)]
    [True, True, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def from_jsonable(kind: Any, value: Any) -> Any:
    """The value of type `kind` that JSON values stand for: a dataclass, a number, or mappings,
    sequences, tuples and unions of these.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: they stand for none.

    >>> from_jsonable(Mapping[str, tuple[float, ...]], {"a": [1, "inf"]})
    {'a': (1, inf)}
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints, made = _hints(kind), dict[str, Any]()
        for name, part in value.items():
            if not isinstance(getattr(kind, name, None), property):  # which is computed
                made[name] = from_jsonable(hints[name], part)
        return kind(**made)  # type: ignore[operator]
    if kind is float:  # a whole number stays one, to be written as it was read
        return value if is_number(value) else float(value)
    if origin in (typing.Union, types.UnionType):
        listed = isinstance(value, list)
        fitting = (one for one in inner if listed == (typing.get_origin(one) in (Sequence, tuple)))
        return None if value is None else from_jsonable(next(fitting), value)
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return tuple(from_jsonable(*pair) for pair in zip(kinds, value, strict=True))
    if origin is Mapping:
        return {key: from_jsonable(inner[1], part) for key, part in value.items()}
    if origin is Sequence and inner != (Any,):
        return [from_jsonable(inner[0], part) for part in value]
    return value


_hints = cache(typing.get_type_hints)


def encode_array(array: Shaped[np.ndarray, " ..."]) -> dict[str, Any]:
    """An array bit for bit, as its dtype, shape and base64 of its bytes in C order."""
    array = np.asarray(array)
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "base64": base64.b64encode(np.ascontiguousarray(array).tobytes()).decode(),
    }


def decode_array(data: Mapping[str, Any]) -> Shaped[np.ndarray, " ..."]:
    """The array that `encode_array` wrote.

    >>> decode_array(encode_array(np.arange(3)))
    array([0, 1, 2])
    """
    values = np.frombuffer(base64.b64decode(data["base64"]), dtype=np.dtype(data["dtype"]))
    return values.reshape(data["shape"]).copy()


# --- values for people ----------------------------------------------------------------------------
class Shown(ABC):
    """Base of dataclasses that print as the terminal shows them; a notebook adds its styles."""

    @abstractmethod
    def text(self, width: int = 100) -> Text:
        """The result as the terminal shows it in `width` columns."""

    def __str__(self) -> str:
        return self.text().plain

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return to_jsonable(dataclasses.asdict(self))  # type: ignore[call-overload]

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
