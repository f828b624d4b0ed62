"""Bound what a pickle would build, from its opcodes, before any of it is built.

Hashing a tuple hashes its parts anew, so that a key of 200 bytes may take forever; shared lists
double with every level; large integers and tuples can be made to collide; some types allocate
whatever number they are called with. Here the opcodes run on a stack of sizes in place of values.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mechint.system.files import MAX_DEPTH, MAX_VALUES

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
class Size:
    """Levels of a value and values in it; the opcode or the global that made it, and whether it may
    be a key and may still grow.
    """

    made_by: str
    levels: int = 0
    values: int = 1
    is_key: bool = False
    grows: bool = True

    def take(self, parts: Sequence[Size], below: int) -> None:
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
    stack, marks, fetched = list[Size](), list[int](), 0
    memo = dict[int, Size]()
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
            made = parts.pop(0) if name in GROWING else Size(name)
            _check(name, made, parts)
            made.take(parts, name not in CALLING)
            stack += [made] * len(opcode.stack_after)


def _new(name: str, kind: str, argument: Any) -> Size:
    """The size of a value without parts."""
    made = Size(argument if name == "GLOBAL" else name, is_key=kind in KEYS)
    if isinstance(argument, str | bytes):
        made.values += len(argument) // TEXT_COST
    elif isinstance(argument, int) and (bits := argument.bit_length()) > LONG_BITS:
        if bits > MAX_BITS:
            raise ValueError(f"an integer of {bits:,} bits")
        made.values, made.is_key = LONG_COST, False
    return made


def _check(name: str, made: Size, parts: Sequence[Size]) -> None:
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
