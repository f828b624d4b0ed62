"""Values as JSON: tensors, arrays, tuples and numbers that are not finite."""

# what a caller hands over is of any type
# pyright: reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped


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


def integer_keyed(value: Any) -> list[list[str]]:
    """The places in nested mappings at which all keys are integers, which JSON would write as text:
    the keys on the way to each such mapping.

    >>> integer_keyed({"share": {2: 0.5, 3: 0.5}, "clusters": {"2": 60}, "mod": {"7": {1: 0.1}}})
    [['share'], ['mod', '7']]
    """
    if not isinstance(value, Mapping) or not value:
        return []
    inside = [
        [str(to_jsonable(key)), *path]
        for key, item in value.items()
        for path in integer_keyed(item)
    ]
    whole = all(isinstance(key, int | np.integer) and not isinstance(key, bool) for key in value)
    return [[], *inside] if whole else inside


def with_integer_keys(value: Any, paths: Iterable[Sequence[str]]) -> Any:
    """JSON values with the keys at `paths` (of `integer_keyed`) integers again.

    >>> with_integer_keys({"share": {"2": 0.5}, "clusters": {"2": 60}}, [["share"]])
    {'share': {2: 0.5}, 'clusters': {'2': 60}}
    """
    if not isinstance(value, Mapping):
        return value
    below = {key: [path[1:] for path in paths if path[:1] == [key]] for key in value}
    items = {key: with_integer_keys(item, below[key]) for key, item in value.items()}
    if [] in paths and all(_INTEGER.fullmatch(key) for key in items):
        return {int(key): item for key, item in items.items()}
    return items


_INTEGER = re.compile(r"-?\d{1,18}", re.ASCII)


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
