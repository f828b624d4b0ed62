"""Read a pickle without running any of it, and rescue the weights of a pickled module.

A file of ``torch.save(model)`` names its classes, which may no longer exist (TransformerLens's
HookedTransformer) and must never be imported. Here every class and function becomes an inert
record of its arguments and state. Only tensors, numbers and containers are rebuilt.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_DEPTH = 64
"""Modules within modules."""

DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexFloatStorage": torch.complex64,
    "ComplexDoubleStorage": torch.complex128,
    "QInt8Storage": torch.qint8,
    "QUInt8Storage": torch.quint8,
}


class Inert:
    """An instance of a class or the result of a call that was not made."""

    path = ""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self.state: Any = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __call__(self, *arguments: Any, **named: Any) -> Inert:
        """A call that is not made, of what another such call would give (getattr, say)."""
        return Inert()

    def append(self, value: Any) -> None: ...

    def extend(self, values: Any) -> None: ...

    def __setitem__(self, name: Any, value: Any) -> None: ...


class InertUnpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Unpickles tensors, numbers and containers of a PyTorch file; all else becomes `Inert`.

    Pure Python, since the unpickler in C allocates whatever memo index a file names.

    Raises:
        ValueError, KeyError, EOFError, …: whatever a damaged pickle breaks with.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        super().__init__(io.BytesIO(archive.read(name)), encoding="utf-8")
        self.archive, self.folder = archive, name.removesuffix("data.pkl")

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module == "torch" and isinstance(dtype := getattr(torch, name, None), torch.dtype):
            return dtype
        return KNOWN.get(path) or type(name, (Inert,), {"path": path})

    def persistent_load(self, pid: Any) -> tuple[Any, torch.dtype]:
        """The storage that ``("storage", type, key, device, items, …)`` names, and its type."""
        _, dtype, key, _, items = pid[:5]
        if not isinstance(dtype, torch.dtype):
            raise ValueError("a storage of an unknown type")
        size = int(items) * dtype.itemsize
        data = self.archive.read(f"{self.folder}data/{key}")
        if size != len(data):
            raise ValueError(f"storage {key} should have {size:,} bytes, has {len(data):,}")
        return torch.frombuffer(bytearray(data), dtype=torch.uint8).untyped_storage(), dtype


def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Tensor:
    """The tensor; ``set_`` checks that it lies in its storage."""
    bytes_, dtype = storage
    return torch.empty(0, dtype=dtype).set_(bytes_, offset, tuple(size), tuple(stride))


def number(kind: Any, raw: Any) -> int | float | bool | Inert:
    """The number that numpy's scalar of type `kind` and bytes `raw` is; inert for other types.

    >>> number(np.dtype("float32"), b"\\x00\\x00\\x80?")
    1.0
    """
    if not isinstance(kind, np.dtype):
        return Inert()
    if not isinstance(raw, bytes) or len(raw) != kind.itemsize:
        raise ValueError("a damaged numpy number")
    return np.frombuffer(raw, kind)[0].item()


def _number_type(name: Any, *flags: Any) -> Any:
    """A type of numbers, as a copy whose byte order the pickle may set; inert for other types."""
    return np.dtype(name, False, True) if name in NUMBERS else Inert()  # type: ignore[call-overload]


NUMBERS = ("f2", "f4", "f8", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
NUMPY = {
    "numpy.dtype": _number_type,
    "numpy.ndarray": Inert,
    **{
        f"numpy.{core}.multiarray.{name}": stand_in
        for core in ("core", "_core")  # before numpy 2, and since
        for name, stand_in in (("scalar", number), ("_reconstruct", Inert))
    },
}
"""Global of numpy → its stand-in: numbers are read as Python's, arrays are left out."""

KNOWN: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": OrderedDict,
    "builtins.set": set,
    "__builtin__.set": set,
    "_codecs.encode": lambda text, *_: text.encode("latin1"),
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": lambda data, *_: data,
    **NUMPY,
}


def numpy_globals() -> list[Any]:
    """Arguments of `torch.serialization.safe_globals` by which numpy's numbers are read."""
    types = {type(np.dtype(name)) for name in NUMBERS}
    return [(stand_in, name) for name, stand_in in NUMPY.items()] + sorted(types, key=str)


def without_inert(value: Any) -> Any:
    """`value`, mappings and lists within it copied, without entries that were not rebuilt.

    A pickled module becomes ``{"model": its state dict, "config": its cfg}``.
    """
    state = module_state(value)
    if state is not None:
        given = value.state.get("cfg", value.state.get("config"))
        fields = given.state if isinstance(given, Inert) else given
        plain = without_inert(fields) if isinstance(fields, Mapping) else {}
        return {"model": state, "config": plain}
    if isinstance(value, Mapping):
        kept = {name: part for name, part in value.items() if _stays(part)}
        return {name: without_inert(part) for name, part in kept.items()}
    if isinstance(value, list | tuple):
        kept = [without_inert(part) for part in value if _stays(part)]
        return tuple(kept) if isinstance(value, tuple) else kept
    return value


def _stays(value: Any) -> bool:
    return not isinstance(value, Inert) or _is_module(value)


def module_state(module: Any) -> dict[str, Tensor] | None:
    """The state dict of a pickled ``torch.nn.Module``, None for anything else."""
    found: dict[str, Tensor] = {}
    return found if _is_module(module) and _collect(module, "", found, MAX_DEPTH) else None


def holds_module(value: Any) -> bool:
    """Return whether `value` is a pickled module, or a mapping with one in it."""
    inner = value.values() if isinstance(value, Mapping) else ()
    return _is_module(value) or any(_is_module(part) for part in inner)


def _is_module(value: Any) -> bool:
    return (
        isinstance(value, Inert)
        and isinstance(value.state, Mapping)
        and {"_parameters", "_modules"} <= set(value.state)
    )


def _collect(module: Inert, prefix: str, found: dict[str, Tensor], depth: int) -> bool:
    if not depth:
        raise ValueError(f"modules nest deeper than {MAX_DEPTH} levels")
    hidden = module.state.get("_non_persistent_buffers_set") or ()
    for kind in ("_parameters", "_buffers"):
        for name, value in dict(module.state.get(kind) or {}).items():
            if isinstance(value, Tensor) and name not in hidden:
                found[f"{prefix}{name}"] = value
    for name, inner in dict(module.state["_modules"]).items():
        if _is_module(inner):
            _collect(inner, f"{prefix}{name}.", found, depth - 1)
    return True
