"""Numbers that numpy pickled among a file's plain values, read as Python's.

The configuration of a TransformerLens model keeps one (`initializer_range`), a training script's
losses are often nothing else. Nothing of numpy runs: what stands here takes the place of
``numpy.dtype`` and of numpy's ``scalar`` under exactly these names, knows the real number types
alone, and reads the few bytes itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any

import torch

LETTERS: Mapping[str, str] = {
    **{"f2": "e", "f4": "f", "f8": "d", "b1": "?"},
    **{"i1": "b", "i2": "h", "i4": "i", "i8": "q"},
    **{"u1": "B", "u2": "H", "u4": "I", "u8": "Q"},
}
"""numpy's name of a number type → `struct`'s."""


class NumberType:
    """In place of ``numpy.dtype``: a type of `LETTERS` and its byte order.

    Raises:
        ValueError: any other type; one of objects would hold more than a number.
    """

    __slots__ = ("letter", "order")

    def __init__(self, name: Any, *flags: Any) -> None:
        if not isinstance(name, str) or name not in LETTERS or len(flags) > 2:
            raise ValueError(f"holds a numpy value of type {name!r}, expected a number")
        self.letter, self.order = LETTERS[name], "<"

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        if order not in ("<", ">", "|"):
            raise ValueError("the byte order of a numpy number is unknown")
        self.order = "<" if order == "|" else order  # a single byte has none


def number(kind: Any, raw: Any) -> int | float | bool:
    """In place of numpy's ``scalar``: the number that the bytes `raw` are.

    Raises:
        ValueError: no type of number, or bytes that are not one number of it.

    Example:
        >>> number(NumberType("f4"), b"\\x00\\x00\\x80?")
        1.0
    """
    if not isinstance(kind, NumberType) or not isinstance(raw, bytes):
        raise ValueError("a numpy number is kept in an unknown way")
    if len(raw) != struct.calcsize(kind.order + kind.letter):
        raise ValueError(f"a numpy number has {len(raw)} bytes")
    return struct.unpack(kind.order + kind.letter, raw)[0]


STAND_INS: Mapping[str, Callable[..., Any]] = {
    "numpy.dtype": NumberType,
    "numpy.core.multiarray.scalar": number,  # before numpy 2
    "numpy._core.multiarray.scalar": number,
}
"""Name in the pickle → what is called in its place."""


def stand_ins() -> list[Any]:
    """What `torch.serialization.safe_globals` takes for `STAND_INS`; nothing where this process
    already lets numpy's own through, since the two do not mix.
    """
    known = [
        item[1] if isinstance(item, tuple) else getattr(item, "__module__", "")
        for item in torch.serialization.get_safe_globals()
    ]
    if any(str(name).partition(".")[0] == "numpy" for name in known):
        return []
    return [(stand_in, name) for name, stand_in in STAND_INS.items()]
