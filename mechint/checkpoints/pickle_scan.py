"""What a pickle would build, found out without building it.

PyTorch's weights-only loader runs no foreign code, but it allocates what the pickle asks for: 64
bytes may ask for a storage of 20 GB, or name a storage larger than the file that holds it. So the
opcodes are walked here first. The walk keeps plain values and marks; it calls nothing that the file
names (`numpy_numbers` stands in for numpy), and it knows every opcode that PyTorch's loader knows.
Cost: linear in the pickle, which is small beside the tensors.
"""

from __future__ import annotations

import pickletools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from mechint.checkpoints.numpy_numbers import STAND_INS, NumberType
from mechint.errors import CheckpointError

MAX_OPCODES = 3_000_000
"""Opcodes of one pickle; a state dict needs about forty per tensor."""

ITEM_SIZES: Mapping[str, int] = {
    "DoubleStorage": 8,
    "FloatStorage": 4,
    "HalfStorage": 2,
    "BFloat16Storage": 2,
    "LongStorage": 8,
    "IntStorage": 4,
    "ShortStorage": 2,
    "CharStorage": 1,
    "ByteStorage": 1,
    "BoolStorage": 1,
}
"""Storage class → bytes per item, of the number types that are read."""

CALLABLE = frozenset(
    {
        "collections.OrderedDict",
        "collections.Counter",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_parameter",
        "torch.nn.parameter.Parameter",
        "torch.Size",
        "torch.serialization._get_layout",
        "torch.device",
        "builtins.set",
        "__builtin__.set",
    }
)
"""What a pickle may call; none of them allocates more than its arguments hold."""


class Mark:
    """A value that the walk does not compute."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


@dataclass
class Scan:
    """What one pickle holds: storage key → bytes it asks for, and the value, marks within."""

    storages: dict[str, int] = field(default_factory=dict)
    value: Any = None


def scan_pickle(file: BinaryIO, where: str) -> Scan:
    """Walk one pickle from the position of `file`, which stands behind it afterwards.

    Raises:
        CheckpointError: it would run code, asks for what is not a plain tensor on a CPU, or is
            damaged; `where` begins the message.
    """
    walk = _Walk(where)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pickletools muses about escapes in damaged text
            for count, (opcode, argument, _) in enumerate(pickletools.genops(file)):
                if count > MAX_OPCODES:
                    raise CheckpointError(
                        f"{where}: its pickle has more than {MAX_OPCODES:,} opcodes"
                    )
                if walk.step(opcode.name, argument):
                    return walk.scan
    except CheckpointError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        raise CheckpointError(f"{where}: the file is truncated or damaged: {error}") from error
    raise CheckpointError(f"{where}: the file is truncated or damaged: its pickle does not end")


class _Walk:
    """A pickle machine of marks: the stack, the memo, and what each opcode does to them."""

    def __init__(self, where: str) -> None:
        self.where, self.scan = where, Scan()
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, argument: Any) -> bool:
        """Apply one opcode; whether it was the last."""
        if name in _PUSHES:
            self.stack.append(argument)
        elif name == "STOP":
            self.scan.value = self.stack.pop()
            return True
        elif name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name in _PUTS:
            self.memo[len(self.memo) if argument is None else int(argument)] = self.stack[-1]
        elif name in _ACTIONS:
            _ACTIONS[name](self)
        elif name == "GLOBAL":
            self.stack.append(Mark(argument.replace(" ", ".")))
        elif name not in ("PROTO", "FRAME"):
            raise CheckpointError(
                f"{self.where}: refused: it is damaged, or would run pickled code ({name}); "
                "mechint reads PyTorch files of tensors and plain values only"
            )
        return False

    # --- stack ------------------------------------------------------------------------------------
    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.stack = self.marks.pop()

    def drop(self) -> None:
        self.since_mark()

    def take(self, n: int) -> list[Any]:
        items = self.stack[len(self.stack) - n :]
        if len(items) != n:
            raise ValueError("its pickle takes more from the stack than is there")
        del self.stack[len(self.stack) - n :]
        return items

    # --- containers -------------------------------------------------------------------------------
    def extend(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)

    def put(self, items: list[Any]) -> None:
        if isinstance(self.stack[-1], dict):
            for key, value in zip(items[::2], items[1::2], strict=True):
                if isinstance(key, str | int | float | bool | bytes | None):
                    self.stack[-1][key] = value

    def build(self) -> None:
        """The state of an object; that of a number's type alone is looked at."""
        state = self.stack.pop()
        if isinstance(self.stack[-1], NumberType):
            self.stack[-1].__setstate__(state)

    # --- what allocates ---------------------------------------------------------------------------
    def storage(self) -> None:
        """A tensor's storage, named by ("storage", class, key, device, items, …)."""
        named = self.stack.pop()
        if (
            not isinstance(named, tuple)
            or len(named) < 5
            or named[0] not in ("storage", b"storage")
        ):
            raise ValueError("its pickle names a storage in an unknown way")
        _, kind, key, device, items = named[:5]
        size = ITEM_SIZES.get(kind.name.rpartition(".")[2] if isinstance(kind, Mark) else "")
        if size is None or device == "meta":
            got = device if device == "meta" else getattr(kind, "name", kind)
            raise CheckpointError(
                f"{self.where}: holds tensors of {got}; expected dense tensors of floating-point "
                "numbers, integers or bools"
            )
        if not isinstance(items, int) or items < 0:
            raise ValueError(f"its pickle asks for a storage of {items!r} items")
        key = key.decode() if isinstance(key, bytes) else str(key)
        self.scan.storages[key] = max(items * size, self.scan.storages.get(key, 0))
        self.stack.append(Mark("storage"))

    def call(self) -> None:
        """Put what a call of one of `CALLABLE` stands for on the stack; CheckpointError where
        anything else is called.
        """
        arguments = self.stack.pop()
        called = self.stack.pop()
        name = called.name if isinstance(called, Mark) else type(called).__name__
        if name == "_codecs.encode" and arguments[1:] == ("latin1",):  # how bytes are kept
            self.stack.append(arguments[0].encode("latin1"))
            return
        if name in STAND_INS:
            try:
                self.stack.append(STAND_INS[name](*arguments))
            except ValueError as error:
                raise CheckpointError(f"{self.where}: {error}") from error
            return
        if name not in CALLABLE:
            rebuilt = name.startswith("torch._utils._rebuild")
            raise CheckpointError(
                f"{self.where}: holds a {name.rpartition('_rebuild_')[2]}; expected dense tensors"
                if rebuilt
                else f"{self.where}: refused: loading it would run pickled code ({name}); mechint "
                "reads tensors and plain values only, so save the state_dict alone"
            )
        if name in ("collections.OrderedDict", "collections.Counter"):
            pairs = arguments[0] if arguments else []
            self.stack.append(dict(pairs) if isinstance(pairs, dict) else {})
        else:
            self.stack.append(Mark(name))


def _tuple(n: int) -> Callable[[_Walk], None]:
    return lambda walk: walk.push(tuple(walk.take(n)))


_PUSHES = {
    *("INT", "LONG", "LONG1", "LONG4", "BININT", "BININT1", "BININT2", "FLOAT", "BINFLOAT"),
    *("NONE", "NEWTRUE", "NEWFALSE", "STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE"),
    *("BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE"),
    *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
}
_GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_ACTIONS: Mapping[str, Callable[[_Walk], None]] = {
    "MARK": _Walk.mark,
    "POP": _Walk.pop,
    "POP_MARK": lambda walk: walk.drop(),
    "DUP": lambda walk: walk.push(walk.stack[-1]),
    "EMPTY_DICT": lambda walk: walk.push({}),
    "EMPTY_LIST": lambda walk: walk.push([]),
    "EMPTY_TUPLE": lambda walk: walk.push(()),
    "EMPTY_SET": lambda walk: walk.push([]),
    "TUPLE": lambda walk: walk.push(tuple(walk.since_mark())),
    "TUPLE1": _tuple(1),
    "TUPLE2": _tuple(2),
    "TUPLE3": _tuple(3),
    "LIST": lambda walk: walk.push(walk.since_mark()),
    "DICT": lambda walk: walk.push({}) if walk.since_mark() is not None else None,
    "APPEND": lambda walk: walk.extend(walk.take(1)),
    "APPENDS": lambda walk: walk.extend(walk.since_mark()),
    "ADDITEMS": lambda walk: walk.extend(walk.since_mark()),
    "SETITEM": lambda walk: walk.put(walk.take(2)),
    "SETITEMS": lambda walk: walk.put(walk.since_mark()),
    "BUILD": _Walk.build,
    "BINPERSID": _Walk.storage,
    "REDUCE": _Walk.call,
    "NEWOBJ": _Walk.call,
    "STACK_GLOBAL": lambda walk: walk.push(Mark(".".join(map(str, walk.take(2))))),
}
