"""Read a pickle without running any of it, and rescue the weights of a pickled module.

A file of ``torch.save(model)`` names its classes, which may no longer exist (TransformerLens's
HookedTransformer) and must never be imported. Here every class and function becomes an inert
record of its arguments and state. Only tensors, numbers and containers are rebuilt.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mechint.system.files import MAX_DEPTH, MAX_VALUES

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
    """An instance of any class, or the result of a call that was not made: its state alone."""

    __slots__ = ("state",)

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


class StandIn:
    """A function that a file may name and call; nothing of it can be set."""

    __slots__ = ("_call",)

    def __init__(self, call: Callable[..., Any]) -> None:
        object.__setattr__(self, "_call", call)

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} of a stand-in cannot be set")


class InertUnpickler(pickle._Unpickler):  # type: ignore[name-defined]
    """Unpickles tensors, numbers and containers of a PyTorch file whose opcodes were checked; all
    else becomes `Inert`.

    Pure Python (a private class of the standard library), since the unpickler in C allocates
    whatever memo index a file names. A storage is read once, and state is set on inert records and
    types of numbers alone.

    Raises:
        ValueError, KeyError, EOFError, …: whatever a damaged pickle breaks with.
    """

    stack: list[Any]
    append: Callable[[Any], None]  # of the base class, which is private

    def __init__(self, archive: zipfile.ZipFile) -> None:
        name = next(name for name in archive.namelist() if name.endswith("/data.pkl"))
        super().__init__(io.BytesIO(archive.read(name)), encoding="utf-8")
        self.archive, self.folder = archive, name.removesuffix("data.pkl")
        self.storages: dict[str, torch.UntypedStorage] = {}

    def find_class(self, module: str, name: str) -> Any:
        path = f"{module}.{name}"
        if module == "torch" and name in DTYPES:
            return DTYPES[name]
        if module == "torch" and isinstance(dtype := vars(torch).get(name), torch.dtype):
            return dtype
        return KNOWN.get(path) or StandIn(Inert)

    def persistent_load(self, pid: Any) -> tuple[torch.UntypedStorage, torch.dtype]:
        """The storage that ``("storage", type, key, device, items, …)`` names, and its type."""
        _, dtype, key, _, items = pid[:5]
        if not isinstance(dtype, torch.dtype) or not isinstance(key, str):
            raise ValueError("a storage of an unknown type")
        if key not in self.storages:
            data = bytearray(self.archive.read(f"{self.folder}data/{key}"))
            empty = torch.UntypedStorage(0)
            self.storages[key] = (
                torch.frombuffer(data, dtype=torch.uint8).untyped_storage() if data else empty
            )
        storage, size = self.storages[key], int(items) * dtype.itemsize
        if size != storage.nbytes():
            raise ValueError(f"storage {key} should have {size:,} bytes, has {storage.nbytes():,}")
        return storage, dtype

    def load_newobj(self) -> None:
        """An instance of a class, which is an `Inert` here."""
        arguments, kind = self.stack.pop(), self.stack.pop()
        self.append(kind(*arguments))

    def load_newobj_ex(self) -> None:
        """The same, with arguments by name, which are left out."""
        self.stack.pop()
        self.load_newobj()

    def load_build(self) -> None:
        """Give a state to what has one; that of a mapping holds no entries."""
        state, target = self.stack.pop(), self.stack[-1]
        if isinstance(target, Inert | NumberType):
            target.__setstate__(state)
        elif not isinstance(target, OrderedDict):
            raise ValueError(f"a state for a {type(target).__name__}")

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,  # type: ignore[attr-defined]
        pickle.NEWOBJ[0]: load_newobj,
        pickle.NEWOBJ_EX[0]: load_newobj_ex,
        pickle.BUILD[0]: load_build,
    }


def _rebuild_tensor(storage: Any, offset: int, size: Any, stride: Any, *rest: Any) -> Tensor:
    """The tensor; ``set_`` checks that it lies in its storage."""
    bytes_, dtype = storage
    return torch.empty(0, dtype=dtype).set_(bytes_, offset, tuple(size), tuple(stride))


class NumberType:
    """The type of a number of numpy's: a name of `NUMBERS`, and the order of its bytes."""

    __slots__ = ("name", "order")

    def __init__(self, name: str) -> None:
        self.name, self.order = name, "="

    def __setstate__(self, state: Any) -> None:
        """Take the byte order of a plain type; ValueError for a state of any other."""
        plain = isinstance(state, tuple) and len(state) in (8, 9) and state[2:8] == PLAIN_STATE
        if not plain or state[1] not in ("<", ">", "=", "|"):
            raise ValueError("a type of numbers with fields, a shape or objects")
        self.order = state[1]


PLAIN_STATE = (None, None, None, -1, -1, 0)
"""The entries of numpy's own pickles for subtype, names, fields, size, alignment and flags."""


def number(kind: Any, raw: Any) -> int | float | bool | Inert:
    """The number that numpy's scalar of type `kind` and bytes `raw` is; inert for other types.

    >>> number(NumberType("f4"), b"\\x00\\x00\\x80?")
    1.0
    """
    if not isinstance(kind, NumberType):
        return Inert()
    dtype = np.dtype(kind.name).newbyteorder(kind.order)  # type: ignore[arg-type]
    if not isinstance(raw, bytes) or len(raw) != dtype.itemsize:
        raise ValueError("a damaged numpy number")
    return np.frombuffer(raw, dtype)[0].item()


def _number_type(name: Any, *flags: Any) -> NumberType | Inert:
    """A type of numbers; inert for other types."""
    return NumberType(name) if name in NUMBERS else Inert()


def _encode(text: Any, *encoding: Any) -> bytes | Inert:
    """The bytes of a number, as older protocols write them; inert for longer ones."""
    return text.encode("latin1") if len(text) <= MAX_NUMBER else Inert()


MODULE_COST = 100
"""Values of the budget that a module takes beside its entries."""
NUMBERS = ("f2", "f4", "f8", "b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
MAX_NUMBER = 8
"""Bytes of the longest of them."""
NUMPY = {
    "numpy.dtype": StandIn(_number_type),
    "numpy.ndarray": StandIn(Inert),
    **{
        f"numpy.{core}.multiarray.{name}": StandIn(stand_in)
        for core in ("core", "_core")  # before numpy 2, and since
        for name, stand_in in (("scalar", number), ("_reconstruct", Inert))
    },
}
"""Global of numpy → its stand-in: numbers are read as Python's, arrays are left out."""

KNOWN: dict[str, StandIn] = {
    "collections.OrderedDict": StandIn(lambda: OrderedDict[Any, Any]()),
    "builtins.set": StandIn(set),
    "__builtin__.set": StandIn(set),
    "_codecs.encode": StandIn(_encode),
    "torch._utils._rebuild_tensor_v2": StandIn(_rebuild_tensor),
    "torch._utils._rebuild_parameter": StandIn(lambda data, *_: data),
    **NUMPY,
}


def numpy_globals() -> list[Any]:
    """Arguments of `torch.serialization.safe_globals` by which numpy's numbers are read.

    Instances of the last two may be given a state; a file cannot name them.
    """
    records = [(kind, f"mechint {kind.__name__}") for kind in (Inert, NumberType)]
    return [(stand_in, name) for name, stand_in in NUMPY.items()] + records


class Plain:
    """Copies of values of a file without entries that were not rebuilt, `MAX_VALUES` in all.

    A pickled module becomes ``{"model": its state dict, "config": its cfg}``.
    """

    def __init__(self) -> None:
        self.budget = MAX_VALUES

    def copy(self, value: Any, depth: int = MAX_DEPTH) -> Any:
        """`value`, mappings and lists within it copied.

        Raises:
            ValueError: it holds too much, or nests too deep.
        """
        self._spend(1, depth)
        if is_module(value):
            given = value.state.get("cfg", value.state.get("config"))
            fields = given.state if isinstance(given, Inert) else given
            plain = self.copy(fields, depth - 1) if isinstance(fields, Mapping) else {}
            tensors: dict[str, Tensor] = {}
            self._collect(value, "", tensors, depth)
            return {"model": tensors, "config": plain}
        if isinstance(value, Mapping):
            kept = {name: part for name, part in value.items() if _stays(part)}
            return {name: self.copy(part, depth - 1) for name, part in kept.items()}
        if isinstance(value, list | tuple):
            kept = [self.copy(part, depth - 1) for part in value if _stays(part)]
            return tuple(kept) if isinstance(value, tuple) else kept
        return value

    def _collect(self, module: Inert, prefix: str, found: dict[str, Tensor], depth: int) -> None:
        """Put the parameters and buffers of a module and of those in it into `found`."""
        hidden = module.state.get("_non_persistent_buffers_set") or ()
        parts = [dict(module.state.get(kind) or {}) for kind in ("_parameters", "_buffers")]
        inner = dict(module.state["_modules"])
        self._spend(MODULE_COST + len(inner) + sum(map(len, parts)), depth)
        for name, value in (item for part in parts for item in part.items()):
            if isinstance(value, Tensor) and name not in hidden:
                found[f"{prefix}{name}"] = value
        for name, part in inner.items():
            if is_module(part):
                self._collect(part, f"{prefix}{name}.", found, depth - 1)

    def _spend(self, values: int, depth: int) -> None:
        self.budget -= values
        if self.budget < 0 or depth < 0:
            raise ValueError(f"more than {MAX_VALUES:,} values, or {MAX_DEPTH} levels")


def _stays(value: Any) -> bool:
    return not isinstance(value, Inert | StandIn | NumberType) or is_module(value)


def holds_module(value: Any) -> bool:
    """Return whether `value` is a pickled module, or a mapping with one in it."""
    inner = value.values() if isinstance(value, Mapping) else ()
    return is_module(value) or any(is_module(part) for part in inner)


def is_module(value: Any) -> bool:
    """Return whether `value` is a pickled ``torch.nn.Module``."""
    state = value.state if isinstance(value, Inert) else None
    return isinstance(state, Mapping) and "_parameters" in state and "_modules" in state


# --- bounds on what a pickle would build, before any of it is built -------------------------------
# Hashing a tuple hashes its parts anew, so that a key of 200 bytes may take forever; shared lists
# double with every level; large integers and tuples can be made to collide; some types allocate
# whatever number they are called with. Here the opcodes run on a stack of sizes in place of values.
KEYS = ("str", "bytes_or_str", "int", "int_or_bool")
"""Kinds of values that may be keys, as pickletools names them."""
MAX_BITS, LONG_BITS, LONG_COST = 1024, 64, 1000
"""Bits of an integer at most; what has more than 64 is no key and counts as a thousand values."""
TEXT_COST = 16
"""Characters of a text that count as one value."""
MAX_OPCODES = 1_000_000
"""Opcodes that are read, which takes about a second."""
MAX_FETCHED = 2 * MAX_VALUES
"""Values, shared ones counted wherever they stand, in all that a pickle takes from its memo."""
GROWING = ("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD")
"""Opcodes that put values into the one below them."""
CALLING = ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "BUILD", "BINPERSID")
"""Opcodes of instances, which are no level of their own."""
NEEDLESS = {"POP", "POP_MARK", "DUP", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "PERSID"}
NEEDLESS |= {"BYTEARRAY8", "NEXT_BUFFER"}
"""Opcodes that no PyTorch file needs."""
HASHING = re.compile(r"\S+ (set|frozenset|Counter|OrderedDict)")
"""Types that hash what they are called with."""
REFUSED = re.compile(r"\S+ bytearray|torch\S* (\w*Tensor|(Unt|T)ypedStorage|_rebuild_from_type_v2)")
"""Types that take as much memory as a number says, and the function that calls any other."""


@dataclass(slots=True)
class PickleSize:
    """Levels of a value and values in it; the opcode or the global that made it, and whether it may
    be a key and may still grow.
    """

    made_by: str
    levels: int = 0
    values: int = 1
    is_key: bool = False
    grows: bool = True

    def take(self, parts: Sequence[PickleSize], below: int) -> None:
        """Put `parts` into the value, so many levels below; ValueError where it is too large."""
        for part in parts:
            part.grows = False
            self.levels = max(self.levels, part.levels + below)
            self.values += part.values
        if self.levels > MAX_DEPTH:
            raise ValueError(f"its values nest deeper than {MAX_DEPTH} levels")
        if self.values > MAX_VALUES:
            raise ValueError(f"it holds more than {MAX_VALUES:,} values")


def check_opcodes(data: bytes) -> None:
    """Refuse a pickle that builds more than its size says.

    Its values nest too deep, are too many or lie in themselves, a key is neither a text nor an
    integer of 64 bits, or a type allocates.

    Raises:
        ValueError, KeyError, IndexError, …: as above, or whatever a damaged pickle breaks with.
    """
    stack, marks, fetched = list[PickleSize](), list[int](), 0
    memo = dict[int, PickleSize]()
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        name, takes = opcode.name, opcode.stack_before
        if count > MAX_OPCODES or fetched > MAX_FETCHED:
            raise ValueError(f"it holds more than {MAX_OPCODES:,} values, or names them again")
        if name in NEEDLESS or (name == "GLOBAL" and REFUSED.fullmatch(str(argument))):
            raise ValueError(f"it would run pickled code ({argument or name})")
        if name == "MARK":
            marks.append(len(stack))
        elif name.endswith("GET"):
            stack.append(memo[int(argument or 0)])
            stack[-1].grows = False
            fetched += stack[-1].values
        elif name.endswith("PUT") or name == "MEMOIZE":
            memo[len(memo) if argument is None else argument] = stack[-1]
        elif not takes:
            stack += [_new(name, kind.name, argument) for kind in opcode.stack_after]
        else:
            marked = pickletools.markobject in takes
            start = marks.pop() if marked else len(stack)
            start -= len(takes) - 2 * marked
            if start < (marks[-1] if marks else 0):
                raise IndexError("an opcode takes more values than there are")
            parts = stack[start:]
            del stack[start:]
            result = parts.pop(0) if name in GROWING else PickleSize(name)
            _check(name, result, parts)
            result.take(parts, name not in CALLING)
            stack += [result] * len(opcode.stack_after)


def _new(name: str, kind: str, argument: Any) -> PickleSize:
    """The size of a value without parts."""
    size = PickleSize(argument if name == "GLOBAL" else name, is_key=kind in KEYS)
    if isinstance(argument, str | bytes):
        size.values += len(argument) // TEXT_COST
    elif isinstance(argument, int) and (bits := argument.bit_length()) > LONG_BITS:
        if bits > MAX_BITS:
            raise ValueError(f"an integer of {bits:,} bits")
        size.values, size.is_key = LONG_COST, False
    return size


def _check(name: str, made: PickleSize, parts: Sequence[PickleSize]) -> None:
    """Refuse what Python would hash at a cost, and what would hold itself."""
    if name in GROWING and name != "BUILD" and parts and not made.grows:
        raise ValueError("a list or mapping is put into another before it is whole")
    keys = parts[::2] if name in ("SETITEM", "SETITEMS", "DICT") else ()
    if not all(key.is_key for key in (parts if name in ("ADDITEMS", "FROZENSET") else keys)):
        raise ValueError("a key is neither a text nor an integer of at most 64 bits")
    if name in ("REDUCE", "NEWOBJ"):
        made.made_by = parts[0].made_by
        if HASHING.fullmatch(made.made_by) and parts[1].levels > 2:
            raise ValueError("a set holds other values than texts and numbers")
    elif name == "BUILD" and HASHING.fullmatch(made.made_by) and parts[0].made_by != "EMPTY_DICT":
        raise ValueError("a mapping has a state that is none")
